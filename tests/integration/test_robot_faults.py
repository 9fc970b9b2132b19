"""The promises of a control loop over a bad network, on real sockets.

Between the loop and a server stands :class:`~takt.testing.LoopbackProxy`. TCP delivers bytes in
order, once, or not at all, so delays, cuts and silence are what a network does; repeated, dropped
and reordered *answers* are what a broken server or middlebox does. An answer that comes late in the
order can only reach a later question of the same connection or, replayed, a later connection.

Every command carries the number of the observation it answers, so an answer that reached the wrong
question would show.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.client.live import until
from tests.integration.openpi_server import openpi_server
from websockets.frames import Opcode
from websockets.sync.server import ServerConnection

from takt.client import Backoff, connect
from takt.client.episode import Episode, Record, read_episode
from takt.client.episode_log import EpisodeLog
from takt.client.loop import ControlLoop
from takt.client.loop_settings import Hooks, LoopSettings
from takt.client.pacing import sleep
from takt.robot.contract_rules import ContractRules
from takt.robot.contract_table import State
from takt.testing import LoopbackProxy
from takt.testing.proxy import EditAnswers
from takt.units import MILLISECOND, Nanos, ms, seconds
from takt.wire.msgpack_arrays import Dialect
from takt.wire.openpi import encode_reply

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TAKT = {"takt": {"version": "0", "model": "echo"}}
RULES = ContractRules(
    max_action_age=ms(400),
    t_hold=ms(150),
    t_stop=None,
    resume="auto_if_still",
    max_start_jump=1e9,
    resume_ramp=0,
)
HOOKS = Hooks(pose=lambda seen: np.zeros(1))
SETTINGS = LoopSettings(control_hz=100.0, contract=RULES)
PATIENCE = seconds(60)
STEP = 2.0**-10
HORIZON = 25
OPCODE = 0x0F


class CountingRobot:
    """Counts its observations, and is wherever it was told to be."""

    def __init__(self) -> None:
        self.observations = 0

    def observe(self) -> Mapping[str, object]:
        self.observations += 1
        return {"observation/state": np.array([self.observations], np.float32)}

    def act(self, action: np.ndarray, /) -> None:
        assert np.isfinite(action).all()


def answer(observation: dict[str, Any], connection: ServerConnection) -> bytes:
    """The number of the observation, counted up by one small step per action."""
    del connection
    number = float(observation["observation/state"][0])
    actions = (number + STEP * np.arange(HORIZON, dtype=np.float64))[:, np.newaxis]
    took = {"server_timing": {"infer_ms": 0.5}, "policy_timing": {"infer_ms": 0.25}}
    echoed = {"sequence": observation["takt"]["sequence"], "stages_ms": {}}
    return encode_reply({"actions": actions, "takt": echoed, **took}, Dialect.OPENPI)


@contextmanager
def driven(
    path: Path,
    *,
    edit_answers: EditAnswers | None = None,
    settings: LoopSettings = SETTINGS,
    answer_timeout: Nanos = 500 * MILLISECOND,
    clock: Callable[[], Nanos] = time.monotonic_ns,
    wait: Callable[[Nanos], None] = sleep,
) -> Iterator[tuple[ControlLoop, LoopbackProxy]]:
    """A robot in motion, and the network between it and its server."""
    with (
        openpi_server(answer, metadata=TAKT) as server,
        LoopbackProxy(server, edit_answers=edit_answers) as proxy,
        EpisodeLog(path, clock=clock) as log,
        ControlLoop(
            CountingRobot(),
            partial(
                connect,
                proxy.address,
                connect_timeout=max(ms(300), answer_timeout),
                answer_timeout=answer_timeout,
            ),
            settings,
            hooks=HOOKS,
            log=log,
            backoff=Backoff(base=MILLISECOND, most=20 * MILLISECOND),
            clock=clock,
            wait=wait,
        ) as loop,
    ):
        loop.start()
        assert loop.wait_for(State.ACTIVE, timeout=PATIENCE)
        yield loop, proxy


def answers(loop: ControlLoop, more: int) -> None:
    """Wait until so many more chunks have come."""
    goal = loop.status().answered + more
    until(lambda: loop.status().answered >= goal)


def kept_promises(path: Path, rules: ContractRules = RULES) -> Episode:
    """The episode, once every promise is known to be kept in it."""
    episode = read_episode(path)
    assert episode.is_complete
    actions = episode.of("action")
    whole = [record for record in actions if record["whole"]]
    timesteps = [record["timestep"] for record in whole]
    assert timesteps == sorted(set(timesteps)), "a timestep ran twice, or backwards"
    assert max(r["age_ms"] for r in actions) <= rules.max_action_age / 1e6, "an action was too old"
    assert_answers_belong(whole)
    for held in [change for change in episode.of("state") if change["after"] == "hold"]:
        assert since_last_action(episode, held) <= rules.t_hold / 1e6 + lateness(episode)
    return episode


def assert_answers_belong(actions: list[Record]) -> None:
    """All actions of a chunk carry one number, and later chunks carry later ones."""
    numbers: dict[int, float] = {}
    for record in actions:
        number = record["command"][0] - STEP * record["index"]
        assert numbers.setdefault(record["chunk"], number) == number
    assert list(numbers) == sorted(numbers)
    assert list(numbers.values()) == sorted(set(numbers.values())), "an answer reached another"


def since_last_action(episode: Episode, change: Record) -> float:
    return change["at_ms"] - max(
        record["at_ms"] for record in episode.of("action") if record["at_ms"] <= change["at_ms"]
    )


def lateness(episode: Episode) -> float:
    """How late a tick began at worst, where that was more than the half period in hand."""
    return max((record["late_ms"] for record in episode.of("overrun")), default=0.0)


def states(episode: Episode) -> list[str]:
    return [change["after"] for change in episode.of("state")]


def test_a_slow_network_is_waited_out_in_motion(tmp_path: Path) -> None:
    with driven(tmp_path / "e.jsonl") as (loop, proxy):
        proxy.delay(ms(25))
        answers(loop, 6)
        waited = loop.status().round_trip

    kept_promises(tmp_path / "e.jsonl")
    assert waited is not None
    assert waited >= ms(50)


def test_a_network_too_slow_for_the_robot_lets_it_hold_between_answers(tmp_path: Path) -> None:
    with driven(tmp_path / "e.jsonl") as (loop, proxy):
        proxy.delay(ms(160))
        until(lambda: loop.state is State.HOLD)
        answers(loop, 4)
        proxy.delay(0)
        assert loop.wait_for(State.ACTIVE, timeout=PATIENCE)

    episode = kept_promises(tmp_path / "e.jsonl")
    assert "hold" in states(episode)


def test_cuts_end_in_hold_and_the_robot_goes_on_with_a_new_plan(tmp_path: Path) -> None:
    with driven(tmp_path / "e.jsonl") as (loop, proxy):
        for _ in range(4):
            proxy.cut()
            assert loop.wait_for(State.HOLD, timeout=PATIENCE)
            proxy.restore()
            assert loop.wait_for(State.ACTIVE, timeout=PATIENCE)
            answers(loop, 1)

    episode = kept_promises(tmp_path / "e.jsonl")
    assert states(episode).count("hold") >= 4
    assert episode.of("failure")


def test_a_pulled_cable_is_noticed_and_the_robot_goes_on_after_it(tmp_path: Path) -> None:
    with driven(tmp_path / "e.jsonl") as (loop, proxy):
        proxy.silence()
        assert loop.wait_for(State.HOLD, timeout=PATIENCE)
        until(lambda: "timeout" in loop.status().failures)
        proxy.restore()
        assert loop.wait_for(State.ACTIVE, timeout=PATIENCE)
        answers(loop, 2)

    kept_promises(tmp_path / "e.jsonl")


def test_answers_that_are_dropped_cost_time_and_nothing_else(tmp_path: Path) -> None:
    def drop_the_third(number: int, frame: bytes) -> list[bytes]:
        return [] if number == 3 else [frame]

    with driven(tmp_path / "e.jsonl", edit_answers=drop_the_third) as (loop, proxy):
        until(lambda: loop.status().failures.get("timeout", 0) >= 2)
        answers(loop, 1)
        assert proxy.connections >= 3

    kept_promises(tmp_path / "e.jsonl")


def test_an_answer_that_comes_twice_is_executed_once(tmp_path: Path) -> None:
    def repeat(number: int, frame: bytes) -> list[bytes]:
        return [frame, frame] if number == 2 else [frame]

    with driven(tmp_path / "e.jsonl", edit_answers=repeat) as (loop, _):
        until(lambda: loop.status().failures.get("InvariantError", 0) >= 2)
        answers(loop, 1)

    kept_promises(tmp_path / "e.jsonl")


def test_an_answer_of_an_earlier_question_is_not_taken_for_a_later_one(tmp_path: Path) -> None:
    kept: list[bytes] = []

    def delay_by_one(number: int, frame: bytes) -> list[bytes]:
        if frame[0] & OPCODE != Opcode.BINARY:
            return [frame]
        if number == 2:
            kept.append(frame)
            return []
        # The next connection: the old answer comes first, the one that is waited for after it.
        return [kept.pop(), frame] if kept and number == 1 else [frame]

    with driven(tmp_path / "e.jsonl", edit_answers=delay_by_one) as (loop, _):
        until(lambda: loop.status().failures.get("InvariantError", 0) >= 2)
        answers(loop, 1)

    kept_promises(tmp_path / "e.jsonl")


@pytest.mark.parametrize("step_s", [5.0, -5.0])
def test_a_step_of_the_wall_clock_by_5_s_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_s: float
) -> None:
    true_time, offset = time.time, [0.0]  # noqa: TID251 - to be faked
    monkeypatch.setattr(time, "time", lambda: true_time() + offset[0])
    monkeypatch.setattr(time, "time_ns", lambda: int((true_time() + offset[0]) * 1e9))

    with driven(tmp_path / "e.jsonl", answer_timeout=PATIENCE) as (loop, _):
        for number in range(6):
            offset[0] = step_s * (number % 2)
            answers(loop, 1)

    episode = kept_promises(tmp_path / "e.jsonl")
    assert not episode.of("failure")
    assert "stopped" not in states(episode)[:-1]


def test_an_outage_of_30_s_ends_in_hold_and_the_resume_rule_is_kept(tmp_path: Path) -> None:
    """Ten times as fast: a loop of 10 Hz ticks 100 times per true second."""
    origin, speed = time.monotonic_ns(), 10
    rules = ContractRules(max_action_age=seconds(4), t_stop=None, resume="manual", resume_ramp=0)

    def clock() -> Nanos:
        return origin + (time.monotonic_ns() - origin) * speed

    with driven(
        tmp_path / "e.jsonl",
        settings=LoopSettings(control_hz=10.0, contract=rules),
        clock=clock,
        wait=lambda duration: sleep(duration // speed),
    ) as (loop, proxy):
        answers(loop, 2)
        cut_at = clock()
        proxy.cut()
        until(lambda: clock() - cut_at >= seconds(30))
        assert loop.state is State.HOLD
        proxy.restore()
        answers(loop, 2)
        assert loop.state is State.HOLD
        loop.resume()
        assert loop.wait_for(State.ACTIVE, timeout=PATIENCE)
        answers(loop, 1)

    episode = kept_promises(tmp_path / "e.jsonl", rules)
    (held,) = [change for change in episode.of("state") if change["after"] == "hold"]
    (resumed,) = [change for change in episode.of("state") if change["cause"] == "resume"]
    assert resumed["at_ms"] - held["at_ms"] >= 25_000
    after = [r for r in episode.of("action") if r["at_ms"] >= resumed["at_ms"]]
    assert min(r["at_ms"] - r["age_ms"] for r in after) > held["at_ms"]
