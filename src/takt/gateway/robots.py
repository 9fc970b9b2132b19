"""Which robots have asked for which model lately: the population a server is driven for.

A robot is a session. It counts for the model that it asked for last, as long as it has sent
something lately; how often robots ask is counted per model, from one report to the next.
"""

from __future__ import annotations

from collections import Counter

from takt.units import Nanos, to_ms

__all__ = ["RobotsSeen"]


class RobotsSeen:
    """What is known of the robots of one gateway.

    Args:
        now: The instant from which requests are counted.
    """

    def __init__(self, now: Nanos) -> None:
        self._last: dict[int, tuple[str, Nanos]] = {}
        self._asked: Counter[str] = Counter()
        self._since = now

    def note(self, session: int, model: str, now: Nanos) -> None:
        """A robot has asked for a model."""
        self._last[session] = model, now
        self._asked[model] += 1

    def forget(self, session: int) -> None:
        """A session has ended."""
        self._last.pop(session, None)

    def report(self, lately: Nanos, now: Nanos) -> dict[str, object]:
        """The robots that have asked within ``lately``, and the requests since the last report.

        Returns:
            ``over_ms``, the time since the last report, and ``models`` with ``robots`` and
            ``requests`` of each, in plain values for the supervisor.
        """
        robots = Counter(model for model, at in self._last.values() if now - at <= lately)
        report: dict[str, object] = {
            "over_ms": to_ms(now - self._since),
            "models": {
                model: {"robots": count, "requests": self._asked[model]}
                for model, count in robots.items()
            },
        }
        self._asked.clear()
        self._since = now
        return report
