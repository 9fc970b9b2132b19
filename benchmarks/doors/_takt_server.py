"""A gateway and its worker with the echo policy, for the benchmarks of doors.

Start reading at :func:`serving`.
"""

import json
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from _processes import cpu_s, memory_kib

__all__ = ["Server", "child", "serving"]


@dataclass
class Server:
    """A server that is up."""

    ports: Mapping[str, int]
    """Of its doors: ``openpi``, ``lerobot``."""
    gateway: "subprocess.Popen[bytes]"
    worker: "subprocess.Popen[bytes]"

    def gateway_s(self) -> float:
        """CPU time of the gateway so far."""
        return cpu_s(self.gateway.pid)

    def gateway_peak_mib(self) -> float:
        """Most memory the gateway has had."""
        return memory_kib("VmHWM", self.gateway.pid) / 1024

    def stop(self) -> dict[str, int]:
        """Stop the gateway; its counters."""
        assert self.gateway.stdin is not None
        self.gateway.stdin.close()
        return _event(self.gateway, "stopped")["counters"]


@contextmanager
def serving(
    doors: Sequence[str] = ("openpi", "lerobot"),
    *,
    latency_ms: float = 0.0,
    latency_per_row_ms: float = 0.0,
    slo_ms: float = 10_000.0,
) -> "Iterator[Server]":
    """Serve the echo policy while the context lasts."""
    options = {"latency_ms": latency_ms, "latency_per_row_ms": latency_per_row_ms}
    model = {"name": "echo", "policy": "echo", "options": options, "slo_ms": slo_ms}
    address = f"bench-{secrets.token_hex(8)}"
    module = (sys.executable, "-m")
    with ExitStack() as stack:
        worker = stack.enter_context(
            child(
                [*module, "takt.server.worker_process"],
                {"name": "w", "address": address, "models": [model]},
            )
        )
        _event(worker, "listening")
        gateway = {
            "name": "g",
            "workers": [{"name": "w", "address": address}],
            "models": [model],
        }
        process = stack.enter_context(
            child(
                [*module, "takt.server.gateway_process"],
                {"gateway": gateway, **{door: {"port": 0} for door in doors}},
            )
        )
        ports: dict[str, int] = {}
        missing = {*doors, "ready"}
        while missing:
            said = _next(process)
            if said["event"] == "listening":
                ports[said["door"]] = said["port"]
            missing -= {said["event"], said.get("door", "")}
        yield Server(ports, process, worker)


@contextmanager
def child(command: Sequence[str], document: object = None) -> "Iterator[subprocess.Popen[bytes]]":
    """A process that ends with the context; ``document`` is the first line of its input.

    One that was given none does not know when it shall end, and is ended.
    """
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if document is not None:
            process.stdin.write(json.dumps(document).encode() + b"\n")
            process.stdin.flush()
        yield process
    finally:
        process.stdin.close()
        try:
            process.wait(0.1 if document is None else 15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _event(process: "subprocess.Popen[bytes]", name: str) -> dict[str, Any]:
    while True:
        said = _next(process)
        if said["event"] == name:
            return said


def _next(process: "subprocess.Popen[bytes]") -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit("a process of the server has ended")
    return json.loads(line)
