"""Reads an episode log and sums it up.

The file is what :class:`~takt.client.episode_log.EpisodeLog` wrote; it may come from a program that
was killed. A line that is no record, such as one that was cut off, is counted and left out.

Start reading at :func:`read_episode`, then :func:`summary`.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

from takt.client.episode_log import FORMAT
from takt.errors import UsageError

__all__ = ["Episode", "Record", "moment", "parts_ms", "read_episode", "states_ms", "summary"]

Record: TypeAlias = Mapping[str, Any]
"""One line of the log."""

_QUANTILES = (50, 90, 99, 100)

_KEYS = {
    "action": {"timestep", "chunk", "age_ms", "blended", "remaining"},
    "chunk": {
        "chunk",
        "decision",
        "waited_ms",
        "round_trip_ms",
        "network_ms",
        "server_ms",
        "stages_ms",
    },
    "dropped": {"records"},
    "failure": {"code"},
    "fault": {"where"},
    "flush": {"actions"},
    "overrun": {"skipped"},
    "state": {"before", "after", "cause"},
}
"""What a record must have to be counted; a log of a later version may hold other kinds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """A log that was read."""

    head: Record
    """The first line: format, start, and what the robot's program added."""
    records: Sequence[Record]
    """All others in order; each has ``event`` and ``at_ms``."""
    damaged_lines: int
    """Lines that are no records."""

    def of(self, event: str) -> list[Record]:
        """The records of one kind."""
        return [record for record in self.records if record["event"] == event]

    @property
    def is_complete(self) -> bool:
        """The loop was closed, and every record is there."""
        return bool(self.of("end")) and not self.dropped and not self.damaged_lines

    @property
    def dropped(self) -> int:
        """Records that could not be written."""
        return sum(record["records"] for record in self.of("dropped"))

    @property
    def end_ms(self) -> float:
        """Instant of the last record."""
        return max((record["at_ms"] for record in self.records), default=0.0)


def read_episode(path: Path) -> Episode:
    """Read a log.

    Raises:
        UsageError: There is no such file, it cannot be read, or it is no episode log of a format
            that this version knows.
    """
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        raise UsageError(f"{path.name}: no such episode log") from None
    except OSError as error:
        raise UsageError(f"{path.name}: cannot be read: {error.strerror}") from None
    found = [_record(line) for line in lines if line]
    head = found[0] if found else None
    if head is None or head["event"] != "episode":
        raise UsageError(f"{path.name}: no episode log; its first line does not say so")
    if head.get("format") != FORMAT:
        raise UsageError(f"{path.name}: expected format {FORMAT}, got {head.get('format')}")
    records = [record for record in found[1:] if record is not None]
    return Episode(head=head, records=records, damaged_lines=len(found) - 1 - len(records))


def summary(episode: Episode) -> dict[str, Any]:
    """An episode in figures; milliseconds, and the units of the policy."""
    actions, chunks = episode.of("action"), episode.of("chunk")
    end: Record = episode.of("end")[-1] if episode.of("end") else {}
    changes = episode.of("state")
    return {
        "head": dict(episode.head),
        "settings": dict((episode.of("opened") or [{}])[0]),
        "is_complete": episode.is_complete,
        "duration_ms": episode.end_ms,
        "ticks": end.get("ticks"),
        "overruns": end.get("overruns", len(episode.of("overrun"))),
        "skipped_ticks": end.get("skipped_ticks", _total(episode.of("overrun"), "skipped")),
        "executed": len({record["timestep"] for record in actions}),
        "commands": len(actions),
        "starved_ticks": end.get("starved_ticks"),
        "states_ms": states_ms(episode),
        "changes": [
            {key: change[key] for key in ("at_ms", "before", "after", "cause")}
            for change in changes
        ],
        "action_age_ms": _cuts(record["age_ms"] for record in actions),
        "blended_commands": sum(bool(record["blended"]) for record in actions),
        "chunks": dict(Counter(chunk["decision"] for chunk in chunks)),
        "failures": dict(Counter(failure["code"] for failure in episode.of("failure"))),
        "faults": dict(Counter(fault["where"] for fault in episode.of("fault"))),
        "violations": _violations([*actions, *chunks]),
        "flushed_actions": _total(episode.of("flush"), "actions"),
        "round_trip_ms": _cuts(chunk["round_trip_ms"] for chunk in chunks),
        "parts_ms": {name: _cuts(values) for name, values in parts_ms(chunks).items()},
        "splices": _splices(chunks),
        "dropped_records": episode.dropped,
        "damaged_lines": episode.damaged_lines,
    }


