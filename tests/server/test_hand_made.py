"""A profile written by hand becomes the times and slowdowns it states."""

import msgspec
import pytest

from takt.core.model import Model
from takt.core.profile import Work
from takt.core.request import Stage
from takt.core.trace import Setup
from takt.errors import ConfigError
from takt.server.hand_made import HandMadeArchitecture, HandMadeProfile, HandMadeSlowdown
from takt.units import ms

PI0 = HandMadeArchitecture(prefix_ms={1: 14.0, 2: 28.0}, denoise_ms={1: 20.0, 4: 24.0})


def profile_of(**how: object) -> HandMadeProfile:
    return msgspec.convert(
        {"architectures": {"pi0": msgspec.to_builtins(PI0)}, **how}, HandMadeProfile
    )


def model_of(
    name: str = "pi0", prefix: tuple[int, ...] = (1, 2), denoise: tuple[int, ...] = (1, 4)
) -> Model:
    return Model(
        name=name, architecture=name, slo=ms(100), prefix_sizes=prefix, denoise_sizes=denoise
    )


def prefix(size: int = 1, share: int = 1) -> Work:
    return Work("pi0", Stage.PREFIX, 0, size, share)


def denoise(size: int = 1, share: int = 1) -> Work:
    return Work("pi0", Stage.DENOISE, 0, size, share)


def test_times_alone_are_those_of_the_table() -> None:
    profile = profile_of().profile((model_of(),))

    assert profile.solo(prefix(2)) == ms(28)
    assert profile.solo(denoise(4)) == ms(24)


def test_only_the_sizes_a_model_captures_are_needed() -> None:
    profile = profile_of().profile((model_of(prefix=(2,), denoise=(4,)),))

    with pytest.raises(ConfigError, match="no time"):
        profile.solo(prefix(1))


def test_a_prefix_on_part_of_the_device_takes_longer_by_the_exponent() -> None:
    described = profile_of(units=100, shares=(25, 100), share_exponent=0.5)

    profile = described.profile((model_of(),))

    assert profile.solo(prefix(1, share=25)) == ms(28)
    assert profile.solo(prefix(1, share=100)) == ms(14)
    assert profile.solo(denoise(1, share=100)) == ms(20)


def test_a_slowdown_holds_for_every_pair_of_stages() -> None:
    profile = profile_of(slowdown={"prefix": 1.25, "denoise": 2}).profile((model_of(),))

    assert profile.speed(prefix(2), denoise(4)) == 800_000
    assert profile.speed(denoise(1), prefix(1)) == 500_000


def test_the_slowdown_of_a_denoise_launch_may_depend_on_the_share_of_the_prefix() -> None:
    described = profile_of(units=4, shares=(2, 4), slowdown={"denoise": {2: 1.25, 4: 2.0}})

    profile = described.profile((model_of(),))

    assert profile.speed(denoise(share=4), prefix(share=2)) == 800_000
    assert profile.speed(denoise(share=4), prefix(share=4)) == 500_000


def test_a_slowdown_for_a_share_that_is_not_stated_is_missed_by_name() -> None:
    with pytest.raises(ConfigError, match=r"slowdown\.denoise: no figure for a share of 3"):
        HandMadeSlowdown(denoise={2: 1.5}).of_denoise(3)


def test_a_single_pass_policy_needs_no_denoise_times() -> None:
    act = HandMadeArchitecture(prefix_ms={1: 8.0})
    described = HandMadeProfile(architectures={"act": act})

    profile = described.profile((model_of("act", prefix=(1,), denoise=()),))

    assert profile.solo(Work("act", Stage.PREFIX, 0, 1, 1)) == ms(8)


