"""Looks into a JPEG or PNG file before it is decoded, and refuses what should not be.

The libraries that decode images are written in C, take memory by what a file says of itself, and
take time by how it is built. So a file is walked here first, by plain rules and without taking
memory: it must be of the announced size, 8-bit RGB, whole, and made of one pass. Progressive
JPEGs are refused, as a small one can ask for thousands of passes.

Start reading at :func:`check_jpeg`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from takt.schema.check import RGB
from takt.wire.faults import refused

__all__ = ["check_jpeg", "checked_png"]

_START = b"\xff\xd8"
_MARKER = 0xFF
_FRAMES = range(0xC0, 0xD0)
_SEQUENTIAL = frozenset({0xC0, 0xC1})
_NO_FRAME = frozenset({0xC4, 0xC8, 0xCC})
"""Tables that share the numbers of frames."""
_SCAN = 0xDA
_ALONE = frozenset({0x00, 0x01, *range(0xD0, 0xDA), 0xFF})
"""Markers that no segment begins with."""
_IN_SCAN = re.compile(rb"\xff([^\x00\xd0-\xd7])")
"""The first marker after compressed pixels; restarts and escaped bytes are part of them."""
_END = b"\xd9"
_PIECE = 1 << 18
"""Bytes looked at in one go: a search keeps every other thread of the process from running."""
_MAX_SEGMENTS = 64
_SEGMENT = Struct(">BBH")
_FRAME = Struct(">BHHB")
_BITS = 8

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHUNK = Struct(">I4s")
_CRC = Struct(">I")
_HEADER = Struct(">IIBBBBB")
_TRUECOLOUR = 2
_MAX_CHUNKS = 16_384
_MAX_FILTER = 4
_LOWERCASE = 0x20


def check_jpeg(data: memoryview, height: int, width: int) -> None:
    """Refuse a JPEG file that is not whole, or not what was announced.

    Args:
        data: The file, as bytes.
        height: Announced, in pixels.
        width: Likewise.

    Raises:
        UnplacedError: It is no baseline JPEG of this size with three colours, all in one scan.
    """
    if bytes(data[:2]) != _START:
        raise refused("a JPEG file", f"bytes that begin with {bytes(data[:4]).hex() or 'nothing'}")
    has_frame = False
    for marker, body in _segments(data):
        if marker in _FRAMES and marker not in _NO_FRAME:
            if has_frame:
                raise refused("one image in a JPEG file", "a second one")
            _check_frame(marker, body, height, width)
            has_frame = True
        elif marker == _SCAN and (not has_frame or bytes(body[:1]) != bytes((RGB,))):
            raise refused("a JPEG whose colours are in one scan", "another kind of JPEG")


def _segments(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Markers and the segments behind them, up to the compressed pixels, whose end is checked."""
    place = len(_START)
    for _ in range(_MAX_SEGMENTS):
        if place + _SEGMENT.size > len(data):
            raise refused("a whole JPEG file", "one that ends in its header")
        begin, marker, length = _SEGMENT.unpack_from(data, place)
        if begin != _MARKER or marker in _ALONE:
            raise refused("a JPEG file", f"bytes {begin:02x}{marker:02x} where a segment begins")
        start, place = place + _SEGMENT.size, place + 2 + length
        if not start <= place <= len(data):
            raise refused("a whole JPEG file", "one that ends in its header")
        yield marker, data[start:place]
        if marker == _SCAN:
            _check_scan(data[place:])
            return
    raise refused(f"at most {_MAX_SEGMENTS} segments before the pixels of a JPEG", "more")


def _check_frame(marker: int, body: memoryview, height: int, width: int) -> None:
    if marker not in _SEQUENTIAL:
        raise refused("a baseline JPEG", "a progressive, lossless or arithmetic one")
    if len(body) < _FRAME.size:
        raise refused("a whole JPEG file", "one that ends in its header")
    bits, rows, columns, colours = _FRAME.unpack_from(body)
    _check_size("jpeg", (rows, columns), (height, width))
    if (bits, colours) != (_BITS, RGB):
        received = f"{colours} of {bits} bits"
        raise refused("a JPEG of 3 colours of 8 bits", received)


def _check_scan(pixels: memoryview) -> None:
    starts = range(0, len(pixels), _PIECE)
    # One byte more than a piece: a marker may begin with its last.
    searches = (_IN_SCAN.search(pixels, start, start + _PIECE + 1) for start in starts)
    found = next(filter(None, searches), None)
    if found is None:
        raise refused("a whole JPEG file", "one without its end")
    if found[1] != _END:
        raise refused("a JPEG file of one scan", f"marker ff{found[1].hex()} within its pixels")


