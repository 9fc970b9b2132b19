"""Shows a simulation's report to a person: a few tables, readable in 80 columns.

What the figures mean is said where they are made, in :mod:`takt.sim.report`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

__all__ = ["show_report"]


def show_report(figures: Mapping[str, Any], console: Console) -> None:
    """Print what :func:`takt.sim.report.report` found."""
    console.print(
        f"[bold]simulated[/bold]: {figures['robots']} robots, {figures['seconds']:g} s after"
        f" {figures['warm_up_seconds']:g} s of warm-up, seed {figures['seed']},"
        f" {figures['issued']} requests"
    )
    console.print("", _groups_table(figures), "", *_remarks(figures), sep="\n")
    if figures["stages_ms"]:
        console.print("", _stages_table(figures["stages_ms"]), sep="\n")
    console.print("", _devices_table(figures["devices"]), sep="\n")
    if "curve" in figures:
        console.print("", _knee(figures["curve"]), sep="\n")


def _table(first: str, *rest: str, title: str) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD,
        title=title,
        title_justify="left",
        title_style="bold",
        show_edge=False,
        collapse_padding=True,
    )
    table.add_column(first, overflow="fold")
    for header in rest:
        table.add_column(header, justify="right", no_wrap=True)
    return table


def _groups_table(figures: Mapping[str, Any]) -> Table:
    headers = ("robots", "issued", "attainment", "on time", "p50 ms", "p90 ms", "p99 ms")
    table = _table("group", *headers, title="answers, on the robots' clocks")
    for name, part in figures["groups"].items():
        table.add_row(escape(name), str(part["robots"]), *_served_cells(part))
    if len(figures["groups"]) > 1:
        table.add_row("all", str(figures["robots"]), *_served_cells(figures))
    worst = figures["worst_robot"]
    if worst is not None and figures["robots"] > 1:
        table.add_row(f"worst, {escape(worst['robot'])}", "1", *_served_cells(worst))
    return table


def _served_cells(part: Mapping[str, Any]) -> list[str]:
    latency = part["latency_ms"]
    return [
        str(part["issued"]),
        _share(part["attainment"]),
        _share(part["on_time_share"]),
        *("-" if latency is None else f"{latency[q]:.1f}" for q in ("p50", "p90", "p99")),
    ]


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2%}"


def _remarks(figures: Mapping[str, Any]) -> list[str]:
    lost = [f"{n} {name}" for name, n in figures["outcomes"].items() if n and name != "served"]
    starvation = figures["starvation"]
    return [
        f"without an answer: {', '.join(lost) or 'none'}",
        f"starvation: {_share(starvation['share'])} of control ticks found no action"
        f" ({starvation['starved_ticks']} of {starvation['ticks']})",
    ]


def _stages_table(stages: Mapping[str, Mapping[str, float]]) -> Table:
    quantiles = ("p50", "p90", "p99", "max")
    table = _table("stage", *(f"{q} ms" for q in quantiles), title="where the time went")
    for name, part in stages.items():
        table.add_row(name, *(f"{part[q]:.1f}" for q in quantiles))
    return table


def _devices_table(devices: Mapping[str, Mapping[str, Any]]) -> Table:
    headers = ("formation", "lane", "busy", "launches", "rows per launch")
    table = _table("device", *headers, title="devices, warm-up included")
    for name, part in devices.items():
        for stage, busy in part["utilisation"].items():
            rows = part["mean_rows"][stage]
            table.add_row(
                escape(name),
                part["formation"],
                stage,
                f"{busy:.1%}",
                str(part["launches"][stage]),
                "-" if rows is None else f"{rows:.2f}",
            )
    return table


def _knee(curve: Mapping[str, Any]) -> str:
    knee = curve["knee_robots"]
    said = "no population holds" if knee is None else f"up to {knee} robots hold"
    return f"[bold]knee[/bold]: {said} {curve['target']:g} attainment (simulated)"
