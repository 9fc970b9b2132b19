"""What does it cost a robot and a server to send images in fewer bytes?

Why it matters: on a fast network the time of encoding is more than that of the bytes it spares; on
Wi-Fi it is the other way round. Budget: one JPEG in the size of a policy takes both sides together
less than a millisecond.

    python -m benchmarks.wire.bench_image_codecs --out benchmarks/results/image_codecs.json

One picture with the spectrum of photographs goes the whole way for each form: the client prepares
it, the server reads the message, decodes it on this thread, and writes it in the policy's size,
224 x 224. The forms take turns within each round. ``psnr_db`` compares what the policy sees with
what it sees of the picture itself; null is no difference.
"""

import argparse
import json
import math
import statistics
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from benchmarks._record import circumstances, write
from tests.wire.pictures import natural, psnr

from takt.client.image_sending import NegotiatedImages
from takt.client.image_settings import ImageSettings
from takt.doors.openpi_images import image_offer
from takt.doors.openpi_keys import read_observation
from takt.gateway.decoding import with_decoded_images
from takt.schema.resizing import resized, write_image
from takt.schema.spec import CameraSpec, ObservationSpec
from takt.wire.limits import Limits
from takt.wire.openpi import decode_observation, encode_observation

KEY = "observation/image"
CAMERA = CameraSpec(name="image", height=224, width=224, resize="pad_center")
SPEC = ObservationSpec(cameras=(CAMERA,))
SIZES = {"224x224": (224, 224), "480x640": (480, 640), "720x1280": (720, 1280)}
FORMS = {
    "as_given": ImageSettings(),
    "resized": ImageSettings(send="resized"),
    "png": ImageSettings(send="png"),
    "jpeg_85": ImageSettings(send="jpeg", jpeg_quality=85),
    "jpeg_95": ImageSettings(send="jpeg", jpeg_quality=95),
}
LIMITS = Limits()


class Way(NamedTuple):
    """One picture sent once."""

    robot_ns: int
    server_ns: int
    num_bytes: int
    seen: np.ndarray


def send(images: NegotiatedImages, picture: np.ndarray) -> Way:
    seen = np.empty((CAMERA.height, CAMERA.width, 3), np.uint8)
    began = time.perf_counter_ns()
    message = encode_observation(images.prepare({KEY: picture}).values)
    sent = time.perf_counter_ns()
    observation = read_observation(decode_observation(message, LIMITS).values, SPEC)
    write_image(with_decoded_images(observation, SPEC).images[CAMERA.name], CAMERA, seen)
    return Way(sent - began, time.perf_counter_ns() - sent, len(message), seen)


def figures(ways: list[Way], expected: np.ndarray) -> dict[str, object]:
    found: dict[str, object] = {"bytes": ways[0].num_bytes}
    for side in ("robot_ns", "server_ns"):
        cuts = statistics.quantiles([getattr(way, side) for way in ways], n=100)
        name = side.removesuffix("_ns")
        found |= {
            f"{name}_p50_ms": round(cuts[49] / 1e6, 3),
            f"{name}_p99_ms": round(cuts[98] / 1e6, 3),
        }
    near = psnr(ways[0].seen, expected)
    return {**found, "psnr_db": None if math.isinf(near) else round(near, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description="images as arrays, resized, PNG and JPEG")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rounds")
    parser.add_argument("--out", type=Path, help="write the result here as well")
    asked = parser.parse_args()
    rounds = max(2, asked.rounds // 10 if asked.quick else asked.rounds)
    offer = image_offer(SPEC)
    ways_of = {name: NegotiatedImages(form, offer, SPEC) for name, form in FORMS.items()}
    result: dict[str, object] = {
        "subject": "image codecs",
        **circumstances(seed=5, packages=("numpy", "opencv-python-headless", "simplejpeg")),
        "rounds": rounds,
    }
    for size, (height, width) in SIZES.items():
        picture = natural(height, width)
        ways: dict[str, list[Way]] = {name: [] for name in FORMS}
        for turn in range(rounds + 3):
            for name, images in ways_of.items():
                way = send(images, picture)
                if turn >= 3:  # the first rounds warm up
                    ways[name].append(way)
        expected = resized(picture, CAMERA)
        result[size] = {name: figures(took, expected) for name, took in ways.items()}
    print(json.dumps(result, indent=1))
    if asked.out is not None:
        write(asked.out, result)


if __name__ == "__main__":
    main()