def moment(episode: Episode, at_ms: float) -> dict[str, Any]:
    """What moved the robot at an instant: the last command until then, and where it came from.

    Returns:
        ``state``; ``command``, the record of the last action or hold until then, or None; and
        ``chunk``, the record of the chunk an action came from, or None.
    """
    before = [record for record in episode.records if record["at_ms"] <= at_ms]
    states = [record["after"] for record in before if record["event"] == "state"]
    commands = [record for record in before if record["event"] in ("action", "hold")]
    command = commands[-1] if commands else None
    number = None if command is None else command.get("chunk")
    chunks = [] if number is None else [c for c in episode.of("chunk") if c["chunk"] == number]
    return {
        "at_ms": at_ms,
        "state": states[-1] if states else "idle",
        "command": command,
        "chunk": chunks[-1] if chunks else None,
    }


def states_ms(episode: Episode) -> dict[str, float]:
    """Time in each state."""
    spent: dict[str, float] = {}
    state, since = "idle", 0.0
    for change in episode.of("state"):
        spent[state] = spent.get(state, 0.0) + change["at_ms"] - since
        state, since = change["after"], change["at_ms"]
    spent[state] = spent.get(state, 0.0) + episode.end_ms - since
    return {name: round(value, 3) for name, value in spent.items()}


def parts_ms(chunks: Sequence[Record]) -> dict[str, list[float]]:
    """Where the time of each answer went, by part in the order they happen.

    ``waited`` lies before the sending, the others add up to the round trip as far as they are
    known: the network both ways, the server's stages, and the rest of the server's time.
    """
    parts: dict[str, list[float]] = {}
    for chunk in chunks:
        stages = cast("Mapping[str, float]", chunk["stages_ms"])
        server = chunk["server_ms"]
        found = {"waited": chunk["waited_ms"], "network": chunk["network_ms"], **stages}
        if server is not None:
            found["server, rest" if stages else "server"] = max(0.0, server - sum(stages.values()))
        else:
            found["round trip"] = chunk["round_trip_ms"]
        for name, took in found.items():
            if took is not None:
                parts.setdefault(name, []).append(took)
    return parts


def _record(line: str) -> Record | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    record = cast("dict[str, Any]", found)
    event, at_ms = record.get("event"), record.get("at_ms")
    if not isinstance(event, str) or not isinstance(at_ms, (int, float)):
        return None
    return record if _KEYS.get(event, set()) <= record.keys() else None


def _splices(chunks: Sequence[Record]) -> dict[str, Any]:
    splices = [chunk["splice"] for chunk in chunks if "splice" in chunk]
    sizes = {
        name: _cuts(splice[name] for splice in splices if name in splice)
        for name in ("step", "shift", "disagreement")
    }
    return {"count": len(splices), **sizes}


def _violations(records: Iterable[Record]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for record in records:
        counts.update(record.get("guard", {}))
    return dict(counts)


def _total(records: Sequence[Record], key: str) -> int:
    return sum(record[key] for record in records)


def _cuts(values: Iterable[float | None]) -> dict[str, float] | None:
    """Quantiles, each one of the values; None when there are none."""
    ordered = sorted(value for value in values if value is not None)
    if not ordered:
        return None
    last = len(ordered) - 1
    names = {cut: "max" if cut == 100 else f"p{cut}" for cut in _QUANTILES}  # noqa: PLR2004
    return {names[cut]: ordered[round(last * cut / 100)] for cut in _QUANTILES}
