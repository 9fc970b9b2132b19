"""Writes the reference page of the hardware model as Markdown.

``takt hardware --markdown`` prints it; a test compares ``docs/reference/hardware.md`` with it, so
the page cannot say something the code does not.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from takt.core.request import Stage
from takt.hardware.architectures import ARCHITECTURES, architecture_named
from takt.hardware.calibration import (
    ACTIVATION_SHARE,
    CALIBRATION,
    COMPUTE_EXPONENT,
    DEFAULT_STACK,
    RANGES,
    STACKS,
    STRETCH,
)
from takt.hardware.devices import DEVICES, device_named
from takt.hardware.fitting import constants_of, spread, unseen_errors
from takt.hardware.profiles import DEFAULT_INTERFERENCE, UNGUARDED
from takt.hardware.published import LEFT_OUT
from takt.hardware.report import (
    CAVEAT,
    SHOWN_SIZES,
    Accuracy,
    Comparison,
    StageTimes,
    accuracy,
    by_architecture,
    by_stack,
    comparisons,
    stage_times,
    without_eager,
    worst,
)
from takt.hardware.roofline import stage_seconds

__all__ = ["markdown"]

_COMMAND = "takt hardware --markdown > docs/reference/hardware.md"
_ACCURACY_HEAD = ("Number", "Median error", "Within 25 %", "Nine in ten within")
_PUBLISHED_HEAD = (
    *("Source", "Model", "Device", "Stack", "Covers", "Layout", "Batch"),
    *("Published", "Predicted", "Error", "Half", "Note"),
)


def markdown() -> str:
    """The page, complete, ending in a line break."""
    compared = comparisons()
    reported = [one for one in compared if not one.fitted]
    sections = (
        _head(),
        _accuracy(compared, reported),
        _worst(reported),
        _uncertainty(reported),
        _times(stage_times()),
        _published(compared),
        _ingredients(),
        _left_out(),
    )
    return "\n".join(line for section in sections for line in section)


def _head() -> Iterator[str]:
    yield f"<!-- Written by: {_COMMAND} -->"
    yield "# Hardware model: stage times and how wrong they are"
    yield ""
    yield f"**Every time on this page is {CAVEAT}.** It comes from the dimensions of the networks,"
    yield "the data sheets of the devices and eight constants fitted to published latencies. It is"
    yield "what the simulator, paced devices and capacity plans use until a real device has been"
    yield "measured."
    yield ""
    yield "```"
    yield "time = max(operations / reached rate, bytes / reached bandwidth)"
    yield "     + layers x steps x launch time of the stack"
    yield "```"
    yield ""
    yield "`takt hardware --model pi0 --device h100` shows a part of it, `--stack` another way to"
    yield "run the networks, `--json` the same for programs, `--plot FILE` the picture below;"
    yield f"`--refit` repeats the fit. This page is written by `{_COMMAND}`."
    yield ""


def _accuracy(compared: Sequence[Comparison], reported: Sequence[Comparison]) -> Iterator[str]:
    half = accuracy(_errors(reported))
    quiet = accuracy(_errors(without_eager(reported)))
    several = [ratio for _, ratio in spread()]
    yield "## How wrong"
    yield ""
    yield f"The median error on the reported half is **{_share(half.median)}**, and"
    yield f"{_share(quiet.median)} without the figures of eager programs, whose time depends on the"
    yield "host more than on the GPU."
    yield ""
    yield f"{len(compared)} published latencies can be compared. They are sorted by source, model,"
    yield "device, stack, layout and value; every second one is fitted, the others are only"
    yield "reported. Figures of one table resemble each other, so a harder test stands in the last"
    yield "row: each source is predicted by constants that saw none of its figures."
    yield ""
    yield from _table(
        ("Figures", *_ACCURACY_HEAD),
        (
            _row("reported half", half),
            _row("reported half without eager figures", quiet),
            _row("fitted half", accuracy(_errors([one for one in compared if one.fitted]))),
            _row("all, source unseen", accuracy([error for _, error in unseen_errors()])),
        ),
    )
    yield f"For scale: {len(several)} cases were published more than once. The highest figure is"
    yield f"{statistics.median(several):.2f} times the lowest in the median and"
    yield f"{max(several):.2f} times at most; a model in the middle is still off by half the gap."
    yield ""
    yield "![Predicted over published latency](../images/hardware.svg)"
    yield ""
    yield "The reported half by stack and by architecture:"
    yield ""
    groups = {**by_stack(reported), **by_architecture(reported)}
    rows = (_row(name, group) for name, group in groups.items())
    yield from _table(("Group", *_ACCURACY_HEAD), rows)


def _worst(reported: Sequence[Comparison]) -> Iterator[str]:
    yield "## The worst of the reported half, explained"
    yield ""
    yield "The worst three of all, then the worst three in which no stage is eager:"
    yield ""
    shown = [*worst(reported), *worst(without_eager(reported))]
    for number, one in enumerate(dict.fromkeys(shown), start=1):
        point = one.published
        yield (
            f"{number}. {_title(point.architecture)} on {device_named(point.device).title},"
            f" {point.stack}, {point.layout} ({point.source}): published {point.milliseconds:g} ms,"
            f" predicted {one.predicted_ms:.1f} ms, {_error(one.error)}."
            f" {_sentence(point.note)}"
        )
    yield ""


def _uncertainty(reported: Sequence[Comparison]) -> Iterator[str]:
    quiet = accuracy(_errors(without_eager(reported)))
    low, high = RANGES["feed_tflops"]
    yield "## Uncertainty"
    yield ""
    yield f"Outside `eager`, {_share(quiet.close)} of the reported figures lie within 25 % and nine"
    yield f"in ten within {_share(quiet.worst_decile)}. Take a time of `eager` as good to a factor"
    yield "of two."
    yield ""
    yield "Not supported by published figures, and so to be swept or measured before believed:"
    yield ""
    yield "- **Batches above 1.** One figure has a batch of two, and it is a server's throughput."
    yield "  Large prefix batches depend on the rate at which SMs are fed, which moves between"
    yield f"  {low:g} and {high:g} when one source is left out. At the low end a pi0 prefix of"
    yield f"  batch 4 takes {_low_feed('rtx-pro-6000'):.1f} times as long on an RTX PRO 6000 and"
    yield f"  {_low_feed('h100'):.1f} times on an H100."
    yield "- **Shares of the SMs.** One published curve, of a speech model on an H200, stands for"
    yield "  all denoise loops; a prefix is taken as nearly linear in its share."
    yield "- **Two launches side by side.** A denoise launch beside a prefix is slowed by"
    yield "  `interference` (0.25) times the part of the bandwidth the prefix uses, the prefix by"
    yield "  0.4 times `interference`; beside a prefix that is not held back, a denoise launch"
    yield "  finds an eighth of the SMs. All three are assumed."
    yield ""
    yield "Fitted constants, with the range they take when any one source is left out:"
    yield ""
    constants = constants_of(CALIBRATION)
    yield from _table(
        ("Constant", "Value", "Range"),
        (
            (f"`{name}`", f"{value:g}", f"{RANGES[name][0]:g} to {RANGES[name][1]:g}")
            for name, value in constants.items()
        ),
    )
    yield "`feed_tflops` is per SM, `launch_us` per layer and denoise step; a layer of the prefix"
    yield "counts `prefix_layer` times."
    yield ""
    yield from _table(
        ("Assumed constant", "Value", "Could be", "Source"),
        (
            ("activation traffic not fused", f"{ACTIVATION_SHARE:g}", "0 to 1", "none"),
            ("exponent of the share, compute-bound", f"{COMPUTE_EXPONENT:g}", "0.9 to 1", "none"),
            ("slowdown on a share, else", _curve(), "10 % off", "sglang-omni #1934, H200"),
            ("interference", f"{DEFAULT_INTERFERENCE:g}", "0 to 0.5", "none; sweep it"),
            ("SMs beside an unguarded prefix", f"{UNGUARDED:g}", "0.05 to 0.5", "none"),
        ),
    )


def _low_feed(device: str) -> float:
    """Time of a large pi0 prefix with SMs fed as slowly as any fit says, over the usual time."""
    pi0 = architecture_named("pi0")
    slow = replace(CALIBRATION, feed_tflops=RANGES["feed_tflops"][0])
    usual, slower = (
        stage_seconds(
            pi0,
            Stage.PREFIX,
            pi0.layouts[-1],
            device_named(device),
            STACKS[DEFAULT_STACK],
            size=4,
            calibration=calibration,
        )
        for calibration in (CALIBRATION, slow)
    )
    return slower / usual


def _curve() -> str:
    return ", ".join(f"{slowdown:g} at {share:g}" for share, slowdown in STRETCH)


def _times(rows: Sequence[StageTimes]) -> Iterator[str]:
    sizes = ", ".join(str(size) for size in SHOWN_SIZES)
    yield "## Stage times"
    yield ""
    yield f"Milliseconds on the whole device, {CAVEAT}, stack `{DEFAULT_STACK}`, at batch sizes"
    yield f"{sizes}. The last layout of a model holds every row."
    yield ""
    for device in dict.fromkeys(row.device for row in rows):
        yield f"### {device_named(device).title}"
        yield ""
        yield from _table(
            ("Model", "Layout", "Prefix", "Denoise"),
            (
                (
                    _title(row.architecture),
                    str(row.layout),
                    " / ".join(f"{time:.1f}" for time in row.prefix_ms),
                    " / ".join(f"{time:.1f}" for time in row.denoise_ms),
                )
                for row in rows
                if row.device == device
            ),
        )


def _published(compared: Sequence[Comparison]) -> Iterator[str]:
    yield "## Every published latency that can be compared"
    yield ""
    yield f"Published figures are measured by their sources; predicted ones are {CAVEAT}. Of two"
    yield "stacks the first ran the prefix and the second the denoise loop. Layout: cameras and"
    yield "prompt tokens. Times in milliseconds."
    yield ""
    yield from _table(
        _PUBLISHED_HEAD,
        (
            (
                one.published.source,
                _title(one.published.architecture),
                one.published.device,
                one.published.stack,
                one.published.covers,
                f"{one.published.layout.cameras} x, {one.published.layout.prompt_tokens}",
                str(one.published.size),
                f"{one.published.milliseconds:g}",
                f"{one.predicted_ms:.1f}",
                _error(one.error),
                "fitted" if one.fitted else "reported",
                one.published.note,
            )
            for one in compared
        ),
    )


def _ingredients() -> Iterator[str]:
    yield "## What it is made of"
    yield ""
    yield (
        "Stacks: "
        + "; ".join(f"`{stack.name}`, {stack.meaning}" for stack in STACKS.values())
        + "."
    )
    yield ""
    yield from _table(
        ("Device", "Title", "Dense bf16 TFLOP/s", "TB/s", "SMs", "Share step", "Off by", "Source"),
        (
            (
                f"`{device.name}`",
                device.title,
                f"{device.peak_tflops:g}",
                f"{device.bandwidth_tbs:g}",
                str(device.units),
                str(device.granularity),
                _share(device.uncertainty),
                device.source,
            )
            for device in DEVICES.values()
        ),
    )
    yield from _table(
        ("Model", "Title", "Layouts", "SLO, ms", "Off by", "Source"),
        (
            (
                f"`{network.name}`",
                network.title,
                "; ".join(str(layout) for layout in network.layouts),
                f"{network.slo_ms:g} ({'published' if network.slo_is_published else 'ours'})",
                _share(network.uncertainty),
                network.source,
            )
            for network in ARCHITECTURES.values()
        ),
    )


def _left_out() -> Iterator[str]:
    yield "## Published, but not compared"
    yield ""
    yield from _table(("What", "Why"), LEFT_OUT)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + " --- |" * len(head)
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


def _row(name: str, one: Accuracy) -> tuple[str, ...]:
    return name, str(one.figures), _share(one.median), _share(one.close), _share(one.worst_decile)


def _errors(compared: Sequence[Comparison]) -> list[float]:
    return [one.error for one in compared]


def _title(architecture: str) -> str:
    return architecture_named(architecture).title


def _sentence(note: str) -> str:
    return f"{note[:1].upper()}{note[1:]}."


def _share(value: float) -> str:
    return f"{100 * value:.0f} %"


def _error(value: float) -> str:
    return f"{100 * value:+.0f} %"
