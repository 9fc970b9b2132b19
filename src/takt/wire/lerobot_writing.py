"""Records to pickle bytes, in protocol 4 and instruction by instruction as Python writes them.

The peers of this protocol unpickle: LeRobot's clients with Python, others with strict readers of
their own. So what is written here is exactly what ``pickle.dumps`` would have written for the real
objects, without having the real classes at hand. Values that occur twice are remembered by
identity, as Python does; that is what makes the actions of a chunk share one torch storage.

Start reading at :func:`write_pickle`.
"""

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any, NamedTuple

from takt.errors import UsageError
from takt.wire.lerobot_pickle import Global, Record

__all__ = ["Instructions", "float_bytes", "integer_bytes", "write_pickle"]


class Instructions(NamedTuple):
    """Instructions as they stand, for values that a template writes faster.

    They may remember values only when nothing but the end of the pickle follows.
    """

    content: bytes


def write_pickle(value: object) -> bytes:
    """The pickle of a value.

    Args:
        value: None, bool, int, float, str, bytes, and tuples, lists and dicts of them, of
            :class:`Record`, :class:`Global` and :class:`Instructions`. It must not contain itself.

    Raises:
        UsageError: A value of another type, or an integer beyond 64 bits.
    """
    writer = _Writer()
    writer.write(value)
    return writer.finished()


def integer_bytes(value: int) -> bytes:
    """The instruction that makes an integer.

    Raises:
        UsageError: It has more than 64 bits.
    """
    if 0 <= value < _BYTE_END:
        return bytes((ord("K"), value))
    if 0 <= value < _SHORT_END:
        return _SHORT.pack(b"M", value)
    if -_INT_END <= value < _INT_END:
        return _INT.pack(b"J", value)
    bits = (value if value >= 0 else ~value).bit_length()  # besides the sign
    if bits > _MAX_INTEGER_BITS:
        raise UsageError(f"cannot send an integer of {bits + 1} bits to LeRobot")
    encoded = value.to_bytes(bits // 8 + 1, "little", signed=True)
    return bytes((0x8A, len(encoded))) + encoded


def float_bytes(value: float) -> bytes:
    """The instruction that makes a floating-point number."""
    return _FLOAT.pack(b"G", value)


_FRAME = Struct("<BQ")
_FLOAT = Struct(">cd")
_INT = Struct("<ci")
_SHORT = Struct("<cH")
_LONG_SIZE = Struct("<cI")
_FRAME_BYTES = 64 * 2**10
"""Python closes a frame that has grown to this, and writes byte strings of this size outside."""
_LEAST_FRAME_BYTES = 4
_BATCH = 1000
"""Items of a list or dict that Python writes in one go."""
_BYTE_END, _SHORT_END, _INT_END = 2**8, 2**16, 2**31
_MAX_INTEGER_BITS = 63


class _Writer:
    """One pickle in the making."""

    def __init__(self) -> None:
        self._parts: list[bytes] = [b"\x80\x04"]
        self._frame = bytearray()
        self._places: dict[int, int] = {}
        """Memo places by identity of what lies there."""
        self._names: dict[Global, int] = {}
        self._kept: list[object] = []
        """Keeps what was remembered alive: its identity must not be used again."""

    def finished(self) -> bytes:
        self._frame += b"."
        self._close_frame()
        return b"".join(self._parts)

    def write(self, value: object) -> None:
        if len(self._frame) >= _FRAME_BYTES:
            self._close_frame()
        # Python's own rule: equal texts that are two objects are written twice.
        place = self._places.get(id(value))
        if place is not None:
            self._get(place)
        elif value is None or isinstance(value, bool):
            self._frame += b"N" if value is None else b"\x88" if value else b"\x89"
        elif isinstance(value, int):
            self._frame += integer_bytes(value)
        elif isinstance(value, float):
            self._frame += float_bytes(value)
        else:
            self._write_object(value)

    def _write_object(self, value: object) -> None:
        write = _WRITERS.get(type(value))
        if write is None:
            raise UsageError(f"cannot send a {type(value).__name__} to LeRobot")
        write(self, value)

    def write_instructions(self, value: Instructions) -> None:
        self._frame += value.content

    def write_text(self, value: str) -> None:
        utf8 = value.encode()
        if len(utf8) < _BYTE_END:
            self._frame += bytes((0x8C, len(utf8))) + utf8
        else:
            self._write_long(_LONG_SIZE.pack(b"X", len(utf8)), utf8)
        self._remember(value)

    def write_bytes(self, value: bytes) -> None:
        if len(value) < _BYTE_END:
            self._frame += bytes((ord("C"), len(value))) + value
        else:
            self._write_long(_LONG_SIZE.pack(b"B", len(value)), value)
        self._remember(value)

    def _write_long(self, head: bytes, content: bytes) -> None:
        if len(content) < _FRAME_BYTES:
            self._frame += head + content
            return
        self._close_frame()
        self._parts += (head, content)

    def write_tuple(self, value: tuple[object, ...]) -> None:
        if not value:
            self._frame += b")"
            return
        is_short = len(value) < 4  # noqa: PLR2004 - there are instructions for up to three
        if not is_short:
            self._frame += b"("
        for inner in value:
            self.write(inner)
        self._frame += bytes((0x84 + len(value),)) if is_short else b"t"
        self._remember(value)

    def write_list(self, value: list[object]) -> None:
        self._frame += b"]"
        self._remember(value)
        for start in range(0, len(value), _BATCH):
            batch = value[start : start + _BATCH]
            self._frame += b"(" if len(batch) > 1 else b""
            for inner in batch:
                self.write(inner)
            self._frame += b"e" if len(batch) > 1 else b"a"

    def write_dict(self, value: dict[object, object]) -> None:
        self._frame += b"}"
        self._remember(value)
        items = list(value.items())
        for start in range(0, len(items), _BATCH):
            batch = items[start : start + _BATCH]
            self._frame += b"(" if len(batch) > 1 else b""
            for key, inner in batch:
                self.write(key)
                self.write(inner)
            self._frame += b"u" if len(batch) > 1 else b"s"

    def write_name(self, named: Global) -> None:
        place = self._names.get(named)
        if place is not None:
            self._get(place)
            return
        self.write(named.module)
        self.write(named.name)
        self._frame += b"\x93"
        self._names[named] = len(self._kept)
        self._remember(named)

    def write_record(self, record: Record) -> None:
        self.write(record.function)
        self.write(record.arguments)
        self._frame += b"\x81" if record.is_new else b"R"
        self._remember(record)
        if record.state is not None:
            self.write(record.state)
            self._frame += b"b"

    def _get(self, place: int) -> None:
        if place < _BYTE_END:
            self._frame += bytes((ord("h"), place))
        else:
            self._frame += _LONG_SIZE.pack(b"j", place)

    def _remember(self, value: object) -> None:
        self._frame += b"\x94"
        self._places[id(value)] = len(self._kept)
        self._kept.append(value)

    def _close_frame(self) -> None:
        if len(self._frame) >= _LEAST_FRAME_BYTES:
            self._parts.append(_FRAME.pack(0x95, len(self._frame)))
        self._parts.append(bytes(self._frame))
        self._frame.clear()


_WRITERS: Mapping[type, Callable[[_Writer, Any], None]] = {
    Global: _Writer.write_name,
    Record: _Writer.write_record,
    Instructions: _Writer.write_instructions,
    str: _Writer.write_text,
    bytes: _Writer.write_bytes,
    tuple: _Writer.write_tuple,
    list: _Writer.write_list,
    dict: _Writer.write_dict,
}
