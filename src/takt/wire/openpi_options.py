"""What a client may tell Takt beside the observation: the map under the key ``takt``.

A stock openpi client sends none of it and is served all the same. Times are durations from the
moment of sending, as the clocks of two hosts share no zero. A key that is not known is refused
rather than skipped: a mistyped ``due_ms`` would silently cost a robot its deadline.

================  ======  ======================================================================
key               type    meaning
================  ======  ======================================================================
``robot``         str     who asks
``session``       str     one run of one robot; together with ``sequence`` it seeds the noise
``sequence``      int     number of this observation, counted up by the client; comes back
``due_ms``        float   until the robot's queue runs dry; negative when it already has
``expires_ms``    float   until an answer is worthless
``timing``        bool    send back how long each stage took
``errors``        str     ``"text"``, as stock clients expect, or ``"map"``
``leftover``      map     what is left of the chunk being executed, for real-time chunking
================  ======  ======================================================================

``leftover`` holds ``actions``, an array in the units of answers with a row per step from the one
the new chunk starts at; ``model_digest``, the ``digest`` of the card that was sent at connect;
``inference_delay``, the steps that will be executed before the answer arrives; and, if wanted,
``execution_horizon`` and ``schedule``. The answer then has ``takt.model_digest`` and
``takt.chunking``: ``guided``, or ``none`` and why.

Start reading at :func:`split_options`.
"""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard, cast

import numpy as np
from numpy.typing import NDArray

from takt.errors import ObservationError
from takt.schema.row import Executing
from takt.units import Nanos, ms, to_ms
from takt.wire.faults import shown

__all__ = [
    "OPTIONS_KEY",
    "ErrorForm",
    "RequestOptions",
    "error_form_of",
    "options_map",
    "split_options",
]

OPTIONS_KEY = "takt"
"""The one key of an observation that no policy sees."""


class ErrorForm(enum.Enum):
    """How a client wants to hear of errors."""

    TEXT = "text"
    """A text message with one sentence. Every openpi client understands it."""
    MAP = "map"
    """A binary message with a code and the key at fault, for programs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions:
    """The options of one request. The defaults are what a stock client gets."""

    robot: str | None = None
    """Who asks."""
    session: str | None = None
    """Which run of the robot this is."""
    sequence: int | None = None
    """Number of the observation within the session, 0 or more."""
    due_in: Nanos | None = None
    """From sending until the robot's queue runs dry; negative when it already has."""
    expires_in: Nanos | None = None
    """From sending until an answer is worthless. Positive."""
    wants_timing: bool = False
    """Whether the reply tells how long each stage took."""
    error_form: ErrorForm = ErrorForm.TEXT
    """How to answer when there is no chunk."""
    leftover: Executing | None = None
    """What is left of the chunk being executed."""


def split_options(values: Mapping[str, object]) -> tuple[dict[str, object], RequestOptions]:
    """Part a decoded request into the observation and the options.

    Args:
        values: The decoded request.

    Returns:
        The observation without the key ``takt``, and the options, checked.

    Raises:
        ObservationError: An option is unknown or out of range; its key is ``takt.<option>``.
    """
    observation = dict(values)
    given = observation.pop(OPTIONS_KEY, None)
    if given is None:
        return observation, RequestOptions()
    if not isinstance(given, Mapping):
        raise ObservationError(
            OPTIONS_KEY, expected="a map of options", received=type(given).__name__
        )
    found: dict[str, Any] = {}
    for key, value in cast("Mapping[str, object]", given).items():
        if key not in _READERS:
            known = f"one of {', '.join(_READERS)}"
            raise ObservationError(f"{OPTIONS_KEY}.{key}", expected=known, received=repr(key))
        field, read = _READERS[key]
        found[field] = read(f"{OPTIONS_KEY}.{key}", _plain(value))
    return observation, RequestOptions(**found)


def error_form_of(values: Mapping[str, object]) -> ErrorForm:
    """The form in which to report that the other options of a request are wrong.

    Never raises: whatever does not clearly ask for a map gets text.
    """
    given = values.get(OPTIONS_KEY)
    if not isinstance(given, Mapping):
        return ErrorForm.TEXT
    return _named_form(cast("Mapping[str, object]", given).get("errors")) or ErrorForm.TEXT


def options_map(options: RequestOptions) -> dict[str, object]:
    """The map that :func:`split_options` reads back, without what is left at its default."""
    written: dict[str, object] = {
        "robot": options.robot,
        "session": options.session,
        "sequence": options.sequence,
        "due_ms": None if options.due_in is None else to_ms(options.due_in),
        "expires_ms": None if options.expires_in is None else to_ms(options.expires_in),
        "timing": options.wants_timing or None,
        "errors": None if options.error_form is ErrorForm.TEXT else options.error_form.value,
        "leftover": None if options.leftover is None else _leftover_map(options.leftover),
    }
    return {key: value for key, value in written.items() if value is not None}


