"""The loop with its threads and in real time, against a policy in this process."""

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.client.rig import DIM, FakeRobot

from takt.client.backoff import Backoff
from takt.client.cameras import Cameras
from takt.client.episode import read_episode
from takt.client.episode_log import EpisodeLog
from takt.client.errors import ConnectionLostError
from takt.client.in_process import InProcess
from takt.client.loop import ControlLoop
from takt.client.loop_settings import Hooks, LoopSettings
from takt.client.robots.described import Axis, RobotDescription
from takt.errors import ConfigError, UsageError
from takt.policies.echo import EchoOptions, echo_spec
from takt.robot.contract import StateChange
from takt.robot.contract_rules import ContractRules
from takt.robot.contract_table import Cause, State
from takt.schema.spec import ActionSpec, AxisSpec
from takt.testing import ManualClock
from takt.units import MILLISECOND, ms, seconds

PATIENCE = seconds(20)
FAST = LoopSettings(control_hz=200.0, contract=ContractRules(t_hold=ms(50), t_stop=None))
SOON = Backoff(base=MILLISECOND, most=MILLISECOND)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = threading.active_count()
    yield
    assert threading.active_count() == before


def still(observation: Mapping[str, object]) -> np.ndarray:
    del observation
    return np.zeros((20, DIM))


def loop_of(**options: object) -> ControlLoop:
    arguments = {"connect": lambda: InProcess(still), "settings": FAST, "backoff": SOON, **options}
    return ControlLoop(FakeRobot(), **arguments)  # type: ignore[arg-type]


