"""The figures of a run: what counts, against what, and how sure they are."""

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from takt.core.attainment import (
    OUTCOMES,
    STAGES,
    Attainment,
    Quantiles,
    RequestRecord,
    StageTimes,
    lower_bound,
    summarise,
    t_interval,
    t_quantile,
)
from takt.errors import UsageError
from takt.units import Nanos, ms

SLO = ms(100)
HALF = ms(50)


def record(
    robot: str = "r1",
    latency: Nanos | None = HALF,
    *,
    model: str = "pi0",
    due_in: Nanos = SLO,
    outcome: str | None = None,
    stages: StageTimes | None = None,
) -> RequestRecord:
    sent = ms(1000)
    return RequestRecord(
        robot=robot,
        model=model,
        sent=sent,
        slo=SLO,
        due=sent + due_in,
        answered=None if latency is None else sent + latency,
        outcome=outcome or ("expired" if latency is None else "served"),
        stages=stages,
    )


def stage_times(prefix: Nanos) -> StageTimes:
    return StageTimes(uplink=1, queue=2, prefix=prefix, wait=4, denoise=5, reply=6)


latencies = st.integers(0, 3 * SLO)
records = st.one_of(
    st.builds(
        record,
        robot=st.sampled_from(["r1", "r2", "r3"]),
        latency=latencies,
        model=st.sampled_from(["pi0", "act"]),
        due_in=st.integers(-SLO, 2 * SLO),
        stages=st.none() | st.builds(stage_times, st.integers(0, SLO)),
    ),
    st.builds(
        record,
        robot=st.sampled_from(["r1", "r2", "r3"]),
        latency=st.none(),
        model=st.sampled_from(["pi0", "act"]),
        outcome=st.sampled_from(OUTCOMES),
    ),
)


def test_every_issued_request_is_in_the_denominator() -> None:
    lost = [record(latency=None, outcome=outcome) for outcome in OUTCOMES]

    total = summarise([record(), *lost]).total

    assert (total.issued, total.answered, total.met) == (7, 1, 1)
    assert total.attainment == 1 / 7
    assert total.outcomes == {
        "served": 2, "expired": 1, "superseded": 1, "cancelled": 1, "failed": 1, "pending": 1,
    }  # fmt: skip


def test_an_answer_at_the_slo_is_met_and_one_nanosecond_later_is_not() -> None:
    assert record(latency=SLO).is_met
    assert not record(latency=SLO + 1).is_met


def test_on_time_is_judged_by_due_and_never_mixed_with_the_slo() -> None:
    early_dry = record(latency=ms(50), due_in=ms(49))
    late_but_in_time = record(latency=ms(150), due_in=ms(150))

    total = summarise([early_dry, late_but_in_time]).total

    assert (early_dry.is_met, early_dry.is_on_time) == (True, False)
    assert (late_but_in_time.is_met, late_but_in_time.is_on_time) == (False, True)
    assert (total.met, total.on_time, total.on_time_share) == (1, 1, 0.5)


def test_a_queue_dry_before_sending_is_never_on_time() -> None:
    assert not record(latency=0, due_in=-1).is_on_time


