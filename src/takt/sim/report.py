"""What a simulation found, as plain values: the JSON of ``takt simulate`` and its table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from takt.core.attainment import Attainment, Quantiles, Summary, summarise
from takt.sim.loop import DeviceRun, Run
from takt.units import Nanos, to_ms, to_seconds

__all__ = ["report"]


def report(run: Run) -> dict[str, object]:
    """The figures of ``run``; every one of them is simulated.

    Times are milliseconds and shares lie in 0..1. Attainment counts all issued requests, on the
    robot's clock, network included.
    """
    summary = summarise(run.records)
    return {
        "simulated": True,
        "seconds": to_seconds(run.duration),
        "robots": len(run.ticks),
        **_attainment(summary.total),
        "worst_robot": _worst(summary),
        "starvation": _starvation(run),
        "stages_ms": {name: _quantiles(q) for name, q in summary.total.stages.items()},
        "models": {name: _attainment(part) for name, part in summary.by_model.items()},
        "devices": {name: _device(part, run.length) for name, part in run.devices.items()},
    }


def _attainment(part: Attainment) -> dict[str, object]:
    return {
        "issued": part.issued,
        "attainment": round(part.attainment, 5),
        "on_time_share": round(part.on_time_share, 5),
        "outcomes": {name: count for name, count in part.outcomes.items() if count},
        "latency_ms": None if part.latency is None else _quantiles(part.latency),
    }


def _quantiles(quantiles: Quantiles) -> dict[str, float]:
    return {
        name: round(to_ms(getattr(quantiles, name)), 3) for name in ("p50", "p90", "p99", "max")
    }


def _worst(summary: Summary) -> dict[str, object] | None:
    if summary.worst_robot is None:
        return None
    return {"robot": summary.worst_robot, **_attainment(summary.by_robot[summary.worst_robot])}


def _starvation(run: Run) -> dict[str, object]:
    starved, ticks = sum(run.starved.values()), sum(run.ticks.values())
    return {
        "starved_ticks": starved,
        "ticks": ticks,
        "share": round(starved / ticks, 5) if ticks else 0.0,
        "worst_robot": max(run.starved, key=lambda name: run.starved[name], default=None),
    }


def _device(device: DeviceRun, length: Nanos) -> dict[str, object]:
    return {
        "utilisation": {
            lane.stage.name.lower(): round(busy / length, 4)
            for lane, busy in sorted(device.busy.items())
        },
        "launches": {stage: len(rows) for stage, rows in device.rows.items()},
        "mean_rows": _mean_rows(device.rows),
    }


def _mean_rows(rows: Mapping[str, Sequence[int]]) -> dict[str, float]:
    return {stage: round(fmean(counts), 3) for stage, counts in rows.items() if counts}
