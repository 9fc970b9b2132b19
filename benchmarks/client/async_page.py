"""Writes ``docs/results/async.md`` and its plots from what ``async_vs_sync.py`` found.

    python benchmarks/client/async_page.py [benchmarks/results/async.json]

Every figure of the page comes from that file; a part that was not run says so.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks._record import RESULTS
from benchmarks.client.async_plots import draw

__all__ = ["page_of", "write_page"]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "results" / "async.md"
IMAGES = ROOT / "docs" / "images"
PROSE = Path(__file__).with_name("async_page.md")
NOT_RUN = "*Not run.*"

Result = Mapping[str, Any]


def write_page(result: Result, *, page: Path = PAGE, images: Path = IMAGES) -> None:
    """Write the page and draw the plots there are figures for."""
    draw(result, images)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(page_of(result), encoding="utf-8")


def page_of(result: Result) -> str:
    """The prose with every table and figure filled in."""
    text = PROSE.read_text(encoding="utf-8")
    for name, part in PARTS.items():
        text = text.replace(f"<!-- {name} -->", part(result) or NOT_RUN)
    return text


def _summary(result: Result) -> str:
    """The answer in two sentences, at x about 1 and over all x."""
    at_one = [line for line in result["must_show"] if line["what"] == "about one"]
    bounds = [line for line in result["must_show"] if line["what"] == "bound"]
    if not at_one or not bounds:
        return ""
    line = at_one[0]
    shares = [bound["share_of_bound"] for bound in bounds]
    return (
        f"At x = {line['x']:g} the robot that asks by our rule solved its tasks"
        f" **{_valued(line['speedup_moving'])} times** as fast as the sequential one, counted from"
        f" the first action on. Over all x of 1 and more it reached {min(shares):.0%} to"
        f" {max(shares):.0%} of the bound."
    )


def _must_show(result: Result) -> str:
    body: list[list[object]] = []
    for line in result["must_show"]:
        kind = {
            "bound": "at least 90 % of the bound at equal success",
            "about one": "1.8 or more at x about 1",
            "inferences": "as good as g = 0.7 with at most 60 % of its inferences",
        }[line["what"]]
        body.append([kind, line["text"], "yes" if line["holds"] else "**no**"])
    return _table(["wanted", "found", "holds"], body)


def _bounds(result: Result) -> str:
    """Where the bound is reached, and what is missing where it is not."""
    body = [
        [
            f"{point['c']:g}",
            f"{point['x']:g}",
            f"{point['bound']:.2f}",
            _valued(beside["speedup_moving"]),
            _valued(beside["speedup"]),
            _valued(beside["pace"]),
            _valued(beside["actions"]),
            _valued(_beside(point, "ours", "local", "speedup_moving")),
            _signed(beside["success_difference"]),
        ]
        for point in result["sweep"]
        if (beside := point["arms"].get("ours", {}).get("beside remote"))
    ]
    return _table(
        ["c", "x", "bound", "faster", "from the start", "by pace", "by fewer actions",
         "than in process", "success"], body,
    )  # fmt: skip


def _arms(result: Result) -> str:
    """Every arm at every c."""
    body: list[list[object]] = []
    for point in result["sweep"]:
        for arm, found in point["arms"].items():
            time = found["completion_s"]
            body.append(
                [
                    f"{point['c']:g}",
                    result["arms"][arm],
                    f"{found['solved']}/{found['episodes']}",
                    "-" if not time else f"{time['mean']:.1f} ({_ends(time['mean_interval'])})",
                    _plain(found["inferences_per_solved"], 1),
                    _plain(found["executed_per_inference"], 1),
                    _plain(found["c_n"], 2),
                    _plain(found["starved_per_minute"], 0),
                    _cut(found["action_age_ticks"], "p50", 0),
                    _cut(found["splice_step"], "p90", 2),
                    _cut(found["jerk_m_s3"], "p50", 2),
                ]
            )
    return _table(
        ["c", "arm", "solved", "s until solved", "inferences", "n", "c n", "starved a minute",
         "age", "splice, cm", "jerk, m/s3"], body,
    )  # fmt: skip


def _inferences(result: Result) -> str:
    body = [
        [
            f"{point['c']:g}",
            f"{point['x']:g}",
            result["arms"][arm],
            _share(_beside(point, arm, "g0.7", "inferences")),
            _valued(_beside(point, arm, "g0.7", "speedup_moving")),
            _valued(_beside(point, arm, "g0.7", "pace")),
            _valued(_beside(point, arm, "g0.7", "actions")),
            _signed(_beside(point, arm, "g0.7", "success_difference")),
        ]
        for point in result["sweep"]
        for arm in ("ours", "ours 9")
        if _beside(point, arm, "g0.7", "inferences")
    ]
    return _table(
        ["c", "x", "arm", "inferences", "as fast as g = 0.7", "by pace", "by fewer actions",
         "success"], body,
    )  # fmt: skip


def _harder(result: Result) -> str:
    body = [
        [
            f"{point['x']:g}",
            result["arms"][arm],
            f"{found['solved']}/{found['episodes']}",
            _signed(_beside(point, arm, "remote", "success_difference")),
            _valued(_beside(point, arm, "remote", "speedup_moving")),
            _valued(_beside(point, arm, "remote", "actions")),
        ]
        for point in result.get("harder", [])
        for arm, found in point["arms"].items()
    ]
    if not body:
        return ""
    return _table(["x", "arm", "solved", "success", "faster", "by fewer actions"], body)


def _wall_clock(result: Result) -> str:
    points = result["wall_clock"]["points"]
    body = [
        [
            f"{point['answer_ticks']:g}",
            STOCK if point["arm"] == "stock" else result["arms"].get(point["arm"], point["arm"]),
            *_seen(point["measured"]),
            *_seen(point["predicted"]),
            _valued(point.get("speedup_measured", {}).get("speedup_moving")),
            _valued(point.get("speedup_predicted", {}).get("speedup_moving")),
        ]
        for point in points
    ]
    if not body:
        return ""
    return _table(
        ["answer, periods", "arm", "solved", "s", "inferences", "predicted: solved", "s",
         "inferences", "faster", "predicted"], body,
    )  # fmt: skip


STOCK = "LeRobot's own client, g = 0.7"


def _seen(found: Result | None) -> list[str]:
    if not found:
        return ["-", "-", "-"]
    time = found["completion_s"]
    return [
        f"{found['solved']}/{found['episodes']}",
        "-" if not time else f"{time['mean']:.1f}",
        _plain(found["inferences_per_solved"], 1),
    ]


def _wall_settings(result: Result) -> str:
    settings = result["wall_clock"].get("settings")
    if not settings:
        return ""
    return (
        f"A step and a picture took {settings['step_and_picture_p90_ms']:.0f} ms here (90th"
        f" percentile), and `environment_dt` was {settings['period_ms']:g} ms;"
        f" starts per point: {settings['starts']}."
    )


def _conditions(result: Result) -> str:
    plan, told = result["plan"], result["circumstances"]
    tasks = ", ".join(f"`{task.removesuffix('-v3')}`" for task in plan["tasks"])
    return (
        f"Tasks: {tasks}; {plan['starts']} starts each, of seed {plan['seed']}. `environment_dt` is"
        f" {plan['period_ms']:g} ms, an episode has {plan['most_ticks']} periods"
        f" ({plan['most_ticks'] * plan['period_ms'] / 1e3:g} s) for every arm, and"
        f" {plan['network_ms']:g} ms of every remote answer, at most half of it, are the network's."
        " Measured on"
        f" {told['cpu']}, {told['cores']} cores, {told['python']}, commit {told['commit']}."
    )


PARTS: Mapping[str, Callable[[Result], str]] = {
    "summary": _summary,
    "conditions": _conditions,
    "must show": _must_show,
    "bounds": _bounds,
    "inferences": _inferences,
    "harder": _harder,
    "arms": _arms,
    "wall settings": _wall_settings,
    "wall clock": _wall_clock,
}


def _beside(point: Result, arm: str, base: str, measure: str) -> Result | None:
    return point["arms"].get(arm, {}).get(f"beside {base}", {}).get(measure)


def _table(head: Sequence[str], body: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def _valued(found: Result | None) -> str:
    if not found:
        return "-"
    return f"{found['value']:.2f} ({_ends(found['interval_95'])})"


def _ends(interval: Sequence[float] | None) -> str:
    return "-" if not interval else f"{interval[0]:.2f} to {interval[1]:.2f}"


def _share(found: Result | None) -> str:
    if not found:
        return "-"
    low, high = found["interval_95"] or (found["value"], found["value"])
    return f"{found['value']:.0%} ({low:.0%} to {high:.0%})"


def _signed(found: Result | None) -> str:
    if not found:
        return "-"
    low, high = found["interval_95"] or (found["value"], found["value"])
    return f"{found['value']:+.0%} ({low:+.0%} to {high:+.0%})"


def _plain(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _cut(found: Result | None, cut: str, digits: int) -> str:
    return "-" if not found else f"{found[cut]:.{digits}f}"


def main() -> int:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS / "async.json"
    write_page(json.loads(path.read_text(encoding="utf-8")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
