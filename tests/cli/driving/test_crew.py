"""A robot's thread, run in the test's own: waiting and asking move a clock by hand."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from tests.cli.driving.fakes import ManualStop, ScriptedConnection, behaviour

from takt.cli.driving.crew import Crew, Hand, Plan
from takt.cli.driving.episodes import Episode, Observing
from takt.cli.driving.outage import Outage
from takt.cli.driving.robot import DrivenRobot
from takt.client.answer import Answer
from takt.client.errors import ConnectionLostError
from takt.errors import RefusedError
from takt.policies.echo import EchoOptions, echo_spec
from takt.policies.mini.replay import load_recordings
from takt.sim.fleet import RobotGroup
from takt.sim.robot import SimulatedRobot
from takt.testing import ManualClock
from takt.units import MILLISECOND, SECOND, Nanos, ms

ECHO = Observing.of(echo_spec("echo", EchoOptions()))
RECORDING = load_recordings()[0]
LOST = ConnectionLostError("cut", code="closed")
SILENT = ConnectionLostError("nothing came", code="timeout")
ABSENT = ConnectionLostError("no route", code="unreachable")


def echo(observation: Mapping[str, Any]) -> Answer:
    steps = np.arange(20, dtype=np.float32)[:, None]
    actions = observation["observation/state"] + steps
    return Answer(actions=actions, round_trip=5 * MILLISECOND, server=2 * MILLISECOND)


class Rig:
    """One robot against a scripted server: an entry of the script per observation.

    An answer takes 5 ms. Entries are exceptions to raise; None and the end of the script mean an
    honest answer.
    """

    def __init__(
        self,
        *script: Exception | None,
        connects: Sequence[Exception] = (),
        duration: Nanos = SECOND,
        **changes: object,
    ) -> None:
        self.clock = ManualClock()
        self.stop = ManualStop(self.clock)
        self.script = list(script)
        self.connects = list(connects)
        self.opened: list[ScriptedConnection] = []
        self.tries: list[Nanos] = []
        self.robot = DrivenRobot("robot-1", behaviour(**changes), origin=0, end=duration)
        plan = Plan(
            name="robot-1",
            behaviour=self.robot.behaviour,
            episode=Episode(RECORDING, 0, ECHO),
            connect=self.connect,
        )
        self.hand = Hand(self.robot, plan, None, self.stop, self.clock.now)

    def connect(self) -> ScriptedConnection:
        self.tries.append(self.clock.now())
        if self.connects:
            raise self.connects.pop(0)
        self.opened.append(ScriptedConnection(self.infer))
        return self.opened[-1]

    def infer(self, observation: Mapping[str, Any]) -> Answer:
        self.clock.advance(ms(5))
        said = self.script.pop(0) if self.script else None
        if said is not None:
            raise said
        return echo(observation)

    def outcomes(self) -> list[str]:
        self.hand.run()
        self.robot.finish(self.clock.now())
        return [record.outcome for record in self.robot.records]


def test_a_robot_sends_its_whole_schedule_on_one_connection() -> None:
    rig = Rig()

    assert rig.outcomes() == ["served"] * 10

    assert [record.sent for record in rig.robot.records] == [ms(100 * n) for n in range(10)]
    assert {record.latency for record in rig.robot.records} == {ms(5)}
    assert (len(rig.opened), rig.robot.checked, rig.robot.foreign) == (1, 10, 0)
    assert rig.opened[0].is_closed


def test_a_refusal_is_counted_and_the_connection_kept() -> None:
    rig = Rig(None, RefusedError("too late", code="expired"), RefusedError("?", code="observation"))

    assert rig.outcomes() == ["served", "expired", "failed"] + ["served"] * 7

    assert len(rig.opened) == 1
    assert rig.robot.errors == {"expired": 1, "observation": 1}


def test_a_lost_connection_is_opened_again() -> None:
    rig = Rig(None, LOST)

    assert rig.outcomes() == ["served", "failed"] + ["served"] * 8

    assert len(rig.opened) == 2
    assert rig.opened[0].is_closed
    assert rig.robot.errors == {"closed": 1}


@pytest.mark.parametrize(
    ("script", "connects", "outages"),
    [
        ([None, LOST], [], [Outage(since=ms(100), until=ms(205))]),
        ([None, SILENT], [], [Outage(since=ms(100), until=ms(205))]),
        ([], [ABSENT], [Outage(since=0, until=ms(105))]),
        ([None, RefusedError("?", code="expired")], [], []),
        ([], [RefusedError("too many robots", code="busy")], []),
        ([None, ZeroDivisionError("oops")], [], []),
    ],
)
def test_a_robot_is_without_a_server_when_none_is_there_and_not_when_it_refuses(
    script: list[Exception | None], connects: list[Exception], outages: list[Outage]
) -> None:
    rig = Rig(*script, connects=connects)

    rig.outcomes()

    assert rig.robot.outages == outages


def test_a_fault_of_the_program_is_counted_like_any_other() -> None:
    rig = Rig(None, ZeroDivisionError("oops"))

    assert rig.outcomes() == ["served", "failed"] + ["served"] * 8

    assert rig.robot.errors == {"ZeroDivisionError": 1}


def test_a_server_that_comes_back_serves_again_although_it_was_away_for_long() -> None:
    rig = Rig(connects=[ABSENT] * 12, duration=60 * SECOND)

    outcomes = rig.outcomes()

    assert len(outcomes) == 600
    assert outcomes[-1] == "served"
    assert rig.robot.errors == {"unreachable": outcomes.count("failed")}
    back = rig.robot.records[outcomes.index("served")].answered
    assert rig.robot.outages == [Outage(since=0, until=back)]


def test_a_robot_tries_less_and_less_often_to_connect() -> None:
    rig = Rig(connects=[ABSENT] * 1000, duration=120 * SECOND, rate_hz=50.0)

    rig.hand.run()

    pauses = [later - earlier for earlier, later in zip(rig.tries, rig.tries[1:], strict=False)]
    assert ms(2500) <= pauses[-1] <= ms(5020)
    assert len(rig.tries) < 70
    assert len(rig.robot.records) == 6000


def test_a_closed_loop_robot_pauses_after_a_failure() -> None:
    rig = Rig(LOST, rate_hz=None)

    rig.outcomes()

    first, second = rig.robot.records[:2]
    assert ms(25) <= second.sent - first.sent <= ms(60)


def test_a_chunk_of_another_robot_is_found() -> None:
    rig = Rig()
    honest = rig.infer

    def foreign(observation: Mapping[str, Any]) -> Answer:
        state = np.array(observation["observation/state"])
        state[0] += 1
        return honest({"observation/state": state})

    rig.infer = foreign

    assert set(rig.outcomes()) == {"failed"}
    assert rig.robot.foreign == 10


def test_what_fails_because_the_run_is_over_is_pending() -> None:
    rig = Rig()

    def infer(observation: Mapping[str, Any]) -> Answer:
        rig.clock.advance(ms(250))
        rig.stop.is_over = True
        raise LOST

    rig.infer = infer

    assert rig.outcomes() == ["pending", "superseded", "superseded"]
    assert rig.robot.outages == []


def test_a_run_that_is_over_ends_a_robots_sleep() -> None:
    rig = Rig()
    rig.stop.is_over = True

    assert rig.outcomes() == []


@pytest.mark.parametrize(
    ("deadline", "dues"),
    [
        # 20 actions from the tick at 10 ms on; the network took 3 ms of the 5.
        ("queue", [ms(10), ms(110) - ms(3)]),
        ("slo", [None, None]),
    ],
)
def test_the_server_is_told_when_the_queue_runs_dry_if_that_is_wanted(
    deadline: str, dues: list[Nanos | None]
) -> None:
    rig = Rig(deadline=deadline, duration=ms(200))

    rig.hand.run()

    assert rig.opened[0].dues == dues


def assembled(
    number: int,
    connect: Callable[[], ScriptedConnection],
    *,
    seed: int = 0,
    clock: ManualClock | None = None,
) -> Crew:
    plans = [
        Plan(
            name=f"robot-{n}",
            behaviour=behaviour(),
            episode=Episode(RECORDING, n, ECHO),
            connect=connect,
        )
        for n in range(number)
    ]
    now = (clock or ManualClock()).now
    return Crew.assemble(plans, duration=SECOND, seed=seed, clock=now)


def phases(crew: Crew) -> list[Nanos]:
    return [(robot.next_ask or 0) - crew.start for robot in crew.robots]


def test_robots_start_at_different_instants_and_at_the_same_ones_for_a_seed() -> None:
    crews = [assembled(8, lambda: ScriptedConnection(echo), seed=seed) for seed in (0, 0, 1)]

    first, again, other = (phases(crew) for crew in crews)

    assert len(set(first)) == 8
    assert first == again != other
    assert 0 <= min(first) <= max(first) < ms(100)


def test_a_robot_has_the_phase_of_its_twin_in_a_simulation_of_the_same_seed() -> None:
    group = RobotGroup(model="pi0", count=1, device="gpu", rate_hz=2.0)
    plan = Plan(
        name="robot-8",
        behaviour=behaviour(rate_hz=2.0),
        episode=Episode(RECORDING, 0, ECHO),
        connect=lambda: ScriptedConnection(echo),
        stream="pi0-7",
    )
    crew = Crew.assemble([plan], duration=SECOND, seed=3, clock=ManualClock().now)

    assert phases(crew) == [SimulatedRobot("pi0-7", group, seed=3).first_ask()]


def test_crews_of_several_processes_start_when_they_are_told_to() -> None:
    connected: list[ScriptedConnection] = []

    def connect() -> ScriptedConnection:
        connected.append(ScriptedConnection(echo))
        return connected[-1]

    def begin() -> Nanos:
        assert len(connected) == 1
        return 7 * SECOND

    plan = Plan(
        name="robot-1",
        behaviour=behaviour(),
        episode=Episode(RECORDING, 0, ECHO),
        connect=connect,
    )
    crew = Crew.assemble(
        [plan],
        duration=SECOND,
        seed=0,
        clock=ManualClock().now,
        warm_up=2 * SECOND,
        begin=begin,
    )

    assert (crew.start, crew.end) == (7 * SECOND, 10 * SECOND)


def test_a_robot_that_cannot_connect_takes_part_all_the_same() -> None:
    def connect() -> ScriptedConnection:
        raise ABSENT

    assert len(assembled(3, connect).robots) == 3


def test_breaking_off_ends_every_wait_for_an_answer() -> None:
    asked, given_up = threading.Event(), threading.Event()

    class Silent(ScriptedConnection):
        def close(self) -> None:
            given_up.set()

    def infer(observation: Mapping[str, Any]) -> Answer:
        asked.set()
        assert given_up.wait(20)
        raise LOST

    clock = ManualClock()
    crew = assembled(1, lambda: Silent(infer), clock=clock)
    clock.advance(SECOND // 2)

    def interrupt() -> None:
        if asked.is_set():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        crew.run(interrupt, MILLISECOND)

    assert crew.robots[0].records[0].outcome == "superseded"
    assert crew.robots[0].errors["pending"] == 1