def test_nothing_issued_proves_nothing() -> None:
    summary = summarise([])

    assert summary.total.attainment == 0.0
    assert summary.total.on_time_share == 0.0
    assert summary.total.latency is None
    assert summary.worst_robot is None


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"outcome": "lost"}, "outcome must be one of served, expired"),
        ({"outcome": "failed"}, "outcome must be 'served'"),
        ({"latency": -1}, "answered"),
    ],
)
def test_an_impossible_record_is_refused(changes: dict[str, object], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        record(**changes)  # type: ignore[arg-type]


def test_an_slo_of_zero_is_refused() -> None:
    with pytest.raises(UsageError, match="slo must be positive, got 0"):
        RequestRecord(robot="r", model="m", sent=0, slo=0, due=0, answered=None, outcome="pending")


@pytest.mark.parametrize(
    ("count", "p50", "p90", "p99"),
    [(1, 1, 1, 1), (2, 1, 2, 2), (10, 5, 9, 10), (100, 50, 90, 99), (101, 51, 91, 100)],
)
def test_quantiles_are_nearest_rank(count: int, p50: int, p90: int, p99: int) -> None:
    durations = list(range(1, count + 1))

    assert Quantiles.of(durations) == Quantiles(p50=p50, p90=p90, p99=p99, max=count)


@given(st.lists(st.integers(0, 10**12), min_size=1))
def test_a_quantile_is_a_value_that_enough_values_do_not_exceed(durations: list[int]) -> None:
    quantiles = Quantiles.of(durations)

    assert quantiles is not None
    for percent, value in ((50, quantiles.p50), (90, quantiles.p90), (99, quantiles.p99)):
        assert value in durations
        assert 100 * sum(d <= value for d in durations) >= percent * len(durations)
        assert 100 * sum(d < value for d in durations) < percent * len(durations)
    assert quantiles.max == max(durations)


@given(st.lists(records))
def test_counts_are_bounded_by_each_other(issued: list[RequestRecord]) -> None:
    summary = summarise(issued)

    for group in (summary.total, *summary.by_model.values(), *summary.by_robot.values()):
        assert 0 <= group.met <= group.answered <= group.outcomes["served"] <= group.issued
        assert 0 <= group.on_time <= group.answered
        assert 0.0 <= group.attainment <= 1.0
        assert 0.0 <= group.on_time_share <= 1.0
        assert sum(group.outcomes.values()) == group.issued
        assert (group.latency is None) == (group.answered == 0)


@given(st.lists(records), st.integers())
def test_the_order_of_records_does_not_matter(issued: list[RequestRecord], seed: int) -> None:
    shuffled = random.Random(seed).sample(issued, len(issued))

    assert repr(summarise(shuffled)) == repr(summarise(issued))


def counts(group: Attainment) -> dict[str, int]:
    own = {"issued": group.issued, "answered": group.answered, "met": group.met}
    return own | {"on_time": group.on_time} | dict(group.outcomes)


@given(st.lists(records), st.lists(records))
def test_counts_of_two_runs_add_up(one: list[RequestRecord], two: list[RequestRecord]) -> None:
    together, first, second = (counts(summarise(part).total) for part in (one + two, one, two))

    assert together == {name: first[name] + second[name] for name in first}


@given(st.lists(records))
def test_models_and_robots_each_add_up_to_the_fleet(issued: list[RequestRecord]) -> None:
    summary = summarise(issued)

    for groups in (summary.by_model, summary.by_robot):
        for name, count in counts(summary.total).items():
            assert count == sum(counts(group)[name] for group in groups.values())


def test_a_robot_is_counted_under_each_model_it_asks() -> None:
    summary = summarise([record("r1", model="pi0"), record("r1", None, model="act"), record("r2")])

    assert list(summary.by_model) == ["act", "pi0"]
    assert summary.by_model["pi0"].attainment == 1.0
    assert summary.by_model["act"].attainment == 0.0
    assert summary.by_robot["r1"].attainment == 0.5


@pytest.mark.parametrize(
    ("issued", "worst"),
    [
        ([record("a"), record("b", SLO + 1), record("c")], "b"),
        ([record("a", ms(10)), record("b", ms(20)), record("c", ms(10))], "b"),
        ([record("a", SLO + 1), record("b", None)], "b"),
        ([record("b"), record("a"), record("c")], "a"),
    ],
    ids=["lowest attainment", "then highest p99", "no answer is the slowest", "then name"],
)
def test_the_worst_robot(issued: list[RequestRecord], worst: str) -> None:
    assert summarise(issued).worst_robot == worst


def test_stages_are_counted_over_the_answered_requests_that_know_them() -> None:
    issued = [
        record(stages=stage_times(10)),
        record(stages=stage_times(30)),
        record(),
        record(latency=None, stages=stage_times(1000)),
    ]

    stages = summarise(issued).total.stages

    assert tuple(stages) == STAGES
    assert stages["prefix"] == Quantiles(p50=10, p90=30, p99=30, max=30)
    assert summarise([record()]).total.stages == {}


@given(
    st.floats(1e-6, 1 - 1e-6).filter(lambda p: abs(p - 0.5) > 1e-6),
    st.one_of(st.integers(1, 60), st.integers(61, 2000)),
)
def test_the_t_quantile_agrees_with_scipy(probability: float, degrees: int) -> None:
    assert t_quantile(probability, degrees) == pytest.approx(
        float(stats.t.ppf(probability, degrees)), rel=1e-8
    )


@pytest.mark.parametrize(
    ("probability", "degrees", "value"),
    [(0.975, 1, 12.7062), (0.975, 4, 2.7764), (0.95, 9, 1.8331), (0.995, 30, 2.7500)],
)
def test_the_t_quantile_agrees_with_the_printed_tables(
    probability: float, degrees: int, value: float
) -> None:
    assert t_quantile(probability, degrees) == pytest.approx(value, abs=5e-5)
    assert t_quantile(1 - probability, degrees) == pytest.approx(-value, abs=5e-5)


def test_the_median_of_t_is_zero() -> None:
    assert t_quantile(0.5, 7) == 0.0


@given(
    st.lists(st.floats(0, 1), min_size=2, max_size=20).filter(lambda v: statistics.stdev(v) > 1e-6),
    st.sampled_from([0.5, 0.9, 0.95, 0.99]),
)
def test_the_interval_agrees_with_scipy(values: list[float], confidence: float) -> None:
    expected = stats.t.interval(
        confidence, len(values) - 1, loc=statistics.fmean(values), scale=stats.sem(values)
    )

    interval = t_interval(values, confidence)

    assert interval.mean == statistics.fmean(values)
    assert (interval.low, interval.high) == pytest.approx(expected, rel=1e-7, abs=1e-9)


def test_a_one_sided_bound_lies_closer_to_the_mean() -> None:
    values = [0.97, 0.99, 0.98, 0.985]

    bound = lower_bound(values, 0.95)

    assert t_interval(values, 0.95).low < bound < statistics.fmean(values)
    assert bound == pytest.approx(t_interval(values, 0.90).low)


def test_seeds_that_agree_give_an_interval_without_width() -> None:
    interval = t_interval([1.0, 1.0, 1.0])

    assert (interval.low, interval.mean, interval.high) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("values", [[], [0.98]])
def test_fewer_than_two_values_have_no_interval(values: list[float]) -> None:
    with pytest.raises(UsageError, match="at least 2 values"):
        t_interval(values)
    with pytest.raises(UsageError, match="at least 2 values"):
        lower_bound(values)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0, math.nan])
def test_a_confidence_that_is_no_probability_is_refused(confidence: float) -> None:
    with pytest.raises(UsageError, match="confidence must lie between 0 and 1"):
        lower_bound([0.9, 1.0], confidence)
    with pytest.raises(UsageError, match="confidence must lie between 0 and 1"):
        t_interval([0.9, 1.0], confidence)


@pytest.mark.parametrize(("probability", "degrees"), [(0.0, 3), (1.0, 3), (math.nan, 3), (0.9, 0)])
def test_a_quantile_that_does_not_exist_is_refused(probability: float, degrees: int) -> None:
    with pytest.raises(UsageError, match=r"(probability|degrees) must"):
        t_quantile(probability, degrees)
