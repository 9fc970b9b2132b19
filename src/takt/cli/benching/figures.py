"""What a benchmark showed, as plain values.

The figures of ``takt drive`` (:mod:`takt.cli.driving.figures`) over all epochs, ``seconds`` and
counts being those that count, and beside them::

    target                  attainment the server is to hold
    holds                   whether it does: ``bound`` reaches the target; null after one epoch
    bound                   what the mean over epochs exceeds with 95 % confidence
    interval                two-sided 95 % interval of the mean: low, high
    mean                    mean over epochs of the attainment of the model served worst
    epochs                  a list: seed, issued, attainment (of the model served worst),
                            worst_robot, by_model, server_away
    server_away             that of the last epoch that has one, with its number, from 1, as
                            ``epoch``; ``from_s`` is below 0 in the warm-up
    epochs_planned          how many there might have been
    stopped_early           whether the verdict was clear before (``verdict`` says by which rule)
    split_ms                p50, p90, p99, max by part of the latency, of the answered requests;
                            the parts of a request add up, these quantiles do not
    senders                 processes; cores of this computer; cpu_share, of all processes, in
                            cores; busiest, of the one that used most; lag_ms, how late robots were
                            in sending; is_bottleneck, whether one of these is so high that the
                            latencies are this client's too
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from takt.cli.benching.sender import Sent
from takt.cli.benching.verdict import draw_of, judged
from takt.cli.driving.figures import figures_of, quantiles_ms
from takt.cli.driving.outage import server_away_in
from takt.cli.driving.robot_run import RobotRun
from takt.cli.driving.time_split import PARTS
from takt.sim.knee import Draw
from takt.units import Nanos

__all__ = ["EpochResult", "bench_figures"]

_BUSY_SHARE = 0.7
"""Of a core: a process that uses more has its robots wait for each other."""
_LATE_MS = 5.0
"""Lag of a hundredth of the requests beyond which latencies are ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochResult:
    """One epoch, over all processes."""

    seed: int
    parts: Sequence[Sent]

    @property
    def runs(self) -> list[RobotRun]:
        """Every robot."""
        return [run for part in self.parts for run in part.runs]

    @property
    def issued(self) -> int:
        """Requests that count."""
        return sum(len(run.records) for run in self.runs)

    @property
    def draw(self) -> Draw:
        """What it says of the server."""
        return draw_of(self.runs)

    @property
    def server_away(self) -> dict[str, Any] | None:
        """How the server was away; None: it was there all the time."""
        return server_away_in(self.runs, start=self.parts[0].start)

    @property
    def is_server_gone(self) -> bool:
        """Whether the server went away for good."""
        away = self.server_away
        return away is not None and away["for_good"]


def bench_figures(
    epochs: Sequence[EpochResult],
    *,
    duration: Nanos,
    seed: int,
    target: float,
    planned: int,
    broken_off: bool = False,
) -> dict[str, Any]:
    """The figures of a benchmark.

    Args:
        epochs: At least one.
        duration: Of each.
        seed: Of the first.
        target: Attainment the server is to hold.
        planned: Epochs there might have been.
        broken_off: Whether somebody stopped it.
    """
    robots = RobotRun.joined(chain.from_iterable(epoch.runs for epoch in epochs))
    whole = duration * len(epochs)
    is_short = len(epochs) < planned
    return {
        **figures_of(
            robots,
            duration=whole,
            seed=seed,
            broken_off=broken_off,
            server_away=_server_away(epochs),
        ),
        **_verdict(epochs, target, len(robots)),
        "epochs": [_epoch(epoch) for epoch in epochs],
        "epochs_planned": planned,
        "stopped_early": is_short and not broken_off and not epochs[-1].is_server_gone,
        "split_ms": _split(robots),
        "senders": _senders(epochs, robots),
    }


def _verdict(epochs: Sequence[EpochResult], target: float, robots: int) -> dict[str, Any]:
    measured = judged([epoch.draw for epoch in epochs], robots)
    said: dict[str, Any] = {"target": target, "mean": round(measured.mean, 5)}
    if len(epochs) == 1:  # one epoch has no spread
        return {**said, "holds": None, "bound": None, "interval": None}
    interval = measured.interval
    return {
        **said,
        "holds": measured.bound >= target,
        "bound": round(measured.bound, 5),
        "interval": [round(interval.low, 5), round(interval.high, 5)],
    }


def _server_away(epochs: Sequence[EpochResult]) -> dict[str, Any] | None:
    for number, epoch in reversed([*enumerate(epochs, 1)]):
        away = epoch.server_away
        if away is not None:
            return {"epoch": number, **away}
    return None


def _epoch(epoch: EpochResult) -> dict[str, Any]:
    draw = epoch.draw
    return {
        "seed": epoch.seed,
        "issued": epoch.issued,
        "attainment": round(draw.attainment, 5),
        "worst_robot": round(draw.worst_robot, 5),
        "by_model": {name: round(share, 5) for name, share in draw.by_model.items()},
        "server_away": epoch.server_away,
    }


def _split(robots: Sequence[RobotRun]) -> dict[str, Any]:
    splits: list[Mapping[str, Nanos]] = [split for robot in robots for split in robot.splits]
    found = {part: [split[part] for split in splits if part in split] for part in PARTS}
    return {part: quantiles_ms(durations) for part, durations in found.items() if durations}


def _senders(epochs: Sequence[EpochResult], robots: Sequence[RobotRun]) -> dict[str, Any]:
    parts = [part for epoch in epochs for part in epoch.parts]
    processes = len(epochs[0].parts)
    share = sum(part.cpu for part in parts) / max(1, sum(part.wall for part in parts))
    busiest = max(part.cpu / max(1, part.wall) for part in parts)
    lag = quantiles_ms(lag for robot in robots for lag in robot.lags)
    is_late = lag is not None and lag["p99"] > _LATE_MS
    return {
        "processes": processes,
        "cores": len(os.sched_getaffinity(0)),
        "cpu_share": round(share * processes, 4),
        "busiest": round(busiest, 4),
        "lag_ms": lag,
        "is_bottleneck": is_late or busiest > _BUSY_SHARE,
    }
