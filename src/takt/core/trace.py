"""Writes what happened to a scheduler as JSON lines, and replays it.

The first line says how the scheduler was set up, each further line is one event; where the device
was switched to another formation, the event holds the new setup. Replaying feeds the recorded calls
to a fresh scheduler and must give every line again, byte for byte: same decisions, same outcomes. A
trace from a live server is thereby a test of the core, and a bug seen once can be seen again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, cast

from takt.core.disciplines import DISCIPLINES
from takt.core.events import Cancel, Decide, Ended, Event, Finish, Moved, Submit, Switched
from takt.core.formations import FORMATIONS, Formation
from takt.core.group import Group
from takt.core.launch import Lane
from takt.core.model import Model
from takt.core.profile import Profile
from takt.core.request import Request, Stage
from takt.core.scheduler import Lateness, Scheduler
from takt.errors import ConfigError, TaktError, UsageError
from takt.units import Nanos

__all__ = ["Setup", "event_line", "replay", "trace_lines"]

_VERSION = 1
_KINDS = tuple(
    kind.__name__.lower() for kind in (Submit, Cancel, Finish, Decide, Moved, Switched, Ended)
)
"""Of events, as the lines call them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Everything that determines a scheduler's decisions, by name and number."""

    models: tuple[Model, ...]
    profile: Profile
    formation: str = "lockstep"
    """A key of :data:`~takt.core.formations.FORMATIONS`."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Keyword arguments of the formation."""
    discipline: str = "earliest_deadline"
    """A key of :data:`~takt.core.disciplines.DISCIPLINES`."""
    lateness: Lateness = Lateness.YIELD

    def __post_init__(self) -> None:
        _known("formation", self.formation, FORMATIONS)
        _known("discipline", self.discipline, DISCIPLINES)
        try:
            self._formation()
        except TypeError as error:
            raise ConfigError(f"formation {self.formation!r}: {error}") from None

    def _formation(self) -> Formation:
        return FORMATIONS[self.formation](**self.options)

    @property
    def group(self) -> Group:
        """The devices the formation drives."""
        return self._formation().group

    def costs(self) -> Profile:
        """The profile of the launches as the formation makes them; drivers take times from it."""
        stepping = self.group.stepping
        if stepping is None:
            return self.profile
        steps = {model.architecture: model.steps for model in self.models}
        return self.profile.stepped(
            steps if stepping.is_split else dict.fromkeys(steps, 1),
            stepping.inspection,
            stepping.packing,
        )

    def expected(self, model: Model) -> Nanos:
        """Time from the start of a request's prefix to its answer, as the formation expects it."""
        return sum(self._formation().expected(self.costs(), model, len(model.holds) - 1))

    def scheduler(self) -> Scheduler:
        """A fresh scheduler."""
        return Scheduler(
            self.models,
            self.costs(),
            self._formation(),
            DISCIPLINES[self.discipline],
            lateness=self.lateness,
        )

    def successor(self, older: Scheduler, now: Nanos) -> Scheduler:
        """A scheduler that goes on in this setup where ``older`` ends.

        Raises:
            InvariantError: Something is under way in ``older``, or time would go back.
        """
        scheduler = self.scheduler()
        scheduler.take_over(older, Switched(now, self.to_json()))
        return scheduler

    def to_json(self) -> dict[str, object]:
        """The setup as plain values; :meth:`from_json` reads it back."""
        return {
            "models": [asdict(model) for model in self.models],
            "profile": self.profile.to_json(),
            "formation": self.formation,
            "options": dict(self.options),
            "discipline": self.discipline,
            "lateness": self.lateness.value,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Setup:
        """The setup that :meth:`to_json` wrote.

        Raises:
            ConfigError: ``data`` is not such a setup.
        """
        try:
            return cls(
                models=tuple(_model(row) for row in data["models"]),
                profile=Profile.from_json(data["profile"]),
                formation=data["formation"],
                options=data["options"],
                discipline=data["discipline"],
                lateness=Lateness(data["lateness"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"not a setup: {error!r}") from None


def trace_lines(setup: Setup, events: Iterable[Event]) -> Iterator[str]:
    """The trace of ``events``, one line each, without line ends."""
    yield _dump({"takt_trace": _VERSION, "setup": setup.to_json()})
    for event in events:
        yield event_line(event)


def event_line(event: Event) -> str:
    """One event as a line of JSON."""
    fields = event._asdict()
    if isinstance(event, Ended):
        fields["phase"] = event.phase.value
    return _dump({"event": type(event).__name__.lower(), **fields})


def replay(lines: Iterable[str], *, first: int = 1) -> Iterator[str]:
    """Run the calls of a trace through a fresh scheduler.

    Args:
        lines: A trace, its setup first.
        first: Number of its first line in its file, for errors.

    Yields:
        The trace of the new run, line by line. Equal to ``lines`` unless the core has changed.

    Raises:
        TaktError: ``lines`` is not a trace of this version, or its events do not fit together; the
            message names the line.
    """
    rest = iter(lines)
    setup = _setup(next(rest, ""), first)
    scheduler = setup.scheduler()
    yield from trace_lines(setup, ())
    for number, line in enumerate(rest, first + 1):
        scheduler = _repeat(scheduler, _load(line, number), number)
        yield from map(event_line, scheduler.take_events())


def _setup(line: str, number: int) -> Setup:
    header = _load(line, number)
    if header.get("takt_trace") != _VERSION:
        raise UsageError(f"line {number}: expected the setup of a trace of version {_VERSION}")
    try:
        return Setup.from_json(header.get("setup", {}))
    except ConfigError as error:
        raise ConfigError(f"line {number}: {error}") from None


def _repeat(scheduler: Scheduler, fields: dict[str, Any], number: int) -> Scheduler:
    """Make the call that a line recorded; returns who decides from then on."""
    try:
        return _call(scheduler, fields)
    except KeyError as missing:
        why = f"expected a key {missing}"
    except (TypeError, ValueError) as error:
        why = str(error)
    except TaktError as error:
        raise type(error)(f"line {number} of the trace: {error}") from error
    raise UsageError(f"line {number} of the trace is not an event: {why}")


def _call(scheduler: Scheduler, fields: dict[str, Any]) -> Scheduler:
    kind = fields.pop("event")
    if kind not in _KINDS:
        raise ValueError(f"no event {kind!r}; known: {', '.join(_KINDS)}")
    at = fields["at"]
    if not isinstance(at, int):
        raise TypeError(f"at: expected whole nanoseconds, got {at!r}")
    if kind == Submit.__name__.lower():
        scheduler.submit(Request(**{k: v for k, v in fields.items() if k != "at"}), at)
    elif kind == Cancel.__name__.lower():
        scheduler.cancel(fields["seq"], at)
    elif kind == Finish.__name__.lower():
        device, stage = fields["lane"]
        scheduler.finish(Lane(device, Stage(stage)), at, fields["failed"])
    elif kind == Decide.__name__.lower():
        scheduler.decide(at)
    elif kind == Switched.__name__.lower():
        return Setup.from_json(fields["setup"]).successor(scheduler, at)
    return scheduler  # what ended or moved is an outcome, and comes again by itself


def _model(row: Mapping[str, Any]) -> Model:
    fields: dict[str, Any] = dict(row)
    for name in ("prefix_sizes", "denoise_sizes", "holds"):
        fields[name] = tuple(fields[name])
    return Model(**fields)


def _load(line: str, number: int) -> dict[str, Any]:
    try:
        value: Any = json.loads(line)
    except json.JSONDecodeError as error:
        raise UsageError(f"line {number} of the trace is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError(f"line {number} of the trace is not an object")
    return cast("dict[str, Any]", value)


def _dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _known(what: str, name: str, table: Mapping[str, object]) -> None:
    if name not in table:
        raise ConfigError(f"no {what} {name!r}; known: {', '.join(sorted(table))}")
