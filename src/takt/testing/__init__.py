"""Doubles for tests of Takt and of programs that use it; they are public and themselves tested.

Each one replaces something that time, chance or hardware would make unrepeatable. They are fakes
with rules of their own, not mocks that record calls.
"""

from takt.testing.clock import ManualClock
from takt.testing.gateway import FakeGateway
from takt.testing.lanes import FakeLanes
from takt.testing.network import FakeDecoder, FakeNetwork, fake_model

__all__ = [
    "FakeDecoder",
    "FakeGateway",
    "FakeLanes",
    "FakeNetwork",
    "ManualClock",
    "fake_model",
]
