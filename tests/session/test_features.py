import pytest

from takt.schema.spec import (
    ActionSpec,
    AxisSpec,
    CameraSpec,
    ObservationSpec,
    PolicySpec,
    ResizeRule,
    TensorSpec,
)
from takt.session.features import ImageFeature, RobotFeatures, difference

JOINTS = ("shoulder.pos", "elbow.pos", "gripper.pos")


def image(name: str, height: int = 48, width: int = 64, channels: int = 3) -> ImageFeature:
    return ImageFeature(name=name, height=height, width=width, channels=channels)


def robot(*images: ImageFeature, names: tuple[str, ...] = JOINTS, **rename: str) -> RobotFeatures:
    return RobotFeatures(
        state_dim=len(names),
        state_names=names,
        images=images,
        rename=tuple(
            (f"observation.images.{a}", f"observation.images.{b}") for a, b in rename.items()
        ),
    )


def policy(
    *cameras: str,
    axes: tuple[str, ...] = (),
    state_dim: int = 3,
    resize: ResizeRule = "pad_center",
    required: bool = True,
    maxima: bool = False,
    actions: tuple[str, ...] = (),
) -> PolicySpec:
    return PolicySpec(
        name="p",
        architecture="p",
        observation=ObservationSpec(
            cameras=tuple(
                CameraSpec(name=name, height=48, width=64, resize=resize, required=required)
                for name in cameras
            ),
            state_dim=state_dim,
            state=tuple(AxisSpec(name=name) for name in axes),
        ),
        action=ActionSpec(
            action_dim=3,
            model_action_dim=3,
            horizon=8,
            execution_horizon=8,
            axes=tuple(AxisSpec(name=name) for name in actions),
        ),
        prefix_inputs=(TensorSpec(name="state", shape=(3,)),),
        sizes_are_maxima=maxima,
    )


@pytest.mark.parametrize(
    ("features", "spec"),
    [
        (robot(), policy()),
        (robot(image("front")), policy("front")),
        (robot(image("front", 480, 640)), policy("front")),
        (robot(image("front")), policy("front", resize="exact")),
        (robot(image("front"), image("spare")), policy("front")),
        (robot(), policy("front", required=False)),
        (robot(image("cam"), cam="front"), policy("front")),
        (robot(names=("a", "b")), policy(state_dim=2048, maxima=True)),
        (robot(), policy(axes=JOINTS, actions=JOINTS)),
    ],
    ids=["state", "camera", "any size", "exact size", "spare camera", "optional", "renamed",
         "maxima", "named"],
)  # fmt: skip
def test_a_robot_that_sends_what_is_needed_fits(features: RobotFeatures, spec: PolicySpec) -> None:
    assert difference(features, spec) == ()


@pytest.mark.parametrize(
    ("features", "spec", "words"),
    [
        (RobotFeatures(state_dim=0), policy(), ["missing: observation.state with 3 values"]),
        (robot(names=("a", "b")), policy(), ["the policy takes (3,), the robot sends (2,)"]),
        (
            robot(names=("shoulder.pos", "jaw.pos")),
            policy(axes=JOINTS),
            ["missing 'elbow.pos', 'gripper.pos'", "extra 'jaw.pos'"],
        ),
        (
            robot(names=JOINTS[::-1]),
            policy(axes=JOINTS),
            ["order of names in observation.state", "the policy takes 'shoulder.pos', 'elbow.pos'"],
        ),
        (robot(names=JOINTS[::-1]), policy(actions=JOINTS), ["order of names in action"]),
        (
            robot(image("top")),
            policy("front"),
            ["missing: 'observation.images.front'", "extra: 'observation.images.top'"],
        ),
        (
            robot(image("front", 96)),
            policy("front", resize="exact"),
            ["(48, 64, 3)", "(96, 64, 3)"],
        ),
        (robot(image("front", channels=1)), policy("front"), ["any size with 3 channels"]),
        (
            robot(image("frnt")),
            policy("front", "wrist", required=False),
            ["missing: 'observation.images.front'", "extra: 'observation.images.frnt'"],
        ),
    ],
    ids=["no state", "width", "names", "order", "order of actions", "camera", "exact", "depth",
         "misspelt"],
)  # fmt: skip
def test_a_difference_says_what_is_missing_extra_or_wrong(
    features: RobotFeatures, spec: PolicySpec, words: list[str]
) -> None:
    said = "; ".join(difference(features, spec))

    assert all(word in said for word in words), said


def test_a_renamed_key_is_named_in_both_spellings() -> None:
    wrong = robot(image("up", channels=1), up="top")

    assert difference(wrong, policy("top")) == (
        "shape of 'observation.images.up' (the policy's 'observation.images.top'):"
        " the policy takes any size with 3 channels, the robot sends (48, 64, 1)",
    )


def test_an_extra_camera_is_named_as_the_robot_names_it() -> None:
    said = "; ".join(difference(robot(image("up"), up="side"), policy("top")))

    assert "extra: 'observation.images.up' (renamed to 'observation.images.side')" in said


def test_a_rename_map_the_wrong_way_round_is_recognised() -> None:
    said = "; ".join(difference(robot(image("up"), top="up"), policy("top")))

    assert "wrong way round" in said


def test_a_rename_map_of_a_key_nobody_has_is_refused() -> None:
    said = difference(robot(image("top"), lost="top"), policy("top"))

    assert said == ("rename map: the robot has no 'observation.images.lost'",)


def test_two_cameras_cannot_become_one() -> None:
    said = "; ".join(difference(robot(image("top"), image("up"), up="top"), policy("top")))

    assert "two cameras of the robot become 'observation.images.top'" in said


@pytest.mark.parametrize(
    ("keys", "are_in"),
    [
        ({*JOINTS, "front", "task"}, True),
        ({*JOINTS, "observation.images.front"}, True),
        ({"observation.state", "front"}, True),
        ({*JOINTS}, False),
        ({*JOINTS[:2], "front"}, False),
    ],
)
def test_an_observation_is_recognised_by_its_keys(keys: set[str], are_in: bool) -> None:
    assert robot(image("front")).are_in(frozenset(keys)) is are_in
