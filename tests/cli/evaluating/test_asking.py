import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from tests.client.fakes import FakeConnection, answer

from takt.cli.driving.outage import Outage
from takt.cli.evaluating.asking import Meter, MeteredConnection
from takt.client.answer import Answer
from takt.client.errors import ConnectionLostError
from takt.client.leftover import Leftover
from takt.client.sender import ContinuingConnection
from takt.policies.echo import EchoOptions, echo_spec
from takt.testing import ManualClock
from takt.units import ms


class Server(FakeConnection):
    model = "arm"
    model_digest = "sha256:one"
    takes_leftovers = True
    spec = echo_spec("arm", EchoOptions())

    def __init__(self) -> None:
        super().__init__(lambda seen: answer(horizon=6, round_trip=ms(7)))


def test_every_answer_is_timed_whichever_connection_it_came_by() -> None:
    meter = Meter()

    for _ in range(2):
        MeteredConnection(Server(), meter).infer({})

    assert meter.round_trips == [ms(7), ms(7)]


def test_observations_have_a_usual_size_where_it_is_known() -> None:
    meter = Meter(sent_bytes=[10, 900, 30])

    assert meter.usual_bytes == 30
    meter.clear()
    assert meter.usual_bytes is None
    MeteredConnection(Server(), meter).infer({})
    assert meter.usual_bytes is None  # it went over no network


def test_only_the_first_actions_are_passed_on_where_that_is_wanted() -> None:
    whole = MeteredConnection(Server(), Meter()).infer({})
    cut = MeteredConnection(Server(), Meter(), execute=2).infer({})

    assert len(whole.actions) == 6
    np.testing.assert_array_equal(cut.actions, whole.actions[:2])
    assert cut.round_trip == whole.round_trip


def test_deadlines_reach_the_server_and_its_card_the_robot() -> None:
    server = Server()
    connection = MeteredConnection(server, Meter())

    connection.infer({"a": 1}, due_in=ms(5), expires_in=ms(9))
    connection.close()

    assert server.asked == [{"a": 1, "due_in": ms(5), "expires_in": ms(9)}]
    assert (connection.model, connection.spec) == ("arm", server.spec)
    assert server.closed.is_set()


def test_a_model_is_offered_what_the_robot_still_executes() -> None:
    server = Server()
    connection = MeteredConnection(server, Meter())
    leftover = Leftover(
        actions=np.zeros((3, 2), np.float32), model_digest="sha256:one", inference_delay=1
    )

    assert isinstance(connection, ContinuingConnection)
    connection.infer({}, leftover=leftover)

    assert server.asked[0]["leftover"] is leftover
    assert (connection.takes_leftovers, connection.model_digest) == (True, "sha256:one")


class GoneServer(Server):
    """Is not there; closes while it is asked, where the asking side does."""

    def __init__(self, on_ask: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.on_ask = on_ask

    def infer(self, observation: Mapping[str, object], **options: Any) -> Answer:  # noqa: ANN401
        self.on_ask()
        raise ConnectionLostError("cut", code="closed")


def test_a_time_without_a_server_lasts_until_the_next_answer_by_whichever_connection() -> None:
    meter, clock = Meter(), ManualClock()

    for server in (Server(), GoneServer(), GoneServer(), Server()):
        clock.advance(ms(10))
        with contextlib.suppress(ConnectionLostError):
            MeteredConnection(server, meter, clock=clock.now).infer({})

    assert meter.asked == [ms(10), ms(20), ms(30), ms(40)]
    assert meter.outages == [Outage(since=ms(20), until=ms(40))]


def test_a_connection_that_we_end_while_it_waits_is_no_loss_of_the_server() -> None:
    meter = Meter()
    server = GoneServer()
    connection = MeteredConnection(server, meter)
    server.on_ask = connection.close

    with pytest.raises(ConnectionLostError):
        connection.infer({})

    assert meter.outages == []
