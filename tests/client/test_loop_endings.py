"""However a loop ends, by a mistake, Ctrl-C or its closing, the robot is left stopped."""

import signal
import threading
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from tests.client.live import FAST, PATIENCE, SOON, loop_of, still, until
from tests.client.rig import DIM, FakeRobot

from takt.client.in_process import InProcess
from takt.client.loop import ControlLoop
from takt.client.loop_settings import Hooks, LoopSettings
from takt.robot.contract import StateChange
from takt.robot.contract_rules import ContractRules
from takt.robot.contract_table import Cause, State
from takt.testing import ManualClock
from takt.units import ms, seconds

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


class Panic(BaseException):
    """What a driver's native code may raise."""


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


def test_a_policy_that_would_end_its_thread_is_a_failure_like_any_other() -> None:
    def panics(observation: Mapping[str, object]) -> np.ndarray:
        raise Panic

    with loop_of(connect=lambda: InProcess(panics)) as loop:
        until(lambda: loop.status().failures.get("Panic", 0) >= 2)


def test_ctrl_c_in_a_tick_by_hand_stops_the_robot_and_reaches_the_program() -> None:
    def is_enabled() -> bool:
        raise KeyboardInterrupt

    loop = loop_of(hooks=Hooks(is_enabled=is_enabled))
    with pytest.raises(KeyboardInterrupt):
        loop.tick()

    assert loop.state is State.STOPPED


def test_a_signal_handler_stops_the_robot_whatever_the_main_thread_waits_for() -> None:
    with loop_of() as loop:
        before = signal.signal(signal.SIGTERM, lambda number, frame: loop.stop())
        try:
            loop.start()
            assert loop.wait_for(State.ACTIVE, timeout=PATIENCE)
            with loop._changed:  # as where it waits for a state
                signal.raise_signal(signal.SIGTERM)
            assert loop.wait_for(State.STOPPED, timeout=PATIENCE)
        finally:
            signal.signal(signal.SIGTERM, before)


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
