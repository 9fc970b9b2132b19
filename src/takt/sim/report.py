"""What a simulation found, as plain values: the JSON of ``takt simulate`` and its table.

::

    simulated               always true: no figure here was measured
    seconds                 time reported on; warm_up_seconds lie before it
    seed                    equal seeds give equal reports
    robots                  population
    network_allowance_ms    what the network may take, both ways together
    issued ... stages_ms    the served part (below), over all requests
    worst_robot             its name as ``robot`` and its served part; null when nothing was issued
    starvation              starved_ticks, ticks, share; over all robots
    models                  by name: slo_ms and the served part
    groups                  by name: model, device, robots, starvation and the served part
    devices                 by name, over the whole run: formation, discipline; by stage:
                            utilisation (0..1), launches, mean_rows (null without a launch)

The *served part* of a group of requests::

    issued                  requests sent: the denominator of both shares
    attainment              share answered within the model's slo, 0..1; null when none was issued
    on_time_share           share answered by the time the robot's queue ran dry; likewise
    outcomes                requests by outcome; every outcome is present
    latency_ms              p50, p90, p99, max of the answered ones; null when none was
    stages_ms               the same four figures by stage; empty when none was answered

``takt simulate`` adds ``takt_version`` and, with ``--plot``, ``curve`` (:func:`curve_report`).
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from takt.core.attainment import Attainment, Quantiles, RequestRecord, Summary, summarise
from takt.core.request import Stage
from takt.core.trace import Setup
from takt.sim.knee import Knee
from takt.sim.loop import DeviceRun, Run
from takt.units import Nanos, to_ms, to_seconds

__all__ = ["curve_report", "quantiles_in_ms", "report", "served_figures"]


def report(run: Run) -> dict[str, object]:
    """The figures of ``run``.

    Attainment counts all issued requests, on the robot's clock, network included.
    """
    summary = summarise(run.records)
    return {
        "simulated": True,
        "seconds": to_seconds(run.duration),
        "warm_up_seconds": to_seconds(run.warm_up),
        "seed": run.seed,
        "robots": len(run.groups),
        "network_allowance_ms": round(to_ms(run.fleet.network.allowance()), 3),
        **_served(summary.total),
        "worst_robot": _worst(summary),
        "starvation": _starvation(run, list(run.groups)),
        "models": _models(run, summary),
        "groups": _groups(run),
        "devices": {
            name: _device(run.fleet.devices[name], part, run.length)
            for name, part in run.devices.items()
        },
    }


def curve_report(knee: Knee) -> dict[str, object]:
    """The curve around ``knee``: target, knee_robots (or null), and points.

    Each point has robots, attainment (the mean over draws, of the model served worst),
    interval_low and interval_high (95 %, two-sided), bound (what the mean exceeds with 95 %
    confidence; the knee is judged by it) and draws.
    """
    return {
        "target": knee.target,
        "knee_robots": knee.robots or None,
        "points": [
            {
                "robots": measured.population,
                "attainment": round(measured.mean, 5),
                "interval_low": round(measured.interval.low, 5),
                "interval_high": round(measured.interval.high, 5),
                "bound": round(measured.bound, 5),
                "draws": len(measured.draws),
            }
            for measured in knee.measured
        ],
    }


def served_figures(part: Attainment) -> dict[str, Any]:
    """A group of requests as every report has it: issued, attainment, on_time_share, outcomes and
    latency_ms.
    """
    return {
        "issued": part.issued,
        # Nothing issued is nothing missed: 0 would read as the worst of results.
        "attainment": round(part.attainment, 5) if part.issued else None,
        "on_time_share": round(part.on_time_share, 5) if part.issued else None,
        "outcomes": dict(part.outcomes),
        "latency_ms": None if part.latency is None else quantiles_in_ms(part.latency),
    }


def _served(part: Attainment) -> dict[str, Any]:
    stages = {name: quantiles_in_ms(quantiles) for name, quantiles in part.stages.items()}
    return {**served_figures(part), "stages_ms": stages}


def quantiles_in_ms(quantiles: Quantiles) -> dict[str, float]:
    """p50, p90, p99 and max in milliseconds."""
    return {
        name: round(to_ms(getattr(quantiles, name)), 3) for name in ("p50", "p90", "p99", "max")
    }


def _worst(summary: Summary) -> dict[str, object] | None:
    if summary.worst_robot is None:
        return None
    return {"robot": summary.worst_robot, **_served(summary.by_robot[summary.worst_robot])}


def _starvation(run: Run, robots: Sequence[str]) -> dict[str, object]:
    starved = sum(run.starved[robot] for robot in robots)
    ticks = sum(run.ticks[robot] for robot in robots)
    return {
        "starved_ticks": starved,
        "ticks": ticks,
        "share": round(starved / ticks, 5) if ticks else None,
    }


def _models(run: Run, summary: Summary) -> dict[str, object]:
    slos = {group.model: run.fleet.model(group).slo for group in run.fleet.robots}
    return {
        name: {"slo_ms": to_ms(slos[name]), **_served(part)}
        for name, part in summary.by_model.items()
    }


def _groups(run: Run) -> dict[str, object]:
    records: dict[str, list[RequestRecord]] = {group.name: [] for group in run.fleet.robots}
    for record in run.records:
        records[run.groups[record.robot]].append(record)
    robots: dict[str, list[str]] = {group.name: [] for group in run.fleet.robots}
    for robot, group in run.groups.items():
        robots[group].append(robot)
    return {
        group.name: {
            "model": group.model,
            "device": group.device,
            "robots": group.count,
            "starvation": _starvation(run, robots[group.name]),
            **_served(Attainment.of(records[group.name])),
        }
        for group in run.fleet.robots
    }


def _device(setup: Setup, device: DeviceRun, length: Nanos) -> dict[str, object]:
    busy = dict.fromkeys(Stage, 0)
    for lane, time in device.busy.items():
        busy[lane.stage] += time
    return {
        "formation": setup.formation,
        "discipline": setup.discipline,
        "utilisation": {stage.name.lower(): round(busy[stage] / length, 4) for stage in Stage},
        "launches": {stage: len(rows) for stage, rows in device.rows.items()},
        "mean_rows": {
            stage: round(fmean(rows), 3) if rows else None for stage, rows in device.rows.items()
        },
    }
