"""A gateway process and a worker process on loopback, for tests that kill them."""

import json
import os
import queue
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from websockets.sync.client import ClientConnection, connect

from takt.link.listener import listen

__all__ = ["TIMEOUT_S", "GatewayServer", "Process"]

TIMEOUT_S = 60.0


class Process:
    """A child that reads one line of JSON and says what happens to it."""

    def __init__(self, module: str, config: Mapping[str, Any], fds: tuple[int, ...] = ()) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=fds,
        )
        assert self.popen.stdin is not None
        self.popen.stdin.write(json.dumps(config).encode() + b"\n")
        self.popen.stdin.flush()
        self.heard: queue.Queue[dict[str, Any]] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self.heard.put(json.loads(line))

    def wait_for(self, event: str) -> dict[str, Any]:
        """The next event of this name; others are skipped."""
        while True:
            said = self.heard.get(timeout=TIMEOUT_S)
            if said["event"] == event:
                return said

    def kill(self) -> None:
        self.popen.send_signal(signal.SIGKILL)
        self.close()

    def close(self) -> int:
        """Cut the lifeline and wait."""
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        self.popen.stdin.close()
        status = self.popen.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)
        self.popen.stdout.close()
        return status


class GatewayServer:
    """Both processes; the test holds the worker's address, as a supervisor does."""

    def __init__(
        self,
        *,
        policy: str = "echo",
        options: Mapping[str, Any] | None = None,
        slo_ms: float = 30_000.0,
        token: str | None = None,
        ready_s: float = TIMEOUT_S,
        **gateway: object,
    ) -> None:
        model = {"name": policy, "policy": policy, "options": options or {}, "slo_ms": slo_ms}
        self._address = f"test-{os.getpid()}-{secrets.token_hex(4)}"
        self._models = [model]
        self._socket: socket.socket = listen(self._address)
        self.worker = self.start_worker()
        config = {
            "name": "g",
            "workers": [{"name": "w", "address": self._address}],
            "models": self._models,
            "hang_ms": 30_000.0,  # how slow this computer is, is not the subject
            **gateway,
        }
        door = {"port": 0, "token": token}
        self.gateway = Process("takt.server.gateway_process", {"gateway": config, "openpi": door})
        self.port = 0
        waited = {"listening", "ready"}
        while waited:
            said = self.gateway.heard.get(timeout=ready_s)
            self.port = said.get("port", self.port)
            waited.discard(said["event"])

    def start_worker(self) -> Process:
        """A new life of the worker."""
        fd = self._socket.fileno()
        config = {"name": "w", "address": self._address, "models": self._models}
        return Process("takt.server.worker_process", {**config, "listening_fd": fd}, (fd,))

    def restart_worker(self, **options: object) -> None:
        """Start it again after :meth:`Process.kill`, with other options of the policy if given."""
        self._models = [{**model, "options": options or model["options"]} for model in self._models]
        self.worker = self.start_worker()

    def dial(
        self, path: str = "/", headers: Mapping[str, str] | None = None
    ) -> AbstractContextManager[ClientConnection]:
        """A client that has not read the greeting."""
        url = f"ws://127.0.0.1:{self.port}{path}"
        return connect(
            url,
            compression=None,
            max_size=None,
            additional_headers=headers,
            open_timeout=TIMEOUT_S,
            ping_timeout=None,  # a process that is stopped does not answer
        )

    def close(self) -> None:
        self.gateway.close()
        self.worker.close()
        self._socket.close()
