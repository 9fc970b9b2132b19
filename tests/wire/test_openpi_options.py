from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.errors import ObservationError
from takt.units import SECOND, ms
from takt.wire.openpi_options import (
    ErrorForm,
    RequestOptions,
    error_form_of,
    options_map,
    split_options,
)

DAY = 24 * 3600 * SECOND
NAMES = st.text("abc-_.:/ äß机", min_size=1, max_size=128)
OPTIONS = st.builds(
    RequestOptions,
    robot=st.none() | NAMES,
    session=st.none() | NAMES,
    sequence=st.none() | st.integers(0, 2**63 - 1),
    due_in=st.none() | st.integers(-DAY, DAY),
    expires_in=st.none() | st.integers(1, DAY),
    wants_timing=st.booleans(),
    error_form=st.sampled_from(ErrorForm),
)


def options_of(**given_options: object) -> RequestOptions:
    return split_options({"takt": given_options})[1]


@given(OPTIONS)
def test_options_survive_the_wire_to_the_nanosecond(options: RequestOptions) -> None:
    assert split_options({"takt": options_map(options)}) == ({}, options)


def test_a_stock_request_has_the_default_options() -> None:
    observation = {"state": 1, "prompt": "x"}

    assert split_options(observation) == (observation, RequestOptions())


def test_the_observation_loses_the_options_and_nothing_else() -> None:
    values = {"state": 1, "takt": {"robot": "arm-7"}, "prompt": "x"}

    observation, options = split_options(values)

    assert observation == {"state": 1, "prompt": "x"}
    assert options == RequestOptions(robot="arm-7")
    assert "takt" in values


def test_a_dry_queue_has_a_due_in_the_past() -> None:
    assert options_of(due_ms=-12.5).due_in == -ms(12.5)


def test_numbers_may_be_whole_or_numpy_ones() -> None:
    options = options_of(due_ms=250, expires_ms=np.float32(0.5), sequence=np.int64(3))

    assert (options.due_in, options.expires_in, options.sequence) == (ms(250), ms(0.5), 3)


def test_options_left_at_their_default_are_not_sent() -> None:
    assert options_map(RequestOptions()) == {}


NAME = "1 to 128 printable characters"
SEQUENCE = "a whole number from 0 to 9223372036854775807"
DUE = "milliseconds from -86400000 to 86400000"
EXPIRES = "milliseconds above 0 and up to 86400000"


@pytest.mark.parametrize(
    ("key", "value", "expected", "received"),
    [
        ("robot", "", NAME, "''"),
        ("robot", "a\nb", NAME, r"'a\nb'"),
        ("robot", "x" * 129, NAME, "'" + "x" * 59 + "..."),
        ("robot", 7, NAME, "7"),
        ("session", None, NAME, "nothing"),
        ("session", b"id", NAME, "bytes"),
        ("sequence", -1, SEQUENCE, "-1"),
        ("sequence", 2**63, SEQUENCE, str(2**63)),
        ("sequence", 1.0, SEQUENCE, "1.0"),
        ("sequence", True, SEQUENCE, "True"),
        ("due_ms", float("nan"), DUE, "nan"),
        ("due_ms", float("-inf"), DUE, "-inf"),
        ("due_ms", 1e300, DUE, "1e+300"),
        ("due_ms", False, DUE, "False"),
        ("due_ms", "250", DUE, "'250'"),
        ("due_ms", np.zeros(2), DUE, "ndarray"),
        ("expires_ms", 0, EXPIRES, "0"),
        ("expires_ms", -1.5, EXPIRES, "-1.5"),
        ("expires_ms", float("nan"), EXPIRES, "nan"),
        ("timing", 1, "true or false", "1"),
        ("errors", "json", "'text' or 'map'", "'json'"),
        ("errors", np.zeros(2), "'text' or 'map'", "ndarray"),
        (
            "due",
            1.0,
            "one of robot, session, sequence, due_ms, expires_ms, timing, errors, leftover",
            "'due'",
        ),
    ],
)
def test_a_wrong_option_is_refused_by_name(
    key: str, value: object, expected: str, received: str
) -> None:
    with pytest.raises(ObservationError) as caught:
        options_of(**{key: value})

    assert (caught.value.key, caught.value.expected, caught.value.received) == (
        f"takt.{key}",
        expected,
        received,
    )


def test_options_that_are_no_map_are_refused() -> None:
    with pytest.raises(ObservationError, match=r"^takt: expected a map of options, got list$"):
        split_options({"takt": ["robot"]})


@pytest.mark.parametrize(
    ("values", "form"),
    [
        ({"takt": {"errors": "map", "due": 1}}, ErrorForm.MAP),
        ({"takt": {"errors": "text"}}, ErrorForm.TEXT),
        ({"takt": {"errors": np.zeros(2)}}, ErrorForm.TEXT),
        ({"takt": {}}, ErrorForm.TEXT),
        ({"takt": "map"}, ErrorForm.TEXT),
        ({}, ErrorForm.TEXT),
    ],
)
def test_the_form_of_errors_is_known_even_when_other_options_are_wrong(
    values: dict[str, Any], form: ErrorForm
) -> None:
    assert error_form_of(values) is form


LEFTOVER = {
    "actions": np.arange(6.0).reshape(3, 2),
    "model_digest": "sha256:ab",
    "inference_delay": 2,
}


def test_a_leftover_is_read_and_copied_and_survives_the_wire() -> None:
    actions = np.arange(6, dtype=np.float32).reshape(3, 2)
    given = {**LEFTOVER, "actions": actions, "execution_horizon": np.int64(3), "schedule": "EXP"}

    leftover = options_of(leftover=given).leftover
    actions[...] = 9

    assert leftover is not None
    assert leftover.actions.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert (leftover.digest, leftover.delay) == ("sha256:ab", 2)
    assert (leftover.execution_horizon, leftover.schedule) == (3, "EXP")
    again = split_options({"takt": options_map(RequestOptions(leftover=leftover))})[1].leftover
    assert again is not None
    assert again.actions.tolist() == leftover.actions.tolist()
    assert (again.digest, again.delay, again.execution_horizon) == ("sha256:ab", 2, 3)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"actions": None}, "actions"),
        ({"actions": [[1.0]]}, "actions"),
        ({"actions": np.zeros(3)}, "actions"),
        ({"actions": np.zeros((0, 3))}, "actions"),
        ({"actions": np.zeros((2, 3), bool)}, "actions"),
        ({"actions": np.full((3, 2), np.nan)}, "actions"),
        ({"actions": np.full((3, 2), 1e300)}, "actions"),
        ({"actions": np.zeros((2, (1 << 19) + 1), np.int8)}, "actions"),
        ({"model_digest": ""}, "model_digest"),
        ({"inference_delay": 4}, "inference_delay"),
        ({"inference_delay": -1}, "inference_delay"),
        ({"inference_delay": 1.5}, "inference_delay"),
        ({"inference_delay": True}, "inference_delay"),
        ({"execution_horizon": 0}, "execution_horizon"),
        ({"schedule": 3}, "schedule"),
        ({"delay": 3}, "delay"),
    ],
)
def test_a_leftover_that_is_none_names_its_key(change: dict[str, object], key: str) -> None:
    with pytest.raises(ObservationError) as refused:
        options_of(leftover={**LEFTOVER, **change})

    assert refused.value.key == f"takt.leftover.{key}"


def test_a_leftover_must_be_a_map() -> None:
    with pytest.raises(ObservationError, match=r"takt\.leftover"):
        options_of(leftover=3)
