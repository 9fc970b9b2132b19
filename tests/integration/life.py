"""`takt serve` as its operator runs it, and what it says while processes are stopped and killed."""

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from websockets.sync.client import ClientConnection
from websockets.sync.client import connect as websocket

from takt.client import Connection, connect
from takt.errors import RefusedError
from takt.server.admin import ask
from takt.units import seconds
from takt.wire.openpi import encode_observation

__all__ = [
    "PATIENT",
    "TIMEOUT_S",
    "Server",
    "asked",
    "codes_until",
    "is_alive",
    "refusal",
    "serving",
    "state",
]

TIMEOUT_S = 60.0
PATIENT = ("--slo-ms", "30000", "--hang-ms", "30000", "--drain-seconds", "30")
"""Options of a server that may be slow: how slow this computer is, is not the subject."""

Event = Mapping[str, Any]


class Server:
    """A running ``takt serve --json``."""

    def __init__(self, *options: str) -> None:
        command = [sys.executable, "-m", "takt.cli.main", "serve", "--json", "--openpi", "0"]
        self.process = subprocess.Popen(
            [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.events: list[Event] = []
        self._said: queue.Queue[Event | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._said.put(json.loads(line))
        self._said.put(None)

    def wait_for(self, kind: str, process: str, count: int = 1, **fields: object) -> Event:
        """The ``count``-th event of that kind from that process, with these fields."""
        wanted = {"event": kind, "process": process, **fields}
        while True:
            found = [event for event in self.events if wanted.items() <= event.items()]
            if len(found) >= count:
                return found[count - 1]
            event = self._said.get(timeout=TIMEOUT_S)
            assert event is not None, f"the server ended without {wanted}: {self.events}"
            self.events.append(event)

    def count(self, kind: str, process: str) -> int:
        """How often that has been said so far."""
        while True:
            try:
                event = self._said.get_nowait()
            except queue.Empty:
                break
            if event is not None:
                self.events.append(event)
        return sum(e["event"] == kind and e["process"] == process for e in self.events)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.wait_for('listening', 'gateway-0')['port']}"

    def pid(self, process: str) -> int:
        """Process number of a child's present life."""
        return [event["pid"] for event in self.events if event["process"] == process][-1]

    def send(self, process: str, number: int) -> None:
        os.kill(self.pid(process), number)

    def ask(self, command: str, **fields: object) -> list[dict[str, Any]]:
        """What an operator asks for."""
        return ask(self.process.pid, {"command": command, **fields})

    def robot(self, **options: Any) -> Connection:  # noqa: ANN401 - passed on
        patience = seconds(TIMEOUT_S)
        return connect(self.address, connect_timeout=patience, answer_timeout=patience, **options)

    def stop(self) -> int:
        """Let it drain; its status."""
        self.process.terminate()
        status = self.process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status


@contextmanager
def serving(*options: str) -> Iterator[Server]:
    """A server whose models are ready."""
    server = Server(*(options or ("--model", "echo", *PATIENT)))
    try:
        server.wait_for("ready", "gateway-0")
        yield server
    finally:
        server.stop()


@contextmanager
def asked(server: Server, *values: float, path: str = "/") -> Iterator[ClientConnection]:
    """A robot whose observation the server has read; what it answers is still to be received."""
    with websocket(f"ws://{server.address}{path}", open_timeout=TIMEOUT_S) as robot:
        robot.recv(TIMEOUT_S)
        robot.send(encode_observation(state(*values)))
        assert robot.ping().wait(TIMEOUT_S)
        yield robot


def state(*values: float) -> dict[str, object]:
    return {"observation/state": np.array(values, np.float32)}


def refusal(ask: Callable[[], object]) -> str | None:
    """The code of the refusal that comes; None: an answer came."""
    try:
        ask()
    except RefusedError as error:
        return error.code
    return None


def codes_until(robot: Connection, *values: float) -> list[str]:
    """Ask until an answer comes; the codes of the refusals before it."""
    codes: list[str] = []
    pause = threading.Event()
    while (code := refusal(lambda: robot.infer(state(*values)))) is not None:
        codes.append(code)
        pause.wait(0.01)  # as a robot would: not at once
    return codes


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
