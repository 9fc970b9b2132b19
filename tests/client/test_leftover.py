"""What is left of a chunk is what the robot has not executed, of the model that made it."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.fakes import TAKT, ScriptedTransport, chunk, reply

from takt.client.answer import Answer
from takt.client.connection import Connection
from takt.client.leftover import Leftover
from takt.errors import UsageError
from takt.wire.openpi_options import split_options

OBSERVATION = {"observation/state": np.zeros(2, np.float32)}
CARD = {"takt": {"model": "fold", "spec": {"digest": "sha256:one"}}}


def answer(steps: int = 6, digest: str | None = "sha256:one") -> Answer:
    return Answer(actions=chunk(horizon=steps), round_trip=0, model_digest=digest)


def leftover(**changed: object) -> Leftover:
    fields: dict[str, Any] = {
        "actions": chunk(horizon=4),
        "model_digest": "sha256:one",
        "inference_delay": 2,
        **changed,
    }
    return Leftover(**fields)


@given(st.integers(1, 12), st.integers(0, 14), st.integers(0, 20))
def test_the_rows_left_begin_where_the_robot_is(steps: int, executed: int, delay: int) -> None:
    found = Leftover.of(answer(steps), executed=executed, inference_delay=delay)

    if executed >= steps:
        assert found is None
    else:
        assert found is not None
        assert np.array_equal(found.actions, chunk(horizon=steps)[executed:])
        assert found.inference_delay == min(delay, steps - executed)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"actions": np.zeros(3)}, r"actions: expected numbers of shape .*got float64 of shape"),
        ({"actions": np.zeros((0, 2))}, "actions: expected numbers"),
        ({"actions": np.full((2, 2), np.nan)}, "actions: expected finite"),
        ({"actions": np.full((2, 2), 1e300)}, "actions: expected finite"),
        ({"model_digest": ""}, "model_digest: missing"),
        ({"inference_delay": 5}, r"inference_delay: expected 0\.\.4 steps, got 5"),
        ({"inference_delay": -1}, "inference_delay: expected"),
        ({"execution_horizon": 0}, "execution_horizon: expected at least 1"),
        ({"schedule": "linear"}, "schedule: expected one of LINEAR, EXP, ZEROS, ONES"),
    ],
)
def test_what_is_impossible_is_refused_by_name(changed: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        leftover(**changed)


def test_an_answer_of_a_model_without_a_digest_leaves_nothing_to_continue() -> None:
    with pytest.raises(UsageError, match="takes no leftover"):
        Leftover.of(answer(digest=None), executed=1, inference_delay=1)


def test_nothing_can_be_executed_less_than_never() -> None:
    with pytest.raises(UsageError, match="executed must be at least 0"):
        Leftover.of(answer(), executed=-1, inference_delay=1)


def test_the_server_reads_what_the_client_sends() -> None:
    transport = ScriptedTransport(reply(chunk()))
    sent = leftover(execution_horizon=3, schedule="EXP")

    Connection(transport, CARD).infer(OBSERVATION, leftover=sent)

    _, options = split_options(transport.sent[0])
    read = options.leftover
    assert read is not None
    assert np.array_equal(read.actions, chunk(horizon=4))
    assert (read.digest, read.delay, read.execution_horizon, read.schedule) == (
        "sha256:one",
        2,
        3,
        "EXP",
    )


def test_an_answer_says_what_became_of_a_leftover_and_which_model_made_it() -> None:
    said = {"model_digest": "sha256:two", "chunking": "guided"}
    transport = ScriptedTransport(reply(chunk()), reply(chunk(), takt={"sequence": 1, **said}))
    connection = Connection(transport, CARD)

    first, second = connection.infer(OBSERVATION), connection.infer(OBSERVATION)

    assert (first.model_digest, first.chunking) == ("sha256:one", None)
    assert (second.model_digest, second.chunking) == ("sha256:two", "guided")
    assert [first.is_guided, second.is_guided] == [False, True]


def test_a_stock_server_is_not_asked_to_continue_anything() -> None:
    transport = ScriptedTransport()

    with pytest.raises(UsageError, match="not Takt"):
        Connection(transport, {}).infer(OBSERVATION, leftover=leftover())
    assert transport.sent == []


def test_a_server_that_names_no_digest_leaves_it_open() -> None:
    assert Connection(ScriptedTransport(), TAKT).model_digest is None
