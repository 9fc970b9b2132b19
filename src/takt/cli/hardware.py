"""``takt hardware``: what a GPU would do, and how wrong we are."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from takt.cli.output_files import check_outputs
from takt.errors import ConfigError, InvariantError
from takt.hardware.calibration import CALIBRATION, DEFAULT_STACK, RANGES, stack_named
from takt.hardware.fitting import constants_of, fit, halves, ranges
from takt.hardware.page import markdown
from takt.hardware.plot import SUFFIXES, plot_comparisons
from takt.hardware.report import (
    CAVEAT,
    SHOWN_ARCHITECTURES,
    SHOWN_DEVICES,
    SHOWN_SIZES,
    Comparison,
    StageTimes,
    accuracy,
    comparisons,
    stage_times,
    without_eager,
    worst,
)

__all__ = ["Hardware"]

_CLOSE = 0.02
"""A refit may differ this much from the shipped constants: they are rounded to three digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """Show modelled stage times of policies on GPUs, and the error against published latencies.

    Everything it predicts is modelled, not measured.
    """

    model: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Show only this architecture (repeat for more): pi0, pi05, smolvla, groot-n1.7, xr0 and
    others."""
    device: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Show only this device (repeat for more): rtx-pro-6000, h100, h200, rtx-4090, a100 and
    others."""
    stack: str = DEFAULT_STACK
    """How the networks are run: eager, compiled, graph, tuned or fp8. Stage times are for this
    stack; published latencies are compared under their own."""
    json: bool = False
    """Print everything as JSON."""
    plot: Path | None = None
    """Also draw predicted over published latencies into this PNG or SVG file."""
    markdown: bool = False
    """Print the reference page of the documentation instead; it always shows everything."""
    refit: bool = False
    """Fit the constants again, compare them with those in use, and print both."""

    def run(self) -> None:
        """Print what the options ask for.

        Raises:
            ConfigError: A name is unknown, options exclude each other, or the plot cannot be
                written.
            InvariantError: A refit differs from the constants in use.
        """
        self._check()
        compared = comparisons(self.device, self.model)
        if self.plot is not None:
            plot_comparisons(compared, self.plot)
        if self.markdown:
            print(markdown(), end="")
        elif self.refit:
            _show_refit()
        else:
            times = stage_times(
                self.device or SHOWN_DEVICES, self.model or SHOWN_ARCHITECTURES, self.stack
            )
            if self.json:
                print(json.dumps(_as_json(times, compared, self.stack), indent=2))
            else:
                _show(times, compared, self.stack)

    def _check(self) -> None:
        modes = [name for name in ("json", "markdown", "refit") if getattr(self, name)]
        if len(modes) > 1:
            raise ConfigError(f"--{modes[0]} and --{modes[1]} exclude each other; give one")
        if modes in (["markdown"], ["refit"]) and (self.model or self.device):
            raise ConfigError(f"--{modes[0]} shows everything; leave out --model and --device")
        if self.plot is not None and self.plot.suffix not in SUFFIXES:
            raise ConfigError(f"--plot {self.plot.name}: a plot ends in {' or '.join(SUFFIXES)}")
        check_outputs([("--plot", self.plot)])
        stack_named(self.stack)


def _show(times: Sequence[StageTimes], compared: Sequence[Comparison], stack: str) -> None:
    """Print both tables for a person."""
    console = Console()
    sizes = "/".join(map(str, SHOWN_SIZES))
    table = Table(
        *("device", "model", "layout"),
        *(f"{stage} ms at {sizes}" for stage in ("prefix", "denoise")),
        title=f"Stage times, {CAVEAT} (stack {stack})",
    )
    for row in times:
        table.add_row(row.device, row.architecture, str(row.layout), *map(_series, row[3:5]))
    console.print(table)
    if not compared:
        console.print("no published latency of these can be compared")
        return
    console.print(_errors_table(compared))
    for line in _verdict(compared):
        console.print(line)


def _series(times: Sequence[float]) -> str:
    return " / ".join(f"{time:.1f}" for time in times)


def _errors_table(compared: Sequence[Comparison]) -> Table:
    table = Table(
        *("source", "model", "device", "stack", "covers", "layout", "size"),
        *("published ms", "predicted ms", "error", "half"),
        title=f"Published latencies and ours, {CAVEAT}",
    )
    for one in compared:
        point = one.published
        table.add_row(
            point.source,
            point.architecture,
            point.device,
            point.stack,
            point.covers,
            f"{point.layout.cameras} x, {point.layout.prompt_tokens}",
            str(point.size),
            f"{point.milliseconds:g}",
            f"{one.predicted_ms:.1f}",
            f"{one.error:+.0%}",
            "fitted" if one.fitted else "reported",
        )
    return table


def _verdict(compared: Sequence[Comparison]) -> list[str]:
    reported = [one for one in compared if not one.fitted]
    if not reported:
        return ["all of these were fitted; none is left to judge the fit by"]
    half = accuracy([one.error for one in reported])
    lines = [
        f"reported half: median error {half.median:.0%}, {half.close:.0%} of"
        f" {half.figures} figures within 25 %",
    ]
    if quiet := without_eager(reported):
        median = accuracy([one.error for one in quiet]).median
        lines.append(f"without eager figures: median error {median:.0%} of {len(quiet)}")
    lines += [
        f"worst: {one.error:+.0%} {one.published.architecture} on {one.published.device},"
        f" {one.published.stack} ({one.published.source}): {one.published.note}"
        for one in worst(reported)
        if one.published.note
    ]
    return lines


def _as_json(
    times: Sequence[StageTimes], compared: Sequence[Comparison], stack: str
) -> Mapping[str, object]:
    reported = [one.error for one in compared if not one.fitted]
    return {
        "note": CAVEAT,
        "stack": stack,
        "sizes": list(SHOWN_SIZES),
        "stage_times": [
            {
                "device": row.device,
                "architecture": row.architecture,
                "layout": row.layout._asdict(),
                "prefix_ms": [round(time, 3) for time in row.prefix_ms],
                "denoise_ms": [round(time, 3) for time in row.denoise_ms],
            }
            for row in times
        ],
        "published": [
            one.published._asdict()
            | {
                "layout": one.published.layout._asdict(),
                "predicted_ms": round(one.predicted_ms, 3),
                "error": round(one.error, 4),
                "fitted": one.fitted,
            }
            for one in compared
        ],
        "reported_half": accuracy(reported)._asdict() if reported else None,
        "constants": constants_of(CALIBRATION),
        "ranges": RANGES,
    }


def _show_refit() -> None:
    """Fit again, print both sets of constants, and refuse if they differ."""
    fitted, reported = halves()
    shipped, found, spans = constants_of(CALIBRATION), constants_of(fit(fitted)), ranges()
    table = Table(
        *("constant", "in use", "refitted", "with any one source left out"),
        title=f"Fit to {len(fitted)} published latencies, {len(reported)} held back; {CAVEAT}",
    )
    for name, value in shipped.items():
        low, high = spans[name]
        table.add_row(name, f"{value:g}", f"{found[name]:g}", f"{low:g} to {high:g}")
    Console().print(table)
    off = [name for name, value in shipped.items() if abs(found[name] / value - 1) > _CLOSE]
    if off:
        raise InvariantError(f"a refit differs from the constants in use: {', '.join(off)}")