def until(done: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(20_000):
        if done():
            return
        pause.wait(0.001)
    pytest.fail("not within 20,000 looks")


def test_an_opened_loop_moves_nothing_before_it_is_started() -> None:
    with loop_of() as loop:
        until(lambda: loop.status().answered >= 1)

        assert (loop.state, loop.status().executed) == (State.IDLE, 0)
        loop.start()
        assert loop.wait_for(State.ACTIVE, timeout=PATIENCE)


def test_a_closed_loop_has_stopped_the_robot_and_told_so() -> None:
    told: list[StateChange] = []
    with loop_of(hooks=Hooks(on_stop=told.append)) as loop:
        loop.start()
        assert loop.wait_for(State.ACTIVE, timeout=PATIENCE)

    assert loop.state is State.STOPPED
    assert [change.cause for change in told] == [Cause.STOP]


def test_stop_latches_until_reset_and_start() -> None:
    with loop_of() as loop:
        loop.start()
        assert loop.wait_for(State.ACTIVE, timeout=PATIENCE)
        loop.stop()
        assert loop.wait_for(State.STOPPED, timeout=PATIENCE)
        loop.reset()
        assert loop.wait_for(State.IDLE, timeout=PATIENCE)
        loop.start()

        assert loop.wait_for(State.ACTIVE, timeout=PATIENCE)


def test_a_server_that_goes_and_comes_is_connected_again_and_the_robot_resumed_by_hand() -> None:
    is_up = threading.Event()
    is_up.set()

    def policy(observation: Mapping[str, object]) -> np.ndarray:
        if not is_up.is_set():
            raise ConnectionLostError("gone", code="closed")
        return still(observation)

    with loop_of(connect=lambda: InProcess(policy)) as loop:
        loop.start()
        assert loop.wait_for(State.ACTIVE, timeout=PATIENCE)
        is_up.clear()
        assert loop.wait_for(State.HOLD, timeout=PATIENCE)
        failures = loop.status().failures["closed"]
        until(lambda: loop.status().failures["closed"] > failures)
        is_up.set()
        loop.resume()

        assert loop.wait_for(State.ACTIVE, timeout=PATIENCE)
        assert loop.status().is_connected


def test_waiting_for_a_state_that_does_not_come_ends() -> None:
    with loop_of() as loop:
        assert not loop.wait_for(State.HOLD, timeout=MILLISECOND)


def test_a_loop_with_cameras_hands_their_images_to_the_policy(tmp_path: Path) -> None:
    seen: list[Mapping[str, object]] = []

    def policy(observation: Mapping[str, object]) -> np.ndarray:
        seen.append(observation)
        return still(observation)

    cameras = Cameras(lambda: {"image": 7}, rate_hz=50.0)
    with (
        EpisodeLog(tmp_path / "e.jsonl", head={"robot": "arm-1"}) as log,
        loop_of(connect=lambda: InProcess(policy), cameras=cameras, log=log) as loop,
    ):
        loop.start()
        assert loop.wait_for(State.ACTIVE, timeout=PATIENCE)

    assert {"image", "observation/state"} <= set(seen[0])
    episode = read_episode(tmp_path / "e.jsonl")
    assert episode.head["robot"] == "arm-1"
    assert episode.is_complete


def test_a_loop_in_virtual_time_is_ticked_by_hand() -> None:
    clock = ManualClock(seconds(5))

    def wait(duration: int) -> None:
        clock.advance(duration)

    loop = loop_of(clock=clock.now, wait=wait)
    for _ in range(10):
        loop.tick()
    clock.advance(ms(12))
    loop.tick()

    status = loop.status()
    assert (status.ticks, status.overruns, status.skipped_ticks) == (11, 1, 1)
    assert clock.now() == seconds(5) + 9 * ms(5) + ms(12)


def test_a_mistake_of_ours_in_a_tick_stops_the_robot_and_not_the_loop(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[StateChange] = []
    with loop_of(hooks=Hooks(on_stop=told.append)) as loop:
        loop.start()
        assert loop.wait_for(State.ACTIVE, timeout=PATIENCE)
        broken = threading.Event()

        def fail() -> None:
            broken.set()
            raise ZeroDivisionError

        monkeypatch.setattr(loop._motion, "_propose", fail)  # in every tick from now on

        assert loop.wait_for(State.STOPPED, timeout=PATIENCE)
        assert broken.is_set()
        assert [change.cause for change in told] == [Cause.STOP]
        assert loop.status().faults["loop"] >= 1
    assert "loop failed" in caplog.text


def test_the_library_leaves_logging_signals_and_the_working_directory_alone() -> None:
    root = logging.getLogger()
    before = (
        list(root.handlers), root.level, logging.getLogger("takt").handlers[:], os.getcwd(),
        [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
    )  # fmt: skip

    with loop_of() as loop:
        loop.start()
        assert loop.wait_for(State.ACTIVE, timeout=PATIENCE)

    after = (
        list(root.handlers), root.level, logging.getLogger("takt").handlers[:], os.getcwd(),
        [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
    )  # fmt: skip
    assert after == before


def test_a_start_jump_is_not_limited_without_knowing_where_the_robot_is() -> None:
    settings = LoopSettings(contract=ContractRules(max_start_jump=0.1))

    with pytest.raises(ConfigError, match=r"Hooks\(pose="):
        loop_of(settings=settings)


class Panic(BaseException):
    """What a driver's native code may raise."""


class Rover(FakeRobot):
    """Drives by velocities."""

    def observe(self) -> Mapping[str, object]:
        return {"observation/state": np.zeros(DIM)}


ROVER = LoopSettings(
    control_hz=200.0,
    contract=ContractRules(hold_mode="velocity", deceleration=20.0, resume_ramp=0),
)


def forward(observation: Mapping[str, object]) -> np.ndarray:
    del observation
    return np.ones((20, DIM))


@pytest.mark.parametrize("control_thread", [True, False])
def test_a_closed_loop_leaves_no_velocity_behind(control_thread: bool) -> None:
    rover = Rover()
    loop = ControlLoop(rover, lambda: InProcess(forward), ROVER)
    loop.open(control_thread=control_thread)
    loop.start()

    def drives() -> bool:
        if not control_thread:
            loop.tick()
        return bool(rover.position.all())

    until(drives)
    loop.close()

    assert rover.position.tolist() == [0.0] * DIM
    assert loop.state is State.STOPPED


def test_a_loop_ticked_by_hand_asks_its_server() -> None:
    loop = loop_of()
    loop.open(control_thread=False)
    loop.start()

    def moves() -> bool:
        loop.tick()
        return loop.state is State.ACTIVE

    until(moves)
    loop.close()
    assert loop.state is State.STOPPED


def test_a_panic_of_a_driver_stops_the_robot_and_not_the_loop() -> None:
    panics = threading.Event()

    def is_enabled() -> bool:
        if panics.is_set():
            raise Panic
        return True

    with loop_of(hooks=Hooks(is_enabled=is_enabled)) as loop:
        loop.start()
        assert loop.wait_for(State.ACTIVE, timeout=PATIENCE)
        panics.set()
        assert loop.wait_for(State.STOPPED, timeout=PATIENCE)
        ticks = loop.status().ticks
        until(lambda: loop.status().ticks > ticks + 2)


def test_ctrl_c_in_a_tick_by_hand_stops_the_robot_and_reaches_the_program() -> None:
    def is_enabled() -> bool:
        raise KeyboardInterrupt

    loop = loop_of(hooks=Hooks(is_enabled=is_enabled))
    with pytest.raises(KeyboardInterrupt):
        loop.tick()

    assert loop.state is State.STOPPED


class Interrupted(FakeRobot):
    """Is slow to be seen, and is sent its first command when somebody presses Ctrl-C."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock

    def observe(self) -> Mapping[str, object]:
        self._clock.advance(ms(3))
        return super().observe()

    def act(self, action: np.ndarray) -> None:
        raise KeyboardInterrupt


def test_ctrl_c_after_a_slow_look_stops_the_robot_and_is_no_fault_of_the_clock() -> None:
    clock = ManualClock(seconds(5))
    told: list[StateChange] = []

    def wait(duration: int) -> None:
        clock.advance(duration)

    loop = ControlLoop(
        Interrupted(clock),
        lambda: InProcess(still),
        FAST,
        hooks=Hooks(on_stop=told.append, pose=lambda seen: np.asarray(seen["observation/state"])),
        backoff=SOON,
        clock=clock.now,
        wait=wait,
    )
    loop.open(control_thread=False)
    loop.start()

    def is_interrupted() -> bool:
        try:
            loop.tick()
        except KeyboardInterrupt:
            return True
        return False

    until(is_interrupted)
    loop.close()

    assert [change.cause for change in told] == [Cause.STOP]


class Hanging(FakeRobot):
    """Takes so long to be seen that the loop is closed meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], None] | None = None
        self.commands = 0

    def observe(self) -> Mapping[str, object]:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return super().observe()

    def act(self, action: np.ndarray) -> None:
        super().act(action)
        self.commands += 1


def test_a_tick_that_hangs_while_the_loop_is_closed_moves_nothing_afterwards() -> None:
    robot = Hanging()
    pose = Hooks(pose=lambda seen: np.asarray(seen["observation/state"]))
    loop = ControlLoop(robot, lambda: InProcess(still), FAST, hooks=pose, backoff=SOON)
    commands: list[int] = []

    def close() -> None:
        loop.close()
        commands.append(robot.commands)

    loop.open()
    loop.start()
    assert loop.wait_for(State.ACTIVE, timeout=PATIENCE)
    robot.meanwhile = close
    until(lambda: not loop._thread.is_alive())

    assert commands == [robot.commands]
    assert loop.state is State.STOPPED


def test_a_hook_may_close_the_loop() -> None:
    def close(change: StateChange) -> None:
        del change
        loop.close()

    loop = loop_of(hooks=Hooks(on_stop=close))
    with loop:
        loop.stop()
        until(lambda: not loop._thread.is_alive())

    assert loop.status().faults == {}


def test_a_loop_is_opened_once() -> None:
    with loop_of() as loop, pytest.raises(UsageError, match="opened once"):
        loop.open()

    with pytest.raises(UsageError, match="opened once"):
        loop.open()


def test_a_policy_that_would_end_its_thread_is_a_failure_like_any_other() -> None:
    def panics(observation: Mapping[str, object]) -> np.ndarray:
        raise Panic

    with loop_of(connect=lambda: InProcess(panics)) as loop:
        until(lambda: loop.status().failures.get("Panic", 0) >= 2)


class NamedRobot(FakeRobot):
    """Tells names that are given to it."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names = names

    def describe(self) -> RobotDescription:
        return RobotDescription(action=tuple(map(Axis, self.names)))


class CardedPolicy(InProcess):
    """A policy with a card, as a server has one."""

    def __init__(self, *names: str) -> None:
        super().__init__(still)
        self.spec = replace(
            echo_spec("arm", EchoOptions()),
            action=ActionSpec(
                action_dim=len(names),
                model_action_dim=len(names),
                horizon=20,
                execution_horizon=20,
                axes=tuple(AxisSpec(name=name) for name in names),
            ),
            sizes_are_maxima=False,
        )
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def test_a_model_of_another_robot_moves_nothing_and_the_failure_names_both() -> None:
    policies: list[CardedPolicy] = []

    def dial() -> CardedPolicy:
        policies.append(CardedPolicy("elbow", "shoulder"))
        return policies[-1]

    with ControlLoop(NamedRobot("shoulder", "elbow"), dial, FAST, backoff=SOON) as loop:
        loop.start()
        until(lambda: loop.status().failures.get("features", 0) >= 2)

        status = loop.status()
        assert (status.state, status.executed, status.answered) == (State.IDLE, 0, 0)
        assert status.last_failure is not None
        assert "'shoulder' at place 0, the model 'elbow'" in status.last_failure
        assert not status.is_connected
    assert all(policy.is_closed for policy in policies)


def test_a_described_robot_moves_by_the_model_that_is_made_for_it() -> None:
    robot = NamedRobot("shoulder", "elbow")
    with ControlLoop(robot, lambda: CardedPolicy("shoulder", "elbow"), FAST) as loop:
        loop.start()

        assert loop.wait_for(State.ACTIVE, timeout=PATIENCE)


def test_a_server_that_tells_nothing_drives_a_described_robot() -> None:
    with ControlLoop(NamedRobot("shoulder", "elbow"), lambda: InProcess(still), FAST) as loop:
        loop.start()

        assert loop.wait_for(State.ACTIVE, timeout=PATIENCE)
