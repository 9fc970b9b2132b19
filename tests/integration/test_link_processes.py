"""WorkerLink between real processes: read-only memory, kills in the middle, nothing left behind."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from takt.link.arena import Arena, ArenaGeometry
from takt.link.channel import Channel
from takt.link.ends import WorkerLink
from takt.link.layout import SlotLayout, SlotView
from takt.link.listener import Listener, connect, listen
from takt.link.messages import Outcome, Reply, SlotRef, Submit, WorkerHello, WorkerMessage
from takt.link.slots import SlotTable

pytestmark = pytest.mark.integration

LAYOUT = SlotLayout.of([("state", (4,), "<f4")])
GEOMETRY = ArenaGeometry(num_slots=4, slot_bytes=4096)
TIMEOUT_MS = 60_000

# A worker of a few lines: echoes the state, or misbehaves as its first argument says.
WORKER = """
import ctypes, mmap, os, selectors, signal, socket, sys
import numpy as np
from takt.link.ends import GatewayLink
from takt.link.layout import SlotLayout
from takt.link.listener import Listener, listen
from takt.link.messages import GatewayHello, Outcome, Reply, Submit, WorkerHello, chunk_fields

behaviour, where = sys.argv[1:]
listening = socket.socket(fileno=int(where)) if where.isdigit() else listen(where)
listener = Listener(listening)
print("listening", flush=True)
layout = SlotLayout.of([("state", (4,), "<f4")])
selector = selectors.DefaultSelector()
selector.register(listener, selectors.EVENT_READ)

def serve(link, submit):
    view = link.slot(submit.ref, layout)
    state = view.read(submit.ref)["state"]
    if behaviour == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if behaviour == "scribble":
        address = state.ctypes.data
        print("scribbling", flush=True)
        ctypes.memset(address, 1, 4)
    link.send(Reply(ref=submit.ref, outcome=Outcome.SERVED,
                    **chunk_fields(state.reshape(1, 4).astype("<f4"))))
    if behaviour == "answer and die":
        os.kill(os.getpid(), signal.SIGKILL)

def hear(link):
    for message in link.receive():
        if isinstance(message, GatewayHello):
            link.send(WorkerHello(worker=str(os.getpid()), models=()))
        elif isinstance(message, Submit):
            serve(link, message)
    if not link.channel.is_open:
        selector.unregister(link.channel)
        link.close("ended")
        print("lost a gateway", flush=True)

while True:
    for key, _ in selector.select():
        if key.fileobj is listener:
            for channel in listener.accept():
                selector.register(channel, selectors.EVENT_READ, GatewayLink(channel))
        else:
            hear(key.data)
"""


def wait_readable(source: Channel | Listener) -> None:
    poll = select.poll()
    poll.register(source.fileno(), select.POLLIN)
    assert poll.poll(TIMEOUT_MS), "nothing came"


@dataclass
class Gateway:
    """The gateway's side of these tests, with one link at a time."""

    epoch: int = 0xFEED
    table: SlotTable[int] = field(init=False)
    arena: Arena = field(init=False)
    link: WorkerLink = field(init=False)

    def __post_init__(self) -> None:
        self.table = SlotTable(GEOMETRY.num_slots, epoch=self.epoch)
        self.arena = Arena.create(GEOMETRY)

    def dial(self, name: str) -> None:
        self.link = WorkerLink(connect(name), self.arena, gateway="g", epoch=self.epoch)

    def write(self, robot: int) -> SlotRef:
        ref = self.table.claim(robot)
        assert ref is not None
        row = SlotView(self.arena.slot(ref.slot), LAYOUT)
        row.stamp(ref)
        row.put("state", np.full(4, robot, np.float32))
        return ref

    def submit(self, ref: SlotRef, *, link: int = 1) -> None:
        assert self.table.submit(ref, link=link)
        self.link.send(
            Submit(
                ref=ref,
                model="echo",
                session="s",
                sequence=0,
                seed=0,
                sent=0,
                age=0,
                due_in=0,
                promise_in=0,
                expires_in=1,
            )
        )

    def hear(self, num_messages: int) -> list[WorkerMessage]:
        heard: list[WorkerMessage] = []
        while len(heard) < num_messages and self.link.channel.is_open:
            wait_readable(self.link.channel)
            heard += self.link.receive()
        return heard

    def hear_the_end(self) -> list[WorkerMessage]:
        heard: list[WorkerMessage] = []
        while self.link.channel.is_open:
            heard += self.hear(1)
        return heard

    def close(self) -> None:
        self.link.channel.close()
        self.arena.close()


StartWorker = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start_worker() -> Iterator[StartWorker]:
    started: list[subprocess.Popen[str]] = []

    def start(behaviour: str, where: str, *, fd: int | None = None) -> subprocess.Popen[str]:
        worker = subprocess.Popen(
            [sys.executable, "-c", WORKER, behaviour, where],
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=() if fd is None else (fd,),
        )
        started.append(worker)
        assert worker.stdout is not None
        assert worker.stdout.readline() == "listening\n"
        return worker

    yield start
    for worker in started:
        worker.kill()
        worker.communicate()


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    made = Gateway()
    yield made
    made.close()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return f"test-{os.getpid()}-{request.node.name}"[:90]


