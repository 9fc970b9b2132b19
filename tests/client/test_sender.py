import threading
from collections.abc import Mapping

import pytest
from tests.client.fakes import FakeConnection, answer

from takt.client.answer import Answer
from takt.client.backoff import Backoff
from takt.client.errors import ConnectionLostError
from takt.client.mailbox import Mailbox, Outcome, Posted
from takt.client.sender import Sender
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
