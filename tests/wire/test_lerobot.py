from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn

from takt.errors import LimitError, ObservationError, UsageError, WireError
from takt.wire.lerobot import (
    MAX_REPLY_BYTES,
    LerobotObservation,
    LerobotSetup,
    decode_actions,
    decode_observation,
    decode_setup,
    encode_actions,
    encode_observation,
    encode_setup,
)
from takt.wire.lerobot_arrays import array_record, tensor_record, tensor_storage
from takt.wire.lerobot_features import LerobotFeature
from takt.wire.lerobot_objects import ACTION, OBSERVATION, SETUP, Spelling, object_record
from takt.wire.lerobot_writing import write_pickle
from takt.wire.limits import Limits

LIMITS = Limits()
CHUNK_LIMITS = Limits(max_values=65_536, max_arrays=1024)
MODERN = Spelling.ASYNC_INFERENCE
SPELLINGS = st.sampled_from(Spelling)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
FLOATS = st.floats(allow_nan=False)
CHUNKS = stn.arrays(np.float32, st.tuples(st.integers(1, 40), st.integers(1, 20)))

SETUP_FIELDS: dict[str, Any] = {
    "policy_type": "act",
    "pretrained_name_or_path": "echo",
    "lerobot_features": {},
    "actions_per_chunk": 50,
}
OBSERVATION_FIELDS: dict[str, Any] = {"timestamp": 0.5, "timestep": 1, "observation": {}}
ARM = LerobotSetup(
    policy_type="act",
    pretrained_name_or_path="echo",
    features={"observation.state": LerobotFeature(dtype="float32", shape=(2,), names=("a", "b"))},
    actions_per_chunk=50,
    rename_map={"observation.images.up": "observation.images.top"},
    spelling=MODERN,
)


def encoded_setup(**fields: object) -> bytes:
    return write_pickle(object_record(SETUP, MODERN, **{**SETUP_FIELDS, **fields}))


def encoded_observation(**fields: object) -> bytes:
    return write_pickle(object_record(OBSERVATION, MODERN, **{**OBSERVATION_FIELDS, **fields}))


def encoded_action(**fields: object) -> object:
    action = tensor_record(tensor_storage(np.zeros(3, np.float32)), offset=0, width=3)
    return object_record(
        ACTION, MODERN, **{"timestamp": 0, "timestep": 0, "action": action, **fields}
    )


def encoded_chunk(actions: np.ndarray, **arguments: Any) -> bytes:  # noqa: ANN401
    known: dict[str, Any] = {"first_timestep": 5, "first_timestamp": 100.0, "period_s": 0.5}
    return encode_actions(actions, **{"spelling": MODERN, **known, **arguments})


@given(SPELLINGS, TEXTS, TEXTS, st.integers(1, 2**40), st.dictionaries(TEXTS, TEXTS, max_size=3))
def test_a_setup_survives_the_wire(
    spelling: Spelling, name: str, device: str, count: int, renamed: dict[str, str]
) -> None:
    setup = replace(
        ARM,
        pretrained_name_or_path=name,
        device=device,
        actions_per_chunk=count,
        rename_map={} if spelling is Spelling.SCRIPTS_SERVER else renamed,
        spelling=spelling,
    )

    assert decode_setup(encode_setup(setup), LIMITS) == setup


def test_lerobot_03_has_no_rename_map() -> None:
    with pytest.raises(UsageError, match="no rename map"):
        encode_setup(replace(ARM, spelling=Spelling.SCRIPTS_SERVER))


@given(
    SPELLINGS,
    FLOATS.filter(lambda it: abs(it) < 1e300),
    st.integers(0, 2**63 - 1),
    st.booleans(),
    st.dictionaries(
        TEXTS, FLOATS | TEXTS | stn.arrays(np.uint8, stn.array_shapes(max_dims=3)), max_size=6
    ),
)
def test_an_observation_survives_the_wire(
    spelling: Spelling, timestamp: float, timestep: int, must_go: bool, values: dict[str, Any]
) -> None:
    observation = LerobotObservation(
        timestamp=timestamp, timestep=timestep, must_go=must_go, values=values, spelling=spelling
    )

    found = decode_observation(encode_observation(observation), LIMITS)

    assert replace(found, values={}) == replace(observation, values={})
    assert list(found.values) == list(values)
    for key, value in values.items():
        np.testing.assert_array_equal(found.values[key], value)


@given(SPELLINGS, CHUNKS, st.integers(0, 2**40))
def test_a_chunk_survives_the_wire(
    spelling: Spelling, actions: np.ndarray, first_timestep: int
) -> None:
    data = encoded_chunk(actions, first_timestep=first_timestep, spelling=spelling)

    chunk = decode_actions(data, CHUNK_LIMITS)

    np.testing.assert_array_equal(chunk.actions, actions)
    assert chunk.timesteps == tuple(first_timestep + row for row in range(len(actions)))
    assert chunk.timestamps == tuple(100.0 + row * 0.5 for row in range(len(actions)))
    assert chunk.spelling is spelling


