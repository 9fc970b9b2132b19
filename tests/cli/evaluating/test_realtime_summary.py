from typing import Any

from tests.cli.evaluating.realtime import episode, meter

from takt.cli.evaluating.asking import Meter
from takt.cli.evaluating.realtime_summary import (
    pace_warning,
    realtime_sentences,
    realtime_summary,
)
from takt.units import ms

PERIOD = ms(50)


def figures(**changed: Any) -> dict[str, Any]:  # noqa: ANN401
    return realtime_summary([episode(**changed)], meter(), period=PERIOD)


def test_episodes_are_summed_up() -> None:
    told = realtime_summary(
        [episode(index=0), episode(index=1, is_solved=False, ending="ticks")],
        meter(20, 30),
        period=PERIOD,
    )

    assert (told["episodes"], told["solved"], told["unsolved"]) == (2, 1, [1])
    assert told["endings"] == {"solved": 1, "ticks": 1}
    assert (told["ticks"], told["executed"], told["starved_ticks"]) == (80, 60, 20)
    assert told["rested_before_first_action"] == 6
    assert told["median_seconds_of_solved"] == 2.0
    assert told["failures"] == {"busy": 4}
    assert (told["round_trip_ms"]["p50"], told["round_trip_ms"]["max"]) == (20.0, 30.0)
    assert (told["period_ms"], told["real_time"]) == (50.0, 1.0)


def test_an_environment_that_keeps_up_needs_no_word() -> None:
    assert pace_warning(figures(step=ms(5), observe=ms(40))) is None


def test_an_environment_that_is_too_slow_says_so_and_what_would_fit() -> None:
    warning = pace_warning(figures(step=ms(20), observe=ms(60), skipped=10))

    assert warning is not None
    assert "steps take up to 20.0 ms and of observations 60.0 ms, the period is 50 ms" in warning
    assert "10 of 50 ticks were left out" in warning
    assert "ran at 80% of the clock's; --control-hz 10 would fit" in warning


def test_ticks_left_out_for_any_other_reason_are_said_too() -> None:
    warning = pace_warning(figures(step=ms(1), observe=ms(1), skipped=10))

    assert warning is not None
    assert "10 of 50 ticks were left out" in warning
    assert "would fit" not in warning


def test_people_read_it_in_lines() -> None:
    lines = realtime_sentences(figures(skipped=10))

    assert lines[0].startswith("solved 1 of 1: 100%")
    assert lines[0].endswith("2.0 s")
    assert "30 actions in 40 ticks, 10 starved (3 of them before the first action)" in lines[1]
    assert lines[2] == "round trip 20.0 ms (p50), 20.0 ms (p99)"
    assert lines[3].startswith("step 5.0 ms, observation 10.0 ms (p50), period 50 ms")
    assert lines[4] == "failures: busy 2"
    assert lines[5].startswith("not in real time")


def test_the_size_of_an_observation_is_told_where_it_is_known() -> None:
    told = realtime_summary(
        [episode()], Meter(round_trips=[ms(20)], sent_bytes=[4000]), period=PERIOD
    )

    assert told["observation_bytes"] == 4000
    assert realtime_sentences(told)[2].endswith("(p99), 4000 bytes per observation")


def test_a_run_without_answers_has_figures_too() -> None:
    told = realtime_summary([episode(is_solved=False, step=None)], Meter(), period=PERIOD)

    assert (told["round_trip_ms"], told["step_ms"], told["observe_ms"]) == (None, None, None)
    assert len(realtime_sentences(told)) == 3
