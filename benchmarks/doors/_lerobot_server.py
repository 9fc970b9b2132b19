"""A gateway with a LeRobot and an openpi door and its worker, for the benchmarks of doors."""

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Doors", "serving"]

_TICK_MS = 1e3 / os.sysconf("SC_CLK_TCK")


@dataclass
class Doors:
    """A server that is up."""

    openpi: int
    """Port of the openpi door."""
    lerobot: int
    """Port of the LeRobot door."""
    gateway: "subprocess.Popen[bytes]"

    def used_ms(self) -> float:
        """CPU time of the gateway so far."""
        fields = Path(f"/proc/{self.gateway.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * _TICK_MS

    def peak_mib(self) -> float:
        """Most memory the gateway has had."""
        status = Path(f"/proc/{self.gateway.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024

    def stop(self) -> dict[str, int]:
        """Stop the gateway; its counters."""
        assert self.gateway.stdin is not None
        self.gateway.stdin.close()
        return _events(self.gateway, "stopped")["counters"]


@contextmanager
def serving(latency_ms: float = 0.0) -> Iterator[Doors]:
    """Serve the echo policy while the context lasts."""
    model = {
        "name": "echo",
        "policy": "echo",
        "options": {"latency_ms": latency_ms},
        "slo_ms": 10_000.0,
    }
    address = f"bench-{secrets.token_hex(8)}"
    with ExitStack() as stack:
        worker = stack.enter_context(
            _child("worker_process", {"name": "w", "address": address, "models": [model]})
        )
        _events(worker, "listening")
        config = {
            "name": "g",
            "workers": [{"name": "w", "address": address}],
            "models": [model],
        }
        gateway = stack.enter_context(
            _child(
                "gateway_process",
                {"gateway": config, "openpi": {"port": 0}, "lerobot": {"port": 0}},
            )
        )
        ports: dict[str, int] = {}
        missing = {"openpi", "lerobot", "ready"}
        while missing:
            said = _next(gateway)
            if said["event"] == "listening":
                ports[said["door"]] = said["port"]
            missing -= {said["event"], said.get("door", "")}
        yield Doors(ports["openpi"], ports["lerobot"], gateway)


def _next(process: "subprocess.Popen[bytes]") -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit("a process of the server has ended")
    return json.loads(line)


def _events(process: "subprocess.Popen[bytes]", name: str) -> dict[str, Any]:
    while True:
        said = _next(process)
        if said["event"] == name:
            return said


@contextmanager
def _child(module: str, document: Mapping[str, Any]) -> "Iterator[subprocess.Popen[bytes]]":
    process = subprocess.Popen(
        [sys.executable, "-m", f"takt.server.{module}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(document).encode() + b"\n")
        process.stdin.flush()
        yield process
    finally:
        process.stdin.close()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
