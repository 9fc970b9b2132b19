"""How long does an observation take over gRPC, and how long over HTTP with JSON?

Why it matters: the paper this server follows says that gRPC is about five times faster than HTTP
with JSON for the same observation. Both are measured here on one observation: two 480 x 640 RGB
images, six joints and an instruction, answered with 50 actions of six joints. No target: the
figure is compared with the paper's.

    python benchmarks/doors/bench_grpc_json.py --out results/grpc-json.json

``grpc`` is Takt's LeRobot door with the echo policy, as LeRobot's client uses it: the observation
pickled as that client does and sent in pieces of 2 MiB, then a poll for the chunk, both timed
together. ``json`` is an HTTP server of the standard library whose handler decodes and echoes, on a
connection that is kept open: arrays either as nested lists (what ``json`` does by itself) or as
base64 of their bytes (what a careful client does). ``encoding`` is the client's part of it. The
three take turns round by round, so that the machine's mood meets all.
"""

import argparse
import base64
import http.client
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from _takt_server import serving

from _record import circumstances, write
from takt.doors.lerobot_grpc import SERVICE
from takt.wire.lerobot import (
    LerobotObservation,
    LerobotSetup,
    LerobotValue,
    decode_actions,
    encode_observation,
    encode_setup,
)
from takt.wire.lerobot_features import LerobotFeature
from takt.wire.lerobot_messages import (
    decode_actions_message,
    encode_observation_message,
    encode_policy_setup_message,
    split_observation,
)
from takt.wire.lerobot_objects import Spelling
from takt.wire.limits import Limits

SEED = 11
STEPS = 50
JOINTS = tuple(f"j{number}.pos" for number in range(6))
REPLY = Limits(max_arrays=1000, max_values=100_000)


def observation(height: int, width: int) -> dict[str, LerobotValue]:
    rng = np.random.default_rng(SEED)
    return {
        **{name: float(rng.normal()) for name in JOINTS},
        **{c: rng.integers(0, 256, (height, width, 3), np.uint8) for c in ("front", "wrist")},
        "task": "fold the towel",
    }


class Grpc:
    """LeRobot's way: send, then poll."""

    def __init__(self, port: int, values: dict[str, LerobotValue]) -> None:
        channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self._send: Callable[..., bytes] = channel.stream_unary(f"/{SERVICE}/SendObservations")
        self._poll: Callable[..., bytes] = channel.unary_unary(f"/{SERVICE}/GetActions")
        self._values = values
        self._timestep = 0
        set_up: Callable[..., bytes] = channel.unary_unary(f"/{SERVICE}/SendPolicyInstructions")
        set_up(encode_policy_setup_message(encode_setup(_setup(values))))

    def encode(self) -> list[bytes]:
        """The messages of one observation."""
        self._timestep += STEPS
        data = encode_observation(
            LerobotObservation(
                timestamp=float(self._timestep),
                timestep=self._timestep,
                must_go=True,
                values=self._values,
                spelling=Spelling.ASYNC_INFERENCE,
            )
        )
        return [encode_observation_message(*piece) for piece in split_observation(data)]

    def ask(self, pieces: list[bytes]) -> np.ndarray:
        """Send them and wait for the actions."""
        self._send(iter(pieces))
        return decode_actions(decode_actions_message(self._poll(b"")), REPLY).actions


class Json:
    """One POST per observation."""

    def __init__(self, port: int, values: dict[str, LerobotValue], *, lists: bool) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port)
        self._values = values
        self._lists = lists

    def encode(self) -> bytes:
        """The body of one observation."""
        return json.dumps({key: self._plain(value) for key, value in self._values.items()}).encode()

    def _plain(self, value: LerobotValue) -> object:
        if not isinstance(value, np.ndarray):
            return value
        if self._lists:
            return value.tolist()
        return {"base64": base64.b64encode(value.tobytes()).decode(), "shape": value.shape}

    def ask(self, body: bytes) -> np.ndarray:
        """Send it and wait for the actions."""
        headers = {"Content-Type": "application/json"}
        self._connection.request("POST", "/", body, headers)
        return np.array(json.loads(self._connection.getresponse().read())["actions"], np.float32)


