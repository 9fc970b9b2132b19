"""What does the way from a gateway to a worker and back cost on one host?

Why it matters: it is paid by every request, beside stages of a few milliseconds. Budget: p99 of
the full way (a row of 301 KB written into a slot, Submit, a chunk of 6.4 KB back) below 500 us
on an idle machine.

Three questions are asked in alternating rounds, so that the drift of the machine hits all alike:

- ``link_selector`` and ``link_uvloop``: the full way, gateway driven by a selector or by uvloop.
- ``bare_stream`` and ``bare_seqpacket``: the same bytes without arena and decoding, over
  SOCK_STREAM with a length prefix and over SOCK_SEQPACKET, each in the fewest lines that work.
- ``channel``: the same bytes through :class:`takt.link.channel.Channel`, which adds bounds, partial
  frames and backlog to ``bare_stream``.

The worker is a process of its own that computes nothing. Run it with::

    .venv/bin/python benchmarks/link/bench_link.py --out benchmarks/results/link.json
"""

import argparse
import asyncio
import json
import os
import platform
import selectors
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import uvloop

from takt.link.arena import Arena, ArenaGeometry
from takt.link.asyncio_watch import AsyncioWatch
from takt.link.channel import Channel
from takt.link.ends import GatewayLink, WorkerLink
from takt.link.layout import SlotLayout, SlotView
from takt.link.listener import Listener, connect, listen
from takt.link.messages import (
    GatewayHello,
    Outcome,
    Reply,
    SlotRef,
    Submit,
    WorkerHello,
    WorkerMessage,
    chunk_fields,
    encode,
)
from takt.link.slots import SlotTable
from takt.units import Nanos, ms

LAYOUT = SlotLayout.of([("images", (2, 224, 224, 3), "|u1"), ("state", (32,), "<f4")])
NUM_SLOTS = 16
EPOCH = 1
IMAGES = np.random.default_rng(0).integers(0, 256, (2, 224, 224, 3), np.uint8)
STATE = np.zeros(32, np.float32)
CHUNK = np.zeros((50, 32), np.float32)
FRAME_REPLY = bytes(6400 + 64)


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What is measured how often."""

    rounds: int = 5
    """Rounds of each way, alternating."""
    requests: int = 2000
    """Requests of a round that count."""
    warm_up: int = 200
    """Requests of a round that do not."""


def submit_of(ref: SlotRef) -> Submit:
    """A Submit of usual size."""
    return Submit(
        ref=ref,
        model="pi0",
        session="arm-1",
        sequence=7,
        seed=0,
        sent=time.monotonic_ns(),
        age=ms(1),
        due_in=ms(80),
        promise_in=ms(100),
        expires_in=ms(200),
    )


def serve_link(name: str) -> None:
    """The worker of the full way: reads the slot's header and answers."""
    link = GatewayLink(wait_for_gateway(name))
    fields = chunk_fields(CHUNK)
    with watching(link.channel) as wait:
        while link.channel.is_open:
            wait()
            for message in link.receive():
                if isinstance(message, GatewayHello):
                    link.send(WorkerHello(worker="w", models=()))
                elif isinstance(message, Submit):
                    link.slot(message.ref, LAYOUT).read(message.ref)
                    link.send(Reply(ref=message.ref, outcome=Outcome.SERVED, **fields))


def serve_channel(name: str) -> None:
    """The worker of the bytes through a channel."""
    channel = wait_for_gateway(name)
    with watching(channel) as wait:
        while channel.is_open:
            wait()
            for _ in channel.receive():
                channel.send(FRAME_REPLY)


def prefixed(body: bytes) -> bytes:
    """The message behind its length."""
    return len(body).to_bytes(4, "little") + body


def receive_prefixed(connection: socket.socket) -> bytes:
    """One message, assuming that it came whole, as it does in a ping-pong."""
    stream = connection.recv(65536)
    assert int.from_bytes(stream[:4], "little") == max(len(stream) - 4, 0)
    return stream[4:]


