"""What a benchmark showed, for a person: the verdict first, then the circumstances."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape

from takt.cli.driving.figures import sentences
from takt.cli.driving.live_table import stages_table

__all__ = ["bench_sentences", "show_bench"]


def bench_sentences(figures: Mapping[str, Any]) -> list[str]:
    """The figures in sentences, most important first."""
    worst = figures["worst_robot"]
    lines = [
        _verdict(figures),
        *sentences(dict(figures)),
        _spread(figures),
        _senders(figures["senders"]),
    ]
    if worst is not None:
        lines.insert(2, f"worst robot: {worst['robot']}, {_percent(worst['attainment'])}")
    return lines


def show_bench(figures: Mapping[str, Any], console: Console) -> None:
    """Print the figures."""
    first, *rest = bench_sentences(figures)
    console.print(f"[bold]{escape(first)}[/bold]", highlight=False, soft_wrap=True)
    for line in rest:
        console.print(escape(line), highlight=False, soft_wrap=True)
    if figures["split_ms"]:
        console.print(stages_table(figures["split_ms"]))


def _verdict(figures: Mapping[str, Any]) -> str:
    target, mark = _percent(figures["target"]), "paced: " if figures["paced"] else ""
    mean, number = _percent(figures["mean"]), len(figures["epochs"])
    is_one = figures["robots"] == 1
    robots = f"{figures['robots']} robot{'' if is_one else 's'}"
    if figures["holds"] is None:
        return f"{mark}{robots}: {mean} in one epoch, which has no spread to judge {target} by"
    if figures["holds"]:
        verdict = "holds" if is_one else "hold"
    else:
        verdict = "does not hold" if is_one else "do not hold"
    early = ", then it was clear" if figures["stopped_early"] else ""
    return (
        f"{mark}{robots} {verdict} {target}: mean {mean}, lower 95% bound"
        f" {_percent(figures['bound'])} ({number} of {figures['epochs_planned']} epochs{early})"
    )


def _spread(figures: Mapping[str, Any]) -> str:
    shares = ", ".join(_percent(epoch["attainment"]) for epoch in figures["epochs"])
    return f"epochs, each with other phases, the model served worst: {shares}"


def _senders(senders: Mapping[str, Any]) -> str:
    lag = senders["lag_ms"]
    late = "nothing sent" if lag is None else f"{lag['p50']:.2f} ms late, p99 {lag['p99']:.2f} ms"
    plural = "" if senders["processes"] == 1 else "es"
    text = (
        f"this client: {senders['processes']} process{plural} used {senders['cpu_share']:.2f} of"
        f" {senders['cores']} cores, the busiest {senders['busiest']:.0%} of one;"
        f" robots sent {late}"
    )
    if senders["is_bottleneck"]:
        text += "; too much: the latencies are this client's too, use fewer robots or more cores"
    return text


def _percent(share: float) -> str:
    return f"{share:.2%}"
