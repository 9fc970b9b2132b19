# pyright: basic, reportMissingImports=false
"""LeRobot's unmodified PolicyServer around a policy that echoes. Runs in LeRobot's environment.

Takes one JSON document as its argument: ``port`` and ``latency_ms``. Says ``listening`` when robots
may come; the server's own log goes to standard error. What a checkpoint would bring is replaced
where the server looks it up: the policy answers the state it sees, counted up by one per action,
and there is nothing to normalise.
"""

import json
import os
import socket
import sys
import threading

import torch
from lerobot.async_inference import policy_server
from lerobot.async_inference.configs import PolicyServerConfig

FAIL = -31337.0
HORIZON = 20
HOST = "127.0.0.1"


class Sizes(dict):
    """Images of any camera, taken small: channels, height, width."""

    def __missing__(self, key: str) -> "Sizes":
        return self

    shape = (3, 24, 32)


class Echo:
    """Answers each state with states that count up from it."""

    latency_ms = 0.0

    class config:  # noqa: N801 - what a policy calls it
        image_features = Sizes()

    @classmethod
    def from_pretrained(cls, path: str) -> "Echo":
        if path != "echo":
            raise OSError(f"no checkpoint {path}")
        return cls()

    def to(self, device: str) -> "Echo":
        del device
        return self

    def predict_action_chunk(self, observation: dict) -> torch.Tensor:
        state = observation["observation.state"]
        if float(state[0, 0]) == FAIL:
            raise RuntimeError("inference failed on demand")
        threading.Event().wait(self.latency_ms / 1e3)
        return state[:, None, :] + torch.arange(HORIZON, dtype=torch.float32)[None, :, None]


def say_when_listening(port: int) -> None:
    with socket.socket() as trying:
        while trying.connect_ex((HOST, port)):
            threading.Event().wait(0.02)
    os.write(1, b"listening\n")


def main() -> None:
    options = json.loads(sys.argv[1])
    Echo.latency_ms = options["latency_ms"]
    policy_server.get_policy_class = lambda _: Echo
    policy_server.make_pre_post_processors = lambda *_, **__: (
        lambda seen: seen,
        lambda acted: acted,
    )
    threading.Thread(target=say_when_listening, args=(options["port"],), daemon=True).start()
    policy_server.serve(PolicyServerConfig(host=HOST, port=options["port"]))


if __name__ == "__main__":
    main()
