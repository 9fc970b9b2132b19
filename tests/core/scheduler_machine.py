"""A driver that does anything a driver may do, and checks every answer of the scheduler.

The machine keeps its own account of every request. Outcomes and queue order are derived from that
account by first principles, in the plainest way, so a fault of the scheduler's bookkeeping shows as
a difference. ``test_scheduler_machine.py`` runs the machine and shows that it can fail.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.core.driving import UNITS
from tests.core.machine_fleet import (
    BY_NAME,
    DISCIPLINES,
    FORMATIONS,
    MODELS,
    OBSERVATIONS,
    PROFILE,
    SLOS,
    WAITS_FOR,
    Account,
    Observation,
    best_share,
    expected_service,
    solo,
)

from takt.core.events import Cancel, Decide, Ended, Event, Finish, Submit, Switched
from takt.core.launch import Decision, Lane, Launch
from takt.core.profile import CoRun
from takt.core.request import Phase, Request, Stage
from takt.core.scheduler import Lateness, Scheduler
from takt.core.trace import Setup, replay, trace_lines
from takt.errors import InvariantError

MOST_STEPS = 10_000
"""More instants than any drain needs."""


class SchedulerMachine(RuleBasedStateMachine):
    """Several models on one device, robots that come and go, a driver that is sometimes away."""

    def build(self, setup: Setup) -> Scheduler:
        """The scheduler under test; faulty machines give a faulty one."""
        return setup.scheduler()

    @initialize(
        formation=st.sampled_from(FORMATIONS),
        discipline=st.sampled_from(DISCIPLINES),
        lateness=st.sampled_from([Lateness.YIELD, Lateness.YIELD, *Lateness]),
        supersede=st.booleans(),
        paces=st.lists(st.sampled_from([100, 100, 60, 350]), min_size=1, max_size=5),
    )
    def load(
        self,
        *,
        formation: str,
        discipline: str,
        lateness: Lateness,
        supersede: bool,
        paces: list[int],
    ) -> None:
        self.setup = Setup(
            models=MODELS,
            profile=PROFILE,
            formation=formation,
            discipline=discipline,
            lateness=lateness,
        )
        self.first_setup = self.setup
        self.supersede = supersede
        self.paces = paces
        self.scheduler = self.build(self.setup)
        self.device = CoRun(PROFILE)
        self.now = 0
        self.wake_at: int | None = None
        self.submitted = 0
        self.live: dict[int, Account] = {}
        self.running: dict[Lane, Launch] = {}
        self.served_at: dict[tuple[Stage, str], int] = {}
        self.num_launches = 0
        self.events: list[Event] = []
        self.is_sound = True

    # What robots, clients and time do

    @rule(observations=st.lists(OBSERVATIONS, min_size=1, max_size=6))
    def submit(self, observations: list[Observation]) -> None:
        """Robots send observations at one instant."""
        for sent in observations:
            request = Request(
                seq=self.submitted,
                model=sent.model.name,
                session=f"session {sent.session}",
                arrival=self.now,
                due=self.now + sent.due,
                promise=self.now + sent.promise,
                expires=self.now + sent.life,
                layout=sent.layout % len(sent.model.holds),
                supersede=self.supersede,
            )
            with self.checked():
                self.arrive(request)

    @precondition(lambda self: self.submitted)
    @rule(number=st.integers(0, 1_000))
    def cancel(self, number: int) -> None:
        """A client leaves, perhaps one whose request has ended."""
        seq = number % self.submitted
        with self.checked():
            self.scheduler.cancel(seq, self.now)
            ended = [self.end(seq, Phase.CANCELLED)] if seq in self.live else []
            self.expect([Cancel(self.now, seq), *ended])

    @rule(duration=st.integers(0, 25), failing=st.sampled_from([0, 0, 0, 1, 2, 0b1011]))
    def wait(self, duration: int, failing: int) -> None:
        """Time passes; the driver is awake at every end and whenever it asked to be woken."""
        with self.checked():
            self.decide()
            until = self.now + duration
            while (instant := self.next_instant()) is not None and instant <= until:
                self.now = instant
                self.end_launches(failing)
                self.decide()
            self.now = until

    @rule(
        duration=st.sampled_from([1, 9, *SLOS, 70]),
        failing=st.sampled_from([0, 0, 0, 1, 2, 0b1011]),
    )
    def stall(self, duration: int, failing: int) -> None:
        """The driver is away for a while and learns all at once what ended meanwhile."""
        with self.checked():
            self.now += duration
            self.end_launches(failing)
            self.decide()

    @precondition(lambda self: not self.live and not self.running)
    @rule(formation=st.sampled_from(FORMATIONS), discipline=st.sampled_from(DISCIPLINES))
    def switch(self, formation: str, discipline: str) -> None:
        """The device is driven in another way from here on."""
        self.drive_by(replace(self.setup, formation=formation, discipline=discipline))
        self.served_at.clear()

    def drive_by(self, setup: Setup) -> None:
        """Another scheduler takes over."""
        self.setup = setup
        switched = Switched(self.now, setup.to_json())
        with self.checked():
            scheduler = self.build(setup)
            scheduler.take_over(self.scheduler, switched)
            self.scheduler = scheduler
            self.expect([switched])
        self.wake_at = None

    @precondition(lambda self: self.live or self.running)
    @rule(formation=st.sampled_from(FORMATIONS))
    def switch_too_early(self, formation: str) -> None:
        """Something is under way: nothing changes."""
        with pytest.raises(InvariantError, match="nothing under way"):
            replace(self.setup, formation=formation).successor(self.scheduler, self.now)

    def teardown(self) -> None:
        """Wait until every request has its outcome; then feed the same events in again."""
        if not getattr(self, "is_sound", False):
            return
        with self.checked():
            self.decide()
            for _ in range(MOST_STEPS):
                if not self.live:
                    break
                instant = self.next_instant()
                assert instant is not None, f"the driver sleeps for ever, {self.live} wait"
                self.now = instant
                self.end_launches()
                self.decide()
        self.check_totals()

    # The calls of a driver, each with the events it must bring

    @contextmanager
    def checked(self) -> Iterator[None]:
        """A failure within ends the run; no drain hides it."""
        self.is_sound = False
        yield
        assert self.scheduler.unfinished == len(self.live)
        assert self.scheduler.waiting == len(self.waiting())
        self.is_sound = True

    def expect(self, events: list[Event]) -> None:
        taken = self.scheduler.take_events()
        assert taken == events, "wrong outcomes"
        self.events += taken

    def end(self, seq: int, phase: Phase) -> Ended:
        del self.live[seq]
        return Ended(self.now, seq, phase)

    def arrive(self, request: Request) -> None:
        # The fields are read first: the scheduler may shorten the life of a request.
        account = self.account_of(request)
        fields = [getattr(request, name) for name in Submit._fields[1:]]
        self.scheduler.submit(request, self.now)
        expected: list[Event] = [Submit(self.now, *fields)]
        if self.supersede:
            expected += [
                self.end(older.seq, Phase.SUPERSEDED)
                for older in self.waiting(Stage.PREFIX)
                if older.session == request.session
            ]
        self.live[request.seq] = account
        self.submitted += 1
        if self.now >= account.expires:
            expected.append(self.end(account.seq, Phase.EXPIRED))
        self.expect(expected)

    def account_of(self, request: Request) -> Account:
        latest = max(request.due, request.promise)
        is_refused_at_due = self.setup.lateness is Lateness.REFUSE_AT_DUE
        return Account(
            seq=request.seq,
            model=BY_NAME[request.model],
            session=request.session,
            due=request.due,
            latest=latest,
            expires=min(request.expires, latest) if is_refused_at_due else request.expires,
            layout=request.layout,
            since=self.now,
        )

    def end_launches(self, failing: int = 0) -> None:
        """Report the launches that have ended by now; bit ``i`` of ``failing`` is row ``i``."""
        while (end := self.device.next_end()) is not None and end[0] <= self.now:
            lane = end[1]
            assert isinstance(lane, Lane)
            self.device.finish(lane, self.now)
            self.finish(lane, failing)

    def finish(self, lane: Lane, failing: int) -> None:
        launch = self.running.pop(lane)
        failed = tuple(seq for row, seq in enumerate(launch.requests) if failing >> row & 1)
        self.scheduler.finish(lane, self.now, failed)
        outcomes = [self.leave(seq, lane, seq in failed) for seq in launch.requests]
        ended = [outcome for outcome in outcomes if outcome is not None]
        self.expect([Finish(self.now, lane, failed), *ended])

    def leave(self, seq: int, lane: Lane, has_failed: bool) -> Ended | None:
        """What must become of one row of a launch that ended."""
        account = self.live.get(seq)
        if account is None:
            return None
        if has_failed:
            return self.end(seq, Phase.FAILED)
        if lane.stage is Stage.DENOISE or account.model.single_pass:
            return self.end(seq, Phase.SERVED)
        account.phase, account.since = Phase.READY, self.now
        return self.end(seq, Phase.EXPIRED) if self.now >= account.expires else None

    def decide(self) -> None:
        late = sorted((it.expires, it.seq) for it in self.waiting() if it.expires <= self.now)
        expired = [self.end(seq, Phase.EXPIRED) for _, seq in late]
        decision = self.scheduler.decide(self.now)
        self.expect([*expired, Decide(self.now, *decision)])
        for launch in decision.launches:
            self.check_launch(launch)
        self.check_formation(decision)
        for launch in decision.launches:
            self.start(launch)
        self.wake_at = decision.wake_at
        next_expiry = min((it.expires for it in self.waiting()), default=None)
        assert self.wake_at == next_expiry, "wrong instant to wake"

    def start(self, launch: Launch) -> None:
        self.num_launches += 1
        self.served_at[launch.lane.stage, launch.model] = self.num_launches
        self.running[launch.lane] = launch
        phase = Phase.PREFIXING if launch.lane.stage is Stage.PREFIX else Phase.DENOISING
        for seq in launch.requests:
            self.live[seq].phase = phase
        work = launch.work(launch.model)
        pace = self.paces[self.num_launches % len(self.paces)]
        self.device.start(launch.lane, work, self.now, solo=solo(work) * pace // 100)

    def next_instant(self) -> int | None:
        end = self.device.next_end()
        instants = [end and end[0], self.wake_at]
        return min((instant for instant in instants if instant is not None), default=None)

    # What must hold of a decision

    def waiting(self, stage: Stage | None = None) -> list[Account]:
        stages = tuple(Stage) if stage is None else (stage,)
        return [it for it in self.live.values() if WAITS_FOR.get(it.phase) in stages]

    def yields(self, it: Account) -> bool:
        """Whether ``it`` cannot be on time any more, and has not regained its order."""
        if self.setup.lateness is not Lateness.YIELD:
            return False
        stages = expected_service(self.setup.formation, it.model, it.layout)
        service = sum(stages[WAITS_FOR[it.phase] :])
        hopeless_from = max(it.since, it.latest - service + 1)
        regains = hopeless_from + it.model.slo
        is_worth_it = regains + service < it.expires
        return hopeless_from <= self.now and not (is_worth_it and regains <= self.now)

    def queue(self, stage: Stage, model: str) -> list[Account]:
        """Those who wait in one queue, in the order in which they must be taken."""
        waiting = [it for it in self.waiting(stage) if it.model.name == model]
        return sorted(waiting, key=lambda it: (self.yields(it), it.place))

    def check_launch(self, launch: Launch) -> None:
        stage, model = launch.lane.stage, BY_NAME[launch.model]
        queue = self.queue(stage, launch.model)
        chosen = queue[: len(launch.requests)]
        assert launch.lane not in self.running, "a lane overlaps itself"
        assert chosen, "an empty launch"
        assert launch.requests == tuple(it.seq for it in chosen), "queue order"
        assert all(self.now < it.expires for it in chosen), "an expired request is started"
        holding = [size for size in model.sizes(stage) if size >= len(chosen)]
        assert launch.size == min(holding), "not the smallest captured size that holds the rows"
        masks = [model.holds[it.layout] for it in chosen]
        layouts = range(len(model.holds))
        assert launch.layout == min(
            layout for layout in layouts if all(mask >> layout & 1 for mask in masks)
        ), "not the smallest captured layout that holds the rows"
        self.check_lateness(stage, chosen)
        self.check_discipline(stage, launch.model, chosen[0])
        self.check_fill(launch, queue)

    def check_lateness(self, stage: Stage, chosen: list[Account]) -> None:
        left_out = [it for it in self.waiting(stage) if it not in chosen]
        if any(self.yields(it) for it in chosen):
            assert all(self.yields(it) for it in left_out), "a hopeless request took a place"

    def check_discipline(self, stage: Stage, model: str, head: Account) -> None:
        """The queue that goes first among those that have somebody who need not yield."""
        queues = [(name, self.queue(stage, name)) for name in BY_NAME]
        able = [(name, queue) for name, queue in queues if queue and not self.yields(queue[0])]
        if able:
            keys = {name: (self.key(stage, name, queue), queue[0].place) for name, queue in able}
            assert model in keys, "a hopeless queue goes before a feasible one"
            assert keys[model] == min(keys.values()), "discipline"
        else:
            assert head.place == min(it.place for it in self.waiting(stage)), "earliest due first"

    def key(self, stage: Stage, name: str, queue: list[Account]) -> int:
        match self.setup.discipline:
            case "earliest_deadline":
                return queue[0].due
            case "round_robin":
                return self.served_at.get((stage, name), 0)
            case _:
                return -len(queue)

    def check_fill(self, launch: Launch, queue: list[Account]) -> None:
        """The batch leaves nobody behind who fits in without padding."""
        stage = launch.lane.stage
        others = [it for it in self.waiting(stage) if it.model.name != launch.model]
        if any(not self.yields(it) for it in others):
            queue = [it for it in queue if not self.yields(it)]
        sizes = BY_NAME[launch.model].sizes(stage)
        if self.setup.formation == "monolithic" and stage is Stage.DENOISE:
            assert len(launch.requests) == min(len(queue), sizes[-1])
        else:
            filled = [size for size in sizes if size <= len(queue)]
            assert launch.size == max(filled, default=sizes[0])
            assert len(launch.requests) == min(len(queue), launch.size)

    def check_formation(self, decision: Decision) -> None:
        started = [launch.lane.stage for launch in decision.launches]
        wanted = [stage for stage in Stage if self.waiting(stage)]
        if self.setup.formation == "monolithic":
            wanted = wanted[-1:]  # the second half of a batch goes before the next batch
        assert started == ([] if self.running else wanted), "wrong lanes"
        units = {launch.lane.stage: launch.share for launch in decision.launches}
        assert units.get(Stage.DENOISE, UNITS) == UNITS, "not the best share"
        if len(units) == 1:
            assert units.get(Stage.PREFIX, UNITS) == UNITS, "not the best share"
        elif units:
            self.check_share(*decision.launches)

    def check_share(self, prefix: Launch, denoise: Launch) -> None:
        work, beside = prefix.work(prefix.model), denoise.work(denoise.model)
        assert prefix.share == best_share(work, beside), "not the best share"

    # What must hold of a whole run

    def check_totals(self) -> None:
        outcomes = Counter(event.seq for event in self.events if isinstance(event, Ended))
        assert outcomes == Counter(range(self.submitted)), "every request ends exactly once"
        assert self.scheduler.unfinished == 0
        self.check_replay()

    def check_replay(self) -> None:
        lines = list(trace_lines(self.first_setup, self.events))
        assert list(replay(lines)) == lines, "the same events give the same decisions"
