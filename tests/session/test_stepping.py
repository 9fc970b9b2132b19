import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.errors import InvariantError
from takt.session.stepping import Step, Stepping, Verdict
from takt.units import SECOND, Nanos, ms

PERIOD = ms(30)
ROBOT_CLOCK = 1_700_000_000 * SECOND


def step(timestep: int, at: Nanos = 0, *, must_go: bool = False, **more: object) -> Step:
    return Step(
        timestep=timestep,
        taken=ROBOT_CLOCK + at,
        arrival=at,
        must_go=must_go,
        **more,  # type: ignore[arg-type]
    )


def stepping(**options: object) -> Stepping[str]:
    return Stepping(period=PERIOD, **options)  # type: ignore[arg-type]


def refilled(length: int = 20, *, took: Nanos = 100_000_000) -> Stepping[str]:
    """A robot that had a chunk of ``length`` from timestep 0, ``took`` after it asked."""
    robot = stepping()
    robot.offer(step(0, must_go=True), "first")
    assert robot.begin() is not None
    robot.deliver(length, took)
    return robot


def test_the_newest_of_those_that_wait_wins() -> None:
    robot = stepping()
    robot.offer(step(0), "old")
    robot.offer(step(3), "new")

    taken = robot.begin()

    assert taken is not None
    assert taken.item == "new"
    assert robot.begin() is None


def test_a_timestep_being_predicted_is_not_predicted_again() -> None:
    robot = stepping()
    robot.offer(step(0, must_go=True), "first")
    robot.begin()

    assert robot.offer(step(0, ms(33)), "again") is Verdict.PREDICTED
    robot.deliver(20, ms(100))
    assert robot.offer(step(0, ms(400)), "again") is Verdict.PREDICTED


def test_must_go_passes_every_filter() -> None:
    robot = stepping(tolerance=1e9)
    robot.offer(step(0), "first")
    robot.begin()
    robot.deliver(20, ms(100))

    assert robot.offer(step(0, ms(50), must_go=True), "dry") is Verdict.ACCEPTED


def test_after_a_failure_the_same_timestep_is_predicted_again() -> None:
    robot = stepping(tolerance=1.0)
    robot.offer(step(0, must_go=True, state=(0.0,)), "first")
    robot.begin()
    robot.fail()

    assert robot.offer(step(0, ms(33), state=(0.0,)), "again") is Verdict.ACCEPTED
    assert robot.begin() is not None


def test_what_was_taken_before_the_chunk_came_is_redundant() -> None:
    robot = refilled(20, took=ms(100))

    assert robot.offer(step(2, ms(66)), "on its way meanwhile") is Verdict.REDUNDANT
    assert robot.offer(step(10, ms(433)), "the next refill") is Verdict.ACCEPTED


def test_one_that_waited_while_the_chunk_was_made_is_dropped_with_it() -> None:
    robot = stepping()
    robot.offer(step(0, must_go=True), "first")
    robot.begin()
    assert robot.offer(step(1, ms(33)), "meanwhile") is Verdict.ACCEPTED

    robot.deliver(20, ms(100))

    assert robot.begin() is None


def test_a_timestep_that_no_robot_could_have_reached_is_served_all_the_same() -> None:
    robot = stepping()
    robot.offer(step(0, must_go=True), "first")
    robot.begin()
    robot.offer(step(10, ms(1)), "jump")

    robot.deliver(50, ms(100))

    assert robot.has_waiting


def test_a_chunk_that_does_not_reach_on_makes_nothing_redundant() -> None:
    robot = stepping()
    robot.offer(step(0, must_go=True), "first")
    robot.begin()
    robot.offer(step(2, ms(66)), "at its end")

    robot.deliver(3, ms(100))

    assert robot.has_waiting


def test_a_slow_server_goes_on_with_what_was_taken_meanwhile() -> None:
    robot = stepping()
    robot.offer(step(0, must_go=True), "first")
    robot.begin()
    robot.offer(step(6, ms(180)), "meanwhile")

    robot.deliver(12, ms(200))  # five actions are left, and another chunk takes as long again

    assert robot.has_waiting


