"""MessagePack bytes to plain values, without recursion and without trust.

The decoder walks the bytes once. It keeps its own stack of open containers, so nesting costs
list entries and never interpreter frames; it compares every declared length with the bytes that
are really there and with the limits before it takes memory; and it hands byte strings on as views
of the message, so that an image is never copied. Extension types, keys that are not text and
keys that occur twice are refused. What a map means (an array, say) is the business of the
``close_map`` function it is given.

Why this is not a library call: ``docs/decisions/0010-msgpack-library.md``.

Start reading at :func:`decode_values`.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any, NamedTuple, TypeAlias, cast

from takt.errors import LimitError, RefusedError, WireError
from takt.wire.faults import MAX_SHOWN
from takt.wire.limits import Account, UnplacedError

__all__ = ["CloseMap", "View", "decode_values", "text_of"]

View: TypeAlias = "memoryview[int]"
"""A read-only part of the message."""

CloseMap: TypeAlias = Callable[[dict[str, object], bool], object]
"""Turns a finished map into what it means.

Called with the values by key, byte strings still being views (``memoryview``), and whether any
key was spelled as a byte string. Returns the map itself when it means nothing special. May raise
:class:`UnplacedError`.
"""


def decode_values(data: bytes | memoryview, account: Account, close_map: CloseMap) -> object:
    """Decode one MessagePack message.

    Args:
        data: The whole message. Arrays in the result are views of it, so it must not change.
        account: What the message may ask for.
        close_map: Gives a meaning to maps.

    Returns:
        ``None``, bool, int, float, str, bytes, list, dict with str keys, or what ``close_map``
        makes of a map.

    Raises:
        WireError: The bytes are not one MessagePack message of the kinds above.
        LimitError: The message asks for more than ``account`` allows.
        RefusedError: ``close_map`` refuses a map.
    """
    return _Decoder(memoryview(data).cast("B").toreadonly(), account, close_map).run()


def text_of(value: object) -> str | None:
    """Text, however the client's MessagePack spells text; None when it is something else.

    Args:
        value: Of a map that is being closed. A byte string is read as far as errors repeat it: no
            name that means something is longer.
    """
    if isinstance(value, memoryview):
        return bytes(cast("View", value[: MAX_SHOWN + 1])).decode("latin-1")
    return value if isinstance(value, str) else None


_SCALAR, _STRING, _BYTES, _LIST, _MAP, _REFUSED = range(6)


class _Format(NamedTuple):
    """What the first byte of a value says."""

    kind: int
    value: object
    """The scalar, or the length, when the first byte holds it."""
    tail: Struct | None
    """The scalar, or the length, that follows otherwise."""
    size: int
    """Bytes up to there."""


def _formats() -> tuple[_Format, ...]:
    """The table of the MessagePack specification, indexed by first byte."""
    table = [_Format(_REFUSED, None, None, 1)] * 256
    for low in range(0x80):
        table[low] = _Format(_SCALAR, low, None, 1)
    for low in range(0x10):
        table[0x80 + low] = _Format(_MAP, low, None, 1)
        table[0x90 + low] = _Format(_LIST, low, None, 1)
    for low in range(0x20):
        table[0xA0 + low] = _Format(_STRING, low, None, 1)
        table[0xE0 + low] = _Format(_SCALAR, low - 0x20, None, 1)
    table[0xC0] = _Format(_SCALAR, None, None, 1)
    table[0xC2] = _Format(_SCALAR, False, None, 1)
    table[0xC3] = _Format(_SCALAR, True, None, 1)
    tails = (
        (0xC4, _BYTES, "BHI"),
        (0xCA, _SCALAR, "fdBHIQbhiq"),
        (0xD9, _STRING, "BHI"),
        (0xDC, _LIST, "HI"),
        (0xDE, _MAP, "HI"),
    )
    for first, kind, codes in tails:
        for offset, code in enumerate(codes):
            tail = Struct(">" + code)
            table[first + offset] = _Format(kind, None, tail, 1 + tail.size)
    return tuple(table)


_FORMATS = _formats()
_TEXT_KINDS = frozenset({_STRING, _BYTES})
_OPENED = object()
"""Stands for a container whose elements are still to come."""
_MAX_SHOWN = 80
"""Characters of a key that an error repeats."""


class _OpenList:
    """A list some of whose elements are still to come."""

    __slots__ = ("left", "values")

    def __init__(self, count: int) -> None:
        self.values: list[object] = []
        self.left = count

    def add(self, value: object) -> None:
        self.values.append(value)
        self.left -= 1

    @property
    def place(self) -> str:
        return f"[{len(self.values)}]"


class _OpenMap:
    """A map some of whose entries are still to come, and the key whose value comes next."""

    __slots__ = ("has_bytes_keys", "key", "left", "values")

    def __init__(self, count: int) -> None:
        self.values: dict[str, object] = {}
        self.left = count
        self.key: str = ""
        self.has_bytes_keys = False

    def add(self, value: object) -> None:
        self.values[self.key] = value
        self.left -= 1

    @property
    def place(self) -> str:
        key = self.key if self.key.isprintable() else ascii(self.key)
        return key if len(key) <= _MAX_SHOWN else key[:_MAX_SHOWN] + "..."


class _Decoder:
    """One walk over one message."""

    def __init__(self, view: View, account: Account, close_map: CloseMap) -> None:
        self._view = view
        self._end = len(view)
        self._position = 0
        self._account = account
        self._limits = account.limits
        self._close_map = close_map
        self._open: list[_OpenList | _OpenMap] = []

    def run(self) -> object:
        try:
            if self._end > self._limits.max_message_bytes:
                raise _too_much(self._end, self._limits.max_message_bytes, "bytes in the message")
            value = self._walk()
            if self._position != self._end:
                raise _wrong("the end of the message", f"{self._end - self._position} more bytes")
        except UnplacedError as error:
            raise self._placed(error) from None
        return value

    def _walk(self) -> object:
        """Read values until the first one is complete."""
        open_ = self._open
        while True:
            value = self._read_value()
            while value is not _OPENED:
                if not open_:
                    return self._kept(value)
                container = open_[-1]
                if isinstance(container, _OpenMap):
                    container.add(value)
                    if container.left:
                        self._read_key(container)
                        break
                else:
                    container.add(self._kept(value))
                    if container.left:
                        break
                value = self._close()

    def _read_value(self) -> object:
        """Read one value. Of a container only the header: ``_OPENED`` unless it is empty."""
        kind, value = self._read_head()
        if kind == _SCALAR:
            return value
        if kind == _STRING:
            return self._read_text(value, self._limits.max_string_bytes)
        if kind == _BYTES:
            return self._take(value)
        if kind == _REFUSED:
            raise _wrong(
                "nil, bool, number, string, bytes, list or map", "an extension type or 0xc1"
            )
        return self._open_container(kind, value)

    def _read_head(self) -> tuple[int, Any]:
        """Read the kind of a value and the scalar or length that belongs to it."""
        position = self._position
        if position == self._end:
            raise _wrong("a value", "the end of the message")
        kind, value, tail, size = _FORMATS[self._view[position]]
        self._position = position + size
        if tail is not None:
            if self._position > self._end:
                raise _wrong("the rest of a number", "the end of the message")
            (value,) = tail.unpack_from(self._view, position + 1)
        return kind, value

    def _take(self, count: int) -> View:
        """The next ``count`` bytes, as a view."""
        start = self._position
        stop = start + count
        if stop > self._end:
            raise _wrong(f"{count} more bytes", f"{self._end - start}")
        self._position = stop
        return self._view[start:stop]

    def _read_text(self, count: int, allowed: int) -> str:
        """The next ``count`` bytes as UTF-8."""
        if count > allowed:
            raise _too_much(count, allowed, "bytes in a string")
        self._account.charge_bytes(count)
        try:
            return str(self._take(count), "utf-8")
        except UnicodeDecodeError as error:
            raise _wrong(
                "a string in UTF-8", f"the byte {error.object[error.start]:#04x}"
            ) from None

    def _read_key(self, container: _OpenMap) -> None:
        """Read the key whose value comes next."""
        kind, length = self._read_head()
        if kind not in _TEXT_KINDS:
            raise _wrong("a key that is a string", "a key of another type")
        container.key = self._read_text(length, self._limits.max_key_bytes)
        container.has_bytes_keys |= kind == _BYTES
        if container.key in container.values:
            raise _wrong("every key once", "this key a second time")

    def _open_container(self, kind: int, count: int) -> object:
        """Open a list or a map, after a look at what it declares."""
        is_map = kind == _MAP
        least_bytes = 2 * count if is_map else count
        if len(self._open) >= self._limits.max_depth:
            raise _too_much(len(self._open) + 1, self._limits.max_depth, "levels of nesting")
        if least_bytes > self._end - self._position:
            declared = f"{count} {'entries' if is_map else 'elements'}"
            raise _wrong(declared, f"{self._end - self._position} more bytes")
        self._account.charge_values(least_bytes)
        if is_map and count > self._limits.max_map_keys:
            raise _too_much(count, self._limits.max_map_keys, "keys in a map")
        container = _OpenMap(count) if is_map else _OpenList(count)
        self._open.append(container)
        if not count:
            return self._close()
        if isinstance(container, _OpenMap):
            self._read_key(container)
            return _OPENED
        self._read_scalars(container)
        return _OPENED if container.left else self._close()

    def _read_scalars(self, container: _OpenList) -> None:
        """Read the scalars that a list begins with: a fast lane for shapes and lists of numbers."""
        append = container.values.append
        while container.left and self._position < self._end:
            if _FORMATS[self._view[self._position]].kind != _SCALAR:
                return
            append(self._read_head()[1])
            container.left -= 1

    def _close(self) -> object:
        """Close the innermost container and give it its meaning."""
        container = self._open.pop()
        if isinstance(container, _OpenList):
            return container.values
        values = container.values
        meaning = self._close_map(values, container.has_bytes_keys)
        if meaning is values:
            for key, value in values.items():
                values[key] = self._kept(value)
        return meaning

    def _kept(self, value: object) -> object:
        """``value`` as the caller keeps it: byte strings that no array took become ``bytes``."""
        if not isinstance(value, memoryview):
            return value
        view = cast("View", value)
        self._account.charge_bytes(len(view))
        return view.tobytes()

    def _placed(self, error: UnplacedError) -> RefusedError:
        """``error`` at the place where the walk stands."""
        path = ""
        for container in self._open:
            dot = "." if path and isinstance(container, _OpenMap) else ""
            path += dot + container.place
        return error.at(path or "message")


def _too_much(asked: int, allowed: int, what: str) -> UnplacedError:
    return UnplacedError(LimitError, expected=f"at most {allowed} {what}", received=f"{asked}")


def _wrong(expected: str, received: str) -> UnplacedError:
    return UnplacedError(WireError, expected=expected, received=received)
