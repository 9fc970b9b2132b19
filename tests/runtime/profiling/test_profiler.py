"""A device that is measured as a stranger is found as it is, and a second look takes the cache."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from takt.core.profile import FULL_SPEED, Profile
from takt.hardware import profile_for
from takt.hardware.measured import MeasuredProfile
from takt.runtime.paced_device import perturbed
from takt.runtime.profiling.cache import Cache
from takt.runtime.profiling.grid import all_pairs, chosen_pairs, stages_of
from takt.runtime.profiling.machines import PacedMachine
from takt.runtime.profiling.median import Enough
from takt.runtime.profiling.profiler import Profiled, Profiler, Progress
from takt.schema.serving import ServedModel
from takt.units import SECOND, ms

SMALL = {"prefix_sizes": (1, 2), "denoise_sizes": (1, 4)}


def profiled(
    seed: int | None,
    *names: str,
    cache: Cache | None = None,
    enough: Enough | None = None,
    every_pair: bool = False,
    seen: list[Progress] | None = None,
) -> Profiled:
    machine = PacedMachine("rtx-pro-6000", seed)
    served = [ServedModel(name=name, policy=f"paced:{name}", options=SMALL) for name in names]
    loaded = machine.load(served)
    profiler = Profiler(
        machine,
        loaded,
        enough=enough or Enough(),
        cache=cache,
        every_pair=every_pair,
        progress=(seen if seen is not None else []).append,
    )
    result = profiler.run(machine.identity())
    machine.close()
    return result


def truth_of(result: Profiled, seed: int | None) -> Profile:
    table = profile_for("rtx-pro-6000", result.profile.models)
    return table if seed is None else perturbed(table, seed)


def solo_errors(result: Profiled, truth: Profile) -> list[float]:
    return [abs(median.value / truth.solo(work) - 1) for work, median in result.solo.items()]


def pair_errors(result: Profiled, truth: Profile) -> list[float]:
    profile = result.profile.profile
    return [
        abs(profile.speed(work, beside) / truth.speed(work, beside) - 1)
        for prefix, denoise in result.beside
        for work, beside in ((prefix, denoise), (denoise, prefix))
    ]


def share_within(errors: list[float], bound: float) -> float:
    return sum(error <= bound for error in errors) / len(errors)


def test_a_device_that_keeps_to_its_table_is_found_to_the_last_digits() -> None:
    result = profiled(None, "pi0")

    truth = truth_of(result, None)
    assert max(solo_errors(result, truth)) == 0
    assert max(pair_errors(result, truth)) < 1e-4
    assert result.profile.header.cut_off == ()


@settings(max_examples=3, deadline=None)
@given(st.integers(1, 10_000))
def test_a_stranger_is_found_within_the_stated_error(seed: int) -> None:
    result = profiled(seed, "smolvla")

    truth = truth_of(result, seed)
    error = result.profile.header.relative_error
    assert share_within(solo_errors(result, truth), error) >= 0.9
    assert share_within(pair_errors(result, truth), 2 * error) >= 0.9
    assert max(solo_errors(result, truth)) < 2 * error


@pytest.mark.parametrize("seed", [1])
def test_every_pair_can_be_measured(seed: int) -> None:
    result = profiled(seed, "groot-n1.7", every_pair=True)

    header = result.profile.header
    assert header.num_pairs_interpolated == 0
    assert header.interpolation == ""
    assert share_within(pair_errors(result, truth_of(result, seed)), 0.06) >= 0.95


def test_a_share_that_would_be_chosen_has_been_measured() -> None:
    result = profiled(2, "pi0", "smolvla")

    profile = result.profile
    chosen = {*chosen_pairs(profile.profile, stages_of(profile.models))}
    assert chosen <= profile.measured_pairs


def test_the_profile_says_how_many_pairs_were_interpolated_and_how() -> None:
    result = profiled(1, "pi0")

    header, stages = result.profile.header, stages_of(result.profile.models)
    num_pairs = len([*all_pairs(stages, result.profile.profile.shares)])
    assert header.num_pairs_measured == len(result.beside)
    assert header.num_pairs_measured + header.num_pairs_interpolated == num_pairs
    assert "linear in the share" in header.interpolation


def test_a_launch_too_brief_to_slow_another_is_measured_beside_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("takt.runtime.profiling.profiler.HAND_OVER", ms(18.9))
    seen: list[Progress] = []

    result = profiled(None, "pi0", seen=seen)

    brief = {work for work, median in result.solo.items() if median.value < ms(18.9)}
    assert 0 < len(brief) < len(result.solo)
    assert result.beside
    assert not any(brief.intersection(pair) for pair in result.beside)
    profile, stages = result.profile.profile, stages_of(result.profile.models)
    unhindered = [it for it in all_pairs(stages, profile.shares) if brief.intersection(it)]
    assert {profile.speed(*pair) for pair in unhindered} == {FULL_SPEED}
    assert seen[-1].done + 1 == seen[-1].known


def test_what_is_cut_off_is_named() -> None:
    result = profiled(1, "smolvla", enough=Enough(relative_error=0.001, most_runs=8))

    assert len(result.profile.header.cut_off) == len(result.solo) + len(result.beside)
    assert "smolvla denoise layout 0 size 1" in result.profile.header.cut_off


def test_a_second_run_measures_nothing_and_says_the_same(tmp_path: Path) -> None:
    path, seen = tmp_path / "cache.jsonl", list[Progress]()
    first = profiled(1, "smolvla", cache=Cache(path, {}))

    second = profiled(1, "smolvla", cache=Cache(path, {}), seen=seen)

    assert seen == []
    assert second.num_from_cache == len(second.solo) + len(second.beside)
    assert second.profile.to_json() == first.profile.to_json()


def test_a_profile_that_was_stopped_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "cache.jsonl"
    first = profiled(1, "smolvla", cache=Cache(path, {}))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:10]))

    second = profiled(1, "smolvla", cache=Cache(path, {}))

    assert second.num_from_cache == 10
    assert first.solo.keys() == second.solo.keys()


def test_a_tighter_error_measures_again_what_was_known_too_loosely(tmp_path: Path) -> None:
    path, seen = tmp_path / "cache.jsonl", list[Progress]()
    profiled(1, "smolvla", cache=Cache(path, {}), enough=Enough(relative_error=0.2))

    tight = profiled(1, "smolvla", cache=Cache(path, {}), seen=seen)

    assert len(seen) > len(tight.solo) / 2
    assert all(median.error <= 0.03 for median in tight.solo.values())


def test_progress_counts_up_to_what_is_known() -> None:
    seen = list[Progress]()
    result = profiled(None, "smolvla", seen=seen)

    assert [progress.done for progress in seen] == list(range(len(seen)))
    assert seen[-1].known == len(result.solo) + len(result.beside)
    assert "smolvla prefix" in seen[0].doing


def test_the_file_of_a_profile_is_read_back_whole() -> None:
    profile = profiled(1, "pi0", "smolvla").profile

    again = MeasuredProfile.from_json(profile.to_json())

    assert again.to_json() == profile.to_json()
    assert again.measured_pairs == profile.measured_pairs
    assert again.models == profile.models


def test_time_cuts_off_what_takes_too_long() -> None:
    machine = PacedMachine("rtx-pro-6000", 1)
    loaded = machine.load([ServedModel(name="pi0", policy="paced:pi0", options=SMALL)])
    enough = Enough(relative_error=0.001, most_runs=10_000, most_time=SECOND)

    result = Profiler(machine, loaded, enough=enough).run(machine.identity())
    machine.close()

    entries = len(result.solo) + len(result.beside)
    assert machine.now() < entries * (SECOND + ms(800))
    assert result.profile.profile.shares[-1] == 188
    assert all(1 <= m.value < FULL_SPEED * 1000 for m in result.solo.values())
