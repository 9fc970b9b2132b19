"""The least that two processes can do for a robot: what is left when a server's own work is gone.

    python bare_relay.py

prints its port and answers openpi clients as the ``echo`` policy does. Its parts are a gateway's
and a worker's: picows on uvloop in one process, numpy behind a socket in the other; observations
are decoded, answers encoded. There is no session, no check, no deadline, no queue, no second model,
no fault that is answered: a message it does not expect ends it. What Takt takes longer is the price
of those.
"""

import asyncio
import logging
import os
import socket
import time
from collections import deque
from typing import Any

import msgpack
import numpy as np
import uvloop
from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_create_server

HORIZON = 50
MOST_BYTES = 1 << 24
MOST_BACK = 1 << 16
"""Longest state or chunk. ``recv`` makes room for it first, which takes 15 us for 16 MiB."""


class Front(WSListener):
    """One robot's connection.

    Args:
        back: The other process.
        asked: Whose answers are due, in order, and since when; all robots share it.
    """

    def __init__(self, back: socket.socket, asked: "deque[tuple[Front, int]]") -> None:
        self._back = back
        self._asked = asked
        self._transport: WSTransport | None = None

    def on_ws_connected(self, transport: WSTransport) -> None:
        """Greet."""
        self._transport = transport
        transport.send(WSMsgType.BINARY, msgpack.packb({}))

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        """Hand an observation's state over."""
        arrival = time.monotonic_ns()
        if frame.msg_type == WSMsgType.CLOSE:
            transport.disconnect()
            return
        observation = msgpack.unpackb(frame.get_payload_as_memoryview())
        self._asked.append((self, arrival))
        self._back.send(observation["observation/state"][b"data"])

    def answer(self, chunk: bytes, arrival: int) -> None:
        """Send the robot its chunk."""
        assert self._transport is not None
        actions = {
            b"__ndarray__": True,
            b"data": chunk,
            b"dtype": "<f4",
            b"shape": (HORIZON, len(chunk) // HORIZON // 4),
        }
        took_ms = (time.monotonic_ns() - arrival) / 1e6
        reply = {"actions": actions, "server_timing": {"infer_ms": took_ms}}
        self._transport.send(WSMsgType.BINARY, msgpack.packb(reply))


async def relay(back: socket.socket) -> None:
    """Serve until killed."""
    asked: deque[tuple[Front, int]] = deque()

    def on_chunk() -> None:
        robot, arrival = asked.popleft()
        robot.answer(back.recv(MOST_BACK), arrival)

    asyncio.get_running_loop().add_reader(back.fileno(), on_chunk)
    # One waits for a frame's end as long as it takes: nobody here is hostile.
    settings: dict[str, Any] = {"max_frame_size": MOST_BYTES, "enable_auto_ping": False}
    server = await ws_create_server(lambda _: Front(back, asked), "127.0.0.1", 0, **settings)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def compute(front: socket.socket) -> None:
    """Be the other process, until the first has ended."""
    steps = np.arange(HORIZON, dtype=np.float32)[:, None]
    while data := front.recv(MOST_BACK):
        front.send((np.frombuffer(data).astype(np.float32) + steps).tobytes())


def main() -> None:
    logging.disable()
    # Messages stay whole: one packet, one answer.
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        here.close()
        compute(there)
        return
    there.close()
    uvloop.run(relay(here))


if __name__ == "__main__":
    main()
