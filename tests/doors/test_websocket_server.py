"""What one peer does, or a fault of ours with it, stays with its connection."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosedError, InvalidStatus

from takt.doors.http_request import HttpRequest
from takt.doors.websocket_server import (
    Guest,
    WebSocketConnection,
    WebSocketLimits,
    WebSocketServer,
)

pytestmark = pytest.mark.integration

LIMITS = WebSocketLimits(max_message_bytes=1024, close_s=0.2)


class Clumsy:
    """Answers with what came, and raises where it is told to."""

    def __init__(self, connection: WebSocketConnection, fault: str) -> None:
        self.connection = connection
        self.fault = fault

    def on_open(self) -> None:
        self.stumble("open")

    def on_message(self, data: memoryview, arrival: int) -> None:
        self.stumble("message")
        self.connection.send(bytes(data))

    def on_text(self) -> None:
        self.connection.send("text")

    def on_closed(self) -> None:
        self.stumble("closed")

    def stumble(self, where: str) -> None:
        if self.fault == where:
            raise ZeroDivisionError("a bug")


class Hall:
    """Lets everybody in; the path says where their guest stumbles."""

    def answer(self, request: HttpRequest) -> tuple[HTTPStatus, str] | None:
        return None

    def welcome(self, request: HttpRequest, connection: WebSocketConnection) -> Guest:
        if request.path == "/welcome":
            raise ZeroDivisionError("a bug")
        return Clumsy(connection, request.path.removeprefix("/"))


def visit(scene: Callable[[str, ClientConnection], Awaitable[None]]) -> None:
    """Run a scene beside a peer who is served before and after it."""

    async def main() -> None:
        server = WebSocketServer(Hall(), LIMITS, time.monotonic_ns)
        host, port = await server.start("127.0.0.1", 0)
        url = f"ws://{host}:{port}/"
        async with connect(url) as other:
            await scene(url, other)
            await other.send(b"still here")
            assert await other.recv() == b"still here"
        await server.close("over")

    asyncio.run(asyncio.wait_for(main(), 20))


@pytest.mark.parametrize("fault", ["open", "message"])
def test_a_fault_of_ours_ends_its_own_connection_with_a_reason(
    fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(url: str, _: ClientConnection) -> None:
        async with connect(url + fault) as peer:
            peer.transport.write(b"\x82\x81\0\0\0\0x")
            with pytest.raises(ConnectionClosedError) as closed:
                await peer.recv()
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (
            1011,
            "failed: the server's log says why",
        )

    visit(scene)

    assert [record.getMessage() for record in caplog.records] == ["connection failed"]


def test_a_fault_at_the_end_of_a_connection_is_logged_and_its_place_is_free(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(url: str, _: ClientConnection) -> None:
        async with connect(url + "closed"):
            pass

    visit(scene)

    assert [record.getMessage() for record in caplog.records] == ["connection failed"]


def test_a_fault_in_the_handshake_is_an_http_error(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(url: str, _: ClientConnection) -> None:
        with pytest.raises(InvalidStatus) as refused:
            await connect(url + "welcome")
        assert refused.value.response.status_code == HTTPStatus.INTERNAL_SERVER_ERROR
        assert refused.value.response.body == b"failed: see the log\n"

    visit(scene)

    assert [record.getMessage() for record in caplog.records] == ["handshake failed"]


def test_nothing_behind_a_frame_that_breaks_the_protocol_is_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lone_continuation, message = b"\x80\x81\0\0\0\0x", b"\x82\x81\0\0\0\0y"

    async def scene(url: str, _: ClientConnection) -> None:
        async with connect(url) as peer:
            peer.transport.write((lone_continuation + message) * 50)
            with pytest.raises(ConnectionClosedError) as closed:
                await peer.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.reason == "fragments of two messages are mixed"

    visit(scene)

    # Nor can a peer fill the log with what it does wrong.
    assert caplog.records == []
