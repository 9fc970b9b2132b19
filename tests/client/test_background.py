import logging
import threading
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from tests.client.fakes import FakeConnection, answer

from takt.client.answer import Answer
from takt.client.background import BackgroundClient
from takt.client.backoff import Backoff
from takt.client.errors import ConnectionLostError
from takt.errors import ConfigError, RefusedError, UsageError
from takt.testing import ManualClock
from takt.units import seconds

PATIENCE_S = 20.0
SOON = Backoff(base=1, most=1)

pytestmark = pytest.mark.usefixtures("no_thread_is_left")

Ask = Callable[[Mapping[str, object]], Answer]


class Server:
    """Answers by a script, one entry per observation, and says when it has done so."""

    def __init__(self, *script: Answer | Exception) -> None:
        self._script = iter(script)
        self.connections: list[FakeConnection] = []
        self.refuses: list[Exception] = []
        self.idle = threading.Event()
        """Set when the script is used up and the sender has asked once more."""
        self.stop = threading.Event()

    def connect(self) -> FakeConnection:
        if self.refuses:
            raise self.refuses.pop(0)
        connection = FakeConnection(self._answer)
        self.connections.append(connection)
        return connection

    def _answer(self, observation: Mapping[str, object]) -> Answer:
        said = next(self._script, None)
        if said is None:
            self.idle.set()
            assert self.stop.wait(PATIENCE_S)
            raise ConnectionLostError("stopped", code="closed")
        if isinstance(said, Exception):
            raise said
        return said


def driven(server: Server, client: BackgroundClient) -> None:
    """Hand over observations until the server's script is used up."""
    with client:
        while not server.idle.wait(0.001):
            client.observe({"number": 1})
            client.next_action()
        server.stop.set()


def client_of(server: Server, **options: object) -> BackgroundClient:
    return BackgroundClient(
        server.connect,
        control_hz=50.0,
        backoff=SOON,
        clock=ManualClock().now,
        **options,  # type: ignore[arg-type]
    )


def test_a_chunk_is_fetched_beside_the_control_loop() -> None:
    server = Server(answer(7.0))
    client = client_of(server)

    driven(server, client)

    status = client.status()
    assert (status.answered, status.failures["closed"]) == (1, 1)
    assert len(server.connections) == 1


def test_after_a_loss_it_connects_again() -> None:
    server = Server(ConnectionLostError("cut", code="closed"), answer(), answer())
    client = client_of(server)

    driven(server, client)

    assert len(server.connections) == 2
    assert server.connections[0].closed.is_set()
    assert client.status().answered == 2


def test_after_a_refusal_the_connection_is_kept() -> None:
    server = Server(RefusedError("too late", code="expired"), answer())
    client = client_of(server)

    driven(server, client)

    assert len(server.connections) == 1
    assert client.status().failures["expired"] == 1


def test_a_server_that_is_not_there_is_counted_and_tried_again() -> None:
    server = Server(answer())
    server.refuses = [
        ConnectionLostError("no route", code="unreachable"),
        RefusedError("wrong token", code="unauthorized"),
    ]
    client = client_of(server)

    driven(server, client)

    failures = client.status().failures
    assert (failures["unreachable"], failures["unauthorized"]) == (1, 1)
    assert client.status().answered == 1


def test_an_observation_that_cannot_be_sent_is_dropped_with_its_reason() -> None:
    server = Server(UsageError("camera: cannot send this"), answer())
    client = client_of(server)

    driven(server, client)

    assert len(server.connections) == 1
    assert client.status().failures["UsageError"] == 1


def test_a_fault_of_the_program_is_logged_and_asking_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server(ZeroDivisionError("oops"), answer())
    client = client_of(server)

    with caplog.at_level(logging.ERROR):
        driven(server, client)

    assert client.status().failures["ZeroDivisionError"] == 1
    assert client.status().answered == 1
    assert "sending an observation failed" in caplog.text


def test_the_control_loop_runs_on_while_an_answer_is_awaited() -> None:
    server = Server()
    client = client_of(server)
    with client:
        client.observe({"number": 1})
        assert server.idle.wait(PATIENCE_S)

        actions = [client.next_action() for _ in range(100)]
        client.observe({"number": 2})

        assert actions == [None] * 100
        assert client.status().is_waiting
        assert not client.wants_observation
        assert client.is_connected
        server.stop.set()


def test_closing_ends_a_wait_for_the_server() -> None:
    server = Server()
    client = client_of(server)
    client.start()
    client.observe({"number": 1})
    assert server.idle.wait(PATIENCE_S)
    server.stop.set()

    client.close()

    assert server.connections[0].closed.is_set()
    assert client.next_action() is None


def test_closing_ends_the_pause_after_a_failure() -> None:
    server = Server()
    asked = threading.Event()

    def connect() -> FakeConnection:
        asked.set()
        raise ConnectionLostError("no route", code="unreachable")

    client = BackgroundClient(
        connect, control_hz=50.0, backoff=Backoff(base=seconds(900), most=seconds(900))
    )
    with client:
        client.observe({"number": 1})
        assert asked.wait(PATIENCE_S)

    assert not server.connections


def test_a_connection_that_opens_while_closing_is_closed() -> None:
    opening, go_on = threading.Event(), threading.Event()
    connection = FakeConnection(lambda observation: answer())

    def connect() -> FakeConnection:
        opening.set()
        assert go_on.wait(PATIENCE_S)
        return connection

    client = BackgroundClient(connect, control_hz=50.0)
    client.start()
    client.observe({"number": 1})
    assert opening.wait(PATIENCE_S)
    closer = threading.Thread(target=client.close)
    closer.start()
    while not client._sender._closing.is_set():
        closer.join(0.001)
    go_on.set()
    closer.join(PATIENCE_S)

    assert connection.closed.wait(PATIENCE_S)
    assert connection.asked == []


def test_actions_come_out_in_order() -> None:
    server = Server(answer(0.0, horizon=50))
    client = client_of(server)
    with client:
        client.observe({"number": 1})
        while client.status().answered == 0:
            assert not server.idle.is_set()

        actions = [client.next_action() for _ in range(3)]
        server.stop.set()

    assert np.array_equal([action[0] for action in actions if action is not None], [0, 1, 2])


@pytest.mark.parametrize("control_hz", [0.0, -1.0, float("nan")])
def test_a_rate_that_cannot_be_is_refused(control_hz: float) -> None:
    with pytest.raises(ConfigError, match="control_hz"):
        BackgroundClient(Server().connect, control_hz=control_hz)


def test_an_age_that_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="expires_after"):
        BackgroundClient(Server().connect, control_hz=50.0, expires_after=0)
