"""What a robot does while all goes well: it asks, executes, interpolates and notes."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.client.rig import AT_ONCE, PLAIN, Rig, counting, pose_of, values

from takt.client.episode_log import EpisodeLog
from takt.client.loop_settings import LoopSettings
from takt.client.mailbox import Asked, Posted
from takt.robot.contract_rules import ContractRules
from takt.robot.contract_table import State
from takt.testing import ManualClock
from takt.units import ms, seconds


def test_nothing_moves_before_somebody_starts_the_robot() -> None:
    rig = Rig(PLAIN)

    rig.run(seconds(3))

    assert rig.sent == []
    assert rig.state is State.IDLE
    assert rig.asked


def test_every_action_is_executed_once_in_order_at_the_control_rate() -> None:
    rig = Rig(PLAIN).started()

    rig.run(seconds(2))

    assert values(rig) == [round(step / 100, 6) for step in range(len(rig.sent))]
    assert {b.at - a.at for a, b in zip(rig.sent, rig.sent[1:], strict=False)} == {ms(20)}
    assert rig.motion.executed == len(rig.sent)


def test_the_server_is_told_when_the_queue_runs_dry_less_the_network() -> None:
    rig = Rig(PLAIN, latency=ms(60)).started()
    rig.run(seconds(1))

    asked = rig.asked[-1]

    # Ten actions of 20 ms are left from this tick on, and the network takes 30 of 60 ms.
    assert asked.due_in == 10 * ms(20) - ms(30)
    assert asked.expires_in == PLAIN.contract.max_action_age


def test_a_chunk_begins_with_the_action_after_those_its_observation_shows() -> None:
    rig = Rig(PLAIN, latency=ms(60)).started()
    rig.run(seconds(2))

    # The robot stands where its last command sent it, and each says its timestep in hundredths.
    shown = [round(100 * float(pose_of(asked.observation)[0])) for asked in rig.asked]
    assert len(shown) > 3
    assert shown[1:] == [asked.posted.first_timestep - 1 for asked in rig.asked[1:]]


def test_sync_looks_when_the_last_action_has_had_its_period() -> None:
    settings = LoopSettings(control_hz=50.0, sync=True, contract=AT_ONCE)
    rig = Rig(settings, latency=ms(60)).started()
    rig.run(seconds(2))

    last_of_first_chunk = next(each for each in rig.executed if each.timestep == 19)
    assert rig.asked[1].posted.observed == last_of_first_chunk.at + settings.control_period


def test_sync_looks_no_earlier_when_commands_are_interpolated() -> None:
    settings = LoopSettings(control_hz=50.0, policy_hz=10.0, sync=True, contract=AT_ONCE)
    rig = Rig(settings, latency=ms(60), chunk=lambda asked: counting(asked, 5)).started()
    rig.run(seconds(2))

    last_of_first_chunk = next(
        each for each in rig.executed if each.timestep == 4 and each.is_whole
    )
    assert rig.asked[1].posted.observed == last_of_first_chunk.at + settings.control_period


def onwards(asked: Asked) -> np.ndarray:
    """What a policy says that goes on at one speed from where it sees the robot."""
    return pose_of(asked.observation) + np.arange(1, 21)[:, None] / 100.0


@pytest.mark.parametrize("commands_per_action", [1, 2, 5])
def test_a_robot_that_goes_on_at_one_speed_does_so_across_chunks(commands_per_action: int) -> None:
    hz = 10.0 * commands_per_action
    settings = LoopSettings(control_hz=hz, policy_hz=10.0, contract=AT_ONCE)
    rig = Rig(settings, latency=ms(350), chunk=onwards).started()
    rig.run(seconds(6))

    steps = np.diff([sent.values[0] for sent in rig.sent])
    assert rig.motion.splices.count > 3
    assert np.allclose(steps, 0.01 / commands_per_action)


def test_an_observation_that_waits_is_renewed_only_where_it_shows_whole_actions() -> None:
    settings = LoopSettings(control_hz=50.0, policy_hz=10.0, contract=AT_ONCE)
    rig = Rig(settings, latency=ms(60)).started()
    rig.run(seconds(1))
    waiting: list[Posted] = []
    for _ in range(90):  # nobody takes it
        rig.motion.tick(rig.clock.now())
        rig.clock.advance(ms(20))
        posted = rig.mailbox._posted
        if posted is not None and posted not in waiting:
            waiting.append(posted)

    assert len(waiting) > 3
    for posted in waiting:
        # The robot stands where its last command sent it, and each says its timestep in hundredths.
        shown = float(pose_of(posted.observation)[0])
        assert shown == pytest.approx((posted.first_timestep - 1) / 100)


def test_a_slowed_robot_does_not_wait_for_the_end_of_an_action_to_ask_again() -> None:
    rules = ContractRules(
        resume_ramp=0, degraded_speed=0.05, t_hold=seconds(9), max_action_age=seconds(60)
    )
    settings = LoopSettings(control_hz=50.0, policy_hz=10.0, contract=rules)
    rig = Rig(settings, latency=ms(60)).started()
    rig.run(seconds(2))
    rig.latency = seconds(60)
    rig.run_until(State.DEGRADED)
    rig.run(ms(40))
    executed, asked = rig.motion.executed, len(rig.asked)

    rig.latency, rig.is_cut = ms(60), True
    rig.run(ms(400))  # at this speed an action takes 2 s

    assert rig.motion.executed <= executed + 1
    assert len(rig.asked) > asked + 3


def test_one_observation_is_under_way_at_a_time() -> None:
    rig = Rig(PLAIN, latency=ms(300)).started()
    rig.run(seconds(3))

    gaps = [b.sent - a.sent for a, b in zip(rig.asked, rig.asked[1:], strict=False)]

    assert min(gaps) >= ms(300)


def test_an_observation_that_waits_to_be_sent_is_replaced_by_the_newest() -> None:
    rig = Rig(PLAIN)
    for _ in range(3):  # nobody takes it
        rig.motion.tick(rig.clock.now())
        rig.clock.advance(ms(20))

    taken = rig.mailbox.take_request()

    assert taken is not None
    assert taken.posted.observed == ms(1040)
    assert rig.mailbox.take_request() is None


def test_between_two_actions_of_a_slow_policy_commands_are_interpolated() -> None:
    settings = LoopSettings(control_hz=50.0, policy_hz=10.0, contract=AT_ONCE)
    rig = Rig(settings).started()

    rig.run(ms(300))

    assert values(rig)[:11] == [0.0, *(round(0.002 * step, 6) for step in range(1, 11))]
    assert rig.motion.executed == 4


def test_a_gripper_is_not_interpolated() -> None:
    rules = ContractRules(resume_ramp=0, kept=(1,))
    rig = Rig(LoopSettings(control_hz=50.0, policy_hz=10.0, contract=rules)).started()

    rig.run(ms(200))

    assert [round(float(sent.values[1]), 6) for sent in rig.sent[:6]] == [0, 0, 0, 0, 0, 0.01]


def test_sync_asks_when_everything_is_executed_and_stands_still_for_the_answer() -> None:
    settings = LoopSettings(control_hz=50.0, sync=True, contract=AT_ONCE)
    rig = Rig(settings, latency=ms(100)).started()

    rig.run(seconds(2))

    assert all(asked.due_in < ms(40) for asked in rig.asked)
    assert rig.motion.starved_ticks > 0
    assert rig.state in {State.ACTIVE, State.DEGRADED}
    assert rig.asked[1].posted.first_timestep == 20


def test_every_action_and_change_of_state_is_noted_with_its_origin(tmp_path: Path) -> None:
    with EpisodeLog(tmp_path / "e.jsonl", clock=ManualClock(ms(1000)).now) as log:
        rig = Rig(PLAIN, log=log).started()
        rig.run(seconds(1))
        rig.is_cut = True
        rig.run(seconds(3))

    lines = [json.loads(line) for line in (tmp_path / "e.jsonl").read_text().splitlines()]
    actions = [line for line in lines if line["event"] == "action"]
    assert [line["timestep"] for line in actions] == list(range(rig.motion.executed))
    assert actions[0] | {"event": "action", "chunk": 1, "index": 0, "blended": False} == actions[0]
    assert actions[0]["age_ms"] == actions[0]["at_ms"]
    assert {line["chunk"] for line in actions} <= {
        line["chunk"] for line in lines if line["event"] == "chunk"
    }
    states = [(line["after"], line["cause"]) for line in lines if line["event"] == "state"]
    assert states[0] == ("active", "start")
    assert states[-1] == ("hold", "no_action")
    assert [line["event"] for line in lines].count("hold") == 1
    assert {line["code"] for line in lines if line["event"] == "failure"} == {"closed"}
