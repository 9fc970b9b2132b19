"""What a control loop and a sender tell each other, without a thread or a socket of its own.

The control loop hands over observations and takes actions; the sender takes the newest
observation when the queue calls for it and brings back a chunk or a failure. Both sides hold one
lock for a few microseconds and never while something is sent, so the control loop does not wait.
:class:`~takt.client.background.BackgroundClient` runs the sender.

Start reading at :meth:`Exchange.observe`.
"""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from takt.client.answer import ActionArray, Answer
from takt.robot.action_queue import ActionQueue, MergeRule, latest_only
from takt.robot.replanning import Replanner, ReplanningRule, ThresholdRule
from takt.units import Nanos

__all__ = ["Exchange", "ExchangeStatus", "Request"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Request:
    """An observation that is to be sent now."""

    observation: Mapping[str, object]
    first_timestep: int
    """Timestep its chunk begins at."""
    observed: Nanos
    """Instant it was handed over."""
    due_in: Nanos
    """Time until the robot runs out of actions, less the network's; may be negative."""
    expires_in: Nanos | None
    """Time until an answer is worthless; None: never."""

    @property
    def leftover(self) -> None:
        """Nothing is offered: nobody here knows whether the robot executes what it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeStatus:
    """A robot's side at one instant."""

    is_waiting: bool
    """An observation is under way."""
    remaining: int
    """Actions left to execute."""
    longest_chunk: int
    """Actions in the longest chunk so far; 0 before the first."""
    next_timestep: int
    """Timestep of the next action."""
    starved_ticks: int
    """Control ticks that found no action, those before the first chunk included."""
    sent: int
    """Observations sent."""
    answered: int
    """Chunks that came, the late ones included."""
    late: int
    """Chunks with nothing left to execute when they came, or older than ``expires_after``."""
    failures: Mapping[str, int]
    """How often sending or answering failed, by code; ``stale``: an observation waited longer
    than ``expires_after`` and was not sent; ``merge``: the merge rule refused a chunk."""
    last_failure: str | None
    """The newest failure in a sentence."""
    round_trip: Nanos | None
    """Of the newest answer."""
    network: Nanos
    """Estimate of the network's time both ways; 0 before the first answer."""
    sent_bytes: int
    """Of the newest observation that was answered, as it went over the network."""
    raw_bytes: int
    """What that would have had with every image as it was handed over."""


class Exchange:
    """The state that control loop and sender share. Thread-safe; nothing here waits but
    :meth:`wait_for_request`.

    Args:
        control_period: Time between two control ticks.
        rule: When to ask.
        merge_rule: How a chunk joins the actions still queued.
        expires_after: Age of an observation from which on it is not sent and its answer not
            executed; None: never.
        clock: Monotonic, in nanoseconds.
    """

    def __init__(
        self,
        *,
        control_period: Nanos,
        clock: Callable[[], Nanos],
        rule: ReplanningRule | None = None,
        merge_rule: MergeRule[ActionArray] = latest_only,
        expires_after: Nanos | None = None,
    ) -> None:
        self._control_period = control_period
        self._replanner = Replanner(rule or ThresholdRule(), control_period=control_period)
        self._expires_after = expires_after
        self._clock = clock
        self._queue: ActionQueue[ActionArray] = ActionQueue(merge_rule)
        self._changed = threading.Condition(threading.Lock())
        self._newest: tuple[Mapping[str, object], int, Nanos] | None = None
        self._next_tick = clock()
        self._closed = False
        self._sent = self._answered = self._late = 0
        self._failures: Counter[str] = Counter()
        self._last_failure: str | None = None
        self._round_trip: Nanos | None = None
        self._sent_bytes = self._raw_bytes = 0

    # The control loop's side.

    def observe(self, observation: Mapping[str, object]) -> None:
        """Hand over what the robot sees before it executes its next action.

        An older observation that was not sent yet is dropped.
        """
        with self._changed:
            self._newest = (observation, self._queue.next_timestep, self._clock())
            self._wake_sender()

    def next_action(self) -> ActionArray | None:
        """Execute one control tick; None: there is no action, and the tick is starved."""
        with self._changed:
            action = self._queue.pop()
            self._next_tick = self._clock() + self._control_period
            self._wake_sender()
            return action

    @property
    def wants_observation(self) -> bool:
        """An observation handed over now would be sent at once."""
        with self._changed:
            return self._is_due()

    def status(self) -> ExchangeStatus:
        """How things stand."""
        with self._changed:
            return ExchangeStatus(
                is_waiting=self._replanner.is_waiting,
                remaining=self._queue.remaining,
                longest_chunk=self._queue.longest_chunk,
                next_timestep=self._queue.next_timestep,
                starved_ticks=self._queue.starved_ticks,
                sent=self._sent,
                answered=self._answered,
                late=self._late,
                failures=dict(self._failures),
                last_failure=self._last_failure,
                round_trip=self._round_trip,
                network=self._replanner.network.estimate or 0,
                sent_bytes=self._sent_bytes,
                raw_bytes=self._raw_bytes,
            )

    def close(self) -> None:
        """Let no further observation be sent; queued actions stay."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    # The sender's side.

    def wait_for_request(self) -> Request | None:
        """Wait until an observation is to be sent; None once closed."""
        with self._changed:
            while not self._closed:
                request = self._take()
                if request is not None:
                    return request
                self._changed.wait()
        return None

    def take_request(self) -> Request | None:
        """The observation to send now, or None. It is then under way until :meth:`answered` or
        :meth:`failed`.
        """
        with self._changed:
            return self._take()

    def answered(self, request: Request, answer: Answer) -> None:
        """Queue the chunk that came."""
        with self._changed:
            now = self._clock()
            self._answered += 1
            self._round_trip = answer.round_trip
            self._sent_bytes, self._raw_bytes = answer.sent_bytes, answer.raw_bytes
            network = answer.round_trip if answer.network is None else answer.network
            self._replanner.answered(now, network=network)
            left = self._time_left(request.observed, now)
            is_valid = left is None or left > 0
            self._late += not is_valid or not self._merge(request, answer)

    def failed(self, request: Request, code: str, why: str, *, send_again: bool) -> None:
        """No chunk will come.

        Args:
            request: What was asked.
            code: Counted by.
            why: In a sentence.
            send_again: The observation was not at fault: send it once more unless a newer one
                was handed over.
        """
        with self._changed:
            self._replanner.failed()
            self._fail(code, why)
            if send_again and self._newest is None:
                self._newest = (request.observation, request.first_timestep, request.observed)

    def _wake_sender(self) -> None:
        if self._newest is not None and self._is_due():
            self._changed.notify_all()

    def _is_due(self) -> bool:
        return not self._closed and self._replanner.is_due(self._queue)

    def _merge(self, request: Request, answer: Answer) -> bool:
        """Queue a chunk; whether anything of it is left to execute."""
        try:
            return bool(self._queue.merge(request.first_timestep, answer.actions))
        except Exception as error:  # noqa: BLE001 - a user's rule must not end the sender's thread
            self._fail("merge", str(error))
            return True

    def _take(self) -> Request | None:
        if self._newest is None or not self._is_due():
            return None
        observation, first_timestep, observed = self._newest
        self._newest = None
        now = self._clock()
        expires_in = self._time_left(observed, now)
        if expires_in is not None and expires_in <= 0:
            self._fail("stale", "an observation was older than expires_after and was not sent")
            return None
        ask = self._replanner.ask(self._queue, now=now, next_tick=self._next_tick)
        self._sent += 1
        return Request(
            observation=observation,
            first_timestep=first_timestep,
            observed=observed,
            due_in=ask.due_in,
            expires_in=expires_in,
        )

    def _time_left(self, observed: Nanos, now: Nanos) -> Nanos | None:
        """Until an answer to an observation of ``observed`` is worthless; None: it never is."""
        return None if self._expires_after is None else observed + self._expires_after - now

    def _fail(self, code: str, why: str) -> None:
        self._failures[code] += 1
        self._last_failure = why
