"""When robots lost the server, and whether it came back: as plain values and as a sentence.

A server is *away* from a robot that lost its connection, found none, or heard nothing for as long
as it waits, until a chunk comes again; a refusal neither begins nor ends that. It is gone *for
good* when nobody was served by anything sent after some robot lost it.

Start reading at :func:`server_away_in`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

from takt.core.attainment import RequestRecord
from takt.errors import TaktError
from takt.units import Nanos, to_seconds

__all__ = [
    "Outage",
    "ServerGoneError",
    "away_sentence",
    "check_server",
    "server_away",
    "server_away_in",
]


class ServerGoneError(TaktError):
    """The server went away in the middle of a run and did not come back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """A time in which one robot had no server."""

    since: Nanos
    """When the first observation was sent that no server answered."""
    until: Nanos | None = None
    """When a chunk came again; None: none did."""


class _Robot(Protocol):
    """What is used of a robot that has finished."""

    @property
    def records(self) -> Sequence[RequestRecord]: ...

    @property
    def outages(self) -> Sequence[Outage]: ...


def server_away_in(robots: Iterable[_Robot], *, start: Nanos) -> dict[str, Any] | None:
    """How the server was away from robots that have finished; see :func:`server_away`."""
    everybody = [*robots]
    served = (r.sent for robot in everybody for r in robot.records if r.answered is not None)
    return server_away(
        [robot.outages for robot in everybody], newest_served=max(served, default=-1), start=start
    )


def server_away(
    outages: Iterable[Sequence[Outage]], *, newest_served: Nanos, start: Nanos
) -> dict[str, Any] | None:
    """How the server was away: ``server_away`` of the figures in :mod:`takt.cli.driving.figures`.

    Args:
        outages: Of each robot, in order.
        newest_served: When the newest observation was sent that anybody got a chunk for; -1: none.
        start: Instant from which on the run counts.
    """
    lost = [of_one for of_one in outages if of_one]
    if not lost:
        return None
    left = [of_one[-1] for of_one in lost if of_one[-1].until is None]
    final = [outage for outage in left if outage.since > newest_served]
    told = final or [*chain.from_iterable(lost)]
    spans = [outage.until - outage.since for outage in told if outage.until is not None]
    return {
        "robots": len(left) if final else len(lost),
        "from_s": _in_seconds(min(outage.since for outage in told) - start),
        "back_after_s": _in_seconds(max(spans)) if spans else None,
        "not_served_again": len(left),
        "for_good": bool(final),
    }


def away_sentence(figures: Mapping[str, Any]) -> str | None:
    """The same for a person; None: the server was there all the time."""
    away = figures["server_away"]
    if away is None:
        return None
    population = figures.get("robots", 1)
    said = f"the server went away {_when(away)} for {away['robots']} of {population} robots"
    if away["for_good"]:
        return f"{said} and did not come back by the end"
    took = "" if away["back_after_s"] is None else f", after {away['back_after_s']:.1f} s at most"
    if not away["not_served_again"]:
        return f"{said} and came back: all of them were served again{took}"
    served_again = away["robots"] - away["not_served_again"]
    return f"{said}; it served {served_again or 'none'} of them again by the end{took}"


def check_server(figures: Mapping[str, Any]) -> None:
    """Refuse a run whose server was gone at its end.

    Raises:
        ServerGoneError: It was, and nobody broke the run off.
    """
    away = figures["server_away"]
    if away is not None and away["for_good"] and not figures["broken_off"]:
        raise ServerGoneError("the server was gone when the run ended")


def _when(away: Mapping[str, Any]) -> str:
    run = f"epoch {away['epoch']}" if "epoch" in away else "the run"
    if away["from_s"] < 0:
        return f"in the warm-up of {run}"
    return f"{away['from_s']:.1f} s into {run}"


def _in_seconds(duration: Nanos) -> float:
    return round(to_seconds(duration), 3)
