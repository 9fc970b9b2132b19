"""What one robot does at each control tick: decide, send, ask.

Everything here belongs to the control thread, waits for nobody and raises nothing that a robot, a
server or a user's function did. The rules are those of :mod:`takt.robot`; this module gives them
the time and carries out what they say. It starts no thread and has no clock but the mailbox's, so a
test drives it with numbers.

Start reading at :meth:`Motion.tick`.
"""

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from takt.client.answer import ActionArray, Answer
from takt.client.cameras import Cameras, checked_mapping
from takt.client.journal import Journal
from takt.client.loop_settings import Hooks, LoopSettings, Robot
from takt.client.mailbox import Mailbox, Outcome, Posted
from takt.client.offering import Offering
from takt.errors import TaktError, UsageError
from takt.robot.action_queue import ActionQueue, ChunkOrigin, TimedAction
from takt.robot.blending import merge_rule
from takt.robot.contract import Directive, LateServerContract, Proposal, StateChange
from takt.robot.contract_rules import ContractRules
from takt.robot.contract_table import State
from takt.robot.guard import Guard, Violation
from takt.robot.interpolation import ActionInterpolator
from takt.robot.joints import Vector
from takt.robot.replanning import Replanner, time_until_dry
from takt.robot.splices import SpliceMeter
from takt.units import Nanos

__all__ = ["Motion"]

log = logging.getLogger(__name__)

_LOSSES = frozenset({"unreachable", "closed", "timeout"})
"""Codes of failures that end a connection."""


