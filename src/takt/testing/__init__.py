"""Doubles for tests of Takt and of programs that use it; they are public and themselves tested.

Each one replaces something that time, chance or hardware would make unrepeatable. They are fakes
with rules of their own, not mocks that record calls.

A double loads what it stands in for when it is first asked for: on a robot computer, which has no
more of Takt's packages than the client needs, the clock works and a worker's lanes do not.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from takt.testing.clock import ManualClock
    from takt.testing.gateway import FakeGateway
    from takt.testing.lanes import FakeLanes
    from takt.testing.network import FakeDecoder, FakeNetwork, fake_model
    from takt.testing.proxy import LoopbackProxy

__all__ = [
    "FakeDecoder",
    "FakeGateway",
    "FakeLanes",
    "FakeNetwork",
    "LoopbackProxy",
    "ManualClock",
    "fake_model",
]

_MODULES = {
    "FakeDecoder": "network",
    "FakeGateway": "gateway",
    "FakeLanes": "lanes",
    "FakeNetwork": "network",
    "LoopbackProxy": "proxy",
    "ManualClock": "clock",
    "fake_model": "network",
}


def __getattr__(name: str) -> object:
    """The double of that name, once its module is loaded."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
