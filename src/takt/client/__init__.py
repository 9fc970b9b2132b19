"""Asks a Takt server, or any openpi server, for action chunks from a robot's computer.

:func:`connect` opens a connection that asks and waits. :class:`BackgroundClient` asks beside a
control loop, which never waits. Needs numpy and websockets, Python 3.10 or later; it moves no
robot, installs no signal handler and configures no logger.

Start reading at :class:`~takt.client.connection.Connection`.
"""

from takt.client.answer import Answer
from takt.client.background import BackgroundClient
from takt.client.backoff import Backoff
from takt.client.connection import Connection, connect
from takt.client.errors import ConnectionLostError
from takt.client.exchange import ExchangeStatus

__all__ = [
    "Answer",
    "BackgroundClient",
    "Backoff",
    "Connection",
    "ConnectionLostError",
    "ExchangeStatus",
    "connect",
]
