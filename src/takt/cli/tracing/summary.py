"""What a story amounts to, as plain values and for a person.

::

    formation, discipline   and ``options``, those of the formation
    from_seconds, seconds   where the story begins, and how long it lasts
    requests                by outcome; ``unfinished`` are those without one
    lanes                   by name: launches, mean_rows, busy (share of the time, 0..1), and
                            launch_ms (p50, p90, p99, max)
    models                  by name: requests, served, within_promise (share of the requests that
                            have an outcome and were answered within the slo less the network
                            allowance), longest_queue by stage, and by part the four quantiles of
                            the served ones: queue, prefix, wait, denoise, total

All of it is the server's own time: networks are not in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from takt.cli.tracing.story import LaunchSpan, Life, Story
from takt.core.attainment import Quantiles
from takt.core.launch import Lane
from takt.core.request import ENDED, Phase, Stage
from takt.units import Nanos, to_ms, to_seconds

__all__ = ["show_summary", "summary_of"]

_PARTS: Mapping[str, tuple[Phase, ...]] = {
    "queue": (Phase.QUEUED,),
    "prefix": (Phase.PREFIXING,),
    "wait": (Phase.MOVING, Phase.READY),
    "denoise": (Phase.DENOISING,),
}
"""Where a request's time goes, by its phases."""


def summary_of(story: Story) -> dict[str, Any]:
    """The figures of a story."""
    start = story.shown_from
    length = max(0, story.end - start)
    return {
        "formation": story.setup.formation,
        "options": dict(story.setup.options),
        "discipline": story.setup.discipline,
        "from_seconds": round(to_seconds(start), 6),
        "seconds": round(to_seconds(length), 6),
        "requests": _outcomes(story.lives),
        "lanes": {_lane_name(lane): _lane(story, lane, length) for lane in story.lanes},
        "models": {model.name: _model(story, model.name) for model in story.setup.models},
    }


def show_summary(summaries: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Print summaries for a person."""
    for number, summary in enumerate(summaries, 1):
        outcomes = ", ".join(f"{count} {name}" for name, count in summary["requests"].items())
        options = ", ".join(f"{name} {value}" for name, value in summary["options"].items())
        formation = f"{summary['formation']}{f' ({options})' if options else ''}"
        head = f"{number}: {formation}, {summary['discipline']}"
        console.print(f"[bold]{escape(head)}[/bold]", highlight=False)
        console.print(
            f"{summary['seconds']:g} s from {summary['from_seconds']:g} s on;"
            f" requests: {outcomes or 'none'}",
            highlight=False,
        )
        console.print(_lanes_table(summary["lanes"]))
        console.print(_models_table(summary["models"]))


def _outcomes(lives: Iterable[Life]) -> dict[str, int]:
    counts = Counter(life.phase.value if life.phase in ENDED else "unfinished" for life in lives)
    return {name: counts[name] for name in sorted(counts)}


def _lane(story: Story, lane: Lane, length: Nanos) -> dict[str, Any]:
    spans = [span for span in story.launches if span.launch.lane == lane]
    rows = [len(span.launch.requests) for span in spans]
    busy = sum(span.end - max(span.start, story.shown_from) for span in spans)
    return {
        "launches": len(spans),
        "mean_rows": round(sum(rows) / len(rows), 3),
        "busy": round(busy / length, 4) if length else None,
        "launch_ms": _quantiles(map(_took, spans)),
    }


def _model(story: Story, name: str) -> dict[str, Any]:
    lives = [life for life in story.lives if life.model == name]
    served = [life for life in lives if life.phase is Phase.SERVED]
    ended = sum(life.phase in ENDED for life in lives)
    kept = sum(life.end <= life.promise for life in served)
    parts = {
        part: _quantiles(_time_in(life, phases) for life in served)
        for part, phases in _PARTS.items()
    }
    return {
        "requests": len(lives),
        "served": len(served),
        "within_promise": round(kept / ended, 5) if ended else None,
        "longest_queue": {stage.name.lower(): _longest(story, name, stage) for stage in Stage},
        **parts,
        "total": _quantiles(life.end - life.start for life in served),
    }


def _longest(story: Story, model: str, stage: Stage) -> int:
    lengths = (it.requests for it in story.waiting if (it.model, it.stage) == (model, stage))
    return max(lengths, default=0)


def _time_in(life: Life, phases: tuple[Phase, ...]) -> Nanos:
    return sum(span.end - span.start for span in life.spans if span.phase in phases)


def _took(span: LaunchSpan) -> Nanos:
    return span.end - span.start


def _quantiles(durations: Iterable[Nanos]) -> dict[str, float] | None:
    found = Quantiles.of(durations)
    if found is None:
        return None
    return {name: round(to_ms(getattr(found, name)), 3) for name in ("p50", "p90", "p99", "max")}


def _lane_name(lane: Lane) -> str:
    return f"device {lane.device} {lane.stage.name.lower()}"


def _lanes_table(lanes: Mapping[str, Any]) -> Table:
    table = _table("lane", "launches", "rows", "busy", "p50 ms", "p99 ms", "max ms")
    for name, part in lanes.items():
        busy = "-" if part["busy"] is None else f"{part['busy']:.1%}"
        took = part["launch_ms"]
        quantiles = (f"{took[cut]:.1f}" for cut in ("p50", "p99", "max"))
        table.add_row(name, str(part["launches"]), f"{part['mean_rows']:.2f}", busy, *quantiles)
    return table


def _models_table(models: Mapping[str, Any]) -> Table:
    parts = [*_PARTS, "total"]
    table = _table("p50/p99, ms", "kept", "queues", *parts)
    for name, part in models.items():
        kept = "-" if part["within_promise"] is None else f"{part['within_promise']:.1%}"
        queues = "/".join(str(length) for length in part["longest_queue"].values())
        table.add_row(escape(name), kept, queues, *(_cell(part[key]) for key in parts))
    return table


def _cell(quantiles: Mapping[str, float] | None) -> str:
    return "-" if quantiles is None else f"{quantiles['p50']:.3g}/{quantiles['p99']:.3g}"


def _table(first: str, *others: str) -> Table:
    table = Table(first, box=box.SIMPLE_HEAD, show_edge=False, collapse_padding=True)
    for header in others:
        table.add_column(header, justify="right", no_wrap=True)
    return table
