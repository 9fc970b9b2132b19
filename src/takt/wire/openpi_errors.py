"""Errors on the openpi protocol: one sentence for stock clients, a map for clients that ask.

A stock client raises ``RuntimeError`` on any text message and repeats its content. It stays usable
as long as the server keeps the connection open, so Takt answers with one readable line and does
not close. The line begins with the code, so that it can be read back::

    expired: the answer would have come 80 ms after the robot needed it

A client that sent ``errors: "map"`` gets a binary message instead::

    {"error": {"code": "observation", "message": ..., "key": ..., "expected": ..., "received": ...}}

Start reading at :func:`encode_error`; :func:`error_in_text` and :func:`error_in_map` read.
"""

import re
from collections.abc import Mapping
from functools import partial
from typing import cast

from takt.errors import LimitError, ObservationError, RefusedError, WireError
from takt.wire.msgpack_arrays import Dialect, spell_array
from takt.wire.msgpack_encoding import encode_values
from takt.wire.openpi_options import ErrorForm

__all__ = ["encode_error", "error_in_map", "error_in_text"]


def encode_error(error: RefusedError, form: ErrorForm) -> str | bytes:
    """The answer to a request that gets no chunk.

    Args:
        error: Why. What it repeats of the client's own input is made printable and cut.
        form: What the client asked for.

    Returns:
        A ``str`` to be sent as a text message, or ``bytes`` to be sent as a binary one.
    """
    if form is ErrorForm.TEXT:
        return f"{error.code}: {_line(str(error))}"
    content = {"code": error.code, "message": _line(str(error))}
    if isinstance(error, ObservationError):
        content |= {
            "key": _line(error.key),
            "expected": _line(error.expected),
            "received": _line(error.received),
        }
    return encode_values({"error": content}, partial(spell_array, dialect=Dialect.OPENPI))


def error_in_text(text: str) -> RefusedError:
    """The error that a text message reports; code ``failed`` when it names none.

    A stock server sends a whole traceback, which becomes the message.
    """
    match = _CODED.match(text)
    if match is None:
        return RefusedError(text)
    return _rebuilt(match["code"], match["message"], {})


def error_in_map(values: Mapping[str, object]) -> RefusedError | None:
    """The error that a decoded binary message reports, or ``None`` when it is no error."""
    content = values.get("error")
    if not isinstance(content, Mapping):
        return None
    content = cast("Mapping[str, object]", content)
    code, message = content.get("code"), content.get("message")
    if isinstance(code, str) and isinstance(message, str):
        return _rebuilt(code, message, content)
    return None


_CODED = re.compile(r"(?P<code>[a-z][a-z_]{1,31}): (?P<message>[^\n]+)\Z")
_MAX_LINE = 1000


def _line(text: str) -> str:
    """``text`` as one printable line of bounded length."""
    printable = "".join(char if char.isprintable() else " " for char in text[: _MAX_LINE + 1])
    line = " ".join(printable.split())
    return line if len(line) <= _MAX_LINE else line[:_MAX_LINE] + "..."


def _rebuilt(code: str, message: str, content: Mapping[str, object]) -> RefusedError:
    """The error as the server raised it."""
    key, expected, received = (content.get(name) for name in ("key", "expected", "received"))
    if isinstance(key, str) and isinstance(expected, str) and isinstance(received, str):
        return ObservationError(key, expected=expected, received=received)
    kinds = {"wire": WireError, "limit": LimitError}
    return kinds.get(code, RefusedError)(message, code=code)
