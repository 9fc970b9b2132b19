import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.driving.fakes import TICK, answer, behaviour, robot

from takt.cli.driving.outage import Outage
from takt.cli.driving.robot import DrivenRobot
from takt.core.attainment import summarise
from takt.errors import ConfigError
from takt.units import Nanos, ms


def served(asker: DrivenRobot, at: Nanos, until: Nanos, **options: int) -> None:
    """Ask at one instant, be answered at another."""
    asker.answered(asker.ask(at), answer(**options), until, is_own=None)


def test_an_open_loop_robot_asks_at_its_rate_whatever_the_answers_do() -> None:
    asker = robot(origin=ms(7))
    asks = []
    for _ in range(3):
        assert asker.next_ask is not None
        ask = asker.ask(asker.next_ask)
        asks.append(ask.sent)
        asker.failed(ask, "expired", "expired", ask.sent + ms(1))

    assert asks == [ms(7), ms(107), ms(207)]


def test_a_robot_sends_nothing_from_the_end_on() -> None:
    asker = robot(end=ms(100))
    asker.ask(0)

    assert asker.next_ask is None


def test_a_latency_counts_from_the_scheduled_instant_and_not_from_a_late_start() -> None:
    asker = robot()
    served(asker, at=ms(30), until=ms(40))

    assert asker.records[0].sent == 0
    assert asker.records[0].latency == ms(40)
    assert asker.lags == [ms(30)]


def test_observations_that_were_due_while_an_answer_was_awaited_are_misses() -> None:
    asker = robot()
    served(asker, at=0, until=ms(350))

    ask = asker.ask(ms(350))
    asker.answered(ask, answer(), ms(355), is_own=None)

    assert ask.sent == ms(300)
    assert [(r.sent, r.outcome) for r in asker.records] == [
        (0, "served"),
        (ms(100), "superseded"),
        (ms(200), "superseded"),
        (ms(300), "served"),
    ]
    assert asker.errors == {"overtaken": 2}
    assert ask.number == 3


def test_waiting_for_an_answer_is_no_lag_of_this_computer() -> None:
    asker = robot()
    served(asker, at=0, until=ms(350))
    asker.ask(ms(351))

    assert asker.lags == [0, ms(1)]


def test_due_is_the_first_tick_that_would_find_no_action() -> None:
    asker = robot()
    served(asker, at=0, until=ms(5), horizon=20)

    ask = asker.ask(ms(100))

    # Of 20 actions the ticks 10 ms to 100 ms took ten; the next ten last until 200 ms.
    assert ask.dry_at == ms(210)
    assert ask.first_timestep == 10


def test_a_closed_loop_robot_asks_when_its_queue_has_drained_to_the_threshold() -> None:
    asker = robot(rate_hz=None, threshold=0.5)
    first = asker.ask(0)
    assert asker.next_ask is None

    asker.answered(first, answer(horizon=20), ms(5), is_own=None)

    # The tick at 10 ms takes the first of 20 actions, the one at 100 ms the tenth.
    assert asker.next_ask == ms(100)


def test_a_closed_loop_robot_without_an_answer_asks_at_its_next_tick_or_after_a_pause() -> None:
    asker = robot(rate_hz=None)
    asker.failed(asker.ask(0), "expired", "expired", ms(4))
    assert asker.next_ask == TICK

    asker.failed(asker.ask(TICK), "closed", "closed", ms(14), again_at=ms(64))

    assert asker.next_ask == ms(64)


def test_ticks_without_an_action_are_starved() -> None:
    asker = robot(end=ms(300))
    served(asker, at=0, until=ms(45), horizon=20)

    asker.finish(ms(500))

    # The ticks at 0 .. 40 ms came too early, 50 .. 240 ms executed the chunk, 250 .. 290 ms
    # found it used up.
    assert (asker.ticks, asker.starved_ticks) == (30, 10)


def test_a_code_that_is_no_outcome_is_a_failure() -> None:
    asker = robot()
    asker.failed(asker.ask(0), "unreachable", "unreachable", ms(1))
    asker.failed(asker.ask(ms(100)), "expired", "expired", ms(101))

    assert [record.outcome for record in asker.records] == ["failed", "expired"]
    assert asker.errors == {"unreachable": 1, "expired": 1}


def test_a_chunk_of_another_robot_is_no_answer_and_is_not_executed() -> None:
    asker = robot()
    asker.answered(asker.ask(0), answer(), ms(5), is_own=False)

    assert (asker.checked, asker.foreign) == (1, 1)
    assert asker.records[0].outcome == "failed"
    assert asker.view(ms(5)).remaining == 0


def test_looking_executes_nothing() -> None:
    asker = robot()
    first = asker.ask(0)
    before = asker.view(ms(500))
    asker.answered(first, answer(horizon=20), ms(5), is_own=None)

    view = asker.view(ms(105))

    assert (before.ticks, before.starved_ticks, before.remaining) == (50, 50, 0)
    assert (view.ticks, view.starved_ticks, view.remaining) == (11, 1, 10)
    assert (view.issued, view.answered, view.met, view.on_time) == (1, 1, 1, 1)
    assert view.latencies == (ms(5),)


