"""Requests of a client that repeats itself, read without decoding them again.

A robot sends the same keys, shapes and words with every observation; only the bytes inside its
arrays change. What a message means is decided by all its other bytes, so a message that has the
length of an earlier one and equals it byte for byte outside the arrays means the same with new
numbers. It costs a few comparisons instead of a walk over the message, most of what a gateway
computes for a request.

Only what was decoded, checked and understood is remembered, one message per connection and a few
kilobytes of it. Whatever differs is decoded as if nothing were remembered. Arrays of text and bool
are never remembered, because not every bit pattern is one of their values.

Start reading at :meth:`RepeatReader.read`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from takt.schema.observation import Observation
from takt.schema.spec import ObservationSpec
from takt.wire.msgpack_arrays import Dialect
from takt.wire.openpi import DecodedMessage
from takt.wire.openpi_options import RequestOptions

__all__ = ["ReadRequest", "RepeatReader"]

_MAX_KEPT_BYTES = 16 * 1024
"""Bytes outside arrays that are kept and compared."""
_MAX_MISSES = 8
"""Messages in a row that did not repeat. A client that counts them, say, never will."""
_PLAIN = (str, bytes, int, float, type(None))


class ReadRequest(NamedTuple):
    """What a message means."""

    dialect: Dialect
    options: RequestOptions
    observation: Observation
    """Its arrays are views of the message."""


class _Place(NamedTuple):
    """Where an array lies in the message."""

    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def array_in(self, data: memoryview) -> NDArray[Any]:
        array: NDArray[Any] = np.ndarray(self.shape, self.dtype, data, self.offset)
        if not array.flags.aligned:  # as takt.wire.msgpack_arrays does, for the same reason
            array = array.copy()
            array.flags.writeable = False
        return array


class _Form(NamedTuple):
    """A message without the contents of its arrays."""

    length: int
    pieces: tuple[tuple[int, int, bytes], ...]
    """Everything outside arrays: start, stop, bytes."""
    request: ReadRequest
    """Its observation has no arrays."""
    state: _Place | None
    images: Mapping[str, _Place]
    spec: ObservationSpec
    """What it was read by."""


class RepeatReader:
    """Remembers the last message of one connection that may be repeated."""

    def __init__(self) -> None:
        self._form: _Form | None = None
        self._misses = 0

    def read(self, data: memoryview, spec: ObservationSpec) -> ReadRequest | None:
        """What a message means, if it repeats the one that is remembered; else None.

        Args:
            data: The message.
            spec: What the model looks at. Another model may be loaded under the same name, and a
                message was understood by the spec of its time.
        """
        form = self._form
        if form is None or form.spec is not spec:
            return None
        if len(data) != form.length or not _agrees(data, form):
            self._misses += 1
            return None
        self._misses = 0
        known = form.request.observation
        observation = Observation(
            state=None if form.state is None else form.state.array_in(data),
            images={camera: place.array_in(data) for camera, place in form.images.items()},
            prompt=known.prompt,
            extra=known.extra,
            spelled=known.spelled,
        )
        return form.request._replace(observation=observation)

    def remember(
        self,
        data: memoryview,
        message: DecodedMessage,
        options: RequestOptions,
        observation: Observation,
        spec: ObservationSpec,
    ) -> None:
        """A message was understood; it is remembered if a repetition can be.

        Args:
            data: The message.
            message: It, decoded.
            options: What it asks for.
            observation: What it shows.
            spec: What it was read by.
        """
        if self._misses >= _MAX_MISSES:
            self._form = None
            return
        places = _places(data, message)
        arrays = [*observation.images.values()]
        if observation.state is not None:
            arrays.append(observation.state)
        # A file is no array: it would count as a part that must stay the same.
        is_whole = not observation.encoded and len(arrays) == len(places)
        is_whole = is_whole and all(id(array) in places for array in arrays)
        is_plain = all(isinstance(value, _PLAIN) for value in observation.extra.values())
        pieces = _pieces(data, places.values())
        if not is_whole or not is_plain or pieces is None:
            self._misses += 1
            return
        state = observation.state
        bare = Observation(
            prompt=observation.prompt, extra=observation.extra, spelled=observation.spelled
        )
        self._form = _Form(
            length=len(data),
            pieces=pieces,
            request=ReadRequest(message.dialect, options, bare),
            state=None if state is None else places[id(state)],
            images={camera: places[id(image)] for camera, image in observation.images.items()},
            spec=spec,
        )


def _agrees(data: memoryview, form: _Form) -> bool:
    for start, stop, piece in form.pieces:  # noqa: SIM110 - a generator costs more than the work
        if bytes(data[start:stop]) != piece:
            return False
    return True


def _places(data: memoryview, message: DecodedMessage) -> dict[int, _Place]:
    """Where each array of numbers lies, by its identity; in the order of the message."""
    places: dict[int, _Place] = {}
    begin = _address(data)
    for array, source in message.sources:
        if array.dtype.kind in "iuf" and array.size:
            places[id(array)] = _Place(_address(source) - begin, array.shape, array.dtype)
    return places


def _address(data: memoryview) -> int:
    return np.frombuffer(data, np.uint8).__array_interface__["data"][0]


def _pieces(
    data: memoryview, places: Iterable[_Place]
) -> tuple[tuple[int, int, bytes], ...] | None:
    """What lies between the arrays; None if it is too much to keep."""
    pieces: list[tuple[int, int, bytes]] = []
    start = kept = 0
    for place in places:
        pieces.append((start, place.offset, bytes(data[start : place.offset])))
        kept += place.offset - start
        start = place.offset + math.prod(place.shape) * place.dtype.itemsize
    pieces.append((start, len(data), bytes(data[start:])))
    return tuple(pieces) if kept + len(data) - start <= _MAX_KEPT_BYTES else None
