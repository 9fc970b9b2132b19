import numpy as np
import pytest

from takt.client.leftover import Leftover
from takt.client.loop_settings import LoopSettings
from takt.client.offering import Offering
from takt.robot.action_queue import ActionQueue, ChunkOrigin
from takt.robot.blending import MergeName, merge_rule
from takt.robot.contract_rules import ContractRules
from takt.robot.latency import LatencyEstimate
from takt.units import ms

ONE, TWO = "sha256:one", "sha256:two"
SETTINGS = LoopSettings(control_hz=50.0)  # 20 ms


class Bench:
    """A queue, and what is offered of it."""

    def __init__(
        self,
        merge: MergeName = "latest_only",
        settings: LoopSettings = SETTINGS,
        latency: int | None = ms(60),
    ) -> None:
        self.queue: ActionQueue[np.ndarray] = ActionQueue(merge_rule(merge))
        estimate = LatencyEstimate(cold_starts=0)
        if latency is not None:
            estimate.add(latency)
        self.offering = Offering(self.queue, estimate, settings)
        self._chunks = 0

    def join(self, digest: str | None, value: float = 0.0, *, steps: int = 10) -> None:
        """A chunk of this model comes that begins with the next action."""
        self._chunks += 1
        rows = np.full((steps, 2), value)
        self.queue.merge(self.queue.next_timestep, rows, ChunkOrigin(self._chunks, 0))
        self.offering.joined(digest)

    def offer(self, now: int = 0) -> Leftover | None:
        return self.offering.leftover(now)

    def offered_steps(self, now: int = 0) -> int:
        found = self.offer(now)
        return 0 if found is None else len(found.actions)


def test_what_is_left_is_offered_under_the_name_of_its_model() -> None:
    bench = Bench()
    bench.join(ONE, 0.25)
    bench.queue.advance(4)

    found = bench.offer()

    assert found is not None
    np.testing.assert_array_equal(found.actions, np.full((6, 2), 0.25))
    assert (found.model_digest, found.inference_delay) == (ONE, 3)
    assert (found.execution_horizon, found.schedule) == (None, "LINEAR")


def test_no_more_steps_are_executed_before_the_answer_than_are_left() -> None:
    bench = Bench(latency=ms(900))
    bench.join(ONE)
    bench.queue.advance(8)

    found = bench.offer()

    assert found is not None
    assert found.inference_delay == 2


@pytest.mark.parametrize("latency", [None, ms(60)])
def test_an_empty_queue_and_an_unknown_latency_offer_nothing(latency: int | None) -> None:
    bench = Bench(latency=latency)
    assert bench.offer() is None
    bench.join(ONE)

    assert (bench.offer() is None) == (latency is None)
    bench.queue.advance(10)
    assert bench.offer() is None


def test_actions_that_will_be_too_old_are_not_offered() -> None:
    bench = Bench(
        settings=LoopSettings(control_hz=50.0, contract=ContractRules(max_action_age=ms(100)))
    )
    bench.join(ONE)

    # Now, after 20 and after 40 ms they are 60, 80 and 100 ms old.
    assert bench.offered_steps(ms(60)) == 3
    assert bench.offered_steps(ms(100)) == 1
    assert bench.offered_steps(ms(101)) == 0


def test_a_blend_of_one_models_chunks_is_offered_as_it_is_executed() -> None:
    bench = Bench("average")
    bench.join(ONE, 0.0)
    bench.queue.advance(4)
    bench.join(ONE, 1.0)

    found = bench.offer()

    assert found is not None
    assert found.actions[:, 0].tolist() == [0.5] * 6 + [1.0] * 4


def test_a_blend_of_two_models_is_offered_to_neither_until_it_is_executed() -> None:
    bench = Bench("average")
    bench.join(ONE, 0.0)
    bench.queue.advance(4)
    bench.join(TWO, 1.0)  # 4..9 are a blend of both
    assert bench.offer() is None
    bench.queue.advance(2)
    bench.join(TWO, 1.0)  # and 6..9 still hold a little of the first
    assert bench.offer() is None
    bench.queue.advance(3)
    assert bench.offer() is None

    bench.queue.advance(1)

    found = bench.offer()
    assert found is not None
    assert found.model_digest == TWO
    assert found.actions[:, 0].tolist() == [1.0] * 6


def test_a_chunk_that_replaces_another_models_is_offered_at_once() -> None:
    bench = Bench()
    bench.join(ONE, 0.0)
    bench.join(TWO, 1.0)

    found = bench.offer()

    assert found is not None
    assert (found.model_digest, found.actions[0, 0]) == (TWO, 1.0)


def test_a_plan_that_replaces_a_blend_of_two_models_is_of_one() -> None:
    bench = Bench("average")
    bench.join(ONE)
    bench.join(TWO)
    bench.queue.flush("replace")
    bench.join(TWO)

    assert bench.offered_steps() == 10


def test_nothing_is_offered_between_a_failure_and_an_answer() -> None:
    bench = Bench()
    bench.join(ONE)
    bench.offering.failed()
    assert bench.offer() is None

    bench.join(ONE)

    assert bench.offered_steps() == 10


@pytest.mark.parametrize("digest", [None, ""])
def test_actions_of_nobody_are_not_offered(digest: str | None) -> None:
    bench = Bench()
    bench.join(ONE)
    bench.join(digest)

    assert bench.offer() is None


def test_turned_off_it_offers_nothing() -> None:
    bench = Bench(settings=LoopSettings(control_hz=50.0, leftovers=False))
    bench.join(ONE)

    assert bench.offer() is None


def test_numbers_that_no_request_can_carry_are_kept_back_and_stop_no_robot() -> None:
    bench = Bench()
    bench.join(ONE, 1e300)

    assert bench.offer() is None
