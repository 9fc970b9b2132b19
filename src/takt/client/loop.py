"""Drives a robot by a policy that may be late, slow or gone.

Opening a :class:`ControlLoop` starts three threads. The *control thread* ticks at absolute
instants, sends one command per tick and waits for nobody. The *sender* asks the server, and
connects again for ever. *Cameras*, where there are any, read at a rate of their own. Nothing moves
before somebody at the robot calls :meth:`ControlLoop.start`; when actions fail to come the robot
slows, holds and stops by :class:`~takt.robot.contract_rules.ContractRules`.

It is no safety function: the robot's own controller must stop it when no command comes. It installs
no signal handler, configures no logger and changes no working directory.

Start reading at :class:`ControlLoop`, then :meth:`takt.client.motion.Motion.tick`.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from takt.client.backoff import Backoff
from takt.client.cameras import Cameras
from takt.client.closing import Closing
from takt.client.episode_log import EpisodeLog
from takt.client.journal import Journal
from takt.client.loop_settings import Hooks, LoopSettings, Robot
from takt.client.mailbox import Mailbox
from takt.client.motion import Motion
from takt.client.pacing import Pacer, Wait, sleep
from takt.client.robots.described import check_fit, description_of
from takt.client.sender import AskingConnection, Sender
from takt.errors import ConfigError, UsageError
from takt.robot.contract import StateChange
from takt.robot.contract_rules import ContractRules
from takt.robot.contract_table import State
from takt.schema.spec import PolicySpec
from takt.units import SECOND, Nanos, to_ms, to_seconds

__all__ = ["ControlLoop", "LoopStatus"]

log = logging.getLogger(__name__)

_JOIN_TIMEOUT_S = 2.0
_LAST_TICKS = 10
"""Ticks beyond the ramp to zero within which a closing loop must have come to rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopStatus:
    """A loop at one instant."""

    state: State
    is_connected: bool
    """Whether there is a connection. Its loss is noticed when something is sent."""
    ticks: int
    overruns: int
    """Ticks that were not over when the next one's instant came."""
    skipped_ticks: int
    """Instants that passed without a tick."""
    executed: int
    """Actions executed, at least in part."""
    starved_ticks: int
    """Ticks of a started robot that found no valid action."""
    remaining: int
    """Actions left to execute."""
    next_timestep: int
    """Timestep of the next action."""
    answered: int
    """Chunks that came."""
    late: int
    """Of these, chunks with nothing left to execute."""
    guided: int
    """Of these, chunks that continue what the robot was executing."""
    splices: int
    """Times a new plan took over."""
    failures: Mapping[str, int]
    """Observations without an answer, by code; ``stale``: too old before it could be sent."""
    last_failure: str | None
    """The newest of these in a sentence."""
    faults: Mapping[str, int]
    """Exceptions of the robot, its cameras and the user's functions, by where they came from."""
    violations: Mapping[str, int]
    """Numbers of chunks and commands outside the limits."""
    rejected_starts: int
    """Plans given up because they began too far from the robot."""
    round_trip: Nanos | None
    """Of the newest answer."""
    log_dropped: int
    """Records missing in the episode log."""


