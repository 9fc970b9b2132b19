"""What stands in a file is compared with what was announced before anything is decoded."""

import tracemalloc
import zlib
from struct import pack

import cv2
import numpy as np
import pytest
import simplejpeg
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.pictures import chunk, noise, png_of

from takt.errors import ObservationError
from takt.wire.image_files import encode_image
from takt.wire.image_headers import check_jpeg, checked_png
from takt.wire.limits import UnplacedError

HEIGHT, WIDTH = 24, 40
JPEG = encode_image(noise(), "jpeg")
PNG = encode_image(noise(), "png")
FRAME = JPEG.index(b"\xff\xc0")
SCAN = JPEG.index(b"\xff\xda")
ROWS = (b"\x00" + b"\x80" * 3 * WIDTH) * HEIGHT


def opencv_jpeg(*options: int, image: np.ndarray | None = None) -> bytes:
    done, file = cv2.imencode(".jpg", noise() if image is None else image, options)
    assert done
    return file.tobytes()


def with_frame(**fields: int) -> bytes:
    """The JPEG with other values in its frame."""
    places = {"marker": 1, "bits": 4, "height": 6, "colours": 9}
    file = bytearray(JPEG)
    for name, value in fields.items():
        file[FRAME + places[name]] = value
    return bytes(file)


def refusal(data: bytes, height: int = HEIGHT, width: int = WIDTH) -> str:
    """Why a file is refused."""
    check = checked_png if data[:1] == b"\x89" else check_jpeg
    with pytest.raises(UnplacedError) as caught:
        check(memoryview(data), height, width)
    assert caught.value.kind is ObservationError
    return str(caught.value)


@pytest.mark.parametrize("sampling", ["444", "422", "420", "411"])
def test_a_baseline_jpeg_of_the_announced_size_is_accepted(sampling: str) -> None:
    file = simplejpeg.encode_jpeg(noise(), colorsubsampling=sampling)

    check_jpeg(memoryview(file), HEIGHT, WIDTH)


def test_a_jpeg_with_restarts_and_padding_behind_its_end_is_accepted() -> None:
    file = opencv_jpeg(cv2.IMWRITE_JPEG_RST_INTERVAL, 2)
    assert b"\xff\xd0" in file

    check_jpeg(memoryview(file + b"\x00" * 100), HEIGHT, WIDTH)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\xff\xd8", "ends in its header"),
        (b"GIF89a", "begin with 47494638"),
        (JPEG[:100], "ends in its header"),
        (JPEG[:-2], "without its end"),
        (JPEG[: len(JPEG) // 2], "without its end"),
        (JPEG[: SCAN + 2], "ends in its header"),
        (JPEG[:SCAN] + JPEG[SCAN:-2] + JPEG[SCAN:], "marker ffda within its pixels"),
        (JPEG[:2] + b"\x00" * 40, "where a segment begins"),
        (JPEG[:2] + b"\xff\xfe\x00\x01" + JPEG[2:], "ends in its header"),
        (JPEG[:2] + b"\xff\xfe\x00\x02" * 70 + JPEG[2:], "at most 64 segments"),
        (JPEG[:FRAME] + JPEG[FRAME : FRAME + 19] + JPEG[FRAME:], "a second one"),
        (JPEG[:FRAME] + JPEG[FRAME + 19 :], "another kind of JPEG"),
        (with_frame(marker=0xC2), "a baseline JPEG, got a progressive"),
        (with_frame(marker=0xC9), "a baseline JPEG"),
        (with_frame(bits=12), "3 of 12 bits"),
        (with_frame(colours=4), "4 of 8 bits"),
        (with_frame(height=25), "of shape (24, 40, 3) as announced, got one of (25, 40, 3)"),
        (with_frame(height=0), "got one of (0, 40, 3)"),
        (opencv_jpeg(cv2.IMWRITE_JPEG_PROGRESSIVE, 1), "a baseline JPEG"),
        (opencv_jpeg(image=noise()[:, :, 0]), "1 of 8 bits"),
        (simplejpeg.encode_jpeg(np.zeros((HEIGHT, WIDTH, 4), np.uint8), colorspace="CMYK"), "4 of"),
    ],
)
def test_any_other_jpeg_is_refused(data: bytes, words: str) -> None:
    assert words in refusal(data)


@pytest.mark.parametrize("filter_type", range(5))
def test_a_png_with_any_filter_is_accepted_as_it_is(filter_type: int) -> None:
    rows = (bytes((filter_type,)) + b"\x01" * 3 * WIDTH) * HEIGHT
    file = png_of(rows, HEIGHT, WIDTH)

    assert checked_png(memoryview(file), HEIGHT, WIDTH) == file