def test_the_parts_of_an_answers_time_are_kept() -> None:
    asker = robot()
    served(asker, at=0, until=ms(5))

    assert asker.stages == [{"network": ms(2), "server": ms(3)}]


def test_observations_that_never_left_before_the_end_are_requests() -> None:
    asker = robot(end=ms(400))
    ask = asker.ask(0)
    asker.failed(ask, "pending", "pending", ms(2000))

    asker.finish(ms(2000))

    assert [record.outcome for record in asker.records] == [
        "pending",
        "superseded",
        "superseded",
        "superseded",
    ]


def test_a_run_that_is_broken_off_charges_only_what_was_due_by_then() -> None:
    asker = robot(end=ms(1000))
    served(asker, at=0, until=ms(5))

    asker.finish(ms(150))

    assert [(r.sent, r.outcome) for r in asker.records] == [(0, "served"), (ms(100), "superseded")]
    assert asker.ticks == 15


@given(
    st.sampled_from([None, 10.0, 33.0]),
    st.lists(st.tuples(st.integers(0, 90), st.booleans(), st.integers(1, 30)), max_size=20),
)
def test_every_observation_of_the_schedule_is_a_request_and_no_tick_is_lost(
    rate_hz: float | None, answers: list[tuple[int, bool, int]]
) -> None:
    end = ms(1000)
    asker = robot(end=end, rate_hz=rate_hz)
    now = 0
    for took, is_served, horizon in answers:
        scheduled = asker.next_ask
        if scheduled is None:
            break
        now = max(now, scheduled)
        ask = asker.ask(now)
        now += ms(took)
        if is_served:
            asker.answered(ask, answer(horizon=horizon), now, is_own=None)
        else:
            asker.failed(ask, "expired", "expired", now)

    asker.finish(end)

    total = summarise(asker.records).total
    assert asker.ticks >= 100
    assert asker.starved_ticks <= asker.ticks
    assert total.issued == total.answered + sum(asker.errors.values())
    if rate_hz is not None:
        period = round(1e9 / rate_hz)
        assert [r.sent for r in asker.records] == list(range(0, end, period))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"control_hz": 0.0}, "control_hz"),
        ({"rate_hz": -1.0}, "rate_hz"),
        ({"rate_hz": float("nan")}, "rate_hz"),
        ({"threshold": 1.5}, "threshold"),
        ({"slo": 0}, "slo"),
    ],
)
def test_a_behaviour_that_cannot_be_is_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        behaviour(**changes)


def test_what_a_robot_does_before_it_is_counted_is_no_part_of_the_figures() -> None:
    robot = DrivenRobot("robot-1", behaviour(), origin=0, end=ms(300), counted_from=ms(100))

    robot.failed(robot.ask(0), "failed", "closed", ms(1))
    robot.answered(robot.ask(ms(100)), answer(), ms(105), is_own=True)
    robot.failed(robot.ask(ms(200)), "expired", "expired", ms(210))
    robot.finish(ms(300))

    assert [record.sent for record in robot.records] == [ms(100), ms(200)]
    assert robot.errors == {"expired": 1}
    assert len(robot.stages) == len(robot.splits) == 1
    assert len(robot.lags) == 2


def test_control_ticks_are_counted_from_the_same_instant() -> None:
    robot = DrivenRobot("robot-1", behaviour(), origin=0, end=ms(300), counted_from=ms(100))

    robot.answered(robot.ask(ms(100)), answer(horizon=15), ms(100), is_own=True)
    robot.finish(ms(300))

    # The tick at 100 ms itself comes before the answer; 15 actions for the 19 after it.
    assert (robot.ticks, robot.starved_ticks) == (20, 5)
    assert robot.view(ms(300)).ticks == 20


def test_an_observation_that_is_kept_back_for_an_earlier_answer_says_how_long() -> None:
    asker = robot()

    asker.answered(asker.ask(0), answer(), ms(130), is_own=True)
    late = asker.ask(ms(132))
    asker.answered(late, answer(), ms(140), is_own=True)

    assert (late.sent, late.held) == (ms(100), ms(30))
    assert asker.lags == [0, ms(2)]
    assert asker.splits[1]["held"] == ms(30)
    assert sum(asker.splits[1].values()) == ms(40)


def test_a_time_without_a_server_lasts_until_the_next_chunk_and_is_kept_before_it_counts() -> None:
    robot = DrivenRobot("robot-1", behaviour(), origin=0, end=ms(500), counted_from=ms(100))

    robot.failed(robot.ask(0), "closed", "closed", ms(4), is_lost=True)
    assert robot.is_away
    robot.failed(robot.ask(ms(100)), "unreachable", "unreachable", ms(100))
    robot.failed(robot.ask(ms(200)), "expired", "expired", ms(260))
    assert robot.view(ms(260)).is_away
    robot.answered(robot.ask(ms(300)), answer(), ms(305), is_own=True)
    robot.failed(robot.ask(ms(400)), "expired", "expired", ms(460))

    assert not robot.view(ms(460)).is_away
    assert robot.outages == [Outage(since=0, until=ms(305))]