def checked_png(data: memoryview, height: int, width: int) -> bytes:
    """Refuse a PNG file that is not whole, or not what was announced.

    Args:
        data: The file, as bytes.
        height: Announced, in pixels.
        width: Likewise.

    Returns:
        A file with the same pixels and nothing beside them; it is known to decode.

    Raises:
        UnplacedError: It is no RGB image of 8 bits and this size, or it inflates to anything but
            so many rows.
    """
    if bytes(data[: len(_SIGNATURE)]) != _SIGNATURE:
        raise refused("a PNG file", f"bytes that begin with {bytes(data[:4]).hex() or 'nothing'}")
    header: bytes | None = None
    pixels: list[_Chunk] = []
    for chunk in _chunks(data):
        if header is None:
            _check_header(chunk, height, width)
            header = bytes(chunk.whole)
        elif chunk.kind == b"IDAT":
            pixels.append(chunk)
        elif not chunk.kind[0] & _LOWERCASE and chunk.kind not in {b"PLTE", b"IEND"}:
            raise refused("a PNG of pixels", f"one with a chunk {chunk.kind!a}")
    _check_rows((chunk.body for chunk in pixels), height, width)
    end = _CHUNK.pack(0, b"IEND") + _CRC.pack(zlib.crc32(b"IEND"))
    return b"".join((_SIGNATURE, header or b"", *(chunk.whole for chunk in pixels), end))


class _Chunk(NamedTuple):
    """A part of a PNG file."""

    kind: bytes
    body: memoryview
    whole: memoryview


def _chunks(data: memoryview) -> Iterator[_Chunk]:
    """Every chunk up to the end of the image, its checksum compared."""
    place = len(_SIGNATURE)
    for _ in range(_MAX_CHUNKS):
        if place + _CHUNK.size > len(data):
            raise refused("a whole PNG file", "one without its end")
        length, kind = _CHUNK.unpack_from(data, place)
        start, stop = place + _CHUNK.size, place + _CHUNK.size + length
        if stop + _CRC.size > len(data):
            raise refused("a whole PNG file", "one without its end")
        if zlib.crc32(data[place + 4 : stop]) != _CRC.unpack_from(data, stop)[0]:
            raise refused("a PNG whose checksums are right", f"a wrong one of {kind!a}")
        chunk = _Chunk(kind, data[start:stop], data[place : stop + _CRC.size])
        yield chunk
        if kind == b"IEND":
            return
        place = stop + _CRC.size
    raise refused(f"at most {_MAX_CHUNKS} chunks in a PNG", "more")


def _check_header(chunk: _Chunk, height: int, width: int) -> None:
    if chunk.kind != b"IHDR" or len(chunk.body) != _HEADER.size:
        raise refused("a PNG that begins with its header", f"one that begins {chunk.kind!a}")
    columns, rows, bits, colour, *ways = _HEADER.unpack(chunk.body)
    _check_size("png", (rows, columns), (height, width))
    if (bits, colour) != (_BITS, _TRUECOLOUR) or any(ways):
        received = f"{bits} bits, colour type {colour}, compression, filter, interlace {ways}"
        raise refused("a PNG of 8-bit RGB without interlacing", received)


def _check_rows(parts: Iterable[memoryview], height: int, width: int) -> None:
    """Refuse pixels that do not inflate to exactly the rows of the image; none of them is kept."""
    row = 1 + RGB * width
    expected, place = height * row, 0
    inflater = zlib.decompressobj()
    try:
        for rest in _pieces(parts):
            rows = b"some"
            while (rest or rows) and place <= expected and not inflater.eof:
                rows = inflater.decompress(rest, min(_PIECE, expected + 1 - place))
                rest = inflater.unconsumed_tail
                # Each row begins with its filter; what is too much is none.
                _check_filters(rows[-place % row : expected - place : row])
                place += len(rows)
    except zlib.error:
        raise refused("a PNG whose pixels inflate", "one that is damaged") from None
    if place != expected or not inflater.eof:
        received = f"{place} bytes" if inflater.eof else "more, or less than all of it"
        raise refused(f"a PNG that inflates to {expected} bytes", received)


def _pieces(parts: Iterable[memoryview]) -> Iterator[bytes | memoryview]:
    for part in parts:
        for start in range(0, len(part), _PIECE):
            yield part[start : start + _PIECE]


def _check_filters(filters: bytes) -> None:
    if filters and max(filters) > _MAX_FILTER:
        raise refused("a PNG with filters 0 to 4", f"filter {max(filters)}")


def _check_size(kind: str, found: tuple[int, int], announced: tuple[int, int]) -> None:
    if found != announced:
        height, width = announced
        received = f"one of ({found[0]}, {found[1]}, 3)"
        raise refused(f"a {kind} of shape ({height}, {width}, 3) as announced", received)
