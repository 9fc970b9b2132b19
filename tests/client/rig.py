"""A robot, a server and a network in virtual time, around the parts of a control loop.

Nothing here waits. :meth:`Rig.run` ticks; the server answers an observation when its latency has
passed, or never while the network is cut.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from takt.client.answer import Answer
from takt.client.cameras import Cameras
from takt.client.episode_log import EpisodeLog
from takt.client.journal import Journal
from takt.client.loop_settings import Hooks, LoopSettings
from takt.client.mailbox import Asked, Mailbox
from takt.client.motion import Motion
from takt.robot.action_queue import TimedAction
from takt.robot.contract import StateChange
from takt.robot.contract_rules import ContractRules
from takt.robot.contract_table import State
from takt.testing import ManualClock
from takt.units import Nanos, ms

DIM = 2
LATENCY = ms(60)
AT_ONCE = ContractRules(resume_ramp=0)
PLAIN = LoopSettings(control_hz=50.0, contract=AT_ONCE)
PATIENCE = ms(60_000)


@dataclass
class Sent:
    """A command as the robot got it."""

    at: Nanos
    values: np.ndarray
    state: State


@dataclass
class Executed:
    """A command that belongs to an action."""

    at: Nanos
    timestep: int
    age: Nanos
    is_whole: bool


class RecordingJournal(Journal):
    """Keeps what was executed, besides writing it."""

    def __init__(self, log: EpisodeLog | None) -> None:
        super().__init__(log)
        self.executed: list[Executed] = []

    def action(
        self,
        now: Nanos,
        source: TimedAction[Any],
        command: np.ndarray,
        **more: Any,  # noqa: ANN401
    ) -> None:
        age = source.age(now)
        assert age is not None
        self.executed.append(Executed(now, source.timestep, age, more["is_whole"]))
        super().action(now, source, command, **more)


class FakeRobot:
    """Is where it was last told to be."""

    def __init__(self) -> None:
        self.position = np.zeros(DIM)
        self.observe_error: Exception | None = None
        self.act_error: Exception | None = None
        self.observed = 0

    def observe(self) -> Mapping[str, object]:
        if self.observe_error is not None:
            raise self.observe_error
        self.observed += 1
        return {"observation/state": self.position.copy()}

    def act(self, action: np.ndarray) -> None:
        if self.act_error is not None:
            raise self.act_error
        self.position = np.array(action, np.float64)


def counting(asked: Asked, horizon: int = 20) -> np.ndarray:
    """A chunk whose values are its timesteps in hundredths, the same whichever chunk says it."""
    first = asked.posted.first_timestep
    return np.repeat(np.arange(first, first + horizon)[:, None] / 100.0, DIM, axis=1)


def pose_of(seen: Mapping[str, object]) -> np.ndarray:
    """Where the robot says it is."""
    return np.asarray(seen["observation/state"])


class Rig:
    """See the module's docstring.

    Args:
        settings: Of the loop.
        latency: From sending to the answer.
        chunk: What the server answers.
    """

    def __init__(
        self,
        settings: LoopSettings | None = None,
        *,
        hooks: Hooks | None = None,
        cameras: Callable[[ManualClock], Cameras] | None = None,
        log: EpisodeLog | None = None,
        latency: Nanos = LATENCY,
        chunk: Callable[[Asked], np.ndarray] = counting,
        clock: ManualClock | None = None,
    ) -> None:
        self.clock = clock or ManualClock(ms(1000))
        self.settings = settings or LoopSettings(control_hz=50.0)
        self.robot = FakeRobot()
        self.mailbox = Mailbox(self.clock.now)
        self.journal = RecordingJournal(log)
        self.motion = Motion(
            self.robot,
            self.mailbox,
            self.settings,
            hooks=hooks or Hooks(),
            cameras=None if cameras is None else cameras(self.clock),
            journal=self.journal,
        )
        self.latency = latency
        self.chunk = chunk
        self.is_cut = False
        self.is_busy = False
        """Nothing is sent for now."""
        self.digest: str | None = None
        """Of the model that answers, where it says so."""
        self.sent: list[Sent] = []
        self.changes: list[StateChange] = []
        self.asked: list[Asked] = []
        self._under_way: Asked | None = None

    @property
    def state(self) -> State:
        return self.motion.contract.state

    @property
    def executed(self) -> list[Executed]:
        """Every command that belonged to an action, in order."""
        return self.journal.executed

    def tick(self) -> None:
        """One control tick, and the time until the next."""
        self.tick_in_place()
        self.clock.advance(self.settings.control_period)

    def tick_in_place(self) -> None:
        """One control tick, and what the network does at that instant."""
        self._network()
        now = self.clock.now()
        before = self.robot.position
        change = self.motion.tick(now)
        if self.robot.position is not before:
            self.sent.append(Sent(now, self.robot.position, self.state))
        if change is not None:
            self.changes.append(change)
        self._network()

    def run(self, duration: Nanos) -> None:
        for _ in range(duration // self.settings.control_period):
            self.tick()

    def run_until(self, state: State, most: Nanos = PATIENCE) -> None:
        give_up = self.clock.now() + most
        while self.state is not state:
            assert self.clock.now() < give_up, f"still {self.state}"
            self.tick()

    def started(self) -> "Rig":
        """This rig, once its robot moves."""
        self.motion.contract.start()
        self.run_until(State.ACTIVE)
        return self

    def _network(self) -> None:
        if self._under_way is None and not self.is_busy:
            self._under_way = self.mailbox.take_request()
            if self._under_way is not None:
                self.asked.append(self._under_way)
        asked = self._under_way
        if asked is None:
            return
        if self.is_cut:
            self._under_way = None
            self.mailbox.failed(asked, "closed", "the connection is lost", send_again=True)
        elif self.clock.now() - asked.sent >= self.latency:
            self._under_way = None
            self.mailbox.answered(asked, self._answer(asked))

    def _answer(self, asked: Asked) -> Answer:
        options: dict[str, Any] = {"round_trip": self.latency, "server": self.latency // 2}
        if asked.leftover is not None:
            options["chunking"] = "guided"
        return Answer(actions=self.chunk(asked), model_digest=self.digest, **options)


def values(rig: Rig) -> list[float]:
    """The first component of every command that the robot got."""
    return [round(float(sent.values[0]), 6) for sent in rig.sent]