def _setup(values: dict[str, LerobotValue]) -> LerobotSetup:
    features = {
        f"observation.images.{key}": LerobotFeature(dtype="image", shape=value.shape)
        for key, value in values.items()
        if isinstance(value, np.ndarray)
    }
    state = LerobotFeature(dtype="float32", shape=(len(JOINTS),), names=JOINTS)
    return LerobotSetup(
        policy_type="act",
        pretrained_name_or_path="echo",
        features={"observation.state": state, **features},
        actions_per_chunk=STEPS,
        rename_map={},
        spelling=Spelling.ASYNC_INFERENCE,
    )


class _Echo(BaseHTTPRequestHandler):
    """Decodes an observation and echoes its joints."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer one observation."""
        values = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        for camera in ("front", "wrist"):
            _image(values[camera])
        state = np.array([values[name] for name in JOINTS], np.float32)
        actions = state + np.arange(STEPS, dtype=np.float32)[:, None]
        body = json.dumps({"actions": actions.tolist()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""
        del format, args


def _image(value: Any) -> np.ndarray:  # noqa: ANN401 - what JSON holds
    if isinstance(value, dict):
        return np.frombuffer(base64.b64decode(value["base64"]), np.uint8).reshape(value["shape"])
    return np.array(value, np.uint8)


def _serve_json(ports: "multiprocessing.Queue[int]") -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Echo)
    ports.put(server.server_address[1])
    server.serve_forever()


def quantiles(values: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return {"p50_ms": round(cuts[49], 3), "p99_ms": round(cuts[98], 3)}


def measure(peers: dict[str, Any], rounds: int) -> dict[str, dict[str, object]]:
    trips: dict[str, list[float]] = {name: [] for name in peers}
    encodings: dict[str, list[float]] = {name: [] for name in peers}
    sizes: dict[str, int] = {}
    expected = None
    for round_number in range(rounds + 3):  # the first three warm up
        for name, peer in peers.items():
            begin = time.perf_counter()
            message = peer.encode()
            sent = time.perf_counter()
            actions = peer.ask(message)
            end = time.perf_counter()
            expected = actions if expected is None else expected
            np.testing.assert_array_equal(actions, expected)
            sizes[name] = sum(map(len, message)) if isinstance(message, list) else len(message)
            if round_number >= 3:
                trips[name].append((end - begin) * 1e3)
                encodings[name].append((sent - begin) * 1e3)
    return {
        name: {
            "bytes": sizes[name],
            "round_trip": quantiles(trips[name]),
            "encoding": quantiles(encodings[name]),
        }
        for name in peers
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="gRPC and HTTP with JSON, in turns")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--quick", action="store_true", help="10 rounds")
    parser.add_argument("--out", type=Path, help="where to write the result")
    options = parser.parse_args()
    rounds = 10 if options.quick else options.rounds
    values = observation(480, 640)
    spawning = multiprocessing.get_context("spawn")
    ports: multiprocessing.Queue[int] = spawning.Queue()
    process = spawning.Process(target=_serve_json, args=(ports,), daemon=True)
    process.start()
    try:
        port = ports.get(timeout=60)
        with serving() as server:
            found = measure(
                {
                    "grpc": Grpc(server.ports["lerobot"], values),
                    "json_base64": Json(port, values, lists=False),
                    "json_lists": Json(port, values, lists=True),
                },
                rounds,
            )
    finally:
        process.terminate()
        process.join()
    for name, figures in found.items():
        print(f"{name:12} {figures}")
    result = {
        "benchmark": "doors/grpc_json",
        "rounds": rounds,
        "observation": "2 x 480 x 640 x 3 uint8, 6 joints; 50 x 6 actions back",
        **found,
        **circumstances(seed=SEED, packages=["grpcio", "numpy"]),
    }
    if options.out is not None:
        write(options.out, result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
