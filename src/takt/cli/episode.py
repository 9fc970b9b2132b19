"""``takt episode``: what moved a robot, and why."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from takt.cli.episode_plot import SUFFIXES, plot_episode
from takt.cli.output_files import check_outputs
from takt.client.episode import moment, read_episode, summary
from takt.errors import ConfigError, UsageError

__all__ = ["At", "Episode", "Show"]

_CUTS = ("p50", "p90", "p99", "max")


@dataclass(frozen=True, slots=True, kw_only=True)
class Show:
    """Sum up an episode that takt.client wrote: states, latencies, splices, failures."""

    file: Annotated[Path, tyro.conf.Positional]
    """The log, one JSON object per line."""
    plot: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Draw the queue over time, where the time of each answer went, and every splice, into this
    PNG or SVG file."""
    json: bool = False
    """Print the summary as JSON."""

    def run(self) -> None:
        """Print the summary, draw the plot.

        Raises:
            ConfigError: The plot cannot be written.
            UsageError: The log cannot be read, or would be written over.
        """
        if self.plot is not None and self.plot.suffix not in SUFFIXES:
            raise ConfigError(f"--plot {self.plot.name}: a plot ends in {' or '.join(SUFFIXES)}")
        check_outputs([("--plot", self.plot)], self.file)
        episode = read_episode(self.file)
        figures = summary(episode)
        if self.plot is not None:
            plot_episode(episode, self.plot)
        if self.json:
            print(json.dumps(figures, indent=2))
        else:
            _show(figures, Console())


@dataclass(frozen=True, slots=True, kw_only=True)
class At:
    """Say what moved the robot at one instant: the command, its chunk, the state."""

    file: Annotated[Path, tyro.conf.Positional]
    """The log, one JSON object per line."""
    ms: Annotated[float, tyro.conf.Positional]
    """The instant, in milliseconds since the log was opened."""

    def run(self) -> None:
        """Print it as JSON.

        Raises:
            UsageError: The log cannot be read, or the instant lies outside it.
        """
        episode = read_episode(self.file)
        if not 0 <= self.ms <= episode.end_ms:
            raise UsageError(
                f"{self.file.name} goes from 0 to {episode.end_ms:g} ms, got {self.ms:g}"
            )
        print(json.dumps(moment(episode, self.ms), indent=2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """Look at an episode log of takt.client."""

    command: Annotated[
        Annotated[Show, tyro.conf.subcommand("show")] | Annotated[At, tyro.conf.subcommand("at")],
        tyro.conf.arg(name=""),
    ]
    """What to do."""

    def run(self) -> None:
        """Do it."""
        self.command.run()


def _show(figures: Mapping[str, Any], console: Console) -> None:
    for line in _headlines(figures):
        console.print(line)
    console.print("", _states(figures["states_ms"]), "", sep="\n")
    console.print(_durations(figures))
    for line in _remarks(figures):
        console.print(line)


def _headlines(figures: Mapping[str, Any]) -> list[str]:
    head, settings = figures["head"], figures["settings"]
    name = escape(str(head.get("robot", "a robot")))
    ticks = "unknown" if figures["ticks"] is None else str(figures["ticks"])
    lines = [
        f"[bold]{name}[/bold], started {escape(str(head.get('started', 'unknown')))},"
        f" {figures['duration_ms'] / 1e3:.1f} s",
        f"ticks: {ticks}, {figures['overruns']} over-runs, {figures['skipped_ticks']} skipped",
        f"executed: {figures['executed']} actions in {figures['commands']} commands;"
        f" starved ticks: {_or_unknown(figures['starved_ticks'])}",
    ]
    if settings:
        lines.insert(
            1,
            f"{settings['control_hz']:g} Hz, holds within {settings['t_hold_ms']:g} ms, executes"
            f" nothing older than {settings['max_action_age_ms']:g} ms",
        )
    if not figures["is_complete"]:
        lines.append(
            f"[bold]incomplete[/bold]: {figures['dropped_records']} records dropped,"
            f" {figures['damaged_lines']} lines damaged, or the loop was never closed"
        )
    return lines


def _states(spent: Mapping[str, float]) -> Table:
    table = _table("state", "time s")
    for name, took in spent.items():
        table.add_row(name, f"{took / 1e3:.2f}")
    return table


def _durations(figures: Mapping[str, Any]) -> Table:
    table = _table("", *_CUTS)
    rows = {
        "age of actions, ms": figures["action_age_ms"],
        "round trip, ms": figures["round_trip_ms"],
        **{f"  {escape(name)}, ms": cuts for name, cuts in figures["parts_ms"].items()},
        "splices: step": figures["splices"]["step"],
        "splices: old and new plan apart": figures["splices"]["disagreement"],
    }
    for name, cuts in rows.items():
        if cuts is not None:
            table.add_row(name, *(f"{cuts[cut]:.3g}" for cut in _CUTS))
    return table


def _remarks(figures: Mapping[str, Any]) -> list[str]:
    lines = [
        f"{what}: {', '.join(f'{count} {escape(name)}' for name, count in found.items())}"
        for what in ("chunks", "failures", "faults", "violations")
        if (found := figures[what])
    ]
    return [*lines, *(_change(change) for change in figures["changes"])]


def _change(change: Mapping[str, Any]) -> str:
    at_s = change["at_ms"] / 1e3
    return f"{at_s:9.3f} s  {change['before']} -> {change['after']}: {change['cause']}"


def _or_unknown(value: object) -> str:
    return "unknown" if value is None else str(value)


def _table(first: str, *rest: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    table.add_column(first)
    for header in rest:
        table.add_column(header, justify="right", no_wrap=True)
    return table
