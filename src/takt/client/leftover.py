"""What is left of a chunk while the next one is asked for: real-time chunking.

A robot goes on executing while the server thinks, so the new chunk should begin as the old one goes
on. A checkpoint that can do so draws the first steps of the new chunk to what the robot will still
be doing; :attr:`takt.client.answer.Answer.chunking` says whether it did.

A :class:`~takt.client.loop.ControlLoop` does this by itself (:mod:`takt.client.offering`); here is
what a loop of your own needs.

Start reading at :meth:`Leftover.of`.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from takt.client.answer import ActionArray, Answer
from takt.errors import UsageError
from takt.schema.row import Executing

__all__ = ["Leftover", "ScheduleName"]

ScheduleName: TypeAlias = Literal["LINEAR", "EXP", "ZEROS", "ONES"]
"""How the pull falls from the steps that will be executed to those that are free."""

_RANK = 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Leftover:
    """The steps of an answer that its robot has not executed, as the next request sends them.

    Raises:
        UsageError: It describes something impossible; the message names the field.
    """

    actions: ActionArray
    """Shape ``(steps, action_dim)``, in the units of answers; row 0 is the step that the new chunk
    starts at, the next one to be executed when the observation is made."""
    model_digest: str
    """:attr:`~takt.client.answer.Answer.model_digest` of the answer they come from."""
    inference_delay: int
    """Steps that will be executed before the new answer is here, at most as many as are left. Such
    an estimate is :meth:`takt.robot.latency.LatencyEstimate.steps`. Too few, and the robot jumps
    where the new chunk takes over; too many, and it reacts later to what it sees."""
    execution_horizon: int | None = None
    """Steps after which the new chunk is free; None: the policy's own."""
    schedule: ScheduleName = "LINEAR"
    """How the pull falls between the two."""

    def __post_init__(self) -> None:
        rows = self.actions
        if rows.ndim != _RANK or rows.size == 0 or rows.dtype.kind not in "fiu":
            raise UsageError(
                "leftover.actions: expected numbers of shape (steps, action_dim),"
                f" got {rows.dtype} of shape {rows.shape}"
            )
        if not np.isfinite(_narrow(rows)).all():
            raise UsageError("leftover.actions: expected finite numbers, got NaN or infinity")
        if not self.model_digest:
            raise UsageError(
                "leftover.model_digest: missing; the answer is of a model that takes no leftover"
            )
        if not 0 <= self.inference_delay <= len(rows):
            raise UsageError(
                f"leftover.inference_delay: expected 0..{len(rows)} steps,"
                f" got {self.inference_delay}"
            )
        if self.execution_horizon is not None and self.execution_horizon < 1:
            raise UsageError(
                "leftover.execution_horizon: expected at least 1 step,"
                f" got {self.execution_horizon}"
            )
        if self.schedule not in get_args(ScheduleName):
            known = ", ".join(get_args(ScheduleName))
            raise UsageError(f"leftover.schedule: expected one of {known}, got {self.schedule!r}")

    @classmethod
    def of(
        cls,
        answer: Answer,
        *,
        executed: int,
        inference_delay: int,
        execution_horizon: int | None = None,
        schedule: ScheduleName = "LINEAR",
    ) -> "Leftover | None":
        """What is left of an answer.

        Args:
            answer: The answer whose chunk the robot executes.
            executed: Steps of it that are executed when the observation is made.
            inference_delay: Steps that will be executed before the new answer is here; no more than
                are left count, as the robot then stands still.
            execution_horizon: See :attr:`execution_horizon`.
            schedule: See :attr:`schedule`.

        Returns:
            The leftover; None when every step is executed.

        Raises:
            UsageError: A number is impossible, or the answer's model takes no leftover.
        """
        if executed < 0:
            raise UsageError(f"executed must be at least 0, got {executed}")
        rows = answer.actions[executed:]
        if len(rows) == 0:
            return None
        return cls(
            actions=rows,
            model_digest=answer.model_digest or "",
            inference_delay=min(inference_delay, len(rows)),
            execution_horizon=execution_horizon,
            schedule=schedule,
        )

    def in_words(self) -> Executing:
        """As a request says it."""
        return Executing(
            actions=_narrow(self.actions),
            digest=self.model_digest,
            delay=self.inference_delay,
            execution_horizon=self.execution_horizon,
            schedule=self.schedule,
        )


def _narrow(rows: ActionArray) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # infinity is refused
        return np.asarray(rows, np.float32)
