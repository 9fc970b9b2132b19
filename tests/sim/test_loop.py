"""The simulator keeps a schedule worked out by hand, and laws that hold for every fleet."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sim.fleets import (
    CONSTANT,
    DOWN_MS,
    JITTERY,
    UP_MS,
    fleet_of,
    group_of,
    model_of,
    setup_of,
)

from takt.core.events import Decide, Ended, Finish, Submit
from takt.core.launch import Lane
from takt.core.request import Stage
from takt.core.trace import replay, trace_lines
from takt.errors import UsageError
from takt.sim.fleet import Fleet, RobotGroup
from takt.sim.loop import Run, simulate
from takt.sim.network import ConstantNetwork, Wifi7Network
from takt.units import MILLISECOND, SECOND, ms

ARRIVALS_MS = [10 * number for number in range(12)]
"""A dozen requests of one robot that asks 100 times a second, counted from the first arrival."""

# Times alone: prefix 10 ms of 1 row, 16 of 2; denoise 20 of 1, 24 of 2. Side by side half speed.
#
#  monolithic: a batch goes through both stages, then the next (two rows when two wait)
#
#   rows         0       1,2       3,4       5,6       7,8      9,10      11
#   prefix     0-10    30-46     70-86   110-126   150-166   190-206   230-240
#   denoise   10-30    46-70    86-110   126-150   166-190   206-230   240-260
#
MONOLITHIC_ENDS_MS = [30, 70, 70, 110, 110, 150, 150, 190, 190, 230, 230, 260]

#  lockstep: a pair starts together, the next when both have ended
#
#   start        0      10      40      76     116     156     196     236
#   prefix of    0       1     2,3     4,5     6,7     8,9   10,11       -
#   ends at     10      30      72     108     148     188     228            at half speed from 10
#   denoise of   -       0       1     2,3     4,5     6,7     8,9   10,11
#   ends at             40      76     116     156     196     236     260
#
#   The second pair: the prefix of 1 needs 10 ms at half speed, until 30; the denoise of 0 has
#   done 10 of its 20 by then and ends at full speed at 40. The third: the prefix of 2 and 3 needs
#   16 ms at half speed, until 72; the denoise of 1 has done 16 of its 20 and ends at 76. From then
#   on pairs of two rows: 32 ms at half speed, then 24 - 16 = 8 at full speed.
LOCKSTEP_ENDS_MS = [40, 76, 116, 116, 156, 156, 196, 196, 236, 236, 260, 260]


@pytest.mark.parametrize(
    ("formation", "ends_ms"),
    [("monolithic", MONOLITHIC_ENDS_MS), ("lockstep", LOCKSTEP_ENDS_MS)],
)
def test_a_dozen_requests_end_when_worked_out_by_hand(formation: str, ends_ms: list[int]) -> None:
    fleet = fleet_of(group_of(rate_hz=100), setup=setup_of(formation=formation))

    run = simulate(fleet, duration=ms(120))

    records = sorted(run.records, key=lambda record: record.sent)
    first = records[0].sent
    assert [record.sent - first for record in records] == [ms(at) for at in ARRIVALS_MS]
    assert [record.answered for record in records] == [
        first + ms(UP_MS + end + DOWN_MS) for end in ends_ms
    ]


def test_the_stages_of_the_dozen_are_those_worked_out_by_hand() -> None:
    run = simulate(fleet_of(group_of(rate_hz=100)), duration=ms(120))

    fifth = sorted(run.records, key=lambda record: record.sent)[4].stages

    # Request 4 arrives at 40, its prefix runs 76-108, the lockstep ends at 116, its denoise at 156.
    assert fifth is not None
    parts = (fifth.uplink, fifth.queue, fifth.prefix, fifth.wait, fifth.denoise, fifth.reply)
    assert parts == (ms(UP_MS), ms(36), ms(32), ms(8), ms(40), ms(DOWN_MS))


def test_the_lanes_of_the_dozen_were_busy_as_long_as_worked_out_by_hand() -> None:
    run = simulate(fleet_of(group_of(rate_hz=100)), duration=ms(120)).devices["gpu"]

    assert run.busy[Lane(0, Stage.PREFIX)] == ms(10 + 20 + 5 * 32)
    assert run.busy[Lane(0, Stage.DENOISE)] == ms(30 + 36 + 4 * 40 + 24)
    assert run.rows == {"prefix": [1, 1, 2, 2, 2, 2, 2], "denoise": [1, 1, 2, 2, 2, 2, 2]}


# Laws

fleets = st.builds(
    lambda formation, groups, slo_ms, network: fleet_of(
        *(group_of(count, name=f"g{n}", **how) for n, (count, how) in enumerate(groups)),
        setup=setup_of(model_of(slo_ms=slo_ms), formation=formation),
        network=network,
    ),
    formation=st.sampled_from(["monolithic", "lockstep"]),
    groups=st.lists(
        st.tuples(
            st.integers(1, 5),
            st.fixed_dictionaries(
                {
                    "rate_hz": st.sampled_from([None, 2.0, 7.0, 20.0]),
                    "threshold": st.sampled_from([0.0, 0.5, 1.0]),
                    "deadline": st.sampled_from(["slo", "queue"]),
                    "supersede": st.booleans(),
                    "jitter_ms": st.sampled_from([0.0, 30.0]),
                }
            ),
        ),
        min_size=1,
        max_size=3,
    ),
    slo_ms=st.sampled_from([40.0, 80.0, 300.0]),
    network=st.sampled_from([CONSTANT, JITTERY, ConstantNetwork(up_ms=0, down_ms=0)]),
)
"""Small fleets, from idle to hopelessly overloaded."""


@pytest.mark.slow
@settings(max_examples=40)
@given(fleet=fleets, seed=st.integers(0, 99))
def test_every_observation_a_robot_sends_has_exactly_one_record(fleet: Fleet, seed: int) -> None:
    run = simulate(fleet, duration=SECOND, seed=seed, keep_events=True)

    events = run.devices["gpu"].events
    submitted = [event.seq for event in events if isinstance(event, Submit)]
    ended = [event.seq for event in events if isinstance(event, Ended)]
    assert sorted(ended) == submitted == list(range(1, len(run.records) + 1))
    assert Counter(e.phase.value for e in events if isinstance(e, Ended)) == Counter(
        record.outcome for record in run.records
    )


@pytest.mark.slow
@settings(max_examples=40)
@given(fleet=fleets, seed=st.integers(0, 99))
def test_a_recorded_simulation_replays_byte_for_byte(fleet: Fleet, seed: int) -> None:
    run = simulate(fleet, duration=SECOND, seed=seed, keep_events=True)

    trace = list(trace_lines(fleet.devices["gpu"], run.devices["gpu"].events))

    assert list(replay(trace)) == trace


@pytest.mark.slow
@settings(max_examples=20)
@given(fleet=fleets, seed=st.integers(0, 99))
def test_equal_seeds_give_equal_runs(fleet: Fleet, seed: int) -> None:
    one, again = (simulate(fleet, duration=SECOND, seed=seed, keep_events=True) for _ in range(2))

    assert one == again


def test_within_an_instant_arrivals_come_first_then_ends_then_one_decision() -> None:
    fleet = fleet_of(group_of(rate_hz=100))

    events = simulate(fleet, duration=ms(120), keep_events=True).devices["gpu"].events

    first = events[0].at
    at_ten = [type(event) for event in events if event.at == first + ms(10)]
    assert at_ten == [Submit, Finish, Decide]
    at_forty = [type(event) for event in events if event.at == first + ms(40)]
    assert at_forty == [Submit, Finish, Ended, Decide]


@pytest.mark.slow
@settings(max_examples=40)
@given(fleet=fleets, seed=st.integers(0, 99))
def test_a_device_decides_once_per_instant_and_only_for_a_reason(fleet: Fleet, seed: int) -> None:
    delayed = replace(fleet, network=CONSTANT)  # without delay an answer brings an arrival at once
    events = simulate(delayed, duration=SECOND, seed=seed, keep_events=True).devices["gpu"].events

    decisions = [event for event in events if isinstance(event, Decide)]
    told = {event.at for event in events if isinstance(event, Submit | Finish)}
    assert len({decision.at for decision in decisions}) == len(decisions)
    assert told <= {decision.at for decision in decisions}
    for before, decision in pairwise(decisions):
        assert decision.at in told or decision.at == before.wake_at


def test_different_seeds_give_different_runs() -> None:
    fleet = fleet_of(group_of(4))

    runs = [simulate(fleet, duration=SECOND, seed=seed) for seed in range(5)]

    assert len({tuple(record.sent for record in run.records) for run in runs}) == 5


@pytest.mark.slow
@settings(max_examples=40)
@given(fleet=fleets, seed=st.integers(0, 99))
def test_the_stages_of_an_answer_add_up_to_its_latency(fleet: Fleet, seed: int) -> None:
    for record in simulate(fleet, duration=SECOND, seed=seed).records:
        if record.stages is not None:
            times = record.stages
            parts = times.uplink + times.queue + times.prefix + times.wait + times.denoise
            assert parts + times.reply == record.latency


@pytest.mark.slow
@settings(max_examples=40)
@given(fleet=fleets, seed=st.integers(0, 99))
def test_a_closed_loop_robot_has_one_request_under_way(fleet: Fleet, seed: int) -> None:
    run = simulate(fleet, duration=SECOND, seed=seed)

    closed = {group.name for group in fleet.robots if group.rate_hz is None}
    last: dict[str, int] = {}
    for record in sorted(run.records, key=lambda record: record.sent):
        if run.groups[record.robot] in closed:
            assert record.sent >= last.get(record.robot, 0)
            last[record.robot] = record.sent if record.answered is None else record.answered


def test_open_loop_robots_send_at_their_rate_whatever_the_answers_do() -> None:
    overloaded = simulate(fleet_of(group_of(20, rate_hz=10)), duration=2 * SECOND)
    idle = simulate(fleet_of(group_of(1, rate_hz=10)), duration=2 * SECOND)

    assert len(overloaded.records) == 20 * 20
    assert sends(overloaded, "pi0-0") == sends(idle, "pi0-0")
    assert any(record.outcome == "expired" for record in overloaded.records)


def test_launches_of_a_device_that_varies_differ_and_are_drawn_from_the_seed() -> None:
    steady = fleet_of(group_of(1, rate_hz=10))
    varied = replace(steady, spreads={"gpu": 0.1})
    latencies = [
        [record.latency for record in simulate(fleet, duration=2 * SECOND, seed=seed).records]
        for fleet, seed in ((steady, 0), (varied, 0), (varied, 0), (varied, 1))
    ]

    assert len(set(latencies[0])) == 1
    assert len(set(latencies[1])) == 20
    assert latencies[1] == latencies[2] != latencies[3]
    assert fmean(map(float, filter(None, latencies[1]))) == pytest.approx(latencies[0][0], rel=0.1)


def test_robots_that_are_added_leave_the_others_their_phases_and_their_jitter() -> None:
    few, many = (
        simulate(
            fleet_of(group_of(count, jitter_ms=100), group_of(2, name="guests"), network=JITTERY),
            duration=2 * SECOND,
        )
        for count in (3, 9)
    )

    for robot in ("pi0-0", "pi0-1", "pi0-2", "guests-0", "guests-1"):
        assert sends(few, robot) == sends(many, robot)
        assert uplinks(few, robot) == uplinks(many, robot)


def test_robots_with_a_network_of_their_own_do_not_see_that_of_the_others() -> None:
    wired = ConstantNetwork(up_ms=1, down_ms=2)
    radio = Wifi7Network(bandwidth_gbps=0.1)
    groups = group_of(3, rate_hz=5), group_of(3, rate_hz=5, name="guests")
    fleet = fleet_of(*groups, network=radio)
    mixed = fleet_of(groups[0], replace(groups[1], network=wired), network=radio)
    alone = fleet_of(groups[0], replace(groups[1], count=0), network=radio)

    run = simulate(mixed, duration=2 * SECOND)

    assert {uplink for robot in (0, 1, 2) for uplink in uplinks(run, f"guests-{robot}")} == {ms(1)}
    # The air is shared by those that use it.
    assert uplinks(run, "pi0-0") == uplinks(simulate(alone, duration=2 * SECOND), "pi0-0")
    assert uplinks(run, "pi0-0") != uplinks(simulate(fleet, duration=2 * SECOND), "pi0-0")


def test_a_network_of_a_groups_own_that_is_the_fleets_changes_nothing() -> None:
    groups = group_of(3, deadline="queue"), group_of(3, name="guests")
    fleet = fleet_of(*groups, network=JITTERY)
    same = fleet_of(groups[0], replace(groups[1], network=JITTERY), network=JITTERY)

    assert simulate(same, duration=SECOND).records == simulate(fleet, duration=SECOND).records


def test_requests_sent_in_the_warm_up_are_not_recorded() -> None:
    fleet = fleet_of(group_of(3))

    whole = simulate(fleet, duration=3 * SECOND)
    late = simulate(fleet, warm_up=SECOND, duration=2 * SECOND)

    kept = [record for record in whole.records if record.sent >= SECOND]
    assert late.records == kept
    assert len(kept) == 12


def test_ticks_are_counted_after_the_warm_up_and_not_after_the_end() -> None:
    fleet = fleet_of(group_of(8, control_hz=100, rate_hz=3), network=JITTERY)

    run = simulate(fleet, warm_up=SECOND, duration=2 * SECOND)

    assert set(run.ticks.values()) == {200}
    assert run.length > 3 * SECOND


def test_starvation_is_counted_by_hand_for_one_robot() -> None:
    # 100 ticks per second; a chunk of 20 actions every half second, the first 35 ms after asking
    # (up 2, prefix 10, denoise 20, down 3). Ticks 0 to 3 (0 to 30 ms) starve, 20 execute, 26
    # starve until the second ask, and so on: 30 of 50 ticks find nothing.
    fleet = fleet_of(group_of(control_hz=100, horizon=20))

    run = simulate(fleet, warm_up=SECOND, duration=2 * SECOND)

    assert run.ticks == {"pi0-0": 200}
    assert run.starved == {"pi0-0": 120}


def test_devices_work_apart_from_each_other() -> None:
    alone = Fleet(
        devices={"a": setup_of()},
        robots=(RobotGroup(model="pi0", count=3, device="a", name="left", rate_hz=5),),
        network=CONSTANT,
    )
    beside = Fleet(
        devices={"a": setup_of(), "b": setup_of(formation="monolithic")},
        robots=(
            *alone.robots,
            RobotGroup(model="pi0", count=40, device="b", name="right", rate_hz=5),
        ),
        network=CONSTANT,
    )

    one, two = simulate(alone, duration=SECOND), simulate(beside, duration=SECOND)

    assert [r for r in two.records if two.groups[r.robot] == "left"] == one.records
    assert two.devices["a"].rows == one.devices["a"].rows
    assert sum(two.devices["b"].rows["prefix"]) > sum(two.devices["a"].rows["prefix"])


def test_a_newer_observation_supersedes_one_that_waits_where_robots_want_it() -> None:
    kept = simulate(fleet_of(group_of(4, rate_hz=50)), duration=SECOND)
    replaced = simulate(fleet_of(group_of(4, rate_hz=50, supersede=True)), duration=SECOND)

    assert {record.outcome for record in kept.records} <= {"served", "expired"}
    assert sum(record.outcome == "superseded" for record in replaced.records) > 50


def test_a_deadline_from_the_queue_is_when_the_robot_runs_dry_less_the_network() -> None:
    fleet = fleet_of(group_of(rate_hz=None, deadline="queue"))

    run = simulate(fleet, duration=5 * SECOND, keep_events=True)

    submits = [event for event in run.devices["gpu"].events if isinstance(event, Submit)]
    for record, submit in zip(run.records, submits, strict=True):
        assert submit.due == record.due + ms(UP_MS) - ms(UP_MS + DOWN_MS)
        assert submit.promise == record.sent + record.slo - ms(DOWN_MS)
        assert submit.expires == submit.due + record.slo


def test_a_run_is_as_long_as_asked_for_even_when_the_last_answer_comes_early() -> None:
    runs = [simulate(fleet_of(group_of()), duration=SECOND, seed=seed) for seed in range(8)]

    last = [max(record.answered or 0 for record in run.records) for run in runs]
    assert min(last) < SECOND
    assert [run.length for run in runs] == [max(SECOND, at) for at in last]


def test_a_fleet_without_robots_runs_and_reports_nothing() -> None:
    run = simulate(fleet_of(), warm_up=SECOND, duration=2 * SECOND)

    assert (run.records, run.groups, run.ticks) == ([], {}, {})
    assert run.length == 3 * SECOND


def test_progress_is_told_once_per_virtual_second_and_changes_nothing() -> None:
    told: list[int] = []
    fleet = fleet_of(group_of(5), network=JITTERY)

    watched = simulate(fleet, duration=3 * SECOND, progress=told.append)

    assert told == [0, SECOND, 2 * SECOND, 3 * SECOND]
    assert watched == simulate(fleet, duration=3 * SECOND)


@pytest.mark.parametrize(
    ("duration", "warm_up", "name"), [(0, 0, "duration"), (-1, 0, "duration"), (1, -1, "warm_up")]
)
def test_a_run_of_no_length_is_refused(duration: int, warm_up: int, name: str) -> None:
    with pytest.raises(UsageError, match=name):
        simulate(fleet_of(), duration=duration * MILLISECOND, warm_up=warm_up * MILLISECOND)


def sends(run: Run, robot: str) -> list[int]:
    return sorted(record.sent for record in run.records if record.robot == robot)


def uplinks(run: Run, robot: str) -> list[int]:
    by_sent = sorted(run.records, key=lambda record: record.sent)
    return [r.stages.uplink for r in by_sent if r.robot == robot and r.stages is not None]
