"""A real worker process serves gateways, and dies as a worker should."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.integration.small_gateway import SmallGateway, echo_of

from takt.core.trace import replay
from takt.link.listener import listen
from takt.link.messages import (
    AskStats,
    Drain,
    ModelFailed,
    ModelReady,
    Outcome,
    Progress,
    Released,
    Reply,
    Stats,
    WorkerHello,
    WorkerMessage,
)
from takt.policies.echo import FAIL_STATE
from takt.runtime.config import WorkerConfig
from takt.runtime.trace_file import split_traces
from takt.schema.serving import ServedModel
from takt.server.commands import drive_line
from takt.units import SECOND

pytestmark = pytest.mark.integration

EXIT_S = 60
LONG_MS = 1500.0
"""Latency of a launch during which something is to happen."""
ECHO = ServedModel(name="echo", policy="echo")


def echo(name: str, **options: object) -> ServedModel:
    return ServedModel(name=name, policy="echo", options=options)


class Worker:
    """A worker process and what it says to its supervisor."""

    def __init__(self, address: str, *models: ServedModel, **fields: Any) -> None:  # noqa: ANN401
        self.address = address
        config = WorkerConfig(name="w0", address=address, models=models, **fields)
        fd = config.listening_fd
        self.process = subprocess.Popen(
            [sys.executable, "-m", "takt.server.worker_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=() if fd is None else (fd,),
        )
        assert self.process.stdin is not None
        self.process.stdin.write(config.to_json() + b"\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        """The next event; raises where the process has ended."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def hear_until(self, event: str) -> list[dict[str, Any]]:
        heard = [self.hear()]
        while heard[-1]["event"] != event:
            heard.append(self.hear())
        return heard

    def let_go(self) -> None:
        """The supervisor dies: its end of the lifeline is gone."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def end(self) -> None:
        self.process.kill()
        self.process.wait(EXIT_S)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return f"test-{os.getpid()}-{request.node.name}"[:90]


class Stage:
    """Starts workers and gateways and ends them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.workers: list[Worker] = []
        self.gateways: list[SmallGateway] = []

    def worker(self, *models: ServedModel, **fields: Any) -> Worker:  # noqa: ANN401
        self.workers.append(Worker(self.name, *(models or (ECHO,)), **fields))
        return self.workers[-1]

    def ready_worker(self, *models: ServedModel, **fields: Any) -> Worker:  # noqa: ANN401
        worker = self.worker(*models, **fields)
        worker.hear_until("ready")
        return worker

    def gateway(self, **fields: int) -> SmallGateway:
        epoch = 100 + len(self.gateways)
        self.gateways.append(SmallGateway(self.name, epoch=epoch, **fields))
        return self.gateways[-1]

    def end(self) -> None:
        for gateway in self.gateways:
            gateway.close()
        for worker in self.workers:
            worker.end()


@pytest.fixture
def stage(name: str) -> Iterator[Stage]:
    made = Stage(name)
    yield made
    made.end()


def first(messages: list[WorkerMessage], kind: type[Any]) -> Any:  # noqa: ANN401
    return next(message for message in messages if isinstance(message, kind))


def heard(gateway: SmallGateway, kind: type[Any]) -> Any:  # noqa: ANN401
    """The first message of a kind that comes."""
    return first(
        gateway.hear_until(lambda got: any(isinstance(message, kind) for message in got)), kind
    )


def test_sixteen_sessions_get_the_chunks_of_their_own_observations(stage: Stage) -> None:
    stage.ready_worker()
    gateway = stage.gateway()
    states = {f"robot {n}": np.arange(7) + 1000.0 * n for n in range(16)}
    num_rounds = 20

    for number in range(num_rounds):
        for session, state in states.items():
            gateway.submit(state + number, session=session, horizon=8 + number, ticket=session)
        owners: dict[object, str] = {}
        for reply in gateway.replies(len(states), owners):
            assert reply.outcome is Outcome.SERVED, reply.detail
            expected = echo_of(states[owners[reply.ref]] + number, 8 + number)
            np.testing.assert_array_equal(reply.actions(), expected)

    assert gateway.table.num_free == 64
    gateway.link.send(AskStats())
    counters = heard(gateway, Stats).counters
    assert counters["submitted"] == counters["served"] == 16 * num_rounds
    assert counters["unfinished"] == 0


def test_the_hello_says_what_is_served_and_readiness_is_told_later(stage: Stage) -> None:
    worker = stage.worker(echo("slow"), echo("fast"), ServedModel(name="odd", policy="ehco"))
    worker.hear_until("listening")
    gateway = stage.gateway()

    events = worker.hear_until("ready")
    hello = heard(gateway, WorkerHello)
    late = stage.gateway()
    offers = {offer.model: offer for offer in heard(late, WorkerHello).models}

    assert hello.worker == "w0"
    assert [offer.model for offer in hello.models] == ["slow", "fast", "odd"]
    assert events[-1]["models"] == {"slow": "ready", "fast": "ready", "odd": "failed"}
    assert {name: offer.state for name, offer in offers.items()} == events[-1]["models"]
    assert "no policy 'ehco'" in offers["odd"].reason
    assert offers["slow"].denoise_batches == (1, 2, 4, 8, 16)