class Motion:
    """One robot in motion. Made and used by :class:`~takt.client.loop.ControlLoop`.

    Args:
        robot: What is driven.
        mailbox: Where observations go and answers come from.
        settings: How it is driven.
        hooks: What is asked and told besides.
        cameras: Where images come from; None: the robot's observation is complete.
        journal: Where it is noted.
    """

    def __init__(
        self,
        robot: Robot,
        mailbox: Mailbox,
        settings: LoopSettings,
        *,
        hooks: Hooks,
        cameras: Cameras | None,
        journal: Journal,
    ) -> None:
        kept = settings.contract.kept
        self.contract = LateServerContract(
            _in_time(settings.contract, settings.control_period),
            control_period=settings.control_period,
        )
        self.splices = SpliceMeter()
        self.queue: ActionQueue[ActionArray] = ActionQueue(
            merge_rule(settings.merge, kept=kept), on_splice=self.splices
        )
        self.replanner = Replanner(settings.asking_rule, control_period=settings.action_period)
        self.failures: Counter[str] = Counter()
        """Observations without an answer, by code."""
        self.faults: Counter[str] = Counter()
        """Exceptions of the robot and of the user's functions, by where they came from."""
        self.violations: Counter[str] = Counter()
        """Numbers outside the limits, in chunks and in commands."""
        self.executed = 0
        """Actions that were executed, at least in part."""
        self.starved_ticks = 0
        """Ticks of a started robot that found no valid action."""
        self.answered = self.late = self.guided = 0
        """Chunks that came; of these, those with nothing left to execute, and those that continue
        what was being executed."""
        self.last_failure: str | None = None
        self.round_trip: Nanos | None = None
        self._robot = robot
        self._mailbox = mailbox
        self._settings = settings
        self._hooks = hooks
        self._cameras = cameras
        self._journal = journal
        self._interpolator = ActionInterpolator(settings.commands_per_action, stepped=kept)
        self._chunk_guard, self._command_guard = _guards(settings)
        self._offering = Offering(self.queue, self.replanner.latency, settings)
        self._source: TimedAction[ActionArray] | None = None  # where the robot is heading
        self._command: Vector | None = None  # the last one sent
        self._speed = 1.0
        self._ticks_left = 0  # until `_source` is reached
        self._action_dim = 0  # 0: no chunk came yet
        self._chunks_asked = 0
        self._asked_at: Nanos = 0
        self._is_cut = False
        self._act_faults = 0

    def tick(self, now: Nanos) -> StateChange | None:
        """Carry out one tick.

        Args:
            now: Instant it began.

        Returns:
            The change of state, if there was one.
        """
        for outcome in self._mailbox.collect():
            self._take(outcome)
        # What is seen now shows the outcome of every action before this tick's and of no other, so
        # the chunk it is answered with begins with this tick's action.
        is_ready = self._is_ready()
        is_due = is_ready and self.replanner.is_due(self.queue)
        is_wanted = is_due or (is_ready and self._mailbox.has_unsent)
        decided, seen = now, None
        if (is_wanted or self._hooks.pose is not None) and not self._is_halting():
            seen = self._observe()
            decided = self._mailbox.now()  # a robot that was slow to answer has aged its actions
        posted = self._written(now, seen) if is_wanted else None
        is_new = self._interpolator.needs_action
        proposal, violations = self._propose()
        directive = self._decide(decided, proposal, self._pose(seen))
        self._obey(decided, directive, is_new=is_new, violations=violations)
        if posted is not None:
            # A plan that waits, for a start or a resume, is none that the next one must continue.
            asked = posted if directive.executes else replace(posted, leftover=None)
            self._ask(now, asked, is_due=is_due)
        return directive.change

    def _is_ready(self) -> bool:
        """Whether an observation made now shows the outcome of whole actions.

        One made on the way to an action would be answered by a chunk that goes on from there, but
        begins a part of an action later: a jump back where it takes over. A slowed robot, which may
        be long on the way, asks all the same, unless it is ``sync``.
        """
        is_slowed = self._speed < 1 and not self._settings.sync
        return self._interpolator.needs_action or is_slowed

    def _is_halting(self) -> bool:
        """Nothing is to be executed in this tick: a stop must not wait for a robot to be seen."""
        contract = self.contract
        if contract.state is State.STOPPED or contract.is_stopping:
            return True
        return contract.hold_by is not None and not self._is_enabled()

    def broke(self, now: Nanos, error: BaseException) -> StateChange | None:
        """A tick raised, which is a mistake of ours: stop the robot at once, latched."""
        self._fault(now, "loop", error)
        self.contract.stop()
        try:
            self._turn_away()
            directive = self.contract.tick(now, proposal=None)
            self._obey(now, directive, is_new=False, violations={})
        except BaseException as again:  # noqa: BLE001 - the next tick tries again
            self._fault(now, "loop", again)
            return None
        return directive.change

    def _decide(self, now: Nanos, proposal: Proposal | None, pose: Vector | None) -> Directive:
        try:
            return self.contract.tick(
                now,
                proposal=proposal,
                pose=pose,
                is_overdue=self.replanner.is_overdue(self.queue, now),
                is_enabled=self._is_enabled(),
            )
        except TaktError as error:  # actions, pose and limits do not have the same components
            self._fault(now, "contract", error)
            self.contract.stop()
            return self.contract.tick(now, proposal=None)

    # What came.

    def _take(self, outcome: Outcome) -> None:
        if outcome.answer is None:
            self._take_failure(outcome)
            return
        asked = outcome.asked
        # The sender's pauses are none of the server's latency, so they are left out.
        took = outcome.ended - asked.sent
        self.replanner.answered(self._asked_at + took, network=outcome.answer.network)
        self.answered += 1
        self.guided += outcome.answer.is_guided
        self.round_trip = outcome.answer.round_trip
        self._is_cut = False
        splices = self.splices.count
        decision, violations = self._merge(outcome, outcome.answer)
        self.late += decision == "late"
        self._journal.chunk(
            outcome,
            outcome.answer,
            decision=decision,
            remaining=self.queue.remaining,
            splice=self.splices.latest if self.splices.count > splices else None,
            violations=violations,
        )

    def _merge(self, outcome: Outcome, answer: Answer) -> tuple[str, Mapping[Violation, int]]:
        """Queue a chunk; what became of it, and what the guard found in it."""
        posted = outcome.asked.posted
        # What could only be executed too old is no plan, and must not make the queue look long.
        actions = answer.actions[: self._settings.most_actions]
        violations: Mapping[Violation, int] = {}
        try:
            if self._chunk_guard is not None:
                verdict = self._chunk_guard.check(actions)
                self.violations.update(verdict.violations)
                violations = verdict.violations
                if verdict.actions is None:
                    self.contract.chunk_rejected()
                    return "rejected", violations
                actions = verdict.actions
            self._check_width(actions)
            origin = ChunkOrigin(posted.chunk_id, posted.observed)
            fresh = self.queue.merge(posted.first_timestep, actions, origin)
        except Exception as error:  # noqa: BLE001 - a merge function may raise anything
            self._fault(outcome.ended, "chunk", error)
            self.contract.chunk_rejected()
            return "rejected", violations
        self.contract.chunk_accepted()
        if fresh:
            self._offering.joined(answer.model_digest)
        return "merged" if fresh else "late", violations

    def _check_width(self, actions: ActionArray) -> None:
        """Refuse another number of components than that of the first chunk: another robot's."""
        if not self._action_dim:
            self._settings.contract.check_action_dim(actions.shape[1])
            self._action_dim = actions.shape[1]
        if actions.shape[1] != self._action_dim:
            raise UsageError(
                f"a chunk has {actions.shape[1]} components, those before {self._action_dim}"
            )

    def _take_failure(self, outcome: Outcome) -> None:
        self.replanner.failed()
        self._offering.failed()
        self.failures[outcome.code] += 1
        self.last_failure = outcome.why
        self._journal.failure(outcome)
        if outcome.code in _LOSSES and not self._is_cut:
            self._is_cut = True
            self.replanner.latency.restart()
            dropped = self.queue.flush(self._settings.after_cut)
            self._journal.flush(outcome.ended, dropped, "cut")

    # What is sent.

    def _propose(self) -> tuple[Proposal | None, Mapping[Violation, int]]:
        """The command that would be sent, and what the guard found in it."""
        if self._interpolator.needs_action:
            self._source = self.queue.peek()
            if self._source is None:
                return None, {}
            self._interpolator.add(self._source.action)
            self._ticks_left = self._settings.commands_per_action
        source = self._source
        assert source is not None
        assert source.origin is not None
        command = self._interpolator.next(self._speed)
        self._ticks_left = max(0, self._ticks_left - 1)
        violations: Mapping[Violation, int] = {}
        if self._command_guard is not None:
            verdict = self._command_guard.check_action(command, self._previous())
            violations = verdict.violations
            if verdict.actions is None:
                return None, violations
            command = verdict.actions
        command.flags.writeable = False
        proposal = Proposal(
            values=command, heads_for=source.action, observed=source.origin.observed
        )
        return proposal, violations

    def _previous(self) -> Vector | None:
        """The command a robot follows or is held by; None: nobody knows where it is."""
        # A start from IDLE is bounded by max_start_jump.
        is_known = self.contract.state not in {State.IDLE, State.STOPPED}
        return self._command if is_known else None

    def _obey(
        self, now: Nanos, directive: Directive, *, is_new: bool, violations: Mapping[Violation, int]
    ) -> None:
        self._speed = directive.speed
        if directive.executes:
            self.violations.update(violations)
            if is_new:
                self.queue.advance(1)
                self.executed += 1
        else:
            self.starved_ticks += self.contract.is_started
        if directive.command is not None:
            self._send(now, directive, directive.command, violations)
        if not directive.executes:
            self._turn_away()
        if directive.flush:
            self._give_up(now, directive.state.value)
        if directive.change is not None:
            self._journal.change(directive.change)
        if directive.on_stop and directive.change is not None:
            self._tell_stop(now, directive.change)

    def _give_up(self, now: Nanos, why: str) -> None:
        """Execute nothing of what is queued."""
        self._turn_away()
        self._journal.flush(now, self.queue.flush(), why)

    def _turn_away(self) -> None:
        """Head for no action any more; one that was begun is not taken up again."""
        self._interpolator.reset(self._previous())
        self._ticks_left = 0

    def _send(
        self, now: Nanos, directive: Directive, command: Vector, violations: Mapping[Violation, int]
    ) -> None:
        source = self._source
        if directive.executes and source is not None:
            self._journal.action(
                now,
                source,
                command,
                remaining=self.queue.remaining,
                is_whole=self._interpolator.needs_action,
                violations=violations,
            )
        else:
            self._journal.hold(now, command)
        self._command = command
        try:
            self._robot.act(command)
        except Exception as error:  # noqa: BLE001 - the loop must outlive a bus that hiccups
            self._act_faults += 1
            self._fault(now, "act", error)
            if self._act_faults >= self._settings.max_faults:
                self.contract.stop()
        else:
            self._act_faults = 0

    def _tell_stop(self, now: Nanos, change: StateChange) -> None:
        if self._hooks.on_stop is None:
            return
        try:
            self._hooks.on_stop(change)
        except Exception as error:  # noqa: BLE001 - see _send
            self._fault(now, "on_stop", error)

    # What is seen and asked.

    def _written(self, now: Nanos, seen: Mapping[str, object] | None) -> Posted | None:
        """An observation that may be sent; None: something of it is missing."""
        images = None if self._cameras is None else self._cameras.newest
        if seen is None or (self._cameras is not None and images is None):
            return None
        observed = now if images is None else min(now, images.taken)
        self._chunks_asked += 1
        return Posted(
            observation=seen if images is None else {**seen, **images.values},
            chunk_id=self._chunks_asked,
            first_timestep=self.queue.next_timestep,
            observed=observed,
            due=self._dry_at(now) - (self.replanner.network.estimate or 0),
            expires=observed + self._settings.contract.max_action_age,
            leftover=self._offering.leftover(now),
        )

    def _ask(self, now: Nanos, posted: Posted, *, is_due: bool) -> None:
        """Leave an observation, or a newer one in place of one that was not sent yet."""
        if self.contract.state is State.STOPPED:
            return
        if is_due:
            self.replanner.ask(self.queue, now=now, next_tick=now)
            self._asked_at = now
            self._mailbox.post(posted)
        else:
            self._mailbox.renew(posted)

    def _dry_at(self, now: Nanos) -> Nanos:
        """Instant of the first tick that finds no action, seen from a tick that begins."""
        under_way = self._ticks_left * self._settings.control_period
        return now + under_way + time_until_dry(self.queue, self._settings.action_period)

    def _observe(self) -> Mapping[str, object] | None:
        try:
            return checked_mapping(self._robot.observe(), "observe()")
        except Exception as error:  # noqa: BLE001 - see _send
            self._fault(None, "observe", error)
            return None

    def _pose(self, seen: Mapping[str, object] | None) -> Vector | None:
        if seen is None or self._hooks.pose is None:
            return None
        try:
            return self._hooks.pose(seen)
        except Exception as error:  # noqa: BLE001 - see _send
            self._fault(None, "pose", error)
            return None

    def _is_enabled(self) -> bool:
        if self._hooks.is_enabled is None:
            return True
        try:
            return bool(self._hooks.is_enabled())
        except Exception as error:  # noqa: BLE001 - see _send
            self._fault(None, "is_enabled", error)
            return False

    def _fault(self, now: Nanos | None, where: str, error: BaseException) -> None:
        if not self.faults[where]:
            log.error("%s failed; further failures are only counted", where, exc_info=error)
        self.faults[where] += 1
        self._journal.fault(now, where, error)


def _in_time(rules: ContractRules, period: Nanos) -> ContractRules:
    """Rules under which a robot holds in time although a tick decides up to a period late: it
    began late, or the robot was slow to observe.
    """
    return replace(rules, t_hold=max(min(period, rules.t_hold), rules.t_hold - period))


def _guards(settings: LoopSettings) -> tuple[Guard | None, Guard | None]:
    """One that looks at chunks, one that looks at commands."""
    limits = settings.limits
    if limits is None:
        return None, None
    # Steps are those of commands, which are shorter than those of actions and also bridge the
    # places where two chunks meet; of a chunk itself only its range can be judged.
    ranges = replace(limits, max_step=None, max_velocity=None)
    period = settings.control_period
    return (
        Guard(ranges, control_period=period, mode=settings.guard),
        Guard(limits, control_period=period, mode=settings.guard),
    )
