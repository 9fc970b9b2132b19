import math

import pytest

from takt.doors.lerobot_options import (
    LerobotModelOptions,
    LerobotOptions,
    SimilarState,
    aliases_of,
)
from takt.errors import ConfigError
from takt.schema.spec import ActionSpec, AxisSpec, ObservationSpec, PolicySpec, TensorSpec


def spec(*units: str) -> PolicySpec:
    return PolicySpec(
        name="fold",
        architecture="fold",
        observation=ObservationSpec(
            state_dim=len(units),
            state=tuple(AxisSpec(name=f"j{n}", unit=unit) for n, unit in enumerate(units)),
        ),
        action=ActionSpec(action_dim=1, model_action_dim=1, horizon=2, execution_horizon=2),
        prefix_inputs=(TensorSpec(name="state", shape=(1,)),),
    )


def test_an_alias_means_its_model() -> None:
    options = {"fold": LerobotModelOptions(aliases=("team/fold", "fold-v2"))}

    assert aliases_of(("fold", "pour"), options) == {"team/fold": "fold", "fold-v2": "fold"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gone": ()}, "no model 'gone'"),
        ({"fold": ("pour",)}, "alias 'pour' means both"),
        ({"fold": ("x",), "pour": ("x",)}, "alias 'x' means both 'fold' and 'pour'"),
        ({"fold": ("",)}, "no printable name"),
        ({"fold": ("a\nb",)}, "no printable name"),
    ],
)
def test_an_alias_that_is_not_clear_is_refused(
    options: dict[str, tuple[str, ...]], words: str
) -> None:
    given = {model: LerobotModelOptions(aliases=names) for model, names in options.items()}

    with pytest.raises(ConfigError, match=words):
        aliases_of(("fold", "pour"), given)


@pytest.mark.parametrize(
    ("units", "expected"),
    [((), 2.0), (("",), 2.0), (("deg", "deg"), 2.0), (("rad",), 2.0 * math.pi / 180)],
)
def test_a_tolerance_is_converted_to_the_units_of_the_state(
    units: tuple[str, ...], expected: float
) -> None:
    similar = SimilarState(tolerance=2.0, unit="deg")

    assert similar.tolerance_for(spec(*units)) == pytest.approx(expected)


@pytest.mark.parametrize("units", [("m",), ("rad", "m"), ("deg", "rad")])
def test_a_tolerance_without_meaning_is_refused(units: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="has no meaning"):
        SimilarState(tolerance=2.0, unit="deg").tolerance_for(spec(*units))


@pytest.mark.parametrize(("tolerance", "unit"), [(0.0, "deg"), (math.inf, "deg"), (1.0, "")])
def test_an_impossible_tolerance_is_refused(tolerance: float, unit: str) -> None:
    with pytest.raises(ConfigError, match="similar_state"):
        SimilarState(tolerance=tolerance, unit=unit)


def test_an_impossible_rate_is_refused() -> None:
    with pytest.raises(ConfigError, match="fps"):
        LerobotOptions(fps=0)
