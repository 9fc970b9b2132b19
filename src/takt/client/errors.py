"""What a client says when there is no server to say anything."""

from typing import Literal, TypeAlias

from takt.errors import TaktError

__all__ = ["ConnectionLostError", "LossCode"]

LossCode: TypeAlias = Literal["unreachable", "closed", "timeout"]
"""``unreachable``: no connection was made. ``closed``: the server or the network ended it.
``timeout``: the server fell silent, and the client ended it."""


class ConnectionLostError(TaktError):
    """No answer came, and none will come on this connection. Connect again.

    A server that answers with an error raises :class:`~takt.errors.RefusedError` instead; the
    connection then stays as it is.

    Args:
        message: What happened, in a sentence.
        code: The same for programs.
        reason: What the server gave as its reason for ending the connection; may be empty.
    """

    def __init__(self, message: str, *, code: LossCode, reason: str = "") -> None:
        super().__init__(message)
        self.code: LossCode = code
        self.reason = reason
