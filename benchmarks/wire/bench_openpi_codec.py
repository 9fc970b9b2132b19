"""What does it cost to read and write an openpi observation with every limit checked?

Why it matters: the gateway decodes each observation before it can route it, on the thread that
serves all robots. Budget: a decode stays below 0.2 ms whatever the size of the images, and an
encode costs no more than the stock client's.

    python benchmarks/wire/bench_openpi_codec.py --out results/openpi_codec.json

Beside Takt's codec run the two libraries it could have been: ``msgpack`` with the hooks that
openpi-client puts on it, and ``msgspec`` with the same conversion after decoding. Neither checks
limits, so the comparison favours them. The contestants take turns within each round.

A second table shows how much memory each of them takes for a hostile message of one mebibyte that
consists of list headers which declare as many elements as there are bytes left.
"""

import argparse
import json
import platform
import statistics
import subprocess
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgpack
import msgspec
import numpy as np

from takt.wire.limits import Limits
from takt.wire.openpi import decode_observation, encode_observation

_Given = TypeVar("_Given")
SIZES = {"2x224x224": (224, 224), "2x480x640": (480, 640)}
LIMITS = Limits()
BOMB_BYTES = 2**20
DEEPEST_BOMB = 500


def observation(height: int, width: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    image, wrist = rng.integers(0, 256, (2, height, width, 3), dtype=np.uint8)
    return {
        "observation/image": image,
        "observation/wrist_image": wrist,
        "observation/state": rng.normal(size=8),
        "prompt": "put the white mug on the plate",
    }


def to_map(value: object) -> object:
    if not isinstance(value, np.ndarray):
        raise TypeError(type(value).__name__)
    return {
        b"__ndarray__": True,
        b"data": value.tobytes(),
        b"dtype": value.dtype.str,
        b"shape": value.shape,
    }


def from_map(value: dict[Any, Any]) -> object:
    if b"__ndarray__" not in value:
        return value
    dtype = np.dtype(value[b"dtype"])
    return np.ndarray(buffer=value[b"data"], dtype=dtype, shape=value[b"shape"])


def msgspec_decode(data: bytes) -> dict[str, object]:
    values = msgspec.msgpack.decode(data)
    return {k: from_map(v) if isinstance(v, dict) else v for k, v in values.items()}


DECODERS: dict[str, Callable[[bytes], object]] = {
    "takt": lambda data: decode_observation(data, LIMITS),
    "msgpack": lambda data: msgpack.unpackb(data, object_hook=from_map),
    "msgspec": msgspec_decode,
}
ENCODERS: dict[str, Callable[[dict[str, Any]], object]] = {
    "takt": encode_observation,
    "msgpack": lambda values: msgpack.packb(values, default=to_map),
    "msgspec": lambda values: msgspec.msgpack.encode(values, enc_hook=to_map),
}


def measure(
    contestants: dict[str, Callable[[_Given], object]], given: _Given, rounds: int
) -> dict[str, dict[str, float]]:
    """p50 and p99 in microseconds by contestant."""
    took: dict[str, list[int]] = {name: [] for name in contestants}
    for turn in range(rounds + 20):
        for name, act in contestants.items():
            start = time.perf_counter_ns()
            act(given)
            end = time.perf_counter_ns()
            if turn >= 20:  # the first rounds warm up
                took[name].append(end - start)
    cuts = {name: statistics.quantiles(values, n=100) for name, values in took.items()}
    return {
        name: {"p50_us": round(cut[49] / 1e3, 1), "p99_us": round(cut[98] / 1e3, 1)}
        for name, cut in cuts.items()
    }


def bomb(depth: int) -> bytes:
    heads = (b"\xdd" + (BOMB_BYTES - 5 * level - 5).to_bytes(4, "big") for level in range(depth))
    return b"".join(heads).ljust(BOMB_BYTES, b"\xc0")


def peak_mib(decode: Callable[[bytes], object], data: bytes) -> dict[str, object]:
    """Most memory in use at once, and how the decoder answered."""
    tracemalloc.start()
    try:
        decode(data)
        answer = "decoded"
    except Exception as error:  # noqa: BLE001 - every library has errors of its own
        answer = type(error).__name__
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {"peak_mib": round(peak / 2**20, 2), "answer": answer}


def commit() -> str:
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or "none"


def main() -> None:
    parser = argparse.ArgumentParser(description="openpi codec beside msgpack and msgspec")
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rounds")
    parser.add_argument("--out", type=Path, help="write the result here as well")
    asked = parser.parse_args()
    rounds = asked.rounds // 10 if asked.quick else asked.rounds
    result: dict[str, object] = {
        "subject": "openpi codec",
        "commit": commit(),
        "machine": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "versions": {
            "numpy": np.__version__,
            "msgpack": ".".join(map(str, msgpack.version)),
            "msgspec": msgspec.__version__,
        },
        "rounds": rounds,
    }
    for name, (height, width) in SIZES.items():
        values = observation(height, width)
        data = encode_observation(values)
        result[name] = {
            "bytes": len(data),
            "decode": measure(DECODERS, data, rounds),
            "encode": measure(ENCODERS, values, rounds),
        }
    hostile = bomb(DEEPEST_BOMB)
    result["hostile"] = {name: peak_mib(decode, hostile) for name, decode in DECODERS.items()}
    text = json.dumps(result, indent=2)
    print(text)
    if asked.out is not None:
        asked.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
