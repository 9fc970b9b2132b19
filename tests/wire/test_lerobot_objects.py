from typing import Any

import numpy as np
import pytest

from takt.errors import LimitError, ObservationError, WireError
from takt.wire.lerobot_arrays import array_record
from takt.wire.lerobot_objects import (
    OBSERVATION,
    SETUP,
    LerobotMessage,
    Spelling,
    object_record,
    plain,
    plain_dict,
)
from takt.wire.lerobot_pickle import Global, Record
from takt.wire.lerobot_writing import write_pickle
from takt.wire.limits import Limits

MODERN = Spelling.ASYNC_INFERENCE


def message_of(value: object, **limits: int) -> LerobotMessage:
    return LerobotMessage("message", write_pickle(value), Limits(**limits))


MESSAGE = message_of(None)


@pytest.mark.parametrize("spelling", Spelling)
def test_an_object_is_taken_apart_into_its_fields(spelling: Spelling) -> None:
    message = message_of(
        object_record(OBSERVATION, spelling, timestamp=0.5, timestep=1, observation={})
    )

    found, fields = message.fields_of(message.value, OBSERVATION)

    assert found is spelling
    assert fields == {"timestamp": 0.5, "timestep": 1, "observation": {}, "must_go": False}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "expected a TimedObservation, got nothing"),
        ([1], "expected a TimedObservation, got list"),
        (object_record(SETUP, MODERN), "expected a TimedObservation, got RemotePolicyConfig"),
        (object_record(OBSERVATION, MODERN), "expected the field observation, got none"),
        (
            object_record(OBSERVATION, MODERN, timestamp=0, timestep=0, observation={}, when=0),
            "expected the fields must_go, observation, timestamp, timestep, got 'when'",
        ),
        (
            Record(Global(MODERN.value, OBSERVATION.name), (1,), state={"a": 1}),
            "expected a TimedObservation with its fields, got others",
        ),
        (
            Record(Global(MODERN.value, OBSERVATION.name), state=(None, {"a": 1})),
            "expected dict, got tuple",
        ),
    ],
)
def test_other_objects_and_fields_are_refused_by_name(value: object, reason: str) -> None:
    message = message_of(value)

    with pytest.raises(WireError, match=rf"^message: {reason}"):
        message.fields_of(message.value, OBSERVATION)


def test_bytes_after_the_pickle_are_refused() -> None:
    with pytest.raises(WireError, match="message: expected the end of it, got 4 more bytes"):
        LerobotMessage("message", write_pickle(1) + b"more", Limits())


@pytest.mark.parametrize("value", [True, 1, 1.0, np.float32(1), np.int64(1), np.array(1.0)])
def test_every_kind_of_number_is_a_float(value: Any) -> None:  # noqa: ANN401
    record = array_record(np.asarray(value)) if isinstance(value, np.generic) else value
    record = array_record(value) if isinstance(value, np.ndarray) else record
    message = message_of(record)

    found = message.read("joint", message.value)

    assert type(found) is float
    assert found == 1.0


@pytest.mark.parametrize("value", [None, [0.5], (1,), {"a": 1}, b"abc"])
def test_other_values_are_refused_under_their_key(value: object) -> None:
    message = message_of(value)

    with pytest.raises(ObservationError, match=r"^joint: expected a number, text or an array"):
        message.read("joint", message.value)


def test_a_key_that_a_log_would_choke_on_is_escaped() -> None:
    with pytest.raises(ObservationError) as caught:
        MESSAGE.read("a\nb\x1b[2J", None)

    assert caught.value.key == r"'a\nb\x1b[2J'"


def test_long_text_and_huge_numbers_are_refused() -> None:
    message = message_of("x" * 101, max_string_bytes=100)

    with pytest.raises(LimitError, match="task: expected at most 100 bytes of text, got 101"):
        message.read("task", message.value)
    with pytest.raises(ObservationError, match="joint: expected a number that a float holds"):
        MESSAGE.read("joint", 2**1100)


@pytest.mark.parametrize("value", [0, 7, 2**63 - 1, 3.0, True])
def test_a_timestep_is_a_whole_number(value: float) -> None:
    assert MESSAGE.timestep(value) == value


@pytest.mark.parametrize("value", [-1, 2**63, 0.5, float("nan"), float("inf"), "1"])
def test_other_timesteps_are_refused(value: object) -> None:
    with pytest.raises(WireError, match=r"^message\.timestep: expected"):
        MESSAGE.timestep(value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "now"])
def test_a_timestamp_is_a_finite_number(value: object) -> None:
    with pytest.raises(WireError, match=r"^message\.timestamp: expected"):
        MESSAGE.instant(value)


@pytest.mark.parametrize(("value", "kind"), [(True, int), (1.0, int), ("x", dict), ([], dict)])
def test_a_plain_value_is_of_exactly_its_type(value: object, kind: type) -> None:
    with pytest.raises(WireError, match=rf"^place: expected {kind.__name__}, got"):
        plain(value, kind, "place")


def test_a_plain_value_is_handed_on() -> None:
    assert plain(1, int, "place") == 1
    assert plain_dict({"a": 1}, "place") == {"a": 1}
