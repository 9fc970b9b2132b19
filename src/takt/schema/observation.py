"""What one robot saw at one instant, in Takt's words.

Doors translate a client's keys into an :class:`Observation` and nothing more: whether it fits a
policy is asked by :func:`takt.schema.check.check_observation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from takt.schema.encoded_image import EncodedImage

__all__ = ["PROMPT_KEY", "STATE_KEY", "Array", "Observation", "image_key"]

Array: TypeAlias = NDArray[Any]

STATE_KEY = "state"
"""Takt's own name of the state vector in :attr:`Observation.spelled`."""

PROMPT_KEY = "prompt"
"""Takt's own name of the instruction in :attr:`Observation.spelled`."""


def image_key(camera: str) -> str:
    """Takt's own name of a camera's image in :attr:`Observation.spelled`."""
    return f"images.{camera}"


def _nothing() -> Mapping[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Observation:
    """One robot's camera images, state and instruction.

    The arrays may be views of a network buffer: read them, do not keep them. Whoever builds an
    observation hands the mappings over and does not change them afterwards.
    """

    state: Array | None = None
    """The robot's state in its own units, shape ``(state_dim,)``, or ``(history, state_dim)`` for
    a policy that reads several instants, oldest first."""
    images: Mapping[str, Array] = field(default_factory=_nothing)
    """Image of each camera by its name: ``(height, width, 3)`` RGB, ``uint8`` or float in [0, 1],
    with a leading history axis for a policy that reads several instants."""
    encoded: Mapping[str, EncodedImage] = field(default_factory=_nothing)
    """Images that came as files, by camera; none of them is in :attr:`images`. The gateway decodes
    them, so a policy finds none here."""
    prompt: str | None = None
    """The instruction, when the client sent one."""
    extra: Mapping[str, Any] = field(default_factory=_nothing)
    """Everything else the client sent, under its own keys."""
    spelled: Mapping[str, str] = field(default_factory=_nothing)
    """How the client spells ``state``, ``prompt`` and ``images.<camera>``; errors use it."""

    def spelling(self, key: str) -> str:
        """The client's own word for ``key``, for an error it can act on."""
        return self.spelled.get(key, key)

    def owned(self) -> Observation:
        """The same observation with arrays of its own, for whoever has to keep it."""
        return replace(
            self,
            state=None if self.state is None else np.array(self.state),
            images={camera: np.array(image) for camera, image in self.images.items()},
            encoded={camera: image.owned() for camera, image in self.encoded.items()},
            extra={key: _owned(value) for key, value in self.extra.items()},
        )

    @property
    def num_bytes(self) -> int:
        """Memory that state and images take, encoded ones as they are."""
        arrays = list(self.images.values())
        if self.state is not None:
            arrays.append(self.state)
        files = sum(len(image.data) for image in self.encoded.values())
        return files + sum(int(np.asarray(array).nbytes) for array in arrays)


# Recursion is safe here: whoever decoded the values has bounded their depth.
def _owned(value: object) -> object:
    if isinstance(value, np.ndarray):
        return np.array(cast("Array", value))
    if isinstance(value, EncodedImage):
        return value.owned()
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, object]", value).items()
        return {key: _owned(inner) for key, inner in entries}
    if isinstance(value, list):
        return [_owned(inner) for inner in cast("list[object]", value)]
    return value
