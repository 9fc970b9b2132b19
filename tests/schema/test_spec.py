from dataclasses import replace
from typing import Any

import pytest

from takt.errors import ConfigError
from takt.schema.spec import (
    ActionSpec,
    AxisSpec,
    CameraSpec,
    LayoutSpec,
    ObservationSpec,
    PolicySpec,
    TensorSpec,
)

STATE = TensorSpec(name="state", shape=(6,))
ACTION = ActionSpec(action_dim=6, model_action_dim=32, horizon=50, execution_horizon=25)
SPEC = PolicySpec(
    name="fold",
    architecture="pi0",
    observation=ObservationSpec(
        cameras=(
            CameraSpec(name="base", height=224, width=224, resize="pad_center"),
            CameraSpec(name="wrist", height=224, width=224, required=False),
        ),
        state_dim=6,
    ),
    action=ACTION,
    prefix_inputs=(TensorSpec(name="image", shape=(224, 224, 3), dtype="uint8"),),
    denoise_inputs=(STATE,),
    layouts=(
        LayoutSpec(name="one camera", cameras=("base",)),
        LayoutSpec(name="all", cameras=("base", "wrist")),
    ),
    holds=(0b11, 0b10),
)


def test_a_slot_has_each_tensor_once() -> None:
    shared = replace(SPEC, prefix_inputs=(*SPEC.prefix_inputs, STATE))

    assert [tensor.name for tensor in shared.slot_tensors] == ["image", "state"]


def test_a_tensor_of_one_name_has_one_shape() -> None:
    other = TensorSpec(name="state", shape=(7,))

    with pytest.raises(ConfigError, match="two shapes"):
        replace(SPEC, prefix_inputs=(other,))


def test_a_policy_without_denoise_sizes_has_a_single_pass() -> None:
    assert replace(SPEC, denoise_sizes=()).single_pass
    assert not SPEC.single_pass


def test_a_layout_names_cameras_of_the_policy() -> None:
    layouts = (LayoutSpec(name="ghost", cameras=("left",)), SPEC.layouts[1])

    with pytest.raises(ConfigError, match="'left'"):
        replace(SPEC, layouts=layouts)


def test_the_bytes_of_a_tensor_follow_from_shape_and_dtype() -> None:
    assert TensorSpec(name="x", shape=(3, 5), dtype="int64").num_bytes == 120
    assert TensorSpec(name="x", shape=(), dtype="int32").num_bytes == 4


@pytest.mark.parametrize(
    ("part", "change", "word"),
    [
        (ACTION, {"execution_horizon": 51}, "execution_horizon"),
        (ACTION, {"execution_horizon": 0}, "execution_horizon"),
        (ACTION, {"model_action_dim": 5}, "model_action_dim"),
        (ACTION, {"control_hz": float("inf")}, "control_hz"),
        (ACTION, {"axes": (AxisSpec(name="x"),)}, "axes"),
        (STATE, {"dtype": "object"}, "dtype"),
        (STATE, {"shape": (0,)}, "shape"),
        (STATE, {"shape": (1 << 20, 1 << 20)}, "shape"),
        (SPEC.observation, {"state": (AxisSpec(name="x"),)}, "state_dim"),
        (SPEC.observation, {"history": 0}, "history"),
        (SPEC.observation, {"cameras": SPEC.observation.cameras[:1] * 2}, "cameras"),
        (SPEC.observation.cameras[0], {"resize": "crop"}, "resize"),
        (AxisSpec(name="x"), {"low": 1.0, "high": 1.0}, "low"),
        (SPEC, {"prefix_inputs": ()}, "prefix_inputs"),
        (SPEC, {"holds": (0b11,)}, "holds"),
        (SPEC, {"prefix_sizes": (2, 1)}, "prefix_sizes"),
    ],
)
def test_a_spec_that_contradicts_itself_is_refused_by_field(
    part: Any,  # noqa: ANN401 - any spec
    change: dict[str, object],
    word: str,
) -> None:
    with pytest.raises(ConfigError, match=word):
        replace(part, **change)
