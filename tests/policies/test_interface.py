import pytest

from takt.core.request import Stage
from takt.errors import ConfigError
from takt.policies.interface import Placement


def test_each_stage_has_its_own_cores() -> None:
    placement = Placement(kv_slots=1, prefix_cores=(0, 1), denoise_cores=(2,))

    assert placement.cores(Stage.PREFIX) == (0, 1)
    assert placement.cores(Stage.DENOISE) == (2,)


def test_lanes_may_share_all_their_cores_or_none() -> None:
    Placement(kv_slots=1, prefix_cores=(0,), denoise_cores=(0,))

    with pytest.raises(ConfigError, match="disjoint"):
        Placement(kv_slots=1, prefix_cores=(0, 1), denoise_cores=(1, 2))


def test_an_impossible_placement_is_refused() -> None:
    with pytest.raises(ConfigError, match="kv_slots"):
        Placement(kv_slots=0)
    with pytest.raises(ConfigError, match="auto, f32, bf16"):
        Placement(kv_slots=1, precision="f64")  # type: ignore[arg-type]