def receive_packet(connection: socket.socket) -> bytes:
    """One packet."""
    return connection.recv(65536)


def serve_bare(name: str, kind: socket.SocketKind) -> None:
    """The worker of the bare ways."""
    is_stream = kind is socket.SOCK_STREAM
    receive = receive_prefixed if is_stream else receive_packet
    reply = prefixed(FRAME_REPLY) if is_stream else FRAME_REPLY
    listening = socket.socket(socket.AF_UNIX, kind)
    listening.bind("\0takt/" + name)
    listening.listen(1)
    print("listening", flush=True)
    connection, _ = listening.accept()
    connection.setblocking(False)
    with watching(connection) as wait:
        wait()
        while receive(connection):
            connection.send(reply)
            wait()


def wait_for_gateway(name: str) -> Channel:
    """Listen and accept one gateway."""
    listener = Listener(listen(name))
    print("listening", flush=True)
    with watching(listener) as wait:
        wait()
        return listener.accept()[0]


@contextmanager
def watching(source: Channel | Listener | socket.socket) -> Iterator[Callable[[], object]]:
    """A call that returns when ``source`` is readable."""
    with selectors.DefaultSelector() as selector:
        selector.register(source, selectors.EVENT_READ)
        yield selector.select


class Gateway:
    """The gateway of the full way."""

    def __init__(self, name: str) -> None:
        geometry = ArenaGeometry(num_slots=NUM_SLOTS, slot_bytes=LAYOUT.slot_bytes)
        self.arena = Arena.create(geometry)
        self.table: SlotTable[int] = SlotTable(NUM_SLOTS, epoch=EPOCH)
        self.link = WorkerLink(connect(name), self.arena, gateway="g", epoch=EPOCH)

    def send(self, number: int) -> None:
        """Write a row and submit it."""
        ref = self.table.claim(number)
        assert ref is not None
        row = SlotView(self.arena.slot(ref.slot), LAYOUT)
        row.stamp(ref)
        row.put("images", IMAGES)
        row.put("state", STATE)
        self.table.submit(ref, link=1)
        self.link.send(submit_of(ref))

    def take(self, message: WorkerMessage) -> bool:
        """Whether the message is the answer."""
        if not isinstance(message, Reply):
            return False
        assert self.table.reply(message.ref, link=1) is not None
        return message.actions().shape == CHUNK.shape

    def close(self) -> None:
        """End the link, and with it the worker."""
        self.link.channel.close()
        self.arena.close()


def drive_link_selector(name: str, count: int) -> list[Nanos]:
    """The full way, gateway driven by a selector."""
    gateway, times = Gateway(name), list[Nanos]()
    with watching(gateway.link.channel) as wait:
        for number in range(count):
            start = time.monotonic_ns()
            gateway.send(number)
            while not any(map(gateway.take, gateway.link.receive())):
                wait()
            times.append(time.monotonic_ns() - start)
    gateway.close()
    return times


def drive_link_uvloop(name: str, count: int) -> list[Nanos]:
    """The full way, gateway driven by uvloop."""
    times: list[Nanos] = []

    async def main() -> None:
        gateway, done = Gateway(name), asyncio.Event()
        start = time.monotonic_ns()

        def hear(message: WorkerMessage) -> None:
            nonlocal start
            if not gateway.take(message):
                return
            times.append(time.monotonic_ns() - start)
            if len(times) == count:
                done.set()
                return
            start = time.monotonic_ns()
            gateway.send(len(times))

        watch = AsyncioWatch(gateway.link, on_message=hear, on_end=lambda _: done.set())
        gateway.send(0)
        await done.wait()
        watch.detach()
        gateway.close()

    uvloop.run(main())
    return times


def drive_channel(name: str, count: int) -> list[Nanos]:
    """The bytes through a channel."""
    channel, times = connect(name), list[Nanos]()
    body = encode(submit_of(SlotRef(EPOCH, 0, 1)))
    with watching(channel) as wait:
        for _ in range(count):
            start = time.monotonic_ns()
            channel.send(body)
            while not channel.receive():
                wait()
            times.append(time.monotonic_ns() - start)
    channel.close()
    return times


