"""Opens a figure of matplotlib and writes it, so that equal figures give equal bytes.

No date, no random identifier and none of the user's style settings reach the file. matplotlib is
imported when a picture is asked for, through its object interface, so no window system and no
global figure is touched.

Start reading at :func:`picture`.
"""

# matplotlib's own stubs leave its keyword arguments untyped.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from takt.errors import ConfigError
from takt.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["ACCENT", "ALARM", "COLOURS", "GREY", "INK", "check_picture", "dress", "picture"]

INK, GREY, ACCENT, ALARM = "#1b1f24", "#6b7280", "#0b5cad", "#c2410c"
# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = ("#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#8c6d1f", "#7a5195")

_SUFFIXES = (".png", ".svg")


def check_picture(flag: str, path: Path | None) -> None:
    """Refuse what could not be written, before work is done for it.

    Raises:
        ConfigError: The suffix, the folder or matplotlib; the message begins with ``flag``.
    """
    if path is None:
        return
    if path.suffix not in _SUFFIXES:
        raise ConfigError(f"{flag} {path}: a plot ends in {' or '.join(_SUFFIXES)}")
    if not os.path.isdir(path.parent):  # where pathlib raises, of a closed folder, it says no
        raise ConfigError(f"{flag} {path}: no folder {path.parent}")
    if find_spec("matplotlib") is None:
        raise ConfigError(f"{flag} needs matplotlib; install: pip install 'takt-serve[plot]'")


@contextmanager
def picture(path: Path, *, width: float, height: float) -> Generator[Figure, None, None]:
    """A figure to draw in; it is written when the block ends, and replaces a file that is there.

    Args:
        path: Ends in ``.png`` or ``.svg``.
        width: In inches.
        height: In inches.

    Raises:
        ConfigError: The file cannot be written.
    """
    import matplotlib as mpl
    from matplotlib import style
    from matplotlib.figure import Figure

    with style.context("default"), mpl.rc_context({"svg.hashsalt": "takt"}):
        figure = Figure(figsize=(width, height), dpi=160, layout="constrained")
        yield figure
        # Both writers stamp the file otherwise: SVG with the date, PNG with the version.
        stamp = "Date" if path.suffix == ".svg" else "Software"
        try:
            with replacing(path) as fresh:
                figure.savefig(fresh, metadata={stamp: None})
        except OSError as error:
            raise ConfigError(f"{path.name}: cannot write the plot: {error.strerror}") from error


def dress(axes: Axes, title: str) -> None:
    """Give axes the look of our plots."""
    axes.set_title(title, loc="left", color=INK, fontsize=11, fontweight="bold")
    axes.grid(visible=True, color="#e5e7eb", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(colors=GREY, labelcolor=INK, length=3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8.5, loc="upper left", bbox_to_anchor=(1.0, 1.0))
