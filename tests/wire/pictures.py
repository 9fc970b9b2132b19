"""Pictures to encode, and files made by hand."""

import zlib
from struct import pack

import numpy as np
from numpy.typing import NDArray

__all__ = ["chunk", "natural", "noise", "png_of", "psnr", "red"]

Pixels = NDArray[np.uint8]


def red(height: int = 24, width: int = 40) -> Pixels:
    """Nothing but red."""
    return np.broadcast_to(np.array([255, 0, 0], np.uint8), (height, width, 3)).copy()


def noise(height: int = 24, width: int = 40) -> Pixels:
    """Pixels that have nothing to do with each other."""
    return np.random.default_rng(height * width).integers(0, 256, (height, width, 3), np.uint8)


def natural(height: int = 240, width: int = 320) -> Pixels:
    """What a camera might see: detail falls with its fineness as in photographs, through a lens
    that blurs the finest, with an edge and a little noise of the sensor.
    """
    rng = np.random.default_rng(5)
    fineness = np.hypot(*np.meshgrid(np.fft.fftfreq(width), np.fft.fftfreq(height)))
    spectrum = np.fft.fft2(rng.normal(size=(4, height, width))) / np.maximum(fineness, 0.01)
    spectrum *= np.exp(-((fineness / 0.2) ** 2))
    light, *colours = np.fft.ifft2(spectrum).real
    light, colours = light / light.std(), np.stack(colours) / np.std(colours)
    scene = 128 + 40 * light + 12 * colours  # light varies more than colour does
    scene[:, height // 3 : height // 2, width // 4 : width // 2] += 60
    scene += rng.normal(scale=1.0, size=scene.shape)
    return np.clip(np.rint(scene), 0, 255).astype(np.uint8).transpose(1, 2, 0).copy()


def psnr(left: Pixels, right: Pixels) -> float:
    """How near two pictures are, in decibels."""
    error = np.mean((left.astype(float) - right.astype(float)) ** 2)
    return float("inf") if error == 0 else float(10 * np.log10(255**2 / error))


def chunk(kind: bytes, body: bytes) -> bytes:
    """A part of a PNG file."""
    return pack(">I", len(body)) + kind + body + pack(">I", zlib.crc32(kind + body))


def png_of(
    rows: bytes,
    height: int,
    width: int,
    *,
    header: bytes = b"\x08\x02\x00\x00\x00",
    extra: bytes = b"",
) -> bytes:
    """A PNG file with these rows, each of a filter byte and pixels, and ``extra`` before them."""
    start = chunk(b"IHDR", pack(">II", width, height) + header)
    pixels = chunk(b"IDAT", zlib.compress(rows))
    return b"\x89PNG\r\n\x1a\n" + start + extra + pixels + chunk(b"IEND", b"")
