"""``takt simulate``: what a fleet would get, without hardware."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.status import Status

from takt import __version__
from takt.cli.output_files import TRACE, check_named_after, check_outputs
from takt.cli.report_table import show_report
from takt.core.events import Event
from takt.core.trace import Setup, trace_lines
from takt.errors import UsageError
from takt.files import replacing
from takt.server.fleet_entries import LEAST_SECONDS, MOST_SECONDS
from takt.server.fleet_file import FleetFile
from takt.sim.fleet import Fleet
from takt.sim.knee import Criterion, Knee, find_knee
from takt.sim.loop import Run, simulate
from takt.sim.plot import SUFFIXES, CurvePoint, plot_attainment
from takt.sim.processes import processes
from takt.sim.report import curve_report, report
from takt.units import seconds, to_seconds

__all__ = ["Simulate"]

_FEWEST_SEEDS, _MOST_SEEDS = 2, 1_000  # one run has no spread
_AROUND = (0.25, 0.5, 1.25, 1.5, 2.0)
"""Populations that the plot shows beside those at the knee, as multiples of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulate:
    """Predict SLO attainment of a fleet without a GPU, in virtual time."""

    fleet: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FLEET.yaml")]
    """Fleet file: models, devices, robots, network."""
    json: bool = False
    """Print the report as JSON; takt/sim/report.py explains its keys."""
    plot: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Draw attainment over population, with its knee, to this PNG or SVG file. Simulates many
    populations, in the proportions of the fleet."""
    trace: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write everything the schedulers were told and decided as JSON lines, one file per device:
    run.jsonl becomes run-gpu0.jsonl."""
    seconds: Annotated[float | None, tyro.conf.arg(metavar="SECONDS")] = None
    """Time to report on, instead of the fleet file's."""
    seed: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """Seed of phases, jitter and network delays, instead of the fleet file's. Equal seeds give
    equal results."""
    seeds: int = 5
    """Runs per population for --plot, with rising seeds."""
    target: float = 0.98
    """Attainment the knee of --plot must hold."""

    def run(self) -> None:
        """Simulate, print the report, draw the plot."""
        self._check()
        file = FleetFile.read(self.fleet)
        if file.is_undecided:
            raise UsageError(
                f"{self.fleet}: formation auto is for takt serve and takt plan; name one instead"
            )
        fleet = file.fleet()
        traces = self._traces(fleet)
        written = [("--trace", path, TRACE) for path in traces.values()]
        check_outputs([*written, ("--plot", self.plot)], self.fleet, *file.measured_paths)
        seed = file.simulation.seed if self.seed is None else self.seed
        criterion = Criterion(
            target=self.target,
            num_draws=self.seeds,
            duration=seconds(self.seconds or file.simulation.seconds),
            warm_up=seconds(file.simulation.warm_up_seconds),
            first_seed=seed,
        )
        result = self._simulate(fleet, criterion)
        figures = {"takt_version": __version__, **report(result)}
        for name, path in traces.items():
            _write_trace(path, fleet.devices[name], result.devices[name].events)
        if self.plot is not None:
            knee = self._knee(fleet, criterion)
            figures["curve"] = curve_report(knee)
            self._draw(self.plot, knee, fleet)
        if self.json:
            print(json.dumps(figures, indent=2))
        else:
            show_report(figures, Console())

    def _check(self) -> None:
        """Refuse what would only fail after minutes of simulating."""
        if self.seconds is not None and not LEAST_SECONDS <= self.seconds <= MOST_SECONDS:
            limits = f"{LEAST_SECONDS:g} to {MOST_SECONDS:g}"
            raise UsageError(f"--seconds must lie in {limits}, got {self.seconds:g}")
        if not _FEWEST_SEEDS <= self.seeds <= _MOST_SEEDS:
            limits = f"{_FEWEST_SEEDS} to {_MOST_SEEDS}"
            raise UsageError(f"--seeds must lie in {limits}, got {self.seeds}")
        if not 0 < self.target < 1:
            raise UsageError(f"--target must lie between 0 and 1, got {self.target}")
        check_named_after("--trace", self.trace)
        check_outputs([("--plot", self.plot)])
        if self.plot is not None and self.plot.suffix not in SUFFIXES:
            raise UsageError(f"--plot {self.plot}: a plot ends in {' or '.join(SUFFIXES)}")
        if self.plot is not None and find_spec("matplotlib") is None:
            raise UsageError("--plot needs matplotlib; install: pip install 'takt-serve[plot]'")

    def _traces(self, fleet: Fleet) -> dict[str, Path]:
        """The file of each device's trace."""
        path = self.trace
        if path is None:
            return {}
        return {name: path.with_name(f"{path.stem}-{name}{path.suffix}") for name in fleet.devices}

    def _simulate(self, fleet: Fleet, criterion: Criterion) -> Run:
        whole = to_seconds(criterion.warm_up + criterion.duration)
        with _status("simulating") as status:
            return simulate(
                fleet,
                duration=criterion.duration,
                warm_up=criterion.warm_up,
                seed=criterion.first_seed,
                keep_events=self.trace is not None,
                progress=lambda now: status.update(
                    f"simulated {to_seconds(now):.0f} of {whole:g} s"
                ),
            )

    def _knee(self, fleet: Fleet, criterion: Criterion) -> Knee:
        with processes() as pool, _status("simulating populations") as status:
            return find_knee(
                pool.runner(fleet),
                criterion,
                start=fleet.population,
                around=_AROUND,
                progress=lambda it: status.update(
                    f"simulated {it.population} robots, {len(it.draws)} seeds"
                ),
            )

    def _draw(self, path: Path, knee: Knee, fleet: Fleet) -> None:
        formations = sorted({setup.formation for setup in fleet.devices.values()})
        plot_attainment(
            [CurvePoint.of(measured) for measured in knee.measured],
            path,
            target=self.target,
            knee=knee.robots or None,
            subtitle=f"{self.fleet.name}, {', '.join(formations)}, up to {self.seeds} seeds",
        )
        _say(f"wrote {path}")


def _status(text: str) -> AbstractContextManager[Status]:
    """A line that tells the progress, on a terminal only."""
    return Console(stderr=True).status(text)


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _write_trace(path: Path, setup: Setup, events: Iterable[Event]) -> None:
    try:
        with replacing(path) as fresh, fresh.open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in trace_lines(setup, events))
    except OSError as error:
        raise UsageError(f"--trace {path}: {error.strerror}") from None
    _say(f"wrote {path}")
