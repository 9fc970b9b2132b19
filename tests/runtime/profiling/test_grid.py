"""Which pairs are measured, and what the others are taken for."""

from itertools import product

import pytest

from takt.core.model import Model
from takt.core.profile import FULL_SPEED, Profile, Work
from takt.core.request import Stage
from takt.errors import ConfigError
from takt.hardware import model_for, profile_for
from takt.runtime.profiling.grid import (
    Pair,
    Speeds,
    all_pairs,
    all_speeds,
    check_sent,
    chosen_pairs,
    full_speeds,
    grid_pairs,
    profile_of,
    solo_works,
    stages_of,
)
from takt.units import ms

PI0 = model_for("pi0")
SMOLVLA = model_for("smolvla")
MIX = stages_of([PI0, SMOLVLA])
TABLE = profile_for("rtx-pro-6000", [PI0, SMOLVLA])


def read(table: Profile, pairs: list[Pair]) -> dict[Pair, Speeds]:
    return {(one, two): (table.speed(one, two), table.speed(two, one)) for one, two in pairs}


def test_variants_of_one_architecture_are_measured_once() -> None:
    fold = Model(name="fold", architecture="pi0", slo=ms(9), prefix_sizes=(1,), denoise_sizes=(32,))

    (stages,) = stages_of([PI0, fold])

    assert stages.architecture == "pi0"
    assert stages.prefix_sizes == (1, 2, 4)
    assert stages.denoise_sizes == (1, 2, 4, 8, 16, 32)


def test_every_launch_a_scheduler_may_start_is_measured_alone() -> None:
    works = [*solo_works(MIX, TABLE.shares)]

    assert len(set(works)) == len(works)
    assert all(TABLE.solo(work) for work in works)
    assert {work.share for work in works if work.stage is Stage.DENOISE} == {188}


def test_a_single_pass_model_has_no_pairs() -> None:
    act = Model(name="act", architecture="act", slo=ms(50), prefix_sizes=(1, 2), denoise_sizes=())

    assert list(all_pairs(stages_of([act]), (4,))) == []
    assert list(grid_pairs(stages_of([act]), (4,))) == []


def test_the_grid_is_a_small_part_of_all_pairs_and_every_two_architectures_have_one() -> None:
    grid, every = [*grid_pairs(MIX, TABLE.shares)], {*all_pairs(MIX, TABLE.shares)}

    assert {*grid} <= every
    assert len(grid) == 4 * 16 < len(every) / 50
    met = {(one.architecture, two.architecture) for one, two in grid}
    assert met == {*product(("pi0", "smolvla"), repeat=2)}


def test_pairs_are_measured_in_the_layout_that_robots_send() -> None:
    stages = stages_of([PI0, SMOLVLA], {"pi0": 2})
    pairs = [*grid_pairs(stages, TABLE.shares), *chosen_pairs(TABLE, stages)]

    layouts = {(work.architecture, work.layout) for pair in pairs for work in pair}
    assert layouts == {("pi0", 2), ("smolvla", 3)}


def test_of_one_architecture_the_dearest_layout_that_is_sent_is_measured() -> None:
    fold = model_for("pi0", "fold")

    paired = [
        stages_of([PI0, fold], sent)[0].paired for sent in ({"pi0": 1}, {"pi0": 1, "fold": 2})
    ]

    assert paired == [3, 2]


@pytest.mark.parametrize(
    ("sent", "complaint"),
    [({"pi9": 0}, "--layout pi9: no such model"), ({"pi0": 4}, "--layout pi0: expected 0..3")],
)
def test_a_layout_that_no_robot_can_send_is_refused(sent: dict[str, int], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        check_sent([PI0, SMOLVLA], sent)


def test_what_was_measured_is_kept_and_everything_else_is_filled_in() -> None:
    measured = read(TABLE, [*grid_pairs(MIX, TABLE.shares)])

    speeds = all_speeds(MIX, TABLE.shares, measured)

    assert measured.items() <= speeds.items()
    assert {*speeds} == {*all_pairs(MIX, TABLE.shares)}
    assert all(1 <= speed <= FULL_SPEED for both in speeds.values() for speed in both)


def test_interpolation_of_the_modelled_gpu_is_near_for_most_pairs() -> None:
    speeds = full_speeds(MIX, TABLE.shares, read(TABLE, [*grid_pairs(MIX, TABLE.shares)]))

    errors = sorted(
        abs(found / true - 1)
        for pair, both in speeds.items()
        for found, true in zip(both, read(TABLE, [pair])[pair], strict=True)
    )
    assert errors[len(errors) // 2] < 0.02
    assert errors[len(errors) * 9 // 10] < 0.25


@pytest.mark.parametrize(("size", "speed"), [(1, 1_000_000), (2, 750_000), (4, 500_000)])
def test_batch_sizes_are_interpolated_in_their_logarithm(size: int, speed: int) -> None:
    model = Model(name="m", architecture="m", slo=ms(9), prefix_sizes=(1, 2, 4), denoise_sizes=(1,))
    stages, denoise = stages_of([model]), Work("m", Stage.DENOISE, 0, 1, 2)
    one, four = (Work("m", Stage.PREFIX, 0, rows, 2) for rows in (1, 4))
    measured = {(one, denoise): (FULL_SPEED, 100), (four, denoise): (500_000, 100)}

    speeds = all_speeds(stages, (2,), measured)

    assert speeds[one._replace(size=size), denoise] == (speed, 100)


def test_a_scheduler_chooses_the_share_that_is_over_soonest() -> None:
    stages = stages_of([PI0])

    chosen = [*chosen_pairs(TABLE, stages, parts=(16,))]

    assert len(chosen) == 15
    for prefix, denoise in chosen:
        times = [TABLE.pair_time(prefix._replace(share=share), denoise) for share in TABLE.shares]
        assert TABLE.pair_time(prefix, denoise) == min(times)


def test_with_one_share_there_is_nothing_to_choose() -> None:
    profile = Profile(units=2, shares=(2,), solo={}, slowdown={})

    assert list(chosen_pairs(profile, stages_of([PI0]))) == []


def test_a_profile_of_these_times_says_them() -> None:
    pairs = read(TABLE, [*grid_pairs(MIX, TABLE.shares)])
    solo = {work: TABLE.solo(work) for work in solo_works(MIX, TABLE.shares)}

    profile = profile_of(188, TABLE.shares, solo, pairs)

    assert read(profile, [*pairs]) == pairs
    assert all(profile.solo(work) == time for work, time in solo.items())
