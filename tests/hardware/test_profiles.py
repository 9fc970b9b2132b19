"""Profiles hold every launch the scheduler may ask for, and pairs slow each other down."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.core.model import Model
from takt.core.profile import FULL_SPEED, Profile, Work
from takt.core.request import Stage
from takt.errors import ConfigError
from takt.hardware import known_architectures, known_devices, model_for, profile_for
from takt.units import ms

UNITS = 188


def pi0_profile(interference: float = 0.25) -> Profile:
    return profile_for("rtx-pro-6000", [model_for("pi0")], interference=interference)


def prefix(share: int, size: int = 1) -> Work:
    return Work("pi0", Stage.PREFIX, 3, size, share)


def denoise(size: int = 1, share: int = UNITS) -> Work:
    return Work("pi0", Stage.DENOISE, 3, size, share)


@pytest.mark.parametrize("device", known_devices())
@pytest.mark.parametrize("architecture", known_architectures())
def test_a_profile_has_every_launch_and_every_pair_of_a_model(
    device: str, architecture: str
) -> None:
    model = model_for(architecture, prefix_sizes=(1, 2), denoise_sizes=(1, 8))

    profile = profile_for(device, [model])

    layouts = range(len(model.holds))
    for share in profile.shares:
        for layout in layouts:
            before = Work(architecture, Stage.PREFIX, layout, 2, share)
            after = Work(architecture, Stage.DENOISE, layout, 8, profile.units)
            assert profile.solo(before) > 0
            assert profile.solo(after._replace(share=share)) >= profile.solo(after)
            assert profile.speed(before, after) < FULL_SPEED
            assert profile.speed(after, before) < FULL_SPEED


@given(st.sampled_from([48, 96, 144, UNITS]), st.sampled_from([1, 4]), st.sampled_from([1, 16]))
def test_more_interference_never_speeds_a_launch_up(share: int, rows: int, others: int) -> None:
    quiet, loud = PROFILES[0.0], PROFILES[0.5]
    pair = prefix(share, rows), denoise(others)

    assert loud.speed(*pair) <= quiet.speed(*pair)
    assert loud.speed(*reversed(pair)) <= quiet.speed(*reversed(pair))
    assert loud.solo(pair[0]) == quiet.solo(pair[0])


PROFILES = {interference: pi0_profile(interference) for interference in (0.0, 0.25, 0.5)}


def test_without_interference_a_prefix_held_to_a_share_runs_at_full_speed() -> None:
    assert PROFILES[0.0].speed(prefix(144), denoise()) == FULL_SPEED


def test_the_prefix_is_a_tenth_slower_beside_a_denoise_launch_by_default() -> None:
    assert PROFILES[0.25].speed(prefix(144), denoise()) == round(FULL_SPEED / 1.1)


def test_a_denoise_launch_is_slower_the_more_of_the_device_the_prefix_takes() -> None:
    profile = PROFILES[0.25]

    speeds = [profile.speed(denoise(), prefix(share)) for share in profile.shares]

    assert speeds == sorted(speeds, reverse=True)
    assert speeds[0] > 0.8 * FULL_SPEED
    assert speeds[-1] < 0.5 * FULL_SPEED


def test_holding_the_prefix_back_ends_a_pair_sooner_than_leaving_it_unguarded() -> None:
    profile = PROFILES[0.25]
    share = profile.best_share(prefix(UNITS), denoise(4))

    assert share < UNITS
    assert profile.pair_time(prefix(share), denoise(4)) < profile.pair_time(
        prefix(UNITS), denoise(4)
    )


def test_a_pair_ends_sooner_than_the_two_one_after_the_other() -> None:
    profile = PROFILES[0.25]
    held = prefix(profile.best_share(prefix(UNITS), denoise()))

    assert profile.pair_time(held, denoise()) < profile.solo(prefix(UNITS)) + profile.solo(
        denoise()
    )


def test_a_model_with_one_layout_pays_for_cameras_and_padding_it_does_not_need() -> None:
    full = profile_for("h100", [model_for("pi05", one_layout=True)])
    exact = profile_for("h100", [model_for("pi05")])
    work = Work("pi05", Stage.PREFIX, 0, 1, 132)

    assert full.solo(work) == exact.solo(work._replace(layout=3))
    assert full.solo(work) > 1.2 * exact.solo(work)


def test_variants_of_one_architecture_share_entries_and_may_differ_in_sizes() -> None:
    small = model_for("pi0", "pick", prefix_sizes=(1,), denoise_sizes=(1,))
    large = model_for("pi0", "place", prefix_sizes=(1, 4), denoise_sizes=(8,))

    profile = profile_for("h100", [small, large])

    for stage, size in ((0, 1), (0, 4), (1, 1), (1, 8)):
        assert profile.solo(Work("pi0", Stage(stage), 0, size, 132)) > 0


def test_a_profile_survives_being_written_and_read() -> None:
    profile = PROFILES[0.25]

    assert Profile.from_json(profile.to_json()).to_json() == profile.to_json()


def test_the_promise_of_pi0_is_the_published_one() -> None:
    assert model_for("pi0").slo == ms(156)
    assert model_for("pi0", slo_ms=100).slo == ms(100)


def by_hand(holds: tuple[int, ...], architecture: str = "pi0") -> Model:
    return Model(name="arm", architecture=architecture, slo=ms(100), holds=holds)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"device_name": "tpu"}, "no device 'tpu'; known: rtx-pro-6000"),
        ({"stack": "tvm"}, "no stack 'tvm'; known: eager"),
        ({"models": []}, "at least one model"),
        ({"models": [by_hand((1,), "pi9")]}, "no architecture 'pi9'; known: pi0"),
        ({"models": [by_hand((3, 2))]}, "model 'arm': holds must be .* got \\(3, 2\\)"),
        ({"models": [by_hand((1,)), model_for("pi0")]}, "model 'pi0': its layouts differ"),
        ({"interference": -0.1}, "interference must lie between 0 and 1, got -0.1"),
        ({"interference": float("nan")}, "got nan"),
        ({"shares": [50, 132]}, "H100 SXM 80 GB come in multiples of 8 SMs, got \\[50\\]"),
        ({"shares": [64]}, "the last share must be the whole device, 132"),
        ({"shares": []}, "shares must rise"),
        ({"device_name": "a100", "stack": "fp8"}, "cannot multiply 8-bit"),
    ],
)
def test_an_impossible_profile_is_refused_by_name(arguments: dict[str, object], says: str) -> None:
    wanted: dict[str, object] = {"device_name": "h100", "models": [model_for("pi0")], **arguments}

    with pytest.raises(ConfigError, match=says):
        profile_for(**wanted)  # type: ignore[arg-type]


@pytest.mark.parametrize("slo_ms", [0.0, -1.0, float("inf"), float("nan")])
def test_an_impossible_promise_is_refused(slo_ms: float) -> None:
    with pytest.raises(ConfigError, match="slo"):
        model_for("pi0", slo_ms=slo_ms)


def test_replicas_slow_each_other_down_by_the_bandwidth_they_share() -> None:
    model = model_for("pi0", prefix_sizes=(1,), denoise_sizes=(1, 8))
    profile = profile_for("rtx-pro-6000", [model], interference=0.0)
    held = Work("pi0", Stage.DENOISE, 0, 8, 80)  # the largest of the shares that fit twice

    assert profile.speed(held._replace(stage=Stage.PREFIX, size=1), held) == FULL_SPEED
    assert 0 < profile.speed(held, held) <= FULL_SPEED


@pytest.mark.parametrize("replicas", [2, 3])
def test_every_pair_of_launches_on_the_shares_of_replicas_has_a_slowdown(replicas: int) -> None:
    model = model_for("smolvla")
    profile = profile_for("rtx-pro-6000", [model])
    share = max(share for share in profile.shares if share * replicas <= profile.units)
    works = [Work("smolvla", stage, 0, model.sizes(stage)[-1], share) for stage in Stage]

    assert all(profile.speed(work, beside) for work in works for beside in works)


def test_a_cache_takes_both_crossings_and_its_bytes_to_another_device() -> None:
    model = model_for("pi0", one_layout=True)
    profile = profile_for("h100", [model])

    # 15 MB at 12 GB/s, twice, and 0.3 ms.
    assert profile.transfer("pi0", 0) == pytest.approx(ms(2 * 15.0 / 12 + 0.3), rel=0.02)


def test_a_model_knows_its_denoise_steps() -> None:
    assert (model_for("pi0").steps, model_for("groot-n1.7").steps) == (10, 4)
