import threading
from collections.abc import Mapping
from typing import Any

import pytest
from tests.client.fakes import FakeConnection, ScriptedTransport, answer, chunk, reply

from takt.client.answer import Answer
from takt.client.backoff import Backoff
from takt.client.connection import Connection
from takt.client.errors import ConnectionLostError
from takt.client.leftover import Leftover
from takt.client.mailbox import Mailbox, Outcome, Posted
from takt.client.sender import AskingConnection, Sender
from takt.errors import RefusedError
from takt.testing import ManualClock

PATIENCE_S = 20.0

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


class Desk(Mailbox):
    """A mailbox that says when something came of an observation."""

    def __init__(self) -> None:
        super().__init__(ManualClock().now)
        self.ended = threading.Semaphore(0)

    def answered(self, request: object, answer: Answer) -> None:
        super().answered(request, answer)  # type: ignore[arg-type]
        self.ended.release()

    def failed(self, request: object, code: str, why: str, *, send_again: bool) -> None:
        super().failed(request, code, why, send_again=send_again)  # type: ignore[arg-type]
        self.ended.release()


def outcomes(script: list[Answer | Exception]) -> tuple[list[Outcome], list[FakeConnection]]:
    """Ask once for each entry of the script."""
    connections: list[FakeConnection] = []
    said = iter(script)

    def ask(observation: Mapping[str, object]) -> Answer:
        del observation
        what = next(said)
        if isinstance(what, Exception):
            raise what
        return what

    def connect() -> FakeConnection:
        connections.append(FakeConnection(ask))
        return connections[-1]

    desk = Desk()
    sender = Sender(desk, connect, Backoff(base=1, most=1))
    sender.start()
    found: list[Outcome] = []
    for number in range(len(script)):
        desk.post(
            Posted(
                observation={},
                chunk_id=number,
                first_timestep=0,
                observed=0,
                due=5,
                expires=9,
            )
        )
        assert desk.ended.acquire(timeout=PATIENCE_S)
        found += desk.collect()
    sender.close()
    return found, connections


def test_answers_come_back_and_the_connection_is_kept() -> None:
    found, connections = outcomes([answer(1.0), answer(2.0)])

    assert [outcome.asked.posted.chunk_id for outcome in found] == [0, 1]
    assert len(connections) == 1
    assert connections[0].asked == [{"due_in": 5, "expires_in": 9}] * 2
    assert connections[0].closed.is_set()


def test_a_refusal_keeps_the_connection_and_a_loss_opens_another() -> None:
    found, connections = outcomes(
        [
            RefusedError("busy", code="busy"),
            ConnectionLostError("gone", code="closed"),
            ZeroDivisionError(),
            answer(),
        ]
    )

    codes = [outcome.code for outcome in found]
    assert codes == ["busy", "closed", "ZeroDivisionError", ""]
    assert len(connections) == 3


ONE = "sha256:one"
LEFTOVER = Leftover(actions=chunk(), model_digest=ONE, inference_delay=2)


def connection_to(
    *said: bytes | Exception, digest: str = ONE, **card: object
) -> tuple[Connection, ScriptedTransport]:
    """A connection to a model that made the leftover, and may say more of itself."""
    transport = ScriptedTransport(*said)
    greeting = {"takt": {"model": "fold", "spec": {"digest": digest}, **card}}
    return Connection(transport, greeting), transport


def ask_each(connections: list[AskingConnection], times: int) -> None:
    """Ask with the leftover; after a loss, on the next of the connections."""
    desk = Desk()
    sender = Sender(desk, lambda: connections.pop(0), Backoff(base=1, most=1))
    sender.start()
    for number in range(times):
        desk.post(
            Posted(
                observation={},
                chunk_id=number,
                first_timestep=0,
                observed=0,
                due=5,
                expires=9,
                leftover=LEFTOVER,
            )
        )
        assert desk.ended.acquire(timeout=PATIENCE_S)
    sender.close()


def test_a_model_that_takes_leftovers_is_offered_its_own() -> None:
    connection, transport = connection_to(reply(chunk()), takes_leftovers=True)

    ask_each([connection], 1)

    offered: dict[str, Any] = transport.sent[0]["takt"]["leftover"]
    assert (offered["model_digest"], offered["inference_delay"]) == (ONE, 2)
    assert offered["actions"].tolist() == chunk().tolist()


@pytest.mark.parametrize(
    "card",
    [
        {},
        {"takes_leftovers": False},
        {"takes_leftovers": True, "digest": "sha256:two"},
        {"takes_leftovers": True, "digest": ""},
    ],
)
def test_a_model_that_takes_none_or_made_none_is_asked_without(card: dict[str, Any]) -> None:
    connection, transport = connection_to(reply(chunk()), **card)

    ask_each([connection], 1)

    assert "leftover" not in transport.sent[0]["takt"]


def test_after_a_loss_another_model_is_not_offered_the_first_ones_actions() -> None:
    first, one = connection_to(
        reply(chunk()), ConnectionLostError("gone", code="closed"), takes_leftovers=True
    )
    second, two = connection_to(
        reply(chunk()),
        ConnectionLostError("gone", code="closed"),
        takes_leftovers=True,
        digest="sha256:two",
    )
    third, three = connection_to(reply(chunk()), takes_leftovers=True)

    ask_each([first, second, third], 5)

    sent = [["leftover" in message["takt"] for message in each.sent] for each in (one, two, three)]
    assert sent == [[True, True], [False, False], [True]]


def test_a_stock_server_and_a_policy_in_this_process_are_asked_without() -> None:
    stock = ScriptedTransport(reply(chunk()), ConnectionLostError("gone", code="closed"))
    policy = FakeConnection(lambda _: answer())

    ask_each([Connection(stock, {}), policy], 3)

    assert stock.sent == [{}, {}]
    assert policy.asked == [{"due_in": 5, "expires_in": 9}]