def test_models_of_one_architecture_share_its_times() -> None:
    tuned = Model(name="tuned", architecture="pi0", slo=ms(50), prefix_sizes=(2,))

    profile = profile_of().profile((model_of(), tuned))

    assert profile.solo(prefix(2)) == ms(28)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (model_of("act"), "no architecture 'act'; it has: pi0"),
        (model_of(prefix=(1, 3)), "no prefix_ms for batch size 3; sizes: 1, 2"),
        (model_of(denoise=(2,)), "no denoise_ms for batch size 2; sizes: 1, 4"),
    ],
)
def test_what_a_model_needs_and_the_profile_lacks_is_named(model: Model, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        profile_of().profile((model,))


def test_the_last_share_must_be_the_whole_device() -> None:
    with pytest.raises(ConfigError, match="whole device, 4 units"):
        profile_of(units=4, shares=(2, 3)).profile((model_of(),))


@pytest.mark.parametrize(
    "how",
    [
        {"units": 0},
        {"share_exponent": 1.5},
        {"slowdown": {"prefix": 0.9}},
        {"slowdown": {"denoise": {2: 0.5}}},
        {"slowdown": {"prefix": float("inf")}},
        {"architectures": {}},
        {"architectures": {"pi0": {"prefix_ms": {}}}},
        {"architectures": {"pi0": {"prefix_ms": {1: float("nan")}}}},
        {"architectures": {"pi0": {"prefix_ms": {1: 0}}}},
        {"architecture": {}},
    ],
)
def test_figures_no_device_could_have_are_refused(how: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        profile_of(**how)


# What only some formations need

REPLICAS = {"denoise_exponent": 0.5, "slowdown": {"prefix": 1.25, "denoise": 2.0}}
STEPPED = {"pi0": {**msgspec.to_builtins(PI0), "steps": 10, "transfer_ms": 3.0}}


def checked(
    described: HandMadeProfile, formation: str, options: dict[str, object] | None = None
) -> Setup:
    models = described.stepped((model_of(),))
    setup = Setup(
        models=models,
        profile=described.profile(models),
        formation=formation,
        options=options or {},
    )
    described.check(setup)
    return setup


def test_replicas_have_their_times_and_slowdowns_on_every_share_of_which_two_fit() -> None:
    described = profile_of(
        units=100, shares=(25, 50, 60, 100), share_exponent=0.5, replicas=REPLICAS
    )

    profile = checked(described, "monolithic", {"replicas": 2}).profile

    assert profile.solo(denoise(4, share=25)) == ms(48)
    assert profile.speed(prefix(2, share=50), denoise(1, share=50)) == 800_000
    assert profile.speed(denoise(1, share=25), denoise(4, share=25)) == 500_000
    with pytest.raises(ConfigError, match="no time"):
        profile.solo(denoise(1, share=60))


def test_a_cache_takes_the_stated_time_to_another_device() -> None:
    described = profile_of(architectures=STEPPED)

    setup = checked(described, "disaggregated", {"prefix_devices": 2})

    assert setup.profile.transfer("pi0", 0) == ms(3)


def test_step_admission_cuts_the_loop_into_the_stated_steps() -> None:
    described = profile_of(architectures=STEPPED)
    free: dict[str, object] = {"inspection_ms": 0.0, "packing_ms": 0.0}

    setup = checked(described, "step_admission", free)

    assert setup.models[0].steps == 10
    assert setup.costs().solo(denoise(1)) == ms(2)


SHARES = {"units": 4, "shares": (3, 4)}


@pytest.mark.parametrize(
    ("how", "formation", "options", "message"),
    [
        ({}, "step_admission", {}, r"architectures\.pi0\.steps: expected a number, .* missing"),
        (
            {},
            "disaggregated",
            {},
            r"architectures\.pi0\.transfer_ms: expected a number, .* missing",
        ),
        ({}, "monolithic", {"replicas": 2}, r"shares: expected one of at most 0 units.* got 1"),
        (
            {**SHARES, "replicas": REPLICAS},
            "monolithic",
            {"replicas": 2},
            r"shares: expected one of at most 2 units, .* into 4; got 3, 4",
        ),
        (
            {"units": 4, "shares": (2, 4)},
            "monolithic",
            {"replicas": 2},
            "replicas: expected denoise_exponent and slowdown, .* missing",
        ),
    ],
)
def test_a_formation_that_needs_more_than_the_profile_states_is_refused(
    how: dict[str, object], formation: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        checked(profile_of(**how), formation, options)


def test_a_single_pass_policy_has_no_steps_and_no_cache_to_state() -> None:
    act = HandMadeArchitecture(prefix_ms={1: 8.0})
    described = HandMadeProfile(architectures={"act": act})
    models = (model_of("act", prefix=(1,), denoise=()),)

    for formation in ("step_admission", "disaggregated"):
        described.check(
            Setup(models=models, profile=described.profile(models), formation=formation)
        )


@pytest.mark.parametrize(
    "how",
    [
        {"replicas": {}},
        {"replicas": {**REPLICAS, "denoise_exponent": 2}},
        {"replicas": {"denoise_exponent": 0, "slowdown": {"prefix": 1.0, "denoise": 0.5}}},
        {"architectures": {"pi0": {"prefix_ms": {1: 1.0}, "steps": 0}}},
        {"architectures": {"pi0": {"prefix_ms": {1: 1.0}, "transfer_ms": -1}}},
    ],
)
def test_impossible_replicas_steps_and_transfers_are_refused(how: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        profile_of(**how)
