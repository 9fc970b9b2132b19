"""Readiness drives the link; one bad callback, a close and an end disturb nothing else."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from takt.link.asyncio_watch import AsyncioWatch
from takt.link.channel import Channel

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


class Plain:
    """An end whose messages are the bytes themselves."""

    def __init__(self, connection: socket.socket) -> None:
        self.channel = Channel(connection)

    def receive(self) -> list[bytes]:
        return self.channel.receive()


class Heard:
    """What a watch reported, and a way to wait for it."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.reasons: list[str] = []
        self.ended = asyncio.Event()

    def message(self, body: bytes) -> None:
        if body == b"poison":
            raise ValueError("a callback that fails")
        self.messages.append(body)

    def end(self, reason: str) -> None:
        self.reasons.append(reason)
        self.ended.set()


def run(new_loop: Callable[[], Any], main: Callable[[], Awaitable[None]]) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(asyncio.wait_for(main(), 20))


@pytest.mark.parametrize("new_loop", LOOPS, ids=["asyncio", "uvloop"])
def test_messages_come_in_order_and_the_end_comes_last(new_loop: Callable[[], Any]) -> None:
    async def main() -> None:
        left, right = socket.socketpair()
        near, far, heard = Plain(left), Channel(right), Heard()
        AsyncioWatch(near, on_message=heard.message, on_end=heard.end)
        far.send(b"one")
        far.send(b"two")
        far.close()
        await heard.ended.wait()
        assert heard.messages == [b"one", b"two"]
        assert heard.reasons == ["the peer closed the link"]

    run(new_loop, main)


@pytest.mark.parametrize("new_loop", LOOPS, ids=["asyncio", "uvloop"])
def test_a_backlog_leaves_as_the_peer_reads(new_loop: Callable[[], Any]) -> None:
    async def main() -> None:
        left, right = socket.socketpair()
        sender, reader, heard = Plain(left), Plain(right), Heard()
        sending = AsyncioWatch(sender, on_message=heard.message, on_end=heard.end)
        for _ in range(6):
            sender.channel.send(bytes(1_000_000))
        assert sender.channel.backlog_bytes
        all_read = asyncio.Event()
        got: list[bytes] = []

        def read(body: bytes) -> None:
            got.append(body)
            if len(got) == 6:
                all_read.set()

        reading = AsyncioWatch(reader, on_message=read, on_end=heard.end)
        await all_read.wait()
        assert sender.channel.backlog_bytes == 0
        for watch, end in ((sending, sender), (reading, reader)):
            watch.detach()
            end.channel.close()

    run(new_loop, main)


def test_a_callback_that_fails_takes_no_other_message_with_it() -> None:
    async def main() -> None:
        failures: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, what: failures.append(what))
        left, right = socket.socketpair()
        far, heard = Channel(right), Heard()
        AsyncioWatch(Plain(left), on_message=heard.message, on_end=heard.end)
        for body in (b"one", b"poison", b"two"):
            far.send(body)
        far.close()
        await heard.ended.wait()
        assert heard.messages == [b"one", b"two"]
        assert len(failures) == 1

    run(asyncio.new_event_loop, main)


def test_nothing_is_heard_after_detaching() -> None:
    async def main() -> None:
        left, right = socket.socketpair()
        near, far, heard = Plain(left), Channel(right), Heard()
        first = asyncio.Event()

        def hear_one(body: bytes) -> None:
            heard.message(body)
            watch.detach()
            near.channel.close()
            first.set()

        watch = AsyncioWatch(near, on_message=hear_one, on_end=heard.end)
        far.send(b"one")
        far.send(b"two")
        await first.wait()
        await asyncio.sleep(0)
        watch.detach()
        assert heard.messages == [b"one"]
        assert heard.reasons == []
        far.close()

    run(asyncio.new_event_loop, main)
