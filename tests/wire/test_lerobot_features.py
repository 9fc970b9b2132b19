from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.errors import LimitError, WireError
from takt.wire.lerobot_features import LerobotFeature, plain_feature, read_features
from takt.wire.lerobot_pickle import Global, Record
from takt.wire.limits import Account, Limits

FEATURE = Global("lerobot.configs.types", "PolicyFeature")
TYPE = Global("lerobot.configs.types", "FeatureType")
IMAGE = {"dtype": "image", "shape": (4, 5, 3), "names": ["height", "width", "channels"]}


def read(feature: object, **limits: int) -> LerobotFeature:
    return read_features({"key": feature}, Account(Limits(**limits)), "features")["key"]


def policy_feature(kind: object, shape: object) -> Record:
    return Record(FEATURE, state={"type": Record(TYPE, (kind,)), "shape": shape}, is_new=True)


@given(
    st.builds(
        LerobotFeature,
        dtype=st.sampled_from(["float32", "int64"]),
        shape=st.lists(st.integers(1, 1000), min_size=1, max_size=3).map(tuple),
        names=st.none() | st.lists(st.text(), min_size=1, max_size=4).map(tuple),
    )
    | st.builds(
        LerobotFeature,
        dtype=st.sampled_from(["image", "video"]),
        shape=st.tuples(st.integers(1, 9), st.integers(1, 9), st.sampled_from([3, 4])),
        names=st.just(("height", "width", "channels")),
        is_depth=st.booleans(),
    )
)
def test_a_feature_survives_being_sent(feature: LerobotFeature) -> None:
    assert read(plain_feature(feature)) == feature


def test_names_keep_their_order_and_say_what_the_state_means() -> None:
    feature = read({"dtype": "float32", "shape": [2], "names": ("b.pos", "a.pos")})

    assert feature == LerobotFeature(dtype="float32", shape=(2,), names=("b.pos", "a.pos"))
    assert not feature.is_image


@pytest.mark.parametrize("names", [None, [], {"axes": ["x"]}, ["x", 1], "xy"])
def test_names_in_another_form_say_nothing(names: object) -> None:
    assert read({"dtype": "float32", "shape": (2,), "names": names}).names is None


@pytest.mark.parametrize(
    ("further", "is_depth"),
    [
        ({}, False),
        ({"shape": (4, 5, 1)}, True),
        ({"info": {"is_depth_map": True}}, True),
        ({"shape": (4, 5, 1), "info": {"is_depth_map": False}}, False),
        ({"info": {}}, False),
        ({"info": None}, False),
    ],
)
def test_a_camera_of_distances_is_told_by_info_or_by_its_one_channel(
    further: dict[str, object], is_depth: bool
) -> None:
    assert read({**IMAGE, **further}).is_depth is is_depth


def test_the_size_of_an_image_is_the_same_in_both_forms() -> None:
    stock, other = read(IMAGE), read(policy_feature("VISUAL", (3, 4, 5)))

    assert stock.image_size == other.image_size == (4, 5, 3)
    assert other.has_channels_first
    assert not stock.has_channels_first


@pytest.mark.parametrize("shape", [(4, 5), (1, 2, 3, 4)])
def test_an_image_without_three_sizes_has_no_size(shape: tuple[int, ...]) -> None:
    with pytest.raises(WireError, match="expected a camera of three sizes"):
        _ = read({**IMAGE, "shape": shape}).image_size


def test_other_policy_features_are_numbers() -> None:
    feature = read(policy_feature("STATE", (6,)))

    assert feature == LerobotFeature(dtype="float32", shape=(6,))


@pytest.mark.parametrize(
    ("feature", "message"),
    [
        (3, r"features\.key: expected a dict, got 3"),
        ({"dtype": "image"}, r"features\.key\.shape: expected a tuple of sizes, got nothing"),
        ({**IMAGE, "dtype": None}, r"features\.key\.dtype: expected text, got nothing"),
        ({**IMAGE, "shape": (0,)}, r"features\.key\.shape: expected sizes of 1 or more, got 0"),
        ({**IMAGE, "shape": (True,)}, r"expected sizes of 1 or more, got True"),
        ({**IMAGE, "extra": 1}, r"features\.key: expected dtype, info, names, shape, got 'extra'"),
        (Record(TYPE, ("STATE",)), r"features\.key: expected a feature, got FeatureType"),
        (policy_feature("WEATHER", (1,)), r"features\.key\.type: expected one of .*got 'WEATHER'"),
        (policy_feature(["STATE"], (1,)), r"features\.key\.type: expected one of .*got list"),
        (policy_feature("VISUAL", (1,)), r"expected \(channels, height, width\), got \(1,\)"),
    ],
)
def test_what_is_no_feature_is_refused_by_name(feature: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(WireError, match=message):
        read(feature)


def test_what_is_no_dict_of_features_is_refused() -> None:
    with pytest.raises(WireError, match="features: expected a dict, got list"):
        read_features([], Account(Limits()), "features")


@pytest.mark.parametrize(
    ("feature", "limits", "message"),
    [
        ({**IMAGE, "names": ["x"] * 11}, {"max_values": 10}, "values in the message, got 11"),
        ({**IMAGE, "shape": (1,) * 9}, {}, "at most 8 dimensions, got 9"),
        ({**IMAGE, "shape": (2**31,)}, {}, "as a size, got 2147483648"),
    ],
)
def test_features_beyond_the_limits_are_refused(
    feature: dict[str, object], limits: dict[str, int], message: str
) -> None:
    with pytest.raises(LimitError, match=rf"^features\.key: .*{message}"):
        read(feature, **limits)