@given(CHUNKS)
def test_the_layout_of_a_chunk_in_memory_does_not_matter(actions: np.ndarray) -> None:
    assert encoded_chunk(np.asfortranarray(actions)) == encoded_chunk(actions)
    assert encoded_chunk(np.repeat(actions, 2, 1)[:, ::2]) == encoded_chunk(actions)


@pytest.mark.parametrize("shape", [(200, 32), (100, 132), (1000, 32)])
def test_chunks_that_stock_servers_cannot_deliver_fit_a_reply(shape: tuple[int, int]) -> None:
    data = encoded_chunk(np.zeros(shape, np.float32))

    assert len(data) < MAX_REPLY_BYTES / 10


@pytest.mark.parametrize(
    "actions", [np.zeros((2, 3)), np.zeros(3, np.float32), np.zeros((0, 3), np.float32)]
)
def test_a_chunk_of_another_form_cannot_be_sent(actions: np.ndarray) -> None:
    with pytest.raises(UsageError, match=r"expected a float32 \(n, action_dim\) chunk"):
        encoded_chunk(actions)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"actions_per_chunk": 0}, r"actions_per_chunk: expected 1 or more, got 0"),
        ({"actions_per_chunk": True}, r"actions_per_chunk: expected int, got True"),
        ({"policy_type": None}, r"policy_type: expected str, got nothing"),
        ({"pretrained_name_or_path": b"x"}, r"pretrained_name_or_path: expected str"),
        ({"device": 1}, r"device: expected str, got 1"),
        ({"rename_map": [1]}, r"rename_map: expected dict, got list"),
        ({"rename_map": {"a": 1}}, r"rename_map\.a: expected str, got 1"),
        ({"lerobot_features": None}, r"lerobot_features: expected a dict, got nothing"),
        ({"extra": 1}, r"got 'extra'"),
    ],
)
def test_a_setup_with_a_wrong_field_is_refused_by_name(
    fields: dict[str, object], message: str
) -> None:
    with pytest.raises(WireError, match=message):
        decode_setup(encoded_setup(**fields), LIMITS)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"timestamp": "now"}, r"observation\.timestamp: expected a number, got 'now'"),
        ({"timestep": -1}, r"observation\.timestep: expected 0 or more, got -1"),
        ({"observation": []}, r"observation: expected dict, got list"),
        ({"must_go": "yes"}, r"observation\.must_go: expected a number, got 'yes'"),
    ],
)
def test_an_observation_with_a_wrong_field_is_refused_by_name(
    fields: dict[str, object], message: str
) -> None:
    with pytest.raises(WireError, match=message):
        decode_observation(encoded_observation(**fields), LIMITS)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([], "expected a list of actions, got an empty one"),
        (None, "expected list, got nothing"),
        ([encoded_action(), None], "expected a TimedAction, got nothing"),
        ([encoded_action(action=0.5)], "expected a float32 tensor of rank 1, got another"),
        ([encoded_action(action=array_record(np.zeros(3)))], "expected a float32 tensor"),
        (
            [encoded_action(), encoded_action(action=array_record(np.zeros(2, np.float32)))],
            "expected actions of one width, got several",
        ),
    ],
)
def test_a_chunk_that_is_none_is_refused(actions: object, message: str) -> None:
    with pytest.raises(WireError, match=message):
        decode_actions(write_pickle(actions), LIMITS)


def test_one_array_under_many_keys_is_paid_for_under_each() -> None:
    image = array_record(np.zeros(1000, np.uint8))
    data = encoded_observation(observation={str(number): image for number in range(100)})

    with pytest.raises(LimitError, match=r"^9: expected at most 10000 decoded bytes"):
        decode_observation(data, Limits(max_decoded_bytes=10_000))


def test_names_listed_once_and_shared_by_many_features_are_paid_for_by_each() -> None:
    feature = {"dtype": "float32", "shape": (9,), "names": ["x"] * 500}
    data = encoded_setup(lerobot_features={str(number): dict(feature) for number in range(100)})

    with pytest.raises(LimitError, match="values in the message"):
        decode_setup(data, LIMITS)


def test_values_that_contain_themselves_are_refused() -> None:
    # The dict of values is the ninth thing that is remembered; the list gets it instead of the 7.
    data = encoded_observation(observation={"a": [7]}).replace(b"K\x07as", b"h\x08as")

    with pytest.raises(ObservationError, match=r"^a: expected a number, text .* got list"):
        decode_observation(data, LIMITS)
