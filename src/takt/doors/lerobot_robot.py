"""One robot of the LeRobot door: which of its observations are computed, and its next chunk.

The protocol has no answers to observations; the robot polls for chunks. An inference begins when
an observation waits and the robot polls, so nothing is computed for a robot that does not listen,
and the newest observation wins until the last moment.

Start reading at :meth:`LerobotRobot.offer`, then :meth:`LerobotRobot.next_chunk`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from takt.doors.lerobot_keys import read_observation
from takt.errors import LimitError, ObservationError, RefusedError
from takt.gateway.gateway import Gateway
from takt.gateway.request import Answer
from takt.schema.observation import Observation
from takt.session.features import RobotFeatures
from takt.session.stepping import Step, Stepping, Verdict
from takt.units import SECOND, Nanos, to_seconds
from takt.wire.lerobot import MAX_REPLY_BYTES, LerobotObservation, encode_actions
from takt.wire.lerobot_objects import Spelling

__all__ = ["LerobotRobot", "Served", "internal_error"]

log = logging.getLogger(__name__)

_LAST_INSTANT_S = 1e10
"""Timestamps lie within so many seconds of 1970, some 300 years."""
_LAST_TIMESTEP = 2**62
"""The timesteps of a chunk that begins here still fit in the 64 bits of a reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What a session is served with."""

    model: str
    features: RobotFeatures
    actions_per_chunk: int
    """Most actions the robot takes at once."""
    horizon: int
    """Actions to ask the policy for."""
    period: Nanos
    """Control period that spaces the timestamps of a chunk."""
    tolerance: float | None
    """Of the similarity filter, in the robot's units; None: off."""
    spelling: Spelling


@dataclass(frozen=True, slots=True)
class _Item:
    observation: Observation
    received: LerobotObservation


