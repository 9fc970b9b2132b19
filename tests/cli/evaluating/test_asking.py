import numpy as np
from tests.client.fakes import FakeConnection, answer

from takt.cli.evaluating.asking import Meter, MeteredConnection
from takt.policies.echo import EchoOptions, echo_spec
from takt.units import ms


class Server(FakeConnection):
    model = "arm"
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