def test_what_stands_beside_the_pixels_of_a_png_is_left_out() -> None:
    extra = chunk(b"PLTE", bytes(6)) + chunk(b"tEXt", b"Title\x00x") + chunk(b"acTL", bytes(8))

    cleaned = checked_png(memoryview(png_of(ROWS, HEIGHT, WIDTH, extra=extra)), HEIGHT, WIDTH)

    assert cleaned == png_of(ROWS, HEIGHT, WIDTH)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (PNG[:8], "without its end"),
        (PNG[:-12], "without its end"),
        (PNG[: len(PNG) // 2], "without its end"),
        (PNG[:60] + bytes((PNG[60] ^ 1,)) + PNG[61:], "checksums"),
        (PNG[:8] + PNG[33:], "begins b'IDAT'"),
        (png_of(ROWS, HEIGHT, WIDTH, header=b"\x08\x00\x00\x00\x00"), "colour type 0"),
        (png_of(ROWS, HEIGHT, WIDTH, header=b"\x08\x06\x00\x00\x00"), "colour type 6"),
        (png_of(ROWS, HEIGHT, WIDTH, header=b"\x10\x02\x00\x00\x00"), "16 bits"),
        (png_of(ROWS, HEIGHT, WIDTH, header=b"\x08\x02\x00\x00\x01"), "interlace [0, 0, 1]"),
        (png_of(ROWS, HEIGHT, WIDTH, extra=chunk(b"CgBI", b"")), "a chunk b'CgBI'"),
        (png_of(ROWS, HEIGHT, WIDTH, extra=chunk(b"tEXt", b"") * 16_400), "at most 16384 chunks"),
        (png_of(ROWS[:-1], HEIGHT, WIDTH), "inflates to 2904 bytes, got 2903"),
        (png_of(ROWS + b"x", HEIGHT, WIDTH), "inflates to 2904 bytes, got 2905 bytes"),
        (png_of(ROWS + b"x" * 10**6, HEIGHT, WIDTH), "inflates to 2904 bytes, got more"),
        (png_of(b"\x05" + ROWS[1:], HEIGHT, WIDTH), "filter 5"),
        (png_of(ROWS, HEIGHT + 1, WIDTH), "got one of (25, 40, 3)"),
        (png_of(b"", HEIGHT, WIDTH).replace(chunk(b"IDAT", zlib.compress(b"")), b""), "inflates"),
        (PNG[:33] + chunk(b"IDAT", b"no zlib") + chunk(b"IEND", b""), "damaged"),
    ],
)
def test_any_other_png_is_refused(data: bytes, words: str) -> None:
    assert words in refusal(data)


def test_a_png_that_would_inflate_a_thousandfold_is_given_no_memory() -> None:
    squeezer = zlib.compressobj()
    megabyte = bytes(2**20)
    bomb = b"".join(squeezer.compress(megabyte) for _ in range(64)) + squeezer.flush()
    header = chunk(b"IHDR", pack(">II", WIDTH, HEIGHT) + b"\x08\x02\x00\x00\x00")
    file = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", bomb) + chunk(b"IEND", b"")

    tracemalloc.start()
    refusal(file)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 3 * len(file)


BESIDE = 1 << 18
"""Bytes that are looked at in one go."""


@pytest.mark.parametrize("shift", range(-3, 4))
def test_the_end_of_a_jpeg_is_found_wherever_it_lies(shift: int) -> None:
    start = SCAN + 14
    pixels = b"\xff\x00" * ((BESIDE + shift) // 2) + b"\x01" * (shift % 2)

    check_jpeg(memoryview(JPEG[:start] + pixels + b"\xff\xd9"), HEIGHT, WIDTH)
    assert "marker ffda" in refusal(JPEG[:start] + pixels + b"\xff\xda\xff\xd9")


@pytest.mark.parametrize("level", [0, 9])
def test_a_large_png_is_looked_at_in_pieces_and_to_its_last_row(level: int) -> None:
    height, width = 700, 501
    row = 1 + 3 * width
    rows = bytearray(np.random.default_rng(3).integers(0, 5, height * row, np.uint8).tobytes())
    pixels = zlib.compress(bytes(rows), level)
    cuts = [pixels[start : start + 99_991] for start in range(0, len(pixels), 99_991)]

    def file(pixels: list[bytes]) -> bytes:
        start = chunk(b"IHDR", pack(">II", width, height) + b"\x08\x02\x00\x00\x00")
        parts = b"".join(chunk(b"IDAT", part) for part in pixels)
        return b"\x89PNG\r\n\x1a\n" + start + parts + chunk(b"IEND", b"")

    assert checked_png(memoryview(file(cuts)), height, width) == file(cuts)
    assert "more, or less" in refusal(file(cuts[:-1]), height, width)
    rows[-row] = 5
    assert "filter 5" in refusal(file([zlib.compress(bytes(rows), level)]), height, width)
    rows[-row] = 4
    rows[-row + 1] = 255  # a pixel, though not a filter
    checked_png(memoryview(file([zlib.compress(bytes(rows), level)])), height, width)


def test_looking_at_a_png_keeps_none_of_its_pixels() -> None:
    tracemalloc.start()
    rows = (b"\x00" + bytes(3 * 2000)) * 2000
    file = png_of(rows, 2000, 2000)
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    checked_png(memoryview(file), 2000, 2000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak - before < len(rows) / 8


@given(st.sampled_from([JPEG, PNG]), st.data())
def test_a_file_that_is_cut_anywhere_is_refused(file: bytes, data: st.DataObject) -> None:
    refusal(file[: data.draw(st.integers(1, len(file) - 2))])