def test_a_gateway_that_is_there_first_is_told_of_each_model(stage: Stage) -> None:
    worker = stage.worker(echo("good"), ServedModel(name="odd", policy="ehco"))
    worker.hear_until("listening")
    gateway = stage.gateway()
    known: dict[str, str] = {}

    def is_complete(messages: list[WorkerMessage]) -> bool:
        for message in messages:
            if isinstance(message, WorkerHello):
                known.update({offer.model: offer.state for offer in message.models})
            elif isinstance(message, ModelReady):
                known[message.offer.model] = message.offer.state
            elif isinstance(message, ModelFailed):
                known[message.model] = "failed"
        return known == {"good": "ready", "odd": "failed"}

    gateway.hear_until(is_complete)


def test_two_models_of_one_architecture_serve_side_by_side(stage: Stage) -> None:
    stage.ready_worker(echo("left"), echo("right", latency_ms=1.0))
    gateway = stage.gateway()

    gateway.submit(np.full(3, 1.0), model="left", session="l")
    gateway.submit(np.full(3, 2.0), model="right", session="r")
    firsts = sorted(float(reply.actions()[0, 0]) for reply in gateway.replies(2))

    assert firsts == [1.0, 2.0]


def test_a_row_that_fails_costs_its_neighbours_nothing(stage: Stage) -> None:
    stage.ready_worker()
    gateway = stage.gateway()
    gateway.submit(np.full(3, 1.0), session="good", ticket="good")
    gateway.submit(np.full(3, float(FAIL_STATE)), session="bad", ticket="bad")
    gateway.submit(np.full(3, 1.0), model="pi9", session="lost", ticket="lost")
    owners: dict[object, str] = {}

    outcomes = {owners[reply.ref]: reply.outcome for reply in gateway.replies(3, owners)}

    assert outcomes == {
        "good": Outcome.SERVED,
        "bad": Outcome.NON_FINITE,
        "lost": Outcome.UNKNOWN_MODEL,
    }


def test_a_cancelled_launch_releases_its_slot_when_it_ends(stage: Stage) -> None:
    stage.ready_worker(echo("echo", latency_ms=LONG_MS))
    gateway = stage.gateway()
    ref = gateway.submit(np.zeros(3))
    running = heard(gateway, Progress).running

    gateway.cancel(ref)
    released = heard(gateway, Released)
    gateway.table.release(released.ref, link=1)

    assert running == (ref,)
    assert released.ref == ref
    assert gateway.table.num_free == 64


def test_a_gateway_that_leaves_takes_its_requests_with_it_and_no_other(stage: Stage) -> None:
    stage.ready_worker(echo("echo", latency_ms=LONG_MS))
    leaving, staying = stage.gateway(), stage.gateway()
    for number in range(8):
        leaving.submit(np.full(3, 1.0), session=f"{number}", ticket=number)
    heard(leaving, Progress)

    leaving.link.channel.close()
    staying.submit(np.full(3, 5.0))
    [reply] = staying.replies(1)
    staying.link.send(AskStats())
    counters = heard(staying, Stats).counters

    np.testing.assert_array_equal(reply.actions(), echo_of(np.full(3, 5.0), 50))
    assert counters["gateways"] == 1
    assert counters["cancelled"] >= 1
    assert counters["served"] + counters["cancelled"] + counters["unfinished"] == 9


def test_a_gateway_that_does_not_read_is_dropped_and_the_other_is_served(stage: Stage) -> None:
    stage.ready_worker()
    deaf, other = stage.gateway(), stage.gateway()
    heard(deaf, WorkerHello)
    for number in range(40):  # each answer has half a megabyte, twenty together
        deaf.submit(np.zeros(131), horizon=1000, session=f"{number}", ticket=number)

    other.submit(np.full(3, 2.0))
    [reply] = other.replies(1)
    while deaf.link.channel.is_open:
        deaf.hear()

    assert reply.outcome is Outcome.SERVED
    assert deaf.link.channel.end_reason == "the peer closed the link"


def test_sigterm_finishes_what_is_under_way_and_refuses_the_rest(stage: Stage) -> None:
    worker = stage.ready_worker(echo("echo", latency_ms=LONG_MS))
    gateway = stage.gateway()
    gateway.submit(np.full(3, 1.0), session="early", ticket="early")
    heard(gateway, Progress)

    worker.process.send_signal(signal.SIGTERM)
    heard(gateway, Drain)
    gateway.submit(np.full(3, 2.0), session="late", ticket="late")
    owners: dict[object, str] = {}
    outcomes = {owners[reply.ref]: reply.outcome for reply in gateway.replies(2, owners)}

    assert outcomes == {"early": Outcome.SERVED, "late": Outcome.DRAINING}
    assert worker.hear() == {"event": "draining", "unfinished": 1}
    assert worker.process.wait(EXIT_S) == 0