class LerobotRobot:
    """A session.

    Args:
        gateway: Computes the chunks.
        served: What the handshake agreed on.
        clock: The gateway's.

    Raises:
        RefusedError: There are too many sessions.
    """

    def __init__(self, gateway: Gateway, served: Served, clock: Callable[[], Nanos]) -> None:
        self.served = served
        self._clock = clock
        self._link = gateway.connect(lambda _: None)
        try:
            self._session = self._link.session()
        except RefusedError:
            self._link.close()
            raise
        # A name of its own for each session: no noise is drawn twice, not even after a restart.
        self._run = secrets.token_hex(8)
        self._stepping: Stepping[_Item] = Stepping(
            period=served.period,
            tolerance=served.tolerance,
            allowance=self._session.allowance,
        )
        self._running: LerobotObservation | None = None
        self._outcome: Answer | RefusedError | None = None
        self._news = asyncio.Event()
        self._is_closed = False
        self._is_leaving = False

    @property
    def last_timestep(self) -> int:
        """How far the robot has come."""
        return self._stepping.last_timestep

    @property
    def is_busy(self) -> bool:
        """Whether an inference has begun and its outcome is not delivered."""
        return self._stepping.is_running

    def let_go(self) -> None:
        """Take no new observation; what is being computed is delivered."""
        self._is_leaving = True
        self._news.set()

    def offer(self, received: LerobotObservation, arrival: Nanos) -> Verdict:
        """An observation came.

        Raises:
            ObservationError: It is not what the handshake announced, or is numbered or dated
                beyond what any robot counts.
        """
        _check_place(received)
        observation = read_observation(received, self.served.features)
        step = Step(
            timestep=received.timestep,
            # Only differences of the robot's clock are used; far instants lose precision, no more.
            taken=int(received.timestamp * SECOND),
            arrival=arrival,
            must_go=received.must_go,
            state=self._compared(observation),
            task=observation.prompt or "",
        )
        verdict = self._stepping.offer(step, _Item(observation, received))
        if verdict is Verdict.ACCEPTED:
            self._news.set()
        return verdict

    async def next_chunk(self, patience: Nanos) -> bytes:
        """The next chunk, encoded for the robot; empty if there is nothing to compute.

        Args:
            patience: How long to wait for an observation. An inference that has begun is waited
                for.

        Raises:
            RefusedError: The inference failed. Its timestep may be asked for again.
        """
        end = self._clock() + patience
        while not self._is_closed:
            if not self._is_leaving:
                self._begin()
            if self._outcome is not None:
                return self._deliver(self._outcome)
            left = None if self._stepping.is_running else to_seconds(end - self._clock())
            if left is not None and (left <= 0 or self._is_leaving):
                return b""
            await self._wait(left)
        return b""

    def close(self) -> None:
        """End the session and cancel its inference."""
        self._is_closed = True
        self._link.close()
        self._news.set()

    def _compared(self, observation: Observation) -> tuple[float, ...]:
        if self.served.tolerance is None or observation.state is None:
            return ()
        return tuple(float(value) for value in observation.state)

    async def _wait(self, left: float | None) -> None:
        self._news.clear()
        try:
            async with asyncio.timeout(left):
                await self._news.wait()
        except TimeoutError:
            return

    def _begin(self) -> None:
        """Start the inference of what waits, unless one is under way."""
        taken = self._stepping.begin()
        if taken is None:
            return
        self._running = taken.item.received
        try:
            answer = self._session.infer(
                self.served.model,
                taken.item.observation,
                arrival=taken.step.arrival,
                inferred_due=taken.due,
                run=self._run,
                horizon=self.served.horizon,
            )
        except RefusedError as error:
            self._outcome = error
        except Exception as error:  # noqa: BLE001 - without an outcome its polls would wait for ever
            self._outcome = internal_error(error)
        else:
            answer.add_done_callback(self._on_answer)

    def _on_answer(self, done: asyncio.Future[Answer]) -> None:
        if done.cancelled():
            return  # the session is over
        error = done.exception()
        if error is None:
            self._outcome = done.result()
        else:
            self._outcome = error if isinstance(error, RefusedError) else internal_error(error)
        self._news.set()

    def _deliver(self, outcome: Answer | RefusedError) -> bytes:
        received, self._running, self._outcome = self._running, None, None
        assert received is not None
        try:
            chunk, length = self._encode(outcome, received)
        except BaseException:
            self._stepping.fail()
            raise
        self._stepping.deliver(length, self._clock())
        return chunk

    def _encode(
        self, outcome: Answer | RefusedError, received: LerobotObservation
    ) -> tuple[bytes, int]:
        """The chunk for the robot and its number of actions.

        Raises:
            RefusedError: There is none.
        """
        if isinstance(outcome, RefusedError):
            # A new one: raising that of the caller would tie it to the caller's own frame.
            raise RefusedError(str(outcome), code=outcome.code)
        actions = np.ascontiguousarray(outcome.actions[: self.served.actions_per_chunk], np.float32)
        chunk = encode_actions(
            actions,
            first_timestep=received.timestep,
            first_timestamp=received.timestamp,
            period_s=to_seconds(self.served.period),
            spelling=received.spelling,
        )
        if len(chunk) > MAX_REPLY_BYTES:
            raise LimitError(
                f"actions_per_chunk: expected a chunk of at most {MAX_REPLY_BYTES} bytes,"
                f" got {len(chunk)}"
            )
        return chunk, len(actions)


def _check_place(received: LerobotObservation) -> None:
    if received.timestep > _LAST_TIMESTEP:
        raise ObservationError(
            "timestep", expected=f"at most {_LAST_TIMESTEP}", received=str(received.timestep)
        )
    if abs(received.timestamp) > _LAST_INSTANT_S:
        raise ObservationError(
            "timestamp",
            expected=f"seconds since 1970, up to {_LAST_INSTANT_S:g}",
            received=f"{received.timestamp:g}",
        )


def internal_error(error: BaseException) -> RefusedError:
    """Log a fault of ours under a number, and give the robot that number alone."""
    number = secrets.token_hex(4)
    log.error("request failed: error=%s", number, exc_info=error)
    return RefusedError(f"the server failed; its log has error {number}", code="failed")
