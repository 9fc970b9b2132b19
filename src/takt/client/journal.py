"""Says what a control loop did, in the words of the episode log.

One method per kind of record; :mod:`takt.client.episode` reads them back. Everything is a plain
number in milliseconds, or in the units of the policy. Without a log nothing is built.

Start reading at :meth:`Journal.action`.
"""

from collections.abc import Mapping

from takt.client.answer import Answer
from takt.client.episode_log import EpisodeLog
from takt.client.mailbox import Asked, Outcome
from takt.client.pacing import Tick
from takt.robot.action_queue import TimedAction
from takt.robot.contract import StateChange
from takt.robot.guard import Violation
from takt.robot.joints import Vector
from takt.robot.splices import Splice
from takt.units import Nanos, to_ms

__all__ = ["Journal"]


class Journal:
    """Writes one loop's records.

    Args:
        log: Where to; None: nowhere.
    """

    def __init__(self, log: EpisodeLog | None) -> None:
        self._log = log
        self._held: bytes | None = None

    def action(
        self,
        now: Nanos,
        source: TimedAction[Vector],
        command: Vector,
        *,
        remaining: int,
        is_whole: bool,
        violations: Mapping[Violation, int],
    ) -> None:
        """A command left that belongs to an action.

        Args:
            now: When.
            source: The action.
            command: What was sent.
            remaining: Actions left in the queue.
            is_whole: It is the action itself; otherwise it lies on the way to it.
            violations: What the guard found in it.
        """
        if self._log is None:
            return
        self._held = None
        origin = source.origin
        record: dict[str, object] = {
            "timestep": source.timestep,
            "chunk": None if origin is None else origin.chunk_id,
            "index": source.index,
            "age_ms": None if origin is None else _ms(now - origin.observed),
            "blended": source.is_blended,
            "whole": is_whole,
            "remaining": remaining,
            "command": command,
        }
        if violations:
            record["guard"] = dict(violations)
        self._log.note("action", record, at=now)

    def hold(self, now: Nanos, command: Vector) -> None:
        """A command left that belongs to no action. A pose that is repeated is noted once."""
        if self._log is None or command.tobytes() == self._held:
            return
        self._held = command.tobytes()
        self._log.note("hold", {"command": command}, at=now)

    def opened(self, now: Nanos, settings: Mapping[str, object]) -> None:
        """The loop begins, with these settings."""
        if self._log is not None:
            self._log.note("opened", settings, at=now)

    def change(self, change: StateChange) -> None:
        """A state was left."""
        if self._log is not None:
            record = {
                "before": change.before.value,
                "after": change.after.value,
                "cause": change.cause.value,
            }
            self._log.note("state", record, at=change.at)

    def chunk(
        self,
        outcome: Outcome,
        answer: Answer,
        *,
        decision: str,
        remaining: int,
        splice: Splice | None,
        violations: Mapping[Violation, int],
    ) -> None:
        """An answer came.

        Args:
            outcome: What was asked, and when it came.
            answer: What came.
            decision: What became of it: ``merged``, ``late`` or ``rejected``.
            remaining: Actions left in the queue afterwards.
            splice: Where it met the old plan, if it did.
            violations: What the guard found in it.
        """
        if self._log is None:
            return
        record: dict[str, object] = {
            **_asked(outcome.asked),
            "decision": decision,
            "horizon": len(answer.actions),
            "remaining": remaining,
            "sent_bytes": answer.sent_bytes,
            "raw_bytes": answer.raw_bytes,
            "round_trip_ms": _ms(answer.round_trip),
            "network_ms": _maybe_ms(answer.network),
            "server_ms": _maybe_ms(answer.server),
            "policy_ms": _maybe_ms(answer.policy),
            "stages_ms": {name: _ms(took) for name, took in answer.stages.items()},
        }
        if answer.chunking is not None:
            record["chunking"] = answer.chunking
        if splice is not None:
            record["splice"] = _splice(splice)
        if violations:
            record["guard"] = dict(violations)
        self._log.note("chunk", record, at=outcome.ended)

    def failure(self, outcome: Outcome) -> None:
        """No answer came."""
        if self._log is not None:
            record = {**_asked(outcome.asked), "code": outcome.code, "why": outcome.why}
            self._log.note("failure", record, at=outcome.ended)

    def fault(self, now: Nanos | None, where: str, error: BaseException) -> None:
        """The robot, or a function of the user, raised."""
        if self._log is not None:
            why = f"{type(error).__name__}: {error}"
            self._log.note("fault", {"where": where, "why": why}, at=now)

    def overrun(self, tick: Tick) -> None:
        """A tick began late by more than half a period, or instants passed without one."""
        if self._log is not None:
            record = {"tick": tick.number, "late_ms": _ms(tick.late), "skipped": tick.skipped}
            self._log.note("overrun", record, at=tick.started)

    def flush(self, now: Nanos, actions: int, why: str) -> None:
        """Queued actions were given up."""
        if self._log is not None and actions:
            self._log.note("flush", {"actions": actions, "why": why}, at=now)

    def connected(self, now: Nanos, model: str | None) -> None:
        """A connection was opened, to this model if the server says so."""
        if self._log is not None:
            self._log.note("connected", {"model": model}, at=now)

    def end(self, now: Nanos, counts: Mapping[str, object]) -> None:
        """The loop is over."""
        if self._log is not None:
            self._log.note("end", counts, at=now)


def _asked(asked: Asked) -> dict[str, object]:
    posted = asked.posted
    return {
        "chunk": posted.chunk_id,
        "first_timestep": posted.first_timestep,
        "waited_ms": _ms(asked.sent - posted.observed),
        "due_in_ms": _ms(asked.due_in),
    }


def _splice(splice: Splice) -> dict[str, object]:
    """The largest component of each distance."""
    sizes = {
        "step": splice.step,
        "shift": splice.shift,
        "disagreement": splice.disagreement,
    }
    largest = {name: float(size.max()) for name, size in sizes.items() if size is not None}
    return {"timestep": splice.timestep, "overlap": splice.overlap, **largest}


def _ms(duration: Nanos) -> float:
    return round(to_ms(duration), 3)


def _maybe_ms(duration: Nanos | None) -> float | None:
    return None if duration is None else _ms(duration)
