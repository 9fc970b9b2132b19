"""What does the WebSocket server under the doors cost, beside the library the stock server uses?

Why it matters: every observation passes through it on the thread that serves all robots. Budget: a
message of two 480 x 640 images takes no more of the server's CPU than with ``websockets``.

    python benchmarks/doors/bench_websocket.py

Each server runs in a process of its own on uvloop, keeps every message as a door must (its arrays
outlive the callback), and answers with 6400 bytes. One client of ``websockets.sync``, as in
openpi-client, talks to each in turn, so that they take turns within each round. CPU is the server
process's own. Then each is sent a message beyond its limit: what does the client hear, and how much
memory did the server take meanwhile? The loopback is the whole network.
"""

import argparse
import asyncio
import logging
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from http import HTTPStatus
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import uvloop
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from takt.doors.http_request import HttpRequest
from takt.doors.websocket_server import WebSocketConnection, WebSocketLimits, WebSocketServer

sys.path.insert(0, str(Path(__file__).parents[1]))

from _processes import memory_kib
from _record import RESULTS, circumstances, write

REPLY = bytes(6400)
LIMIT = 4 * 2**20
SIZES = {"2x224x224": 301_344, "2x480x640": 1_843_492}
OVERSIZED = 32 * 2**20


class DoorGuest:
    """Keeps a message and answers it."""

    def __init__(self, connection: WebSocketConnection) -> None:
        self.connection = connection
        self.kept = b""

    def on_open(self) -> None:
        """Greet."""
        self.connection.send(b"hello")

    def on_message(self, data: memoryview, arrival: int) -> None:
        """Answer."""
        self.kept = bytes(data)
        self.connection.send(REPLY)

    def on_text(self) -> None:
        """Nobody sends text."""
        return

    def on_closed(self) -> None:
        """Nothing is left to do."""
        return


class DoorSite:
    """Lets everybody in."""

    def answer(self, request: HttpRequest) -> tuple[HTTPStatus, str] | None:
        """No plain HTTP."""
        return None

    def welcome(self, request: HttpRequest, connection: WebSocketConnection) -> DoorGuest:
        """A guest for everybody."""
        return DoorGuest(connection)


async def start_door() -> int:
    limits = WebSocketLimits(max_message_bytes=LIMIT)
    server = WebSocketServer(DoorSite(), limits, time.monotonic_ns)
    return (await server.start("127.0.0.1", 0))[1]


async def start_websockets() -> int:
    async def talk(connection: ServerConnection) -> None:
        await connection.send(b"hello")
        async for message in connection:
            del message
            await connection.send(REPLY)

    server = await serve(talk, "127.0.0.1", 0, compression=None, max_size=LIMIT)
    return next(iter(server.sockets)).getsockname()[1]


SERVERS: dict[str, Callable[[], Any]] = {
    "takt": start_door,
    "websockets": start_websockets,
}


def run_server(name: str, pipe: Connection) -> None:
    logging.disable()  # what it says of oversized messages is in the result

    async def main() -> None:
        loop = asyncio.get_running_loop()
        pipe.send(await SERVERS[name]())
        asked = asyncio.Event()

        def tell() -> None:
            if pipe.recv() == "stop":
                asked.set()
            else:
                pipe.send((time.process_time_ns(), memory_kib("VmHWM")))

        loop.add_reader(pipe.fileno(), tell)
        await asked.wait()

    uvloop.run(main())


class Contestant:
    """A server in a process of its own and the client that talks to it."""

    def __init__(self, name: str) -> None:
        self.pipe, far = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self.process = context.Process(target=run_server, args=(name, far), daemon=True)
        self.process.start()
        self.url = f"ws://127.0.0.1:{self.pipe.recv()}"
        self.opened = connect(self.url, compression=None, max_size=None)
        self.client: ClientConnection = self.opened.__enter__()
        self.client.recv()

    def used(self) -> tuple[int, int]:
        """CPU nanoseconds and peak memory in KiB."""
        self.pipe.send("used")
        return self.pipe.recv()

    def exchange(self, message: bytes) -> int:
        """Nanoseconds of one round trip."""
        start = time.perf_counter_ns()
        self.client.send(message)
        self.client.recv()
        return time.perf_counter_ns() - start

    def close(self) -> None:
        """End both."""
        self.opened.__exit__(None, None, None)
        self.pipe.send("stop")
        self.process.join(5)


def measure(contestants: dict[str, Contestant], message: bytes, rounds: int) -> dict[str, Any]:
    took: dict[str, list[int]] = {name: [] for name in contestants}
    for _ in range(20):
        for contestant in contestants.values():
            contestant.exchange(message)
    before = {name: contestant.used()[0] for name, contestant in contestants.items()}
    for _ in range(rounds):
        for name, contestant in contestants.items():
            took[name].append(contestant.exchange(message))
    result: dict[str, Any] = {}
    for name, contestant in contestants.items():
        cuts = statistics.quantiles(took[name], n=100)
        result[name] = {
            "p50_ms": round(cuts[49] / 1e6, 3),
            "p99_ms": round(cuts[98] / 1e6, 3),
            "server_cpu_ms": round((contestant.used()[0] - before[name]) / rounds / 1e6, 3),
        }
    return result


def oversized(contestant: Contestant) -> dict[str, object]:
    before = contestant.used()[1]
    try:
        with connect(contestant.url, compression=None, max_size=None) as client:
            client.recv()
            client.send(bytes(OVERSIZED))
            client.recv()
        heard = "nothing"
    except ConnectionClosed as error:
        heard = f"{error.rcvd.code} {error.rcvd.reason}" if error.rcvd else f"no close: {error}"
    return {"heard": heard, "peak_memory_grew_kib": contestant.used()[1] - before}


def main() -> int:
    parser = argparse.ArgumentParser(description="WebSocket servers side by side")
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rounds")
    parser.add_argument("--out", type=Path, help="where to write the result")
    asked = parser.parse_args()
    rounds = asked.rounds // 10 if asked.quick else asked.rounds
    contestants = {name: Contestant(name) for name in SERVERS}
    result: dict[str, Any] = {
        "circumstances": circumstances(seed=None, packages=["picows", "uvloop", "websockets"]),
        "rounds": rounds,
    }
    for name, size in SIZES.items():
        result[name] = measure(contestants, bytes(size), rounds)
        print(name, result[name])
    result["oversized"] = {
        name: [oversized(contestant) for _ in range(3)] for name, contestant in contestants.items()
    }
    print(result["oversized"])
    for contestant in contestants.values():
        contestant.close()
    out = asked.out or (None if asked.quick else RESULTS / "websocket.json")
    if out is not None:
        write(out, result)
    large = result["2x480x640"]
    return int(large["takt"]["server_cpu_ms"] > large["websockets"]["server_cpu_ms"])


if __name__ == "__main__":
    sys.exit(main())
