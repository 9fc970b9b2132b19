"""How often a policy solved a task, and how sure that is.

Start reading at :func:`summary_of`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from takt.client.rollout import EpisodeResult
from takt.errors import UsageError

__all__ = ["CONFIDENCE_Z", "sentence", "summary_of", "wilson_interval"]

CONFIDENCE_Z = 1.96
"""Standard deviations of a two-sided interval of 95 %."""


def wilson_interval(successes: int, trials: int, z: float = CONFIDENCE_Z) -> tuple[float, float]:
    """Limits of a success rate by Wilson's score interval.

    Unlike the textbook interval it stays within 0..1 and has a width at 0 % and 100 %.

    Args:
        successes: From 0 to ``trials``.
        trials: At least 1.
        z: Standard deviations; 1.96 is 95 %.

    Raises:
        UsageError: The counts are impossible.
    """
    if not 0 <= successes <= trials or trials < 1:
        raise UsageError(f"{successes} successes of {trials} trials")
    share, squared = successes / trials, z * z
    middle = (share + squared / (2 * trials)) / (1 + squared / trials)
    spread = share * (1 - share) / trials + squared / (4 * trials * trials)
    half = z / (1 + squared / trials) * math.sqrt(spread)
    return max(0.0, middle - half), min(1.0, middle + half)


def summary_of(results: Sequence[EpisodeResult]) -> dict[str, Any]:
    """The figures of a task's episodes; keys keep their order.

    Raises:
        UsageError: There are no episodes.
    """
    solved = [result for result in results if result.is_solved]
    low, high = wilson_interval(len(solved), len(results))
    steps = sorted(result.steps for result in solved)
    return {
        "episodes": len(results),
        "solved": len(solved),
        "success": round(len(solved) / len(results), 4),
        "interval_95": [round(low, 4), round(high, 4)],
        "median_steps_of_solved": steps[len(steps) // 2] if steps else None,
        "chunks": sum(result.chunks for result in results),
        "unsolved": [result.index for result in results if not result.is_solved],
    }


def sentence(summary: dict[str, Any]) -> str:
    """A summary for a person."""
    low, high = summary["interval_95"]
    text = (
        f"solved {summary['solved']} of {summary['episodes']}: {summary['success']:.0%}"
        f" (95 % interval {low:.0%} to {high:.0%})"
    )
    steps = summary["median_steps_of_solved"]
    return text if steps is None else f"{text}, median {steps} steps"
