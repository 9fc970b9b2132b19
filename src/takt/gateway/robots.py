"""Which robots have asked for which model lately: the population a server is driven for.

A robot is a session. It counts for the model that it asked for last, as long as it has sent
something lately. How often robots ask is counted per model, over a time that is no shorter: among
robots that have asked lately there is none without a request.
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
        self._asked_before: Counter[str] = Counter()
        """Between ``_before`` and ``_since``."""
        self._before = now

    def note(self, session: int, model: str, now: Nanos) -> None:
        """A robot has asked for a model."""
        self._last[session] = model, now
        self._asked[model] += 1

    def forget(self, session: int) -> None:
        """A session has ended."""
        self._last.pop(session, None)

    def report(self, lately: Nanos, now: Nanos) -> dict[str, object]:
        """The robots that have asked within ``lately``, and their requests within about that time.

        Returns:
            ``over_ms``, the time over which requests were counted: from ``lately`` to twice as
            long, less since the start; and ``models`` with ``robots`` and ``requests`` of each, in
            plain values for the supervisor.
        """
        robots = Counter(model for model, at in self._last.values() if now - at <= lately)
        report: dict[str, object] = {
            "over_ms": to_ms(now - self._before),
            "models": {
                model: {"robots": count, "requests": self._asked_before[model] + self._asked[model]}
                for model, count in robots.items()
            },
        }
        if now - self._since >= lately:
            self._asked_before, self._before = self._asked, self._since
            self._asked, self._since = Counter(), now
        return report
