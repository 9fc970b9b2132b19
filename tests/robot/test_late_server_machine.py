"""Queue, replanning, contract and guard together, over a network that does its worst.

A robot that executes its rules tick by tick asks a server whose answers come late, twice, out of
order, broken, from the far past or never, while people start, stop, resume and reset it. Whatever
happens, the promises hold.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from takt.robot.action_queue import ActionQueue, ChunkOrigin, TimedAction
from takt.robot.blending import WEIGHTS, MergeName, merge_rule
from takt.robot.contract import Directive, LateServerContract, Proposal
from takt.robot.contract_rules import ContractRules, ResumeRule
from takt.robot.contract_table import TABLE, Cause, State
from takt.robot.guard import Guard, GuardLimits
from takt.robot.joints import Vector
from takt.robot.replanning import LatencyRule, Replanner, ReplanningRule, ThresholdRule
from takt.units import Nanos, ms

PERIOD = ms(20)
HORIZON = 16
MAX_AGE = ms(400)
T_HOLD = ms(100)
GIVE_UP = ms(300)
MAX_STEP = 0.25
MOVING = {State.ACTIVE, State.DEGRADED}


@dataclass
class Network:
    """What happens to answers from now on."""

    delay: Nanos = 40_000_000
    spread: Nanos = 0
    loss: float = 0.0
    twice: float = 0.0
    broken: float = 0.0


@dataclass(frozen=True)
class Packet:
    arrives: Nanos
    origin: ChunkOrigin
    first_timestep: int
    actions: Vector


@dataclass
class Log:
    """What the robot did."""

    executed: list[TimedAction[Vector]] = field(default_factory=list)
    directives: list[tuple[Nanos, Directive]] = field(default_factory=list)
    last_valid: Nanos | None = None


class LateServer(RuleBasedStateMachine):
    """One robot and its server."""

    @initialize(
        name=st.sampled_from(list(WEIGHTS)),
        by_latency=st.booleans(),
        resume=st.sampled_from(["manual", "auto_if_still"]),
        seed=st.integers(0, 10**6),
    )
    def switch_on(self, name: MergeName, by_latency: bool, resume: ResumeRule, seed: int) -> None:
        self.random = Random(seed)
        self.network = Network()
        self.under_way: list[Packet] = []
        self.now: Nanos = ms(5)
        self.asked: tuple[int, Nanos] | None = None
        self.chunks = 0
        self.pose = np.zeros(1)
        self.log = Log()
        self.may_move = False
        self.queue: ActionQueue[Vector] = ActionQueue(merge_rule(name))
        asking: ReplanningRule = ThresholdRule()
        if by_latency:
            asking = LatencyRule(control_period=PERIOD)
        self.replanner = Replanner(asking, control_period=PERIOD)
        self.contract = LateServerContract(
            ContractRules(
                max_action_age=MAX_AGE,
                t_hold=T_HOLD,
                t_stop=ms(400),
                resume=resume,
                max_start_jump=0.5,
            ),
            control_period=PERIOD,
        )
        self.guard = Guard(GuardLimits(action_dim=1, max_step=MAX_STEP), control_period=PERIOD)

    # What happens.

    @rule(ticks=st.integers(1, 30))
    def run_for(self, ticks: int) -> None:
        for _ in range(ticks):
            self.tick(is_enabled=True)

    @rule()
    def release_the_button(self) -> None:
        self.tick(is_enabled=False)

    @rule(
        delay=st.integers(0, 600),
        spread=st.integers(0, 300),
        loss=st.sampled_from([0.0, 0.0, 0.3, 1.0]),
        twice=st.sampled_from([0.0, 0.5]),
        broken=st.sampled_from([0.0, 0.0, 0.3]),
    )
    def change_the_network(
        self, delay: int, spread: int, loss: float, twice: float, broken: float
    ) -> None:
        self.network = Network(ms(delay), ms(spread), loss, twice, broken)

    @rule()
    def calm_the_network(self) -> None:
        self.network = Network()

    @rule()
    def start(self) -> None:
        self.may_move |= self.contract.state is State.IDLE
        self.contract.start()

    @rule()
    def resume(self) -> None:
        self.contract.resume()

    @rule()
    def stop(self) -> None:
        self.contract.stop()
        self.tick(is_enabled=True)
        assert self.contract.state is State.STOPPED

    @rule()
    def reset(self) -> None:
        self.contract.reset()
        self.tick(is_enabled=True)

    @rule(rule_name=st.sampled_from(["drop", "replace", "keep"]))
    def cut(self, rule_name: str) -> None:
        self.queue.flush(rule_name)  # pyright: ignore[reportArgumentType]

    @rule(pause=st.integers(1, 2_000))
    def hold_up_the_loop(self, pause: int) -> None:
        self.now += ms(pause)
        self.log.last_valid = None  # a loop that stands still keeps no times

    # The robot.

    def tick(self, *, is_enabled: bool) -> None:
        self.now += PERIOD
        self.receive()
        queued = self.queue.peek()
        directive = self.contract.tick(
            self.now,
            proposal=self.proposal_of(queued),
            pose=self.pose,
            is_overdue=self.replanner.is_overdue(self.queue, self.now),
            is_enabled=is_enabled,
        )
        assert is_enabled or directive.state not in MOVING
        self.obey(directive, queued)
        self.ask()

    def receive(self) -> None:
        arrived = [packet for packet in self.under_way if packet.arrives <= self.now]
        self.under_way = [packet for packet in self.under_way if packet.arrives > self.now]
        self.random.shuffle(arrived)
        for packet in arrived:
            if self.asked is not None and self.asked[0] == packet.origin.chunk_id:
                self.replanner.answered(self.now)
                self.asked = None
            if not np.isfinite(packet.actions).all():
                assert self.guard.check(packet.actions).actions is None
                self.contract.chunk_rejected()
                continue
            self.contract.chunk_accepted()
            self.queue.merge(packet.first_timestep, packet.actions, packet.origin)
        if self.asked is not None and self.now - self.asked[1] > GIVE_UP:
            self.replanner.failed()
            self.asked = None

    def proposal_of(self, queued: TimedAction[Vector] | None) -> Proposal | None:
        if queued is None:
            return None
        assert queued.origin is not None
        values = self.guard.check_action(queued.action, self.pose).actions
        assert values is not None
        return Proposal(values=values, observed=queued.origin.observed)

    def obey(self, directive: Directive, queued: TimedAction[Vector] | None) -> None:
        if directive.executes:
            assert queued is not None
            assert self.queue.pop() is not None
            self.log.executed.append(queued)
            self.check_age(queued)
            self.log.last_valid = self.now
        if directive.command is not None:
            assert abs(float(directive.command[0] - self.pose[0])) <= MAX_STEP + 1e-9
            self.pose = directive.command
        if directive.flush:
            self.queue.flush()
        self.log.directives.append((self.now, directive))
        self.check_hold(directive)
        self.check_latch(directive)

    def ask(self) -> None:
        if not self.replanner.is_due(self.queue):
            return
        asked = self.replanner.ask(self.queue, now=self.now, next_tick=self.now + PERIOD)
        assert asked.must_go == (self.queue.remaining == 0)
        origin = ChunkOrigin(self.chunks, observed=self.now)
        self.chunks += 1
        self.asked = (origin.chunk_id, self.now)
        ramp = float(self.pose[0]) + 0.1 * np.arange(HORIZON)[:, np.newaxis]
        if self.random.random() < self.network.broken:
            ramp[3] = np.nan
        if self.random.random() >= self.network.loss:
            copies = 1 + (self.random.random() < self.network.twice)
            for _ in range(copies):
                arrives = (
                    self.now + self.network.delay + self.random.randint(0, self.network.spread)
                )
                self.under_way.append(Packet(arrives, origin, self.queue.next_timestep, ramp))

    # The promises.

    def check_age(self, action: TimedAction[Vector]) -> None:
        age = action.age(self.now)
        assert age is not None
        assert 0 <= age <= MAX_AGE

    def check_hold(self, directive: Directive) -> None:
        """HOLD no later than ``t_hold`` after the last valid action."""
        last_valid = self.log.last_valid
        if directive.state in MOVING and last_valid is not None:
            assert self.now + PERIOD <= last_valid + T_HOLD or directive.executes
        if directive.state is State.HOLD and directive.change is not None and last_valid:
            assert self.now <= last_valid + T_HOLD

    def check_latch(self, directive: Directive) -> None:
        """Motion begins with a start, and a stop ends it until the next one."""
        change = directive.change
        if change is not None:
            assert TABLE[change.before, change.cause] is change.after
            assert directive.on_stop == (change.after is State.STOPPED)
            self.may_move &= change.after is not State.STOPPED
        assert self.may_move or not directive.executes

    @invariant()
    def timesteps_strictly_increase(self) -> None:
        executed = [action.timestep for action in self.log.executed[-60:]]
        assert all(before < after for before, after in itertools.pairwise(executed))

    @invariant()
    def no_chunk_follows_a_newer_one(self) -> None:
        origins = [a.origin.chunk_id for a in self.log.executed[-60:] if a.origin is not None]
        assert origins == sorted(origins)


TestLateServer = LateServer.TestCase
TestLateServer.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def wander(seed: int) -> LateServer:
    """A robot after a few minutes of everything."""
    chance = Random(seed)
    robot = LateServer()
    robot.switch_on("average", seed % 2 == 0, "auto_if_still", seed)

    def worsen() -> None:
        loss = chance.choice([0.0, 0.3, 1.0])
        robot.change_the_network(chance.randint(0, 600), 300, loss, 0.5, chance.choice([0, 0.3]))

    def revive() -> None:
        robot.reset()
        robot.start()

    steps: list[Callable[[], object]] = [
        lambda: robot.run_for(chance.randint(1, 40)),
        lambda: robot.run_for(chance.randint(1, 40)),
        revive,
        robot.start,
        robot.calm_the_network,
        robot.resume,
        robot.reset,
        worsen,
        robot.release_the_button if chance.random() < 0.5 else robot.stop,
    ]
    for _ in range(150):
        chance.choice(steps)()
    return robot


def test_the_machine_gets_around() -> None:
    """A machine that never got anywhere would prove nothing."""
    robots = [wander(seed) for seed in range(8)]

    changes = [d.change for robot in robots for _, d in robot.log.directives if d.change]
    unseen = set(TABLE) - {(change.before, change.cause) for change in changes}

    assert all(robot.log.executed for robot in robots)
    # Clocks do not go backwards here; the others are seen from one state or the other.
    assert {cause for _, cause in unseen} <= {Cause.CLOCK, Cause.NO_ACTION, Cause.REJECTED}
    assert any(robot.queue.overtaken for robot in robots)