def test_an_idle_worker_exits_when_its_supervisor_has_died(stage: Stage) -> None:
    worker = stage.ready_worker()

    worker.let_go()

    assert worker.process.wait(EXIT_S) == 0


def test_a_killed_worker_leaves_nothing_behind_and_its_successor_serves(stage: Stage) -> None:
    worker = stage.ready_worker()
    gateway = stage.gateway()
    gateway.submit(np.zeros(3))
    gateway.replies(1)

    worker.process.kill()
    worker.process.wait(EXIT_S)
    while gateway.link.channel.is_open:
        gateway.hear()

    assert f"@takt/{stage.name}" not in Path("/proc/net/unix").read_text(encoding="utf-8")
    assert not list(Path("/dev/shm").glob("*takt*"))
    stage.ready_worker()
    successor = stage.gateway()
    successor.submit(np.full(3, 9.0))
    assert successor.replies(1)[0].outcome is Outcome.SERVED


def test_gateways_may_dial_before_the_worker_runs(stage: Stage) -> None:
    listening: socket.socket = listen(stage.name)
    gateway = stage.gateway()

    stage.ready_worker(listening_fd=listening.fileno())
    listening.close()
    heard(gateway, WorkerHello)
    gateway.submit(np.full(3, 4.0))

    assert gateway.replies(1)[0].outcome is Outcome.SERVED


def test_the_trace_of_a_live_worker_replays(stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    worker = stage.ready_worker(
        echo("echo", latency_ms=4.0), echo("late", latency_ms=1.0), trace_path=str(path)
    )
    gateway, killed = stage.gateway(), stage.gateway()
    for number in range(120):
        session = f"{number % 5}"
        ref = gateway.submit(np.zeros(3), session=session, ticket=number, slo=SECOND // 50)
        if number % 7 == 0:
            gateway.cancel(ref)
        if number % 10 == 0:
            killed.submit(np.zeros(3), session=session, ticket=number)
        if number % 4 == 3:
            gateway.settle_some()
    killed.link.channel.close()
    gateway.settle_all()
    worker.process.kill()
    worker.process.wait(EXIT_S)

    with path.open(encoding="utf-8") as lines:
        traces = list(split_traces(lines))

    assert sum(len(trace) for trace in traces) > 200
    for trace in traces:
        assert list(replay(trace)) == trace


@pytest.mark.parametrize(
    ("document", "says"),
    [(b"{", "worker configuration"), (b'{"models": []}', "missing required field")],
)
def test_a_worker_that_cannot_start_says_why_in_one_line(document: bytes, says: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "takt.server.worker_process"],
        input=document + b"\n",
        capture_output=True,
        timeout=EXIT_S,
        check=False,
    )

    assert done.returncode == 1
    failed = json.loads(done.stdout)
    assert failed["event"] == "failed"
    assert says in failed["reason"]
    assert done.stderr == b""


def test_a_worker_whose_address_is_taken_says_so(stage: Stage) -> None:
    listening = listen(stage.name)

    worker = stage.worker()

    assert "Address already in use" in worker.hear_until("failed")[-1]["reason"]
    assert worker.process.wait(EXIT_S) == 1
    listening.close()


def test_replies_come_with_times_that_add_up(stage: Stage) -> None:
    stage.ready_worker(echo("echo", latency_ms=40.0, prefix_share=0.25))
    gateway = stage.gateway()
    gateway.submit(np.zeros(3))

    [reply] = gateway.replies(1)

    assert isinstance(reply, Reply)
    assert reply.times.prefix >= SECOND // 100
    assert reply.times.denoise >= 3 * SECOND // 100


def told(worker: Worker, **driven: Any) -> dict[str, Any]:  # noqa: ANN401 - passed on
    """What a worker says to an offer of another formation."""
    fields = {"options": {}, "prefix_limit": None, "denoise_limit": None, **driven}
    assert worker.process.stdin is not None
    worker.process.stdin.write(json.dumps(drive_line(fields)).encode() + b"\n")
    worker.process.stdin.flush()
    return worker.hear()


def test_an_idle_worker_is_driven_in_another_formation_at_once(stage: Stage) -> None:
    worker = stage.ready_worker()

    said = told(worker, formation="flowing", options={"gathering": 4}, prefix_limit=1)

    assert said == {
        "event": "formation_switched",
        "formation": "flowing",
        "options": {"gathering": 4},
        "prefix_limit": 1,
        "denoise_limit": None,
    }


def test_a_worker_refuses_a_formation_that_it_cannot_drive_and_keeps_its_own(stage: Stage) -> None:
    worker = stage.ready_worker()

    said = told(worker, formation="step_admission")

    assert said["event"] == "formation_refused"
    assert "needs several devices or single denoise steps" in said["reason"]
    assert told(worker, formation="lockstep")["event"] == "formation_switched"


def test_a_worker_without_models_takes_an_offer_for_those_to_come(stage: Stage) -> None:
    worker = stage.ready_worker(echo("gone", no_such_option=1))

    assert told(worker, formation="flowing")["event"] == "formation_switched"
