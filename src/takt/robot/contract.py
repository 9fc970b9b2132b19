"""What a robot does when the server is late: slow, hold, stop, by a stated table.

The contract decides at every control tick what is sent to the robot. It reads no clock, sends
nothing and calls nobody: the control loop tells it the time and the action it would send, and
acts on the :class:`Directive` it gets back.

    IDLE -> ACTIVE <-> DEGRADED -> HOLD -> STOPPED (latched)

:data:`~takt.robot.contract_table.TABLE` holds every move there is; nothing else decides
legality. Nothing moves before somebody at the robot says :meth:`LateServerContract.start`, and
nothing but a person leaves STOPPED.

Start reading at :meth:`LateServerContract.tick`.
"""

from collections import deque
from dataclasses import dataclass

from takt.errors import ConfigError, InvariantError
from takt.robot.contract_rules import ContractRules
from takt.robot.contract_table import TABLE, Cause, State
from takt.robot.holding import HoldMotion
from takt.robot.joints import Vector
from takt.robot.starting import is_far, is_still
from takt.units import Nanos

__all__ = [
    "Directive",
    "LateServerContract",
    "Proposal",
    "StateChange",
]


_MOVING = frozenset({State.ACTIVE, State.DEGRADED})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Proposal:
    """The action a control loop would send now, blended, guarded and interpolated."""

    values: Vector
    """Shape ``(action_dim,)``."""
    heads_for: Vector | None = None
    """The plan's own action that this is on the way to: a start jump is measured to it, and not
    to a first small step; None: ``values``."""
    observed: Nanos
    """Instant of the observation it answers, on the clock of the ticks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange:
    """A move between two states."""

    at: Nanos
    before: State
    after: State
    cause: Cause


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Directive:
    """What the control loop does in this tick."""

    state: State
    """The state after the tick."""
    executes: bool
    """The proposal is executed: take its action off the queue. Otherwise leave it there."""
    command: Vector | None
    """What to send: the proposal's own values when it is executed, else the hold; None: nothing."""
    speed: float
    """Share of the full speed at which to go on, above 0 up to 1, for
    :meth:`takt.robot.interpolation.ActionInterpolator.next`."""
    flush: bool
    """Drop the queued actions, and reset interpolation."""
    on_stop: bool
    """Call the user's ``on_stop`` hook; true once per stop."""
    change: StateChange | None
    """The move of this tick, for the log."""


