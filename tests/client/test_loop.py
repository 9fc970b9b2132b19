"""The loop with its threads and in real time, against a policy in this process."""

import logging
import os
import signal
import threading
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from tests.client.live import PATIENCE, loop_of, still, until

from takt.client.cameras import Cameras
from takt.client.episode import read_episode
from takt.client.episode_log import EpisodeLog
from takt.client.errors import ConnectionLostError
from takt.client.in_process import InProcess
from takt.client.loop_settings import Hooks, LoopSettings
from takt.errors import ConfigError, UsageError
from takt.robot.contract import StateChange
from takt.robot.contract_rules import ContractRules
from takt.robot.contract_table import Cause, State
from takt.testing import ManualClock
from takt.units import MILLISECOND, ms, seconds

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


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

    old_soon = ContractRules(max_action_age=seconds(2), t_hold=ms(50), t_stop=None)
    settings = LoopSettings(control_hz=200.0, contract=old_soon)
    with loop_of(connect=lambda: InProcess(policy), settings=settings) as loop:
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


def test_a_loop_is_opened_once() -> None:
    with loop_of() as loop, pytest.raises(UsageError, match="opened once"):
        loop.open()

    with pytest.raises(UsageError, match="opened once"):
        loop.open()