class ControlLoop(Closing):
    """One robot's control loop.

    Args:
        robot: What is driven. One that describes itself
            (:class:`~takt.client.robots.described.DescribedRobot`) is compared with the model at
            every connect; a model it does not fit is not asked, and counts as a failure.
        connect: Opens a connection; called again after every loss.
            ``functools.partial(takt.client.connect, "server:8000")``, or for a policy in this
            process ``lambda: InProcess(policy)``.
        settings: How it is driven.
        hooks: What is asked and told besides.
        cameras: Where images come from; None: the robot's own observations are complete.
        log: What moved the robot, and why, is noted there; whoever opened it closes it.
        backoff: How long to wait after failures.
        clock: Monotonic, in nanoseconds.
        wait: Lets time pass on that clock.

    Raises:
        ConfigError: A setting describes something impossible.
        UsageError: The robot's ``describe`` returns something else than a description.
    """

    def __init__(
        self,
        robot: Robot,
        connect: Callable[[], AskingConnection],
        settings: LoopSettings | None = None,
        *,
        hooks: Hooks | None = None,
        cameras: Cameras | None = None,
        log: EpisodeLog | None = None,
        backoff: Backoff | None = None,
        clock: Callable[[], Nanos] = time.monotonic_ns,
        wait: Wait = sleep,
    ) -> None:
        self.settings = settings or LoopSettings()
        hooks = hooks or Hooks()
        _check(self.settings.contract, hooks)
        self._dial = connect
        self._description = description_of(robot)
        self._cameras = cameras
        self._log = log
        self._clock = clock
        self._journal = Journal(log)
        self._mailbox = Mailbox(clock)
        self._motion = Motion(
            robot,
            self._mailbox,
            self.settings,
            hooks=hooks,
            cameras=cameras,
            journal=self._journal,
        )
        self._sender = Sender(self._mailbox, self._connect, backoff or Backoff())
        self._pacer = Pacer(self.settings.control_period, clock=clock, wait=wait)
        self._ticks = 0
        self._closing = False
        self._was_opened = self._is_ticked_by_hand = False
        self._changed = threading.Condition(threading.Lock())
        self._thread = threading.Thread(target=self._run, name="takt-control", daemon=True)

    # For people at the robot. Each is granted at the next tick, and may come from any thread.

    def start(self) -> None:
        """Let the robot move as soon as there is a valid action."""
        self._motion.contract.start()

    def stop(self) -> None:
        """Stop the robot, latched: only :meth:`reset` and :meth:`start` make it move again.

        It takes no lock, so a signal handler may call it. A program should hear SIGTERM that way,
        and then leave the loop's context: unheard, it ends between two commands.
        """
        self._motion.contract.stop()

    def resume(self) -> None:
        """End a hold as soon as there is a valid action."""
        self._motion.contract.resume()

    def reset(self) -> None:
        """Release the latch of a stop; the robot is then idle."""
        self._motion.contract.reset()

    @property
    def state(self) -> State:
        """State after the last tick."""
        return self._motion.contract.state

    def wait_for(self, *states: State, timeout: Nanos = 10 * SECOND) -> bool:
        """Wait until the robot is in one of these states.

        For scripts. A robot that passes through a state between two looks may be missed.

        Returns:
            Whether it is.
        """
        with self._changed:
            return self._changed.wait_for(lambda: self.state in states, to_seconds(timeout))

    def status(self) -> LoopStatus:
        """How things stand."""
        motion = self._motion
        faults = dict(motion.faults)
        if self._cameras is not None and self._cameras.failures:
            faults["cameras"] = self._cameras.failures
        return LoopStatus(
            state=self.state,
            is_connected=self._sender.is_connected,
            ticks=self._ticks,
            overruns=self._pacer.overruns,
            skipped_ticks=self._pacer.skipped,
            executed=motion.executed,
            starved_ticks=motion.starved_ticks,
            remaining=motion.queue.remaining,
            next_timestep=motion.queue.next_timestep,
            answered=motion.answered,
            late=motion.late,
            guided=motion.guided,
            splices=motion.splices.count,
            failures=dict(motion.failures),
            last_failure=motion.last_failure,
            faults=faults,
            violations=dict(motion.violations),
            rejected_starts=motion.contract.rejected_starts,
            round_trip=motion.round_trip,
            log_dropped=0 if self._log is None else self._log.dropped,
        )

    # Opening and closing.

    def open(self, *, control_thread: bool = True) -> None:
        """Start the threads. The robot stays where it is.

        Args:
            control_thread: Start the one that ticks; False: a thread of yours calls :meth:`tick`,
                and ends before :meth:`close`.

        Raises:
            UsageError: It was opened or closed before.
        """
        if self._was_opened or self._closing:
            raise UsageError("a control loop is opened once; make another one")
        self._was_opened = True
        rules = self.settings.contract
        log.info(
            "control loop opened: control_hz=%g t_hold_ms=%g max_action_age_ms=%g",
            self.settings.control_hz,
            to_ms(rules.t_hold),
            to_ms(rules.max_action_age),
        )
        self._journal.opened(self._clock(), self.settings.in_words())
        if self._cameras is not None:
            self._cameras.start()
        self._sender.start()
        if control_thread:
            self._thread.start()
        self._is_ticked_by_hand = not control_thread

    def close(self) -> None:
        """Stop the robot, then the threads. Waits until a velocity has been ramped to zero."""
        self._closing = True
        self.stop()  # also a tick that hangs in a driver longer than it is waited for
        if self._is_ticked_by_hand:
            self._is_ticked_by_hand = False
            self._finish()
        elif self._thread.is_alive() and self._thread is not threading.current_thread():
            time_to_rest = self._motion.contract.time_to_rest
            self._thread.join(_JOIN_TIMEOUT_S + to_seconds(time_to_rest))
        self._sender.close()
        if self._cameras is not None:
            self._cameras.close()

    def __enter__(self) -> "ControlLoop":
        self.open()
        return self

    # The control thread.

    def tick(self) -> None:
        """Wait for the next instant and carry out its tick. Never raises an exception.

        The control thread calls this. A program with a real-time thread of its own calls it there,
        once per period, after :meth:`open` without a control thread.
        """
        tick = self._pacer.next_tick()
        self._ticks += 1
        if tick.skipped or 2 * tick.late > self.settings.control_period:
            self._journal.overrun(tick)
        try:
            change = self._motion.tick(tick.started)
        except Exception as error:  # noqa: BLE001 - a dead control thread would leave the robot alone
            change = self._motion.broke(self._clock(), error)
        except BaseException as error:  # such as a panic of a driver's native code
            change = self._motion.broke(self._clock(), error)
            if threading.current_thread() is not self._thread:
                raise  # the program's own: Ctrl-C, or its end
        if change is not None:
            self._tell(change)

    def _run(self) -> None:
        while not self._closing:
            self.tick()
        self._finish()

    def _finish(self) -> None:
        """Stop the robot, and send what brings it to rest."""
        self.stop()
        self.tick()
        contract = self._motion.contract
        give_up = self._clock() + contract.time_to_rest + _LAST_TICKS * self._pacer.period
        while not contract.is_at_rest and self._clock() < give_up:
            self.tick()
        self._journal.end(self._clock(), self._counts())

    def _tell(self, change: StateChange) -> None:
        with self._changed:
            self._changed.notify_all()

    def _connect(self) -> AskingConnection:
        connection = self._dial()
        try:
            self._check_fit(connection)
        except BaseException:
            connection.close()
            raise
        self._journal.connected(self._clock(), getattr(connection, "model", None))
        return connection

    def _check_fit(self, connection: AskingConnection) -> None:
        """Refuse a model that is made for another robot, where both say what they are."""
        if self._description is None:
            return
        spec: PolicySpec | None = getattr(connection, "spec", None)
        if spec is not None:
            check_fit(self._description, spec)

    def _counts(self) -> dict[str, object]:
        status = self.status()
        names = (
            "ticks", "overruns", "skipped_ticks", "executed", "starved_ticks", "answered", "late",
            "guided", "splices", "failures", "faults", "violations", "rejected_starts",
        )  # fmt: skip
        return {name: getattr(status, name) for name in names}


def _check(rules: ContractRules, hooks: Hooks) -> None:
    """Refuse a robot that could never start."""
    is_measured = rules.max_start_jump is not None and rules.hold_mode == "position"
    if is_measured and hooks.pose is None:
        raise ConfigError("max_start_jump needs to know where the robot is; give Hooks(pose=...)")
