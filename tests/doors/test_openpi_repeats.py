"""A message that repeats an earlier one means what decoding it says, and nothing else repeats."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire.pictures import noise

from takt.doors.openpi_keys import read_observation
from takt.doors.openpi_repeats import ReadRequest, RepeatReader
from takt.errors import RefusedError
from takt.schema.encoded_image import EncodedImage
from takt.schema.observation import Observation
from takt.schema.spec import ObservationSpec
from takt.wire.image_files import encode_image
from takt.wire.limits import Limits
from takt.wire.msgpack_images import spell_image
from takt.wire.openpi import decode_observation, encode_observation
from takt.wire.openpi_options import RequestOptions, split_options

SPEC = ObservationSpec(state_dim=8)


def message_of(
    state: float = 0.0,
    pixel: int = 0,
    options: RequestOptions | None = None,
    values: Mapping[str, object] | None = None,
) -> memoryview:
    observation: dict[str, object] = {
        "observation/image": np.full((4, 6, 3), pixel, np.uint8),
        "observation/state": np.full(8, state, np.float64),
        "prompt": "pick up the cup",
        **(values or {}),
    }
    return memoryview(encode_observation(observation, options))


def decoded(data: memoryview) -> tuple[ReadRequest, Any]:
    message = decode_observation(data, Limits())
    values, options = split_options(message.values)
    observation = read_observation(values, SPEC)
    return ReadRequest(message.dialect, options, observation), message


def reader_after(*messages: memoryview) -> RepeatReader:
    reader = RepeatReader()
    for data in messages:
        if reader.read(data, SPEC) is None:
            (_, options, observation), message = decoded(data)
            reader.remember(data, message, options, observation, SPEC)
    return reader


def same(left: Observation, right: Observation) -> bool:
    if left.images.keys() != right.images.keys() or (left.state is None) != (right.state is None):
        return False
    pairs = [(image, right.images[name]) for name, image in left.images.items()]
    if left.state is not None and right.state is not None:
        pairs.append((left.state, right.state))
    rest = all(
        getattr(left, name) == getattr(right, name) for name in ("prompt", "extra", "spelled")
    )
    return rest and all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)


def test_a_repetition_has_the_new_numbers_and_everything_else_of_the_old() -> None:
    options = RequestOptions(robot="arm", wants_timing=True)
    reader = reader_after(message_of(1, 1, options, {"extra_gain": 0.5}))
    data = message_of(2.5, 9, options, {"extra_gain": 0.5})

    read = reader.read(data, SPEC)

    assert read is not None
    expected, _ = decoded(data)
    assert (read.dialect, read.options) == (expected.dialect, expected.options)
    assert same(read.observation, expected.observation)
    assert read.observation.state is not None
    assert read.observation.state[0] == 2.5
    assert read.observation.state.flags.aligned


@pytest.mark.parametrize(
    "data",
    [
        message_of(values={"prompt": "pick up the cap"}),
        message_of(values={"prompt": "pick up"}),
        message_of(options=RequestOptions(sequence=1)),
        message_of(values={"observation/state": np.full(8, 0, np.int64)}),
        message_of(values={"observation/image": np.zeros((6, 4, 3), np.uint8)}),
        memoryview(bytes(message_of())[:-1]),
        memoryview(bytes(message_of()) + b"\0"),
        memoryview(b""),
    ],
)
def test_a_message_that_differs_outside_its_arrays_is_no_repetition(data: memoryview) -> None:
    reader = reader_after(message_of())

    assert reader.read(data, SPEC) is None
    assert reader.read(message_of(3), SPEC) is not None


@pytest.mark.parametrize(
    "values",
    [
        {"observation/state": [1.0, 2.0]},
        {"observation/joint_position": np.zeros(7), "observation/state": None},
        {"gripper": np.zeros(3)},
        {"words": ["a", "b"]},
        {"flag": np.zeros(3, bool)},
        {"name": np.array(["text"])},
        {"long": "x" * 20_000},
        {"observation/wrist_image": np.zeros((0, 4, 3), np.uint8)},
    ],
)
def test_what_cannot_be_put_together_again_from_its_arrays_is_not_remembered(
    values: dict[str, object],
) -> None:
    try:
        reader = reader_after(message_of(values=values))
    except RefusedError:
        return

    assert reader.read(message_of(values=values), SPEC) is None


def test_a_message_with_an_image_as_a_file_is_never_remembered() -> None:
    file = EncodedImage(encoding="png", data=encode_image(noise(), "png"), shape=(24, 40, 3))
    values = {"observation/image": spell_image(file)}

    reader = reader_after(message_of(values=values))

    assert reader.read(message_of(values=values), SPEC) is None


def test_a_client_that_never_repeats_itself_is_given_up() -> None:
    reader = reader_after(*(message_of(options=RequestOptions(sequence=n)) for n in range(20)))

    assert reader.read(message_of(options=RequestOptions(sequence=19)), SPEC) is None


def test_nothing_of_a_message_is_kept_but_what_lies_outside_its_arrays() -> None:
    buffer = bytearray(message_of(1, 1))
    reader = reader_after(memoryview(buffer))
    buffer[:] = bytes(len(buffer))

    read = reader.read(message_of(4, 2), SPEC)

    assert read is not None
    assert read.observation.prompt == "pick up the cup"
    np.testing.assert_array_equal(read.observation.images["image"], np.full((4, 6, 3), 2))


def test_nothing_repeats_once_another_model_goes_by_the_name() -> None:
    reader = reader_after(message_of())

    assert reader.read(message_of(3), ObservationSpec(state_dim=8)) is None
    assert reader.read(message_of(3), SPEC) is not None


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.data())
def test_whatever_a_client_changes_a_repetition_means_what_decoding_it_says(
    data: st.DataObject,
) -> None:
    reader = reader_after(message_of(1, 1))
    changed = bytearray(message_of(2, 2))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(changed) - 1))
        changed[place] = data.draw(st.integers(0, 255))

    read = reader.read(memoryview(changed), SPEC)

    if read is not None:
        expected, _ = decoded(memoryview(changed))
        assert (read.dialect, read.options) == (expected.dialect, expected.options)
        assert read.observation.images.keys() == expected.observation.images.keys()
        for name, image in expected.observation.images.items():
            np.testing.assert_array_equal(read.observation.images[name], image)
        np.testing.assert_array_equal(read.observation.state, expected.observation.state)
