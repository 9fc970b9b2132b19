"""Sums the experiment on asynchronous inference up, and says what holds.

Start reading at :func:`result_of`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.client.async_figures import Episode, bound_of, compared, summed_up
from benchmarks.client.async_plan import WALL_SETTINGS, Cell, Plan, State
from benchmarks.client.async_robot import ARMS, EXECUTED_IN_SEQUENCE

__all__ = ["ABOUT_ONE", "result_of"]

LEAST_OF_BOUND = 0.9
LEAST_AT_ONE = 1.8
MOST_INFERENCES = 0.6
ABOUT_ONE = (0.95, 1.1)
"""Values of x that count as about 1."""
SHOWN_QUEUES = (8.0, 4.0)
"""Answer times, in periods, of the episodes whose queues are kept."""


def result_of(plan: Plan, state: State) -> dict[str, Any]:
    """Everything the page is made from; what was not run is left out."""
    points = _points(state, plan.tasks, plan.answer_ticks, plan)
    return {
        "plan": plan.in_words(),
        "arms": {name: ARMS[name].title for name in plan.arms},
        "sweep": points,
        "harder": _points(state, plan.hard_tasks, plan.hard_answer_ticks, plan),
        "queues": _queues(plan, state),
        "wall_clock": _wall_clock(plan, state),
        "must_show": _must_show(points),
        "took_minutes": round(sum(r.get("took_s", 0.0) for r in state.done.values()) / 60.0, 1),
    }


def _points(
    state: State, tasks: Sequence[str], answer_ticks: Sequence[float], plan: Plan
) -> list[dict[str, Any]]:
    found = [_point(plan, state, tasks, ticks) for ticks in answer_ticks]
    return [point for point in found if point is not None]


def _point(plan: Plan, state: State, tasks: Sequence[str], ticks: float) -> dict[str, Any] | None:
    """All arms at one c."""
    episodes = {arm: _episodes(state, tasks, 1.0 / ticks, arm) for arm in plan.arms}
    episodes = {arm: found for arm, found in episodes.items() if found}
    if "remote" not in episodes:
        return None
    x = EXECUTED_IN_SEQUENCE / ticks
    period_s = plan.period_ms / 1e3
    arms: dict[str, Any] = {}
    for arm, found in episodes.items():
        arms[arm] = {**summed_up(found, period_s=period_s)}
        arms[arm]["c_n"] = _times(arms[arm]["executed_per_inference"], 1.0 / ticks)
        for base in ("remote", "local", "g0", "g0.7"):
            if base in episodes and base != arm:
                arms[arm][f"beside {base}"] = compared(episodes[base], found)
        arms[arm]["by_task"] = {
            task: _task_in_words([each for each in found if each["task"] == task]) for task in tasks
        }
    return {
        "answer_ticks": round(ticks, 4),
        "c": round(1.0 / ticks, 4),
        "x": round(x, 4),
        "bound": round(bound_of(x), 4),
        "arms": arms,
    }


def _episodes(state: State, tasks: Sequence[str], c: float, arm: str) -> list[Episode]:
    cells = [Cell(task=task, c=c, arm=arm) for task in tasks]
    return [episode for cell in cells for episode in state.episodes(cell)]


def _task_in_words(episodes: Sequence[Episode]) -> dict[str, int]:
    return {"episodes": len(episodes), "solved": sum(each["is_solved"] for each in episodes)}


def _queues(plan: Plan, state: State) -> dict[str, dict[str, str]]:
    """By answer time, then arm: actions left after every tick of one episode."""
    task = plan.tasks[0]
    found: dict[str, dict[str, str]] = {}
    for ticks in (ticks for ticks in SHOWN_QUEUES if ticks in plan.answer_ticks):
        for arm in plan.arms:
            episodes = state.episodes(Cell(task=task, c=1.0 / ticks, arm=arm))
            if episodes:
                found.setdefault(f"{ticks:g}", {})[arm] = episodes[0]["queue"]
    return found


def _wall_clock(plan: Plan, state: State) -> dict[str, Any]:
    """Measured beside predicted."""
    points: list[dict[str, Any]] = []
    for cell in plan.wall_cells():
        record = state.done.get(cell.key)
        if record is None:
            continue
        period_s = record["period_ms"] / 1e3
        measured, predicted = record["episodes"], record.get("predicted", [])
        points.append(
            {
                "task": cell.task,
                "arm": cell.arm,
                "answer_ticks": cell.answer_ticks,
                **{name: record[name] for name in record if name not in _LISTS},
                "measured": summed_up(measured, period_s=period_s),
                "predicted": summed_up(predicted, period_s=period_s) if predicted else None,
            }
        )
    _add_speedups(plan, state, points)
    settings = dict(state.done.get(WALL_SETTINGS, {}))
    settings.pop("key", None)
    return {"settings": settings, "points": points}


_LISTS = ("key", "episodes", "predicted", "took_s")


def _add_speedups(plan: Plan, state: State, points: list[dict[str, Any]]) -> None:
    """Each point's speed beside the sequential arm's, measured and predicted."""
    records = {(c.answer_ticks, c.arm): state.done.get(c.key) for c in plan.wall_cells()}
    for point in points:
        base = records.get((point["answer_ticks"], "remote"))
        record = records[point["answer_ticks"], point["arm"]]
        if base is None or record is None:
            continue
        point["speedup_measured"] = compared(base["episodes"], record["episodes"])
        if record.get("predicted"):
            point["speedup_predicted"] = compared(base["predicted"], record["predicted"])


def _must_show(points: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        *_shown_bound(points),
        *_shown_at_one(points),
        *_shown_inferences(points),
    ]


def _shown_bound(points: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for point in points:
        beside = point["arms"].get("ours", {}).get("beside remote")
        if point["x"] < 1 or not beside or not beside["speedup_moving"]:
            continue
        share = beside["speedup_moving"]["value"] / point["bound"]
        found.append(
            {
                "what": "bound",
                "x": point["x"],
                "share_of_bound": round(share, 4),
                "share_of_bound_by_pace": round(beside["pace"]["value"] / point["bound"], 4),
                "share_of_bound_from_start": round(beside["speedup"]["value"] / point["bound"], 4),
                "success_difference": beside["success_difference"],
                "holds": share >= LEAST_OF_BOUND and _is_equal(beside["success_difference"]),
                "text": f"x = {point['x']:g}: ours {beside['speedup_moving']['value']:.2f} times"
                f" sequential, {share:.0%} of the bound {point['bound']:.2f};"
                f" success {beside['success_difference']['value']:+.0%}",
            }
        )
    return found


def _shown_at_one(points: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for point in points:
        low, high = ABOUT_ONE
        beside = point["arms"].get("ours", {}).get("beside remote")
        if not low <= point["x"] <= high or not beside or not beside["speedup_moving"]:
            continue
        speedup = beside["speedup_moving"]["value"]
        found.append(
            {
                "what": "about one",
                "x": point["x"],
                "speedup_moving": beside["speedup_moving"],
                "holds": speedup >= LEAST_AT_ONE,
                "text": f"x = {point['x']:g}: ours {speedup:.2f} times sequential",
            }
        )
    return found


def _shown_inferences(points: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for point in points:
        beside = point["arms"].get("ours", {}).get("beside g0.7")
        if not beside or not beside["speedup_moving"]:
            continue
        share, speedup = beside["inferences"], beside["speedup_moving"]
        interval = speedup["interval_95"]
        is_as_good = interval[1] >= 1.0 and _is_equal(beside["success_difference"])
        found.append(
            {
                "what": "inferences",
                "x": point["x"],
                "speedup_moving": speedup,
                "inferences": share,
                "success_difference": beside["success_difference"],
                "holds": share["value"] <= MOST_INFERENCES and is_as_good,
                "text": f"x = {point['x']:g}: ours {speedup['value']:.2f} times g = 0.7 with"
                f" {share['value']:.0%} of its inferences;"
                f" success {beside['success_difference']['value']:+.0%}",
            }
        )
    return found


def _is_equal(difference: Mapping[str, Any]) -> bool:
    """No loss of success can be told from chance."""
    return difference["interval_95"][1] >= 0


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else round(value * factor, 4)