_MAX_NAME = 128
_MAX_SEQUENCE = 2**63 - 1
_MAX_MS = 24 * 3600 * 1000.0
_MAX_STEPS = 1 << 16
_MAX_LEFTOVER_VALUES = 1 << 20
"""They are widened to 4 bytes each, before anybody knows whether the model takes a leftover."""
_LEFTOVER_KEYS = ("actions", "model_digest", "inference_delay", "execution_horizon", "schedule")


def _plain(value: object) -> object:
    """Numbers as Python's own: clients compute deadlines with numpy."""
    return cast("object", value.item()) if isinstance(value, np.generic) else value


def _refused(key: str, expected: str, value: object) -> ObservationError:
    return ObservationError(key, expected=expected, received=shown(value))


def _read_name(key: str, value: object) -> str:
    if isinstance(value, str) and 0 < len(value) <= _MAX_NAME and value.isprintable():
        return value
    raise _refused(key, f"1 to {_MAX_NAME} printable characters", value)


def _read_sequence(key: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_SEQUENCE:
        return value
    raise _refused(key, f"a whole number from 0 to {_MAX_SEQUENCE}", value)


def _read_due(key: str, value: object) -> Nanos:
    # Comparisons with NaN are false, so it is refused.
    if _is_number(value) and -_MAX_MS <= value <= _MAX_MS:
        return ms(value)
    raise _refused(key, f"milliseconds from -{_MAX_MS:.0f} to {_MAX_MS:.0f}", value)


def _read_expires(key: str, value: object) -> Nanos:
    if _is_number(value) and 0 < value <= _MAX_MS:
        return max(ms(value), 1)
    raise _refused(key, f"milliseconds above 0 and up to {_MAX_MS:.0f}", value)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _read_timing(key: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise _refused(key, "true or false", value)


def _read_error_form(key: str, value: object) -> ErrorForm:
    form = _named_form(value)
    if form is None:
        raise _refused(key, "'text' or 'map'", value)
    return form


def _read_leftover(key: str, value: object) -> Executing:
    if not isinstance(value, Mapping):
        raise _refused(key, "a map with actions, model_digest and inference_delay", value)
    given = {name: _plain(inner) for name, inner in cast("Mapping[str, object]", value).items()}
    for name in given:
        if name not in _LEFTOVER_KEYS:
            raise _refused(f"{key}.{name}", f"one of {', '.join(_LEFTOVER_KEYS)}", name)
    horizon = given.get("execution_horizon")
    actions = _read_actions(f"{key}.actions", given.get("actions"))
    return Executing(
        actions=actions,
        digest=_read_name(f"{key}.model_digest", given.get("model_digest")),
        delay=_read_steps(f"{key}.inference_delay", given.get("inference_delay"), 0, len(actions)),
        execution_horizon=None
        if horizon is None
        else _read_steps(f"{key}.execution_horizon", horizon, 1),
        schedule=_read_name(f"{key}.schedule", given.get("schedule", "LINEAR")),
    )


def _read_actions(key: str, value: object) -> NDArray[np.float32]:
    if isinstance(value, np.ndarray):
        actions = cast("NDArray[Any]", value)
        is_table = actions.ndim == len(("steps", "values")) and actions.dtype.kind in "fiu"
        if is_table and 0 < actions.size <= _MAX_LEFTOVER_VALUES:
            return _finite(key, actions)
    expected = f"at most {_MAX_LEFTOVER_VALUES} numbers of shape (steps, action_dim)"
    raise _refused(key, expected, cast("object", value))


def _finite(key: str, actions: NDArray[Any]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # it becomes infinity, which is refused
        narrow = np.array(actions, np.float32)
    if not np.isfinite(narrow).all():
        raise ObservationError(key, expected="finite numbers", received="NaN or infinity")
    return narrow


def _read_steps(key: str, value: object, least: int, most: int = _MAX_STEPS) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return value
    raise _refused(key, f"whole steps from {least} to {most}", value)


def _leftover_map(leftover: Executing) -> dict[str, object]:
    written: dict[str, object] = {
        "actions": leftover.actions,
        "model_digest": leftover.digest,
        "inference_delay": leftover.delay,
        "schedule": leftover.schedule,
    }
    if leftover.execution_horizon is not None:
        written["execution_horizon"] = leftover.execution_horizon
    return written


def _named_form(value: object) -> ErrorForm | None:
    # An array would answer a comparison with an array.
    return _FORMS.get(value) if isinstance(value, str) else None


_FORMS = {form.value: form for form in ErrorForm}
_READERS: Mapping[str, tuple[str, Callable[[str, object], object]]] = {
    "robot": ("robot", _read_name),
    "session": ("session", _read_name),
    "sequence": ("sequence", _read_sequence),
    "due_ms": ("due_in", _read_due),
    "expires_ms": ("expires_in", _read_expires),
    "timing": ("wants_timing", _read_timing),
    "errors": ("error_form", _read_error_form),
    "leftover": ("leftover", _read_leftover),
}
"""Field and check of each option, by its name on the wire."""
