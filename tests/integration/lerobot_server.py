"""A gateway process with a LeRobot door, a worker process, and a client that speaks its bytes."""

import itertools
import os
import secrets
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeAlias

import grpc
import numpy as np
from tests.integration.gateway_server import TIMEOUT_S, Process
from tests.integration.ports import reserved_port

from takt.doors.lerobot_grpc import SERVICE
from takt.link.listener import listen
from takt.wire.lerobot import (
    LerobotActions,
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

__all__ = ["LerobotClient", "LerobotServer"]

_REPLY = Limits(max_arrays=2048, max_values=200_000)
_Call: TypeAlias = Callable[..., bytes]


class LerobotServer:
    """Both processes; the worker outlives the gateway."""

    def __init__(
        self,
        *,
        latencies_ms: Mapping[str, float] | None = None,
        slo_ms: float = 30_000.0,
        **door: object,
    ) -> None:
        latencies = {"echo": 0.0} if latencies_ms is None else latencies_ms
        self._models = [
            {
                "name": name,
                "policy": "echo",
                "options": {"latency_ms": latency},
                "slo_ms": slo_ms,
            }
            for name, latency in latencies.items()
        ]
        self._address = f"test-{os.getpid()}-{secrets.token_hex(4)}"
        self._door = door
        self._socket = listen(self._address)
        fd = self._socket.fileno()
        config = {"name": "w", "address": self._address, "models": self._models}
        self._worker = Process("takt.server.worker_process", {**config, "listening_fd": fd}, (fd,))
        self._reserved = ExitStack()
        self.port = self._reserved.enter_context(reserved_port())
        self.start()

    def start(self) -> None:
        """Start the gateway; each time on the same port."""
        config = {
            "name": "g",
            "workers": [{"name": "w", "address": self._address}],
            "models": self._models,
            "hang_ms": 30_000.0,  # how slow this computer is, is not the subject
        }
        door = {"port": self.port, **self._door}
        self._gateway = Process(
            "takt.server.gateway_process",
            {"gateway": config, "openpi": {"port": 0}, "lerobot": door},
        )
        waited = {"lerobot", "ready"}
        while waited:
            said = self._gateway.heard.get(timeout=TIMEOUT_S)
            waited -= {said["event"], said.get("door", "")}

    def memory_mib(self) -> int:
        """Memory that the gateway has now."""
        status = Path(f"/proc/{self._gateway.popen.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) // 1024

    def stop(self) -> dict[str, int]:
        """Stop the gateway; its counters."""
        self._gateway.close()
        return self._gateway.wait_for("stopped")["counters"]

    @contextmanager
    def stopped_worker(self) -> Iterator[None]:
        """The worker does nothing while the context lasts."""
        self._worker.popen.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._worker.popen.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the gateway."""
        self._gateway.kill()

    def close(self) -> None:
        if self._gateway.popen.poll() is None:
            self._gateway.close()
        self._worker.close()
        self._socket.close()
        self._reserved.close()


class LerobotClient:
    """Speaks the four calls on a connection of its own."""

    def __init__(self, port: int) -> None:
        # Channels of one process share a connection otherwise, as they do in LeRobot's client.
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}", options)
        self.get_actions: _Call = self.channel.unary_unary(f"/{SERVICE}/GetActions")
        self.ready: _Call = self.channel.unary_unary(f"/{SERVICE}/Ready")
        self.set_up: _Call = self.channel.unary_unary(f"/{SERVICE}/SendPolicyInstructions")
        self.send: _Call = self.channel.stream_unary(f"/{SERVICE}/SendObservations")
        self._instants = itertools.count(1_700_000_000)

    def __enter__(self) -> "LerobotClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()

    def shake_hands(
        self,
        model: str = "echo",
        *,
        joints: int = 3,
        actions: int = 10,
        cameras: Mapping[str, tuple[int, int, int]] | None = None,
        spelling: Spelling = Spelling.ASYNC_INFERENCE,
    ) -> None:
        """Ready and SendPolicyInstructions."""
        self.ready(b"", timeout=TIMEOUT_S)
        features = {
            "observation.state": LerobotFeature(
                dtype="float32", shape=(joints,), names=tuple(self.joints(joints))
            ),
            **{
                f"observation.images.{name}": LerobotFeature(dtype="image", shape=shape)
                for name, shape in (cameras or {}).items()
            },
        }
        setup = LerobotSetup(
            policy_type="act",
            pretrained_name_or_path=model,
            features=features,
            actions_per_chunk=actions,
            rename_map={},
            spelling=spelling,
        )
        self.set_up(encode_policy_setup_message(encode_setup(setup)), timeout=TIMEOUT_S)

    @staticmethod
    def joints(count: int) -> Iterator[str]:
        """Names of joints."""
        return (f"j{number}.pos" for number in range(count))

    def observe(
        self,
        timestep: int,
        first: float = 0.0,
        *,
        joints: int = 3,
        must_go: bool = False,
        spelling: Spelling = Spelling.ASYNC_INFERENCE,
        more: Mapping[str, LerobotValue] | None = None,
    ) -> None:
        """Send an observation whose first joint has this value; a second passes between two."""
        values: dict[str, LerobotValue] = {
            name: first + number for number, name in enumerate(self.joints(joints))
        }
        observation = LerobotObservation(
            timestamp=float(next(self._instants)),
            timestep=timestep,
            must_go=must_go,
            values={**values, "task": "fold", **(more or {})},
            spelling=spelling,
        )
        self.send_bytes(encode_observation(observation))

    def send_bytes(self, data: bytes) -> None:
        """Send what should be an observation."""
        pieces = [encode_observation_message(*piece) for piece in split_observation(data)]
        self.send(iter(pieces), timeout=TIMEOUT_S)

    def chunk(self) -> LerobotActions | None:
        """Poll once."""
        data = decode_actions_message(self.get_actions(b"", timeout=TIMEOUT_S))
        return decode_actions(data, _REPLY) if len(data) else None

    def origin(self) -> float:
        """Poll once for a chunk; the first joint of the observation it was computed from."""
        found = self.chunk()
        assert found is not None
        np.testing.assert_array_equal(
            found.actions[:, 0], found.actions[0, 0] + np.arange(len(found.actions))
        )
        return float(found.actions[0, 0])
