import numpy as np
import pytest
from tests.client.fakes import chunk, reply

from takt.client.answer import read_answer
from takt.errors import ObservationError, RefusedError, WireError
from takt.units import ms
from takt.wire.limits import Limits
from takt.wire.openpi import encode_metadata
from takt.wire.openpi_errors import encode_error
from takt.wire.openpi_options import ErrorForm

LIMITS = Limits()


def test_an_answer_tells_where_its_time_went() -> None:
    message = reply(
        chunk(3),
        server_timing={"infer_ms": 8.0},
        policy_timing={"infer_ms": 6.5},
        takt={"sequence": 4, "stages_ms": {"prefix": 2.0, "denoise": 4.5}},
    )

    found = read_answer(message, round_trip=ms(11), limits=LIMITS)

    assert np.array_equal(found.actions, chunk(3))
    assert (found.server, found.policy, found.network) == (ms(8), ms(6.5), ms(3))
    assert found.stages == {"prefix": ms(2), "denoise": ms(4.5)}
    assert found.sequence == 4


def test_a_server_that_tells_no_times_is_understood() -> None:
    found = read_answer(reply(chunk(), note="hi"), round_trip=ms(11), limits=LIMITS)

    assert (found.server, found.policy, found.network, found.sequence) == (None,) * 4
    assert found.values["note"] == "hi"


@pytest.mark.parametrize("odd", [-1.0, float("nan"), float("inf"), "8", [8.0], None])
def test_a_time_that_cannot_be_is_left_out(odd: object) -> None:
    message = reply(chunk(), server_timing={"infer_ms": odd}, takt={"stages_ms": {"prefix": odd}})

    found = read_answer(message, round_trip=ms(11), limits=LIMITS)

    assert found.server is None
    assert found.stages == {}


def test_a_clock_that_ran_slow_never_makes_the_network_take_less_than_nothing() -> None:
    message = reply(chunk(), server_timing={"infer_ms": 12.0})

    assert read_answer(message, round_trip=ms(11), limits=LIMITS).network == 0


@pytest.mark.parametrize(
    ("actions", "received"),
    [
        (np.zeros(4, np.float32), r"float32 of shape \(4,\)"),
        (np.zeros((0, 4), np.float32), r"float32 of shape \(0, 4\)"),
        (np.array([["left"]]), "of shape"),
        (np.array([[0.0, np.nan]]), "NaN or infinity"),
        (np.array([[np.inf]], np.float32), "NaN or infinity"),
    ],
)
def test_a_reply_without_a_chunk_of_finite_numbers_is_no_answer(
    actions: np.ndarray, received: str
) -> None:
    with pytest.raises(WireError, match=f"actions: expected .*{received}"):
        read_answer(reply(actions), round_trip=1, limits=LIMITS)


def test_a_reply_without_actions_is_no_answer() -> None:
    with pytest.raises(WireError, match=r"actions: expected an array .*got no such key"):
        read_answer(encode_metadata({"status": "ok"}), round_trip=1, limits=LIMITS)


def test_actions_that_are_no_array_are_no_answer() -> None:
    with pytest.raises(WireError, match="got list"):
        read_answer(encode_metadata({"actions": [[1.0]]}), round_trip=1, limits=LIMITS)


@pytest.mark.parametrize("form", ErrorForm)
def test_an_error_is_raised_as_the_server_means_it(form: ErrorForm) -> None:
    message = encode_error(RefusedError("too late", code="expired"), form)

    with pytest.raises(RefusedError, match="too late") as caught:
        read_answer(message, round_trip=1, limits=LIMITS)

    assert caught.value.code == "expired"


def test_an_error_in_a_map_names_the_key() -> None:
    error = ObservationError("observation/state", expected="4 values", received="3 values")

    with pytest.raises(ObservationError) as caught:
        read_answer(encode_error(error, ErrorForm.MAP), round_trip=1, limits=LIMITS)

    assert caught.value.key == "observation/state"


def test_a_traceback_of_a_stock_server_is_a_failure() -> None:
    with pytest.raises(RefusedError, match="ValueError: boom") as caught:
        read_answer("Traceback ...\nValueError: boom\n", round_trip=1, limits=LIMITS)

    assert caught.value.code == "failed"


def test_an_answer_beyond_the_limits_is_refused_before_memory_is_taken() -> None:
    with pytest.raises(RefusedError):
        read_answer(reply(chunk()), round_trip=1, limits=Limits(max_elements=4))