class LateServerContract:
    """The contract of one robot. One control loop owns it.

    ``start``, ``stop``, ``resume`` and ``reset`` are wishes of people at the robot, from any
    thread; the next tick grants them. A wish its state has no use for is forgotten.

    Args:
        rules: When to degrade, hold and stop.
        control_period: Time between two ticks: HOLD is entered at the last tick that is in time.

    Raises:
        ConfigError: ``control_period`` is not positive, or ``t_hold`` shorter.
    """

    def __init__(self, rules: ContractRules, *, control_period: Nanos) -> None:
        if control_period <= 0:
            raise ConfigError(f"control_period must be positive, got {control_period} ns")
        if rules.t_hold < control_period:
            raise ConfigError(
                f"t_hold must be at least the control period of {control_period} ns,"
                f" got {rules.t_hold} ns"
            )
        self._rules = rules
        self._period = control_period
        self._state = State.IDLE
        self._since = 0  # when the state was entered
        self._now: Nanos | None = None
        self._last_valid = 0
        self._speed_up_from = 0
        self._is_started = False
        self._is_resumed = False
        self._rejections = 0
        self._rejected_starts = 0
        self._pose: Vector | None = None
        self._hold = HoldMotion(rules.hold_mode, deceleration=rules.deceleration, kept=rules.kept)
        self._wishes: deque[Cause] = deque()  # its ends may be used from two threads

    @property
    def state(self) -> State:
        """State after the last tick."""
        return self._state

    @property
    def is_started(self) -> bool:
        """Somebody started the robot; it moves as soon as there is a valid action."""
        return self._is_started

    @property
    def is_stopping(self) -> bool:
        """The next tick stops the robot: somebody said so, or too many chunks were rejected."""
        is_wished = Cause.STOP in self._wishes.copy()  # a wish may come while it is looked at
        return is_wished or self._rejections >= self._rules.max_rejections

    @property
    def hold_by(self) -> Nanos | None:
        """Latest instant at which HOLD is entered if nothing valid comes; None: nothing moves."""
        return self._last_valid + self._rules.t_hold if self._state in _MOVING else None

    @property
    def is_at_rest(self) -> bool:
        """Nothing is sent any more: it is idle or stopped, and no velocity is left to ramp."""
        return self._state in {State.IDLE, State.STOPPED} and self._hold.is_done

    @property
    def time_to_rest(self) -> Nanos:
        """How long a stop takes from now on: the ramp of a velocity to zero."""
        return self._hold.time_to_rest

    @property
    def rejected_starts(self) -> int:
        """Queues flushed because they began farther than ``max_start_jump`` from the robot."""
        return self._rejected_starts

    def start(self) -> None:
        """Let the robot move as soon as there is a valid action. Remembered in IDLE."""
        self._wishes.append(Cause.START)

    def stop(self) -> None:
        """Stop, latched."""
        self._wishes.append(Cause.STOP)

    def resume(self) -> None:
        """End a hold as soon as there is a valid action near the robot. Remembered in HOLD."""
        self._wishes.append(Cause.RESUME)

    def reset(self) -> None:
        """Release the latch of STOPPED; the robot is then IDLE and must be started again."""
        self._wishes.append(Cause.RESET)

    def chunk_rejected(self) -> None:
        """The guard let nothing of a chunk pass."""
        self._rejections += 1

    def chunk_accepted(self) -> None:
        """The guard let a chunk pass: rejections before it are no longer in a row."""
        self._rejections = 0

    def tick(
        self,
        now: Nanos,
        *,
        proposal: Proposal | None,
        pose: Vector | None = None,
        is_overdue: bool = False,
        is_enabled: bool = True,
    ) -> Directive:
        """Decide one control tick. At most one move happens.

        Args:
            now: Monotonic instant.
            proposal: What would be sent; None: there is no action.
            pose: Where the robot measures itself, shape ``(action_dim,)``; None: not known. In
                position mode the start jump is measured from it; in HOLD from the last command
                where it is not known. In IDLE a robot with ``max_start_jump`` needs it.
            is_overdue: The queue is low and the answer late:
                :meth:`takt.robot.replanning.Replanner.is_overdue`.
            is_enabled: The enabling button is held, where there is one.

        Raises:
            UsageError: ``proposal`` or ``pose`` do not have the components of the rules.
        """
        sight = self._look(now, proposal, pose, is_overdue=is_overdue, is_enabled=is_enabled)
        cause = self._cause(sight)
        is_too_far = sight.is_too_far and self._would_begin(sight)
        self._rejected_starts += is_too_far
        change = None if cause is None else self._move(cause, sight)
        directive = self._direct(sight, proposal, change, is_too_far=is_too_far)
        self._now = now
        self._pose = pose
        return directive

    # What a tick sees.

    def _look(
        self,
        now: Nanos,
        proposal: Proposal | None,
        pose: Vector | None,
        *,
        is_overdue: bool,
        is_enabled: bool,
    ) -> "_Sight":
        wishes: set[Cause] = set()
        while self._wishes:
            wish = self._wishes.popleft()
            if wish in {Cause.RESET, Cause.STOP}:
                wishes.discard(Cause.START)  # who resets must not find the robot moving at once
            if wish is Cause.STOP:
                wishes.discard(Cause.RESET)  # the last word counts
            wishes.add(wish)
        elapsed = 0 if self._now is None else now - self._now
        lack = self._lack(proposal, now)
        return _Sight(
            now=now,
            elapsed=elapsed,
            lack=lack,
            is_too_far=proposal is not None and lack is None and self._is_far(proposal, pose),
            is_still=self._hold.is_settled and is_still(self._rules, self._pose, pose),
            is_overdue=is_overdue,
            is_enabled=is_enabled,
            wishes=wishes,
        )

    def _lack(self, proposal: Proposal | None, now: Nanos) -> Cause | None:
        """Why the proposal must not be executed; None: it is valid."""
        if proposal is None:
            return Cause.DRY
        # An observation of the future has no age to trust.
        is_valid = 0 <= now - proposal.observed <= self._rules.max_action_age
        return None if is_valid else Cause.STALE

    def _is_far(self, proposal: Proposal, pose: Vector | None) -> bool:
        """A start with the proposal would jump."""
        if self._state in _MOVING:
            return False
        held = self._hold.command if self._state is State.HOLD else None
        first = proposal.values if proposal.heads_for is None else proposal.heads_for
        return is_far(self._rules, first, pose, held)

    # What follows from it.

    def _cause(self, sight: "_Sight") -> Cause | None:
        """Why to leave the state in this tick; None: it stays."""
        fault = self._fault(sight)
        if fault is not None and (self._state, fault) in TABLE:
            return fault
        match self._state:
            case State.IDLE:
                return Cause.START if self._begins(sight) else None
            case State.HOLD:
                return self._cause_in_hold(sight)
            case State.STOPPED:
                return Cause.RESET if Cause.RESET in sight.wishes else None
            case _:
                return self._cause_in_motion(sight)

    def _fault(self, sight: "_Sight") -> Cause | None:
        if sight.elapsed < 0:
            return Cause.CLOCK
        if Cause.STOP in sight.wishes:
            return Cause.STOP
        return Cause.REJECTED if self._rejections >= self._rules.max_rejections else None

    def _cause_in_motion(self, sight: "_Sight") -> Cause | None:
        if not sight.is_enabled:
            return Cause.RELEASED
        if sight.lack is None:
            if sight.is_overdue:
                return Cause.OVERDUE if self._state is State.ACTIVE else None
            return Cause.RECOVERED if self._state is State.DEGRADED else None
        # The next tick would be too late.
        if sight.now + self._period > self._last_valid + self._rules.t_hold:
            return Cause.NO_ACTION
        return sight.lack if self._state is State.ACTIVE else None

    def _cause_in_hold(self, sight: "_Sight") -> Cause | None:
        t_stop = self._rules.t_stop
        if t_stop is not None and sight.now - self._since >= t_stop:
            return Cause.TIMEOUT
        return Cause.RESUME if self._begins(sight) else None

    def _begins(self, sight: "_Sight") -> bool:
        return not sight.is_too_far and self._would_begin(sight)

    def _would_begin(self, sight: "_Sight") -> bool:
        """Motion begins with this tick, unless its first action is too far away."""
        if sight.lack is not None or not sight.is_enabled:
            return False
        if self._state is State.IDLE:
            # A velocity may still be on its way to zero after a hasty reset.
            return self._hold.is_done and (self._is_started or Cause.START in sight.wishes)
        if self._state is not State.HOLD:
            return False
        is_wished = self._is_resumed or Cause.RESUME in sight.wishes
        return is_wished or (self._rules.resume == "auto_if_still" and sight.is_still)

    # What is done.

    def _move(self, cause: Cause, sight: "_Sight") -> StateChange:
        """Enter the state that :data:`TABLE` says.

        Raises:
            InvariantError: The table has no such move.
        """
        before = self._state
        after = TABLE.get((before, cause))
        if after is None:
            raise InvariantError(f"{before.name} is not left by {cause.name}")
        self._state = after
        self._since = sight.now
        if cause in {Cause.START, Cause.RESUME}:
            self._speed_up_from = sight.now
        if after is State.STOPPED:
            self._is_started = False
        if after is State.IDLE:
            self._rejections = 0
            self._hold.forget()
        return StateChange(at=sight.now, before=before, after=after, cause=cause)

    def _direct(
        self,
        sight: "_Sight",
        proposal: Proposal | None,
        change: StateChange | None,
        *,
        is_too_far: bool,
    ) -> Directive:
        self._remember(sight)
        executes = proposal is not None and sight.lack is None and self._state in _MOVING
        if executes and proposal is not None:
            self._last_valid = sight.now
            self._hold.executed(proposal.values)
        else:
            self._hold.slow_down(max(0, sight.elapsed))
        has_ended = change is not None and change.after not in _MOVING
        return Directive(
            state=self._state,
            executes=executes,
            command=proposal.values if executes and proposal is not None else self._held(),
            speed=self._speed(sight.now),
            flush=has_ended or is_too_far or sight.lack is Cause.STALE,
            on_stop=change is not None and change.after is State.STOPPED,
            change=change,
        )

    def _remember(self, sight: "_Sight") -> None:
        """Keep the wishes that wait for something else."""
        if self._state is State.IDLE and Cause.START in sight.wishes:
            self._is_started = True
        is_holding = self._state is State.HOLD
        self._is_resumed = is_holding and (self._is_resumed or Cause.RESUME in sight.wishes)

    def _held(self) -> Vector | None:
        """What is sent in place of an action."""
        return None if self.is_at_rest else self._hold.command

    def _speed(self, now: Nanos) -> float:
        speed = self._rules.degraded_speed if self._state is State.DEGRADED else 1.0
        ramp = self._rules.resume_ramp
        if ramp:
            began = self._speed_up_from if self._state in _MOVING else now
            speed = min(speed, (now - began + self._period) / ramp)
        return speed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sight:
    """What the contract sees in one tick."""

    now: Nanos
    elapsed: Nanos
    lack: Cause | None
    is_too_far: bool
    is_still: bool
    is_overdue: bool
    is_enabled: bool
    wishes: set[Cause]
