"""How episodes in real time went, and whether the environment kept up with the clock.

Start reading at :func:`realtime_summary`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from takt.cli.driving.figures import quantiles_ms
from takt.cli.driving.outage import away_sentence, server_away
from takt.cli.evaluating.asking import Meter
from takt.cli.evaluating.summary import sentence, summary_of
from takt.client.realtime import RealtimeEpisode
from takt.units import Nanos, to_ms, to_seconds

__all__ = ["pace_warning", "realtime_sentences", "realtime_summary"]

_MOST_SKIPPED = 0.01
"""Share of instants without a tick beyond which an episode did not run in real time."""
_HEADROOM = 1.25


def realtime_summary(
    episodes: Sequence[RealtimeEpisode], meter: Meter, *, period: Nanos
) -> dict[str, Any]:
    """The figures of a run; keys keep their order. Milliseconds and seconds, quantiles.

    Raises:
        UsageError: There are no episodes.
    """
    statuses = [episode.status for episode in episodes]
    seconds = sorted(to_seconds(e.duration) for e in episodes if e.result.is_solved)
    ticks = sum(status.ticks for status in statuses)
    skipped = sum(status.skipped_ticks for status in statuses)
    return {
        **summary_of([episode.result for episode in episodes]),
        "median_seconds_of_solved": round(seconds[len(seconds) // 2], 3) if seconds else None,
        "endings": dict(Counter(episode.ending for episode in episodes)),
        "ticks": ticks,
        "executed": sum(status.executed for status in statuses),
        "starved_ticks": sum(status.starved_ticks for status in statuses),
        "rested_before_first_action": sum(episode.rested for episode in episodes),
        "late_chunks": sum(status.late for status in statuses),
        "splices": sum(status.splices for status in statuses),
        "failures": _total(status.failures for status in statuses),
        "faults": _total(status.faults for status in statuses),
        "server_away": server_away(
            [meter.outages], newest_served=-1, start=meter.asked[0] if meter.asked else 0
        ),
        "round_trip_ms": quantiles_ms(meter.round_trips),
        "observation_bytes": meter.usual_bytes,
        "period_ms": round(to_ms(period), 3),
        "step_ms": quantiles_ms(took for e in episodes for took in e.step_times),
        "observe_ms": quantiles_ms(took for e in episodes for took in e.observe_times),
        "overruns": sum(status.overruns for status in statuses),
        "skipped_ticks": skipped,
        "real_time": round(ticks / (ticks + skipped), 4) if ticks else None,
    }


def pace_warning(figures: Mapping[str, Any]) -> str | None:
    """What to know of an environment that did not keep up with the clock; None: it did."""
    instants = figures["ticks"] + figures["skipped_ticks"]
    took = sum((figures[name] or {"p90": 0.0})["p90"] for name in ("step_ms", "observe_ms"))
    period = figures["period_ms"]
    if took <= period and figures["skipped_ticks"] <= _MOST_SKIPPED * instants:
        return None
    step, observe = (
        "unknown" if figures[name] is None else f"{figures[name]['p90']:.1f} ms"
        for name in ("step_ms", "observe_ms")
    )
    advice = f"; --control-hz {1e3 / (took * _HEADROOM):.2g} would fit" if took > period else ""
    return (
        f"not in real time: 90 % of steps take up to {step} and of observations {observe}, the"
        f" period is {period:g} ms; {figures['skipped_ticks']} of {instants} ticks were left out,"
        f" so the environment's time ran at {figures['real_time']:.0%} of the clock's{advice}"
    )


def realtime_sentences(figures: Mapping[str, Any]) -> list[str]:
    """The figures for a person, a line each."""
    lines = [sentence(dict(figures))]
    if figures["median_seconds_of_solved"] is not None:
        lines[0] += f", {figures['median_seconds_of_solved']:.1f} s"
    lines.append(
        f"{figures['executed']} actions in {figures['ticks']} ticks,"
        f" {figures['starved_ticks']} starved ({figures['rested_before_first_action']} of them"
        f" before the first action); {figures['chunks']} chunks, {figures['late_chunks']} late"
    )
    trips = figures["round_trip_ms"]
    if trips is not None:
        size = figures["observation_bytes"]
        lines.append(
            f"round trip {trips['p50']:.1f} ms (p50), {trips['p99']:.1f} ms (p99)"
            + ("" if size is None else f", {size} bytes per observation")
        )
    steps, looks = figures["step_ms"], figures["observe_ms"]
    if steps is not None and looks is not None:
        lines.append(
            f"step {steps['p50']:.1f} ms, observation {looks['p50']:.1f} ms (p50),"
            f" period {figures['period_ms']:g} ms"
        )
    lines += [
        f"{name}: {', '.join(f'{key} {count}' for key, count in figures[name].items())}"
        for name in ("failures", "faults")
        if figures[name]
    ]
    away = away_sentence(figures)
    if away is not None:
        lines.append(away)
    if figures.get("broken_off"):
        lines.append("the run was broken off; an episode that was under way counts as not solved")
    warning = pace_warning(figures)
    return lines if warning is None else [*lines, warning]


def _total(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(total)
