# pyright: basic, reportMissingImports=false
"""The stock openpi server with `mini`, and robots with its client; for an interpreter with both.

    python _openpi_peer.py serve PRECISION
    python _openpi_peer.py drive JSON

``serve`` prints its port when it is ready. ``drive`` takes ``port``, ``robots``, ``hz``,
``warm_up``, ``seconds``, ``seed`` and ``scene``, a file with the robots' observations and the
chunks that belong to them, and prints a line of JSON: by robot how often it asked (``issued``), and
of each answer the milliseconds since it was to be sent and the robot whose chunk it is; and the
``cores`` it used itself.
"""

import json
import logging
import os
import socket
import sys
import threading
import time

import numpy as np
from openpi_client.websocket_client_policy import WebsocketClientPolicy

GRACE_S = 2.0
"""Wait for the last answers."""
CONNECTING_S = 20.0


def serve(precision: str) -> None:
    from _mini_policy import MiniPolicy
    from openpi_server import WebsocketPolicyServer

    logging.disable()
    policy = MiniPolicy(precision)  # pyright: ignore[reportArgumentType]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    threading.Thread(target=end_with_parent, daemon=True).start()
    print(port, flush=True)
    WebsocketPolicyServer(policy, "127.0.0.1", port).serve_forever()


def end_with_parent() -> None:
    """Who started this process holds the other end of its input."""
    sys.stdin.read()
    os._exit(0)


class Robot(threading.Thread):
    """Asks at a steady rate, whatever the answers do; it waits for one before it asks again."""

    def __init__(self, number: int, options: dict, scene: dict) -> None:
        super().__init__(daemon=True)
        self.answers: list = []
        self.is_connected = threading.Event()
        self.go = threading.Event()
        self.slots: list = []
        self._port = options["port"]
        self._chunks = scene["chunks"][: options["robots"]]
        self._observation = {
            "observation/image": scene["images"][number],
            "observation/state": scene["states"][number],
            "prompt": str(scene["prompts"][number]),
            "takt": {"session": str(scene["sessions"][number]), "sequence": 0},
        }

    def run(self) -> None:
        try:
            client = WebsocketClientPolicy("127.0.0.1", self._port)
            self._ask(client)
            self.is_connected.set()
            self.go.wait()
            for slot, following in zip(self.slots, [*self.slots[1:], float("inf")], strict=True):
                if time.perf_counter() >= following:
                    continue  # never came to it: asked, and not answered
                threading.Event().wait(max(0.0, slot - time.perf_counter()))
                actions = self._ask(client)
                took_ms = (time.perf_counter() - slot) * 1e3
                if actions is not None:
                    self.answers.append((slot, took_ms, self._whose(actions)))
        except Exception as error:  # noqa: BLE001 - what a server does to it is the result
            logging.getLogger(__name__).warning("a robot was left alone: %s", error)

    def _ask(self, client: WebsocketClientPolicy) -> np.ndarray | None:
        try:
            return np.asarray(client.infer(self._observation)["actions"])
        except RuntimeError:  # the server said that it refuses; the robot goes on
            return None

    def _whose(self, actions: np.ndarray) -> int:
        distances = np.abs(self._chunks - actions).mean(axis=(1, 2))
        return int(distances.argmin())


def drive(options: dict) -> None:
    with np.load(options["scene"]) as file:
        scene = dict(file)
    robots = [Robot(number, options, scene) for number in range(options["robots"])]
    give_up = time.perf_counter() + CONNECTING_S
    for robot in robots:
        robot.start()
    for robot in robots:
        robot.is_connected.wait(max(0.0, give_up - time.perf_counter()))
    phases = np.random.default_rng(options["seed"]).uniform(0, 1 / options["hz"], len(robots))
    start = time.perf_counter() + 0.2
    counted, end = start + options["warm_up"], start + options["warm_up"] + options["seconds"]
    began, used = time.perf_counter(), time.process_time()
    for robot, phase in zip(robots, phases, strict=True):
        robot.slots = np.arange(start + phase, end, 1 / options["hz"]).tolist()
        robot.go.set()
    give_up = end + GRACE_S
    for robot in robots:
        robot.join(max(0.0, give_up - time.perf_counter()))
    cores = (time.process_time() - used) / (time.perf_counter() - began)
    said = [
        {
            "issued": sum(slot >= counted for slot in robot.slots),
            "answers": [[ms, whose] for slot, ms, whose in [*robot.answers] if slot >= counted],
        }
        for robot in robots
    ]
    print(json.dumps({"robots": said, "cores": cores}), flush=True)
    os._exit(0)  # threads that still wait for an answer are left behind


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        drive(json.loads(sys.argv[2]))