def test_a_robot_with_actions_left_is_due_when_they_are_executed() -> None:
    robot = refilled(20)

    robot.offer(step(10, ms(433)), "refill")
    taken = robot.begin()

    assert taken is not None
    # Actions 11 to 19 are left, at the period that timesteps showed: 43.3 ms.
    assert taken.due == ms(433) + 9 * (ms(433) // 10)


def test_a_robot_that_turns_back_its_timestep_has_no_more_left_than_a_chunk() -> None:
    robot = stepping()
    robot.offer(step(2**62, must_go=True), "far")
    assert robot.begin() is not None
    robot.deliver(20, ms(100))
    robot.offer(step(0, ms(400)), "back")

    taken = robot.begin()

    assert taken is not None
    assert taken.due == ms(400) + 19 * PERIOD


@pytest.mark.parametrize("must_go", [True, False])
def test_a_robot_without_actions_is_due_at_once_less_its_network(must_go: bool) -> None:
    robot = stepping(allowance=ms(8))

    robot.offer(step(0, ms(50), must_go=must_go), "first")
    taken = robot.begin()

    assert taken is not None
    assert taken.due == ms(42)


def test_the_control_period_is_the_shortest_that_timesteps_show() -> None:
    robot = stepping()
    for timestep, at in [(0, 0), (10, ms(200)), (20, ms(900)), (21, ms(901))]:
        robot.offer(step(timestep, at), "")

    assert robot.period == ms(20)


def test_a_similar_state_is_dropped_only_when_asked_for() -> None:
    verdicts: list[Verdict] = []
    for tolerance in (None, 1.0):
        robot = stepping(tolerance=tolerance)
        robot.offer(step(0, state=(0.0, 0.0)), "first")
        robot.begin()
        robot.deliver(20, ms(100))
        verdicts.append(robot.offer(step(9, ms(400), state=(0.6, 0.6)), "near"))
        robot.offer(step(9, ms(400), state=(0.6, 0.6), task="another"), "new task")
        assert robot.has_waiting

    assert verdicts == [Verdict.ACCEPTED, Verdict.SIMILAR]


def test_the_edge_of_the_tolerance_is_not_similar() -> None:
    robot = stepping(tolerance=1.0)
    robot.offer(step(0, state=(0.0, 0.0)), "first")
    robot.begin()

    assert robot.offer(step(9, ms(400), state=(0.6, 0.8)), "at 1.0") is Verdict.ACCEPTED


def test_nothing_can_end_that_is_not_running() -> None:
    with pytest.raises(InvariantError):
        stepping().fail()


class StockRobot:
    """Does what LeRobot's client does, against the rules with a server of fixed latency."""

    def __init__(self, *, chunk: int, threshold: float, latency: Nanos, network: Nanos) -> None:
        self.rules: Stepping[int] = Stepping(period=ms(33), allowance=2 * network)
        self.num_chunks = self.num_executed = 0
        self._chunk, self._threshold = chunk, threshold
        self._latency, self._network = latency, network
        self._queue: list[int] = []
        self._latest = self._size = -1
        self._must_go = True
        self._up: list[tuple[Nanos, Step]] = []
        self._down: list[tuple[Nanos, int]] = []
        self._running: tuple[Nanos, Step] | None = None

    def tick(self, now: Nanos) -> None:
        """Execute, and ask if there is little left."""
        if self._queue:
            self._latest = self._queue.pop(0)
            self.num_executed += 1
        if len(self._queue) / self._size <= self._threshold:
            is_dry = self._must_go and not self._queue
            sent = step(max(self._latest, 0), now, must_go=is_dry)
            self._up.append((now + self._network, sent))
            self._must_go = self._must_go and not is_dry

    def pass_time(self, now: Nanos) -> None:
        """What network and server do until now."""
        while self._down and self._down[0][0] <= now:
            start = self._down.pop(0)[1]
            self._queue = [t for t in range(start, start + self._chunk) if t > self._latest]
            self._size, self._must_go = self._chunk, True
        while self._up and self._up[0][0] <= now:
            sent = self._up.pop(0)[1]
            self.rules.offer(dataclasses.replace(sent, arrival=now), 0)
        if self._running is not None and now >= self._running[0]:
            self.rules.deliver(self._chunk, now)
            self._down.append((now + self._network, self._running[1].timestep))
            self.num_chunks += 1
            self._running = None
        taken = self.rules.begin()
        if taken is not None:
            self._running = now + self._latency, taken.step


@given(
    chunk=st.integers(4, 60),
    threshold=st.floats(0.1, 0.9),
    latency=st.integers(0, 40).map(lambda n: ms(5 * n)),
    period=st.sampled_from([ms(10), ms(20), ms(33)]),
    network=st.integers(0, 4).map(lambda n: ms(5 * n)),
)
def test_a_refill_costs_one_inference_and_no_robot_waits_for_ever(
    chunk: int, threshold: float, latency: Nanos, period: Nanos, network: Nanos
) -> None:
    robot = StockRobot(chunk=chunk, threshold=threshold, latency=latency, network=network)

    for tick in range(300):
        for instant in range((tick - 1) * period + ms(1), tick * period + 1, ms(1)):
            robot.pass_time(instant)
        robot.tick(tick * period)

    assert robot.num_executed > 0
    answered_in = latency + 2 * network + 2 * period
    kept = int(threshold * chunk)
    steps = answered_in // period
    # Refills begin early enough, and a chunk lasts until the next: it is never dry.
    if answered_in < min(kept, chunk - steps - 1) * period:
        assert robot.num_executed >= 300 - (steps + 2)
        assert robot.num_chunks <= robot.num_executed / max(1, chunk - kept - steps - 1) + 2
