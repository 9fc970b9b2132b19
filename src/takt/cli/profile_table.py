"""Prints a profile that was measured: times alone, slowdowns beside each other, what is uncertain.

Start reading at :func:`show_profile`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import groupby, product

from rich.console import Console
from rich.table import Table

from takt.core.profile import FULL_SPEED, Work
from takt.core.request import Stage
from takt.runtime.profiling.median import Median
from takt.runtime.profiling.profiler import Profiled
from takt.units import to_ms

__all__ = ["show_profile"]

_MOST_NAMED = 5


def show_profile(profiled: Profiled, console: Console) -> None:
    """Print tables and sentences for a person."""
    header = profiled.profile.header
    console.print(
        f"{header.device}; engine {header.engine}; precision {header.precision}", highlight=False
    )
    console.print(_solo_table(profiled))
    if profiled.beside:
        console.print(_pair_table(profiled))
    for line in _sentences(profiled):
        console.print(line, highlight=False)


def _solo_table(profiled: Profiled) -> Table:
    """Times on the whole device, in the layouts that hold every row."""
    table = Table("architecture", "stage", "rows", "ms", "error", "runs", title="Alone")
    for work, median in profiled.solo.items():
        if work.share == profiled.profile.profile.units and _is_full(work, profiled):
            table.add_row(
                work.architecture,
                work.stage.name.lower(),
                str(work.size),
                f"{to_ms(median.value):.3f}",
                _error(median),
                str(median.runs),
            )
    return table


def _pair_table(profiled: Profiled) -> Table:
    """Slowdowns where the scheduler would put a pair."""
    table = Table(
        *("prefix", "rows", "beside denoise", "rows", "best share"),
        *("prefix slower", "denoise slower", "both over after ms"),
        title="Side by side, with the share that is over soonest",
    )
    for prefix, denoise in _best_pairs(profiled):
        profile = profiled.profile.profile
        table.add_row(
            prefix.architecture,
            str(prefix.size),
            denoise.architecture,
            str(denoise.size),
            f"{prefix.share} of {profile.units}",
            f"{FULL_SPEED / profile.speed(prefix, denoise):.2f} x",
            f"{FULL_SPEED / profile.speed(denoise, prefix):.2f} x",
            f"{to_ms(profile.pair_time(prefix, denoise)):.2f}",
        )
    return table


def _best_pairs(profiled: Profiled) -> Iterator[tuple[Work, Work]]:
    """The smallest and the largest batches, each pair with its best share."""
    profile = profiled.profile.profile
    for prefix, denoise in product(_ends(profiled, Stage.PREFIX), _ends(profiled, Stage.DENOISE)):
        yield prefix._replace(share=profile.best_share(prefix, denoise)), denoise


def _ends(profiled: Profiled, stage: Stage) -> list[Work]:
    """The smallest and the largest launch of each architecture on the whole device."""
    units = profiled.profile.profile.units
    works = sorted(
        work
        for work in profiled.solo
        if work.stage is stage and work.share == units and _is_full(work, profiled)
    )
    same = [[*group] for _, group in groupby(works, key=lambda work: work.architecture)]
    return [work for group in same for work in dict.fromkeys((group[0], group[-1]))]


def _is_full(work: Work, profiled: Profiled) -> bool:
    """Whether a launch is of the layout that holds every row."""
    return all(
        work.layout == len(model.holds) - 1
        for model in profiled.profile.models
        if model.architecture == work.architecture
    )


def _sentences(profiled: Profiled) -> Iterator[str]:
    header = profiled.profile.header
    yield (
        f"medians within {header.relative_error:.0%} (interval of {header.confidence:.0%}),"
        f" slowdowns within {2 * header.relative_error:.0%}"
    )
    if header.num_pairs_interpolated:
        yield (
            f"{header.num_pairs_measured} pairs measured, {header.num_pairs_interpolated}"
            f" interpolated: {header.interpolation}"
        )
    if header.cut_off:
        named = "; ".join(header.cut_off[:_MOST_NAMED])
        more = len(header.cut_off) - _MOST_NAMED
        yield f"cut off before that: {named}{f'; {more} more' if more > 0 else ''}"


def _error(median: Median) -> str:
    return "unknown" if math.isinf(median.error) else f"{median.error:.1%}"