def test_a_worker_process_reads_the_arena_and_answers(
    gateway: Gateway, name: str, start_worker: StartWorker
) -> None:
    worker = start_worker("echo", name)
    gateway.dial(name)

    for robot in (3, 4):
        gateway.submit(gateway.write(robot))
    hello, *replies = gateway.hear(3)

    assert isinstance(hello, WorkerHello)
    assert hello.worker == str(worker.pid)
    for reply in replies:
        assert isinstance(reply, Reply)
        robot = gateway.table.reply(reply.ref, link=1)
        np.testing.assert_array_equal(reply.actions(), [[robot] * 4])
    assert gateway.table.num_free == GEOMETRY.num_slots


def test_a_worker_that_writes_into_the_arena_dies_and_changes_nothing(
    gateway: Gateway, name: str, start_worker: StartWorker
) -> None:
    worker = start_worker("scribble", name)
    gateway.dial(name)
    ref = gateway.write(3)

    gateway.submit(ref)
    gateway.hear_the_end()

    assert worker.wait(20) == -signal.SIGSEGV
    row = SlotView(gateway.arena.slot(ref.slot), LAYOUT)
    np.testing.assert_array_equal(row.read(ref)["state"], [3] * 4)


def test_a_request_of_a_killed_worker_is_served_by_its_successor(
    gateway: Gateway, name: str, start_worker: StartWorker
) -> None:
    start_worker("die", name)
    gateway.dial(name)
    ref = gateway.write(7)
    gateway.submit(ref, link=1)

    gateway.hear_the_end()
    orphans = gateway.table.lose_link(1)
    start_worker("echo", name)
    gateway.dial(name)
    gateway.submit(ref, link=2)
    _, reply = gateway.hear(2)

    assert orphans == [(ref, 7)]
    assert isinstance(reply, Reply)
    assert gateway.table.reply(reply.ref, link=2) == 7
    np.testing.assert_array_equal(reply.actions(), [[7] * 4])


def test_what_a_worker_answered_before_it_was_killed_arrives(
    gateway: Gateway, name: str, start_worker: StartWorker
) -> None:
    worker = start_worker("answer and die", name)
    gateway.dial(name)
    gateway.submit(gateway.write(5))
    assert worker.wait(20) == -signal.SIGKILL

    # Sending to the dead worker must not cut off what it said before.
    gateway.submit(gateway.write(6))
    _, reply = gateway.hear_the_end()

    assert isinstance(reply, Reply)
    assert reply.outcome is Outcome.SERVED
    assert gateway.table.reply(reply.ref, link=1) == 5
    assert [robot for _, robot in gateway.table.lose_link(1)] == [6]


def test_a_stopped_worker_is_cut_off_without_waiting_for_it(
    gateway: Gateway, name: str, start_worker: StartWorker
) -> None:
    worker = start_worker("echo", name)
    gateway.dial(name)
    gateway.hear(1)
    worker.send_signal(signal.SIGSTOP)
    ref = gateway.write(1)
    gateway.submit(ref)

    gateway.link.channel.close("no progress")
    orphans = gateway.table.lose_link(1)
    gateway.table.cancel(ref)

    assert orphans == [(ref, 1)]
    assert gateway.table.num_free == GEOMETRY.num_slots
    worker.send_signal(signal.SIGCONT)
    assert worker.stdout is not None
    assert worker.stdout.readline() == "lost a gateway\n"


def test_a_gateway_reaches_the_next_worker_through_the_supervisors_socket(
    gateway: Gateway, name: str, start_worker: StartWorker
) -> None:
    listening = listen(name)
    gateway.dial(name)
    gateway.submit(gateway.write(9))

    start_worker("echo", str(listening.fileno()), fd=listening.fileno())
    hello, reply = gateway.hear(2)
    listening.close()

    assert isinstance(hello, WorkerHello)
    assert isinstance(reply, Reply)
    assert gateway.table.reply(reply.ref, link=1) == 9


KILLED_GATEWAY = """
import select, sys
from takt.link.arena import Arena, ArenaGeometry
from takt.link.ends import WorkerLink
from takt.link.listener import connect
arena = Arena.create(ArenaGeometry(num_slots=4, slot_bytes=4096))
link = WorkerLink(connect(sys.argv[1]), arena, gateway="killed", epoch=1)
select.select([link.channel], [], [])
link.receive()
print("greeted", flush=True)
sys.stdin.read()
"""


def num_arenas(pid: int) -> int:
    return Path(f"/proc/{pid}/maps").read_text(encoding="ascii").count("memfd:takt-arena")


def test_a_killed_gateway_leaves_nothing_and_the_other_is_served_on(
    gateway: Gateway, name: str, start_worker: StartWorker
) -> None:
    worker = start_worker("echo", name)
    gateway.dial(name)
    gateway.hear(1)
    killed = subprocess.Popen(
        [sys.executable, "-c", KILLED_GATEWAY, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert killed.stdout is not None
    assert killed.stdout.readline() == "greeted\n"
    arenas_before = num_arenas(worker.pid)

    killed.kill()
    killed.communicate()
    assert worker.stdout is not None
    assert worker.stdout.readline() == "lost a gateway\n"
    gateway.submit(gateway.write(2))
    [reply] = gateway.hear(1)

    assert (arenas_before, num_arenas(worker.pid)) == (2, 1)
    assert isinstance(reply, Reply)
    assert gateway.table.reply(reply.ref, link=1) == 2


def test_after_kills_no_name_is_left_and_the_address_is_free(
    gateway: Gateway, name: str, start_worker: StartWorker
) -> None:
    worker = start_worker("echo", name)
    gateway.dial(name)
    gateway.hear(1)

    worker.kill()
    worker.wait(20)

    assert f"@takt/{name}" not in Path("/proc/net/unix").read_text(encoding="utf-8")
    assert not list(Path("/dev/shm").glob("*takt*"))
    listen(name).close()
