"""What a robot offers of its queue is what it then does, until the answer comes."""

from pathlib import Path

import numpy as np
import pytest
from tests.client.rig import AT_ONCE, DIM, PLAIN, Rig

from takt.client.episode import read_episode
from takt.client.episode_log import EpisodeLog
from takt.client.leftover import Leftover
from takt.client.loop_settings import LoopSettings
from takt.client.mailbox import Asked
from takt.robot.replanning import ThresholdRule
from takt.testing import ManualClock
from takt.units import ms, seconds

ONE = "sha256:one"
EAGER = LoopSettings(control_hz=50.0, contract=AT_ONCE, rule=ThresholdRule(threshold=1.0))


def numbered(asked: Asked) -> np.ndarray:
    """A chunk that says its number, and each timestep in thousandths."""
    first = asked.posted.first_timestep
    column = asked.posted.chunk_id + np.arange(first, first + 20)[:, None] / 1000.0
    return np.repeat(column, DIM, axis=1)


def rig_of(settings: LoopSettings = PLAIN, digest: str | None = ONE) -> Rig:
    rig = Rig(settings, chunk=numbered, latency=ms(60))
    rig.digest = digest
    return rig


def offers(rig: Rig) -> list[Leftover | None]:
    return [asked.leftover for asked in rig.asked]


@pytest.mark.parametrize(
    "settings",
    [
        PLAIN,
        LoopSettings(control_hz=50.0, contract=AT_ONCE, merge="average"),
        LoopSettings(control_hz=50.0, policy_hz=25.0, contract=AT_ONCE),
    ],
    ids=["replaced", "blended", "interpolated"],
)
def test_what_is_offered_is_executed_and_then_the_new_chunk(settings: LoopSettings) -> None:
    rig = rig_of(settings).started()
    rig.run(seconds(4))

    done = {
        each.timestep: float(sent.values[0])
        for each, sent in zip(rig.executed, rig.sent, strict=True)
        if each.is_whole
    }
    answered = rig.asked[: rig.motion.answered]
    offered = [asked for asked in answered if asked.leftover is not None]
    assert len(offered) > 3
    for asked in offered:
        leftover, first = asked.leftover, asked.posted.first_timestep
        assert leftover is not None
        delay = leftover.inference_delay
        executed = [done[first + step] for step in range(delay)]
        np.testing.assert_array_equal(leftover.actions[:delay, 0], executed)
        assert leftover.actions[delay, 0] != done[first + delay]
    assert rig.motion.guided == len(offered)


def test_the_first_chunks_start_free_as_nobody_knows_how_long_answers_take() -> None:
    rig = rig_of().started()
    rig.run(seconds(1))

    assert offers(rig)[:2] == [None, None]
    assert all(offer is not None for offer in offers(rig)[2:])


def test_a_robot_that_does_not_execute_its_queue_offers_none_of_it() -> None:
    rig = rig_of(EAGER)
    rig.run(seconds(1))
    waiting = len(rig.asked)
    assert waiting > 3
    assert rig.motion.queue.remaining

    rig.started().run(seconds(1))

    assert offers(rig)[:waiting] == [None] * waiting
    assert offers(rig)[-1] is not None


def test_a_robot_that_stands_still_for_every_answer_has_nothing_to_offer() -> None:
    rig = rig_of(LoopSettings(control_hz=50.0, sync=True, contract=AT_ONCE)).started()
    rig.run(seconds(2))

    assert len(rig.asked) > 3
    assert set(offers(rig)) == {None}


@pytest.mark.parametrize(
    ("settings", "digest"),
    [(LoopSettings(control_hz=50.0, contract=AT_ONCE, leftovers=False), ONE), (PLAIN, None)],
    ids=["turned off", "a model without a name"],
)
def test_nothing_is_offered_where_nobody_wants_it(
    settings: LoopSettings, digest: str | None
) -> None:
    rig = rig_of(settings, digest).started()
    rig.run(seconds(2))

    assert len(rig.asked) > 3
    assert set(offers(rig)) == {None}
    assert rig.motion.guided == 0


def test_the_observation_after_a_failure_offers_nothing() -> None:
    rig = rig_of().started()
    rig.run(seconds(1))
    rig.is_cut = True
    before = len(rig.asked)
    while len(rig.asked) < before + 3:
        rig.tick()
    assert rig.motion.queue.remaining
    rig.is_cut = False

    rig.run(seconds(1))

    # The first of the three may have offered something; the fourth was answered.
    assert offers(rig)[before + 1 : before + 4] == [None] * 3
    assert offers(rig)[before + 4] is not None


def test_a_newer_observation_brings_what_is_left_then() -> None:
    rig = rig_of().started()
    rig.run(seconds(1))
    rig.is_busy = True
    while not rig.mailbox.has_unsent:
        rig.tick()
    rig.run(ms(60))
    rig.is_busy = False
    before = len(rig.asked)
    next_action = rig.motion.queue.peek()
    rig.tick()

    posted = rig.asked[before].posted
    assert next_action is not None
    assert posted.leftover is not None
    assert posted.first_timestep == next_action.timestep - 1
    np.testing.assert_array_equal(posted.leftover.actions[1], next_action.action)


def test_a_model_that_took_the_place_of_another_is_offered_its_own_actions() -> None:
    rig = rig_of().started()
    rig.run(seconds(1))

    rig.digest = "sha256:two"
    rig.run(seconds(1))

    named = [offer.model_digest for offer in offers(rig) if offer is not None]
    assert named == sorted(named)
    assert set(named) == {ONE, "sha256:two"}


def test_the_log_says_which_chunks_continue_the_one_before(tmp_path: Path) -> None:
    clock = ManualClock(ms(1000))
    with EpisodeLog(tmp_path / "run.jsonl", clock=clock.now) as log:
        rig = Rig(PLAIN, log=log, clock=clock)
        rig.digest = ONE
        rig.started().run(seconds(1))

    said = [chunk.get("chunking") for chunk in read_episode(tmp_path / "run.jsonl").of("chunk")]
    assert len(said) > 3
    assert said == [None, None, *["guided"] * (len(said) - 2)]
