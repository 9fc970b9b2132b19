"""Every error Takt raises on purpose, sorted by who must act.

A message says what was asked, what is true and what would work. It names the key, what was
expected and what came, and carries no path of this machine and no traceback when it goes to a
robot.
"""

__all__ = [
    "ConfigError",
    "InvariantError",
    "LimitError",
    "ObservationError",
    "RefusedError",
    "TaktError",
    "UsageError",
    "WireError",
]


class TaktError(Exception):
    """Base of all errors raised on purpose; commands print it as one line and exit with 1."""


class UsageError(TaktError):
    """The caller must act: an argument of a function or a command is wrong."""


class ConfigError(TaktError):
    """The operator must act: a file or an option describes something impossible."""


class InvariantError(TaktError):
    """We must act: Takt reached a state that its own rules exclude. Please report it."""


class RefusedError(TaktError):
    """The server will not answer this request; ``code`` is stable and made for programs.

    Codes in use: ``expired``, ``superseded``, ``cancelled``, ``failed``, ``busy``,
    ``worker_lost``, ``unknown_model``, ``unauthorized``, ``draining``, ``observation``, ``wire``,
    ``limit``, ``features`` (a robot that does not fit its model), ``no_session`` and ``shared`` (a
    connection without a session, or with two robots).
    """

    code: str = "failed"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class WireError(RefusedError):
    """The client must act: the bytes are not a message of this protocol."""

    code = "wire"


class LimitError(WireError):
    """The client must act: the message asks for more than the limits allow."""

    code = "limit"


class ObservationError(RefusedError):
    """The client must act: a key of the observation is not what the policy takes.

    Args:
        key: The key at fault, as the client spelled it.
        expected: What the policy takes, in words a robot engineer reads at once.
        received: What came instead.
    """

    code = "observation"

    def __init__(self, key: str, *, expected: str, received: str) -> None:
        super().__init__(f"{key}: expected {expected}, got {received}")
        self.key = key
        self.expected = expected
        self.received = received
