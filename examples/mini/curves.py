"""The training curves as a picture."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

SMOOTHED_OVER = 10


def draw(log: Sequence[dict[str, float]], path: Path) -> None:
    """Draw the losses of a log over the samples seen."""
    if not log:
        return
    mpl.rcParams["svg.hashsalt"] = "takt"  # the same log gives the same file
    figure = Figure(figsize=(7, 3.5), layout="constrained")
    axes = figure.subplots()
    for key, label in (("loss", "actions, training"), ("pose_loss", "pose, training")):
        axes.plot([line["samples"] for line in log], _smooth([x[key] for x in log]), label=label)
    held = [line for line in log if "held_out_loss" in line]
    axes.plot(
        [line["samples"] for line in held],
        [line["held_out_loss"] for line in held],
        "o-",
        markersize=3,
        label="actions, held out",
    )
    axes.set(xlabel="samples", ylabel="loss", yscale="log")
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    figure.savefig(path, metadata={"Date": None})


def _smooth(values: Sequence[float]) -> np.ndarray:
    width = min(SMOOTHED_OVER, len(values))
    padded = np.pad(values, (width - 1, 0), mode="edge")
    return np.convolve(padded, np.full(width, 1 / width), mode="valid")
