"""Draws a profile that was measured: times over batch sizes, slowdowns over shares."""

# matplotlib's own stubs leave its keyword arguments untyped.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from takt.cli.picture_file import COLOURS, GREY, dress, picture
from takt.core.profile import FULL_SPEED, Profile, Work
from takt.core.request import Stage
from takt.runtime.profiling.profiler import Profiled
from takt.units import to_ms

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_profile"]


def plot_profile(profiled: Profiled, path: Path) -> None:
    """Write the plot to ``path``; a file that is there is replaced.

    Raises:
        ConfigError: The file cannot be written.
    """
    header = profiled.profile.header
    with picture(path, width=11.0, height=4.2) as figure:
        figure.suptitle(f"{header.device}, {header.engine}", color=GREY, fontsize=9)
        times, slowdowns = figure.subplots(1, 2)
        _draw_times(times, profiled)
        _draw_slowdowns(slowdowns, profiled)


def _draw_times(axes: Axes, profiled: Profiled) -> None:
    for number, architecture in enumerate(_architectures(profiled)):
        for stage, line in ((Stage.PREFIX, "-"), (Stage.DENOISE, "--")):
            works = _full(profiled, architecture, stage)
            medians = [profiled.solo[work] for work in works]
            axes.errorbar(
                [work.size for work in works],
                [to_ms(median.value) for median in medians],
                [
                    [to_ms(m.value - (m.low or m.value)) for m in medians],
                    [to_ms(m.high - m.value if m.high else 0) for m in medians],
                ],
                color=COLOURS[number % len(COLOURS)],
                linestyle=line,
                marker="o",
                markersize=3,
                label=f"{architecture} {stage.name.lower()}",
            )
    sizes = sorted({work.size for work in profiled.solo})
    axes.set(xlabel="rows", ylabel="ms alone, whole device", xscale="log")
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    dress(axes, "Alone")


def _draw_slowdowns(axes: Axes, profiled: Profiled) -> None:
    """Each architecture's largest launches beside each other."""
    profile = profiled.profile.profile
    for number, architecture in enumerate(_architectures(profiled)):
        prefixes = _full(profiled, architecture, Stage.PREFIX)
        denoises = _full(profiled, architecture, Stage.DENOISE)
        if not denoises:
            continue
        held = [prefixes[-1]._replace(share=share) for share in profile.shares]
        for name, line, slowdowns in (
            ("prefix", "-", [_slowdown(profile, work, denoises[-1]) for work in held]),
            ("denoise", "--", [_slowdown(profile, denoises[-1], work) for work in held]),
        ):
            axes.plot(
                [100 * work.share / profile.units for work in held],
                slowdowns,
                color=COLOURS[number % len(COLOURS)],
                linestyle=line,
                marker="o",
                markersize=3,
                label=f"{architecture} {name}",
            )
    axes.set(xlabel="share of the prefix, %", ylabel="slowdown beside the other stage")
    axes.set_ylim(bottom=0.9)
    dress(axes, "Largest batches side by side")


def _architectures(profiled: Profiled) -> list[str]:
    return list(dict.fromkeys(work.architecture for work in profiled.solo))


def _full(profiled: Profiled, architecture: str, stage: Stage) -> list[Work]:
    """Launches on the whole device, of the layout that holds every row, by rising size."""
    of_stage = [
        work
        for work in profiled.solo
        if work.architecture == architecture
        and work.stage is stage
        and work.share == profiled.profile.profile.units
    ]
    last = max((work.layout for work in of_stage), default=0)
    return sorted(work for work in of_stage if work.layout == last)


def _slowdown(profile: Profile, work: Work, beside: Work) -> float:
    return FULL_SPEED / profile.speed(work, beside)