def drive_bare(name: str, count: int, kind: socket.SocketKind) -> list[Nanos]:
    """The bare ways."""
    is_stream = kind is socket.SOCK_STREAM
    receive = receive_prefixed if is_stream else receive_packet
    connection, times = socket.socket(socket.AF_UNIX, kind), list[Nanos]()
    connection.connect("\0takt/" + name)
    connection.setblocking(False)
    body = encode(submit_of(SlotRef(EPOCH, 0, 1)))
    with watching(connection) as wait:
        for _ in range(count):
            start = time.monotonic_ns()
            connection.send(prefixed(body) if is_stream else body)
            wait()
            assert len(receive(connection)) == len(FRAME_REPLY)
            times.append(time.monotonic_ns() - start)
    connection.close()
    return times


DRIVE: dict[str, Callable[[str, int], list[Nanos]]] = {
    "link_selector": drive_link_selector,
    "link_uvloop": drive_link_uvloop,
    "channel": drive_channel,
    "bare_stream": partial(drive_bare, kind=socket.SOCK_STREAM),
    "bare_seqpacket": partial(drive_bare, kind=socket.SOCK_SEQPACKET),
}
SERVE: dict[str, Callable[[str], None]] = {
    "link_selector": serve_link,
    "link_uvloop": serve_link,
    "channel": serve_channel,
    "bare_stream": partial(serve_bare, kind=socket.SOCK_STREAM),
    "bare_seqpacket": partial(serve_bare, kind=socket.SOCK_SEQPACKET),
}


def measure_round(way: str, number: int, setup: Setup) -> list[Nanos]:
    """Round trips of one round, with a worker process of its own."""
    name = f"bench-{os.getpid()}-{way}-{number}"
    command = [sys.executable, __file__, "--serve", way, "--name", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        return DRIVE[way](name, setup.warm_up + setup.requests)[setup.warm_up :]


def summary_of(rounds: list[list[Nanos]]) -> dict[str, object]:
    """Quantiles of all rounds together, and the median of each to show the drift."""
    cuts = statistics.quantiles([time for each in rounds for time in each], n=100)
    return {
        "p50_us": round(cuts[49] / 1e3, 1),
        "p90_us": round(cuts[89] / 1e3, 1),
        "p99_us": round(cuts[98] / 1e3, 1),
        "p50_us_by_round": [round(statistics.median(each) / 1e3, 1) for each in rounds],
    }


def circumstances() -> dict[str, object]:
    """Commit, machine and versions."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    cpu = [
        line.split(":")[1].strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if line.startswith("model name")
    ]
    return {
        "commit": commit.stdout.strip() or "none",
        "machine": f"{len(cpu)} x {cpu[0] if cpu else platform.machine()}",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "msgspec": msgspec.__version__,
        "uvloop": uvloop.__version__,
        "load_average": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Round trips between gateway and worker")
    parser.add_argument("--rounds", type=int, default=Setup.rounds)
    parser.add_argument("--requests", type=int, default=Setup.requests)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--serve", choices=sorted(SERVE), help=argparse.SUPPRESS)
    parser.add_argument("--name", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        SERVE[options.serve](options.name)
        return
    setup = Setup(rounds=options.rounds, requests=options.requests)
    rounds: dict[str, list[list[Nanos]]] = {way: [] for way in DRIVE}
    for number in range(setup.rounds):
        for way, measured in rounds.items():
            measured.append(measure_round(way, number, setup))
    result = {
        "setup": asdict(setup) | {"row_bytes": LAYOUT.slot_bytes, "chunk_bytes": CHUNK.nbytes},
        **circumstances(),
        **{way: summary_of(measured) for way, measured in rounds.items()},
    }
    print(json.dumps(result, indent=2))
    if options.out:
        options.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
