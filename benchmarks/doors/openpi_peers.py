"""The stock openpi server and its client, for a benchmark; run by an interpreter that has both.

    python openpi_peers.py serve LATENCY_MS LATENCY_PER_ROW_MS
    python openpi_peers.py drive PORT ROBOTS HZ SECONDS HEIGHT WIDTH SEED

``serve`` runs openpi-server 0.1.0 with the policy that Takt's ``echo`` is, and prints its port.
``drive`` runs robots that each send observations at a steady rate, evenly staggered, with
openpi-client 0.1.2, and prints a line of JSON: milliseconds of each round trip and of the server's
own account, and how far requests left late because the one before was not answered yet.
"""

import json
import logging
import socket
import sys
import threading
import time

import numpy as np
from openpi_client.websocket_client_policy import (  # pyright: ignore[reportMissingImports]
    WebsocketClientPolicy,
)
from openpi_server import WebsocketPolicyServer  # pyright: ignore[reportMissingImports]

HORIZON = 50
WARM_UP = 5


class Echo:
    """A policy without a network: one row per launch, as this server calls it."""

    def __init__(self, latency_s: float) -> None:
        self._latency_s = latency_s

    def infer(self, obs: dict) -> dict:
        """Answer one observation."""
        if self._latency_s:
            threading.Event().wait(self._latency_s)
        state = np.asarray(obs["observation/state"], np.float32)
        return {"actions": state + np.arange(HORIZON, dtype=np.float32)[:, None]}


def serve(latency_ms: float, per_row_ms: float) -> None:
    logging.disable()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    print(port, flush=True)
    server = WebsocketPolicyServer(Echo((latency_ms + per_row_ms) / 1e3), "127.0.0.1", port)
    server.serve_forever()


class Robot:
    """Sends an observation every period and waits for the answer."""

    def __init__(self, port: int, number: int, seed: int, height: int, width: int) -> None:
        draw = np.random.default_rng([seed, number])
        image, wrist = draw.integers(0, 256, (2, height, width, 3), dtype=np.uint8)
        self.state = draw.normal(size=8)
        self.observation = {
            "observation/image": image,
            "observation/wrist_image": wrist,
            "observation/state": self.state,
            "prompt": "put the white mug on the plate",
        }
        self.client = WebsocketClientPolicy("127.0.0.1", port)
        self.round_trips: list = []
        self.server_times: list = []
        self.lateness: list = []
        for _ in range(WARM_UP):
            self.client.infer(self.observation)

    def live(self, start: float, period: float, until: float) -> None:
        """Ask once a period."""
        leave, pause = start, threading.Event()
        while leave < until:
            pause.wait(max(0.0, leave - time.perf_counter()))
            sent = time.perf_counter()
            reply = self.client.infer(self.observation)
            self.round_trips.append((time.perf_counter() - sent) * 1e3)
            self.lateness.append((sent - leave) * 1e3)
            self.server_times.append(reply["server_timing"]["infer_ms"])
            if not np.allclose(reply["actions"][0], self.state, atol=1e-6):
                raise AssertionError("an answer to another robot's observation")
            leave = max(leave + period, time.perf_counter())


def drive(port: int, num_robots: int, hz: float, seconds: float, *scene: int) -> None:
    height, width, seed = scene
    robots = [Robot(port, number, seed, height, width) for number in range(num_robots)]
    start = time.perf_counter() + 0.2
    threads = [
        threading.Thread(
            target=robot.live,
            args=(start + place / num_robots / hz, 1 / hz, start + seconds),
        )
        for place, robot in enumerate(robots)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kinds = ("round_trips", "server_times", "lateness")
    print(json.dumps({kind: [v for r in robots for v in getattr(r, kind)] for kind in kinds}))


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(*map(float, sys.argv[2:4]))
    else:
        port, robots, hz, seconds, height, width, seed = sys.argv[2:9]
        drive(int(port), int(robots), float(hz), float(seconds), int(height), int(width), int(seed))
