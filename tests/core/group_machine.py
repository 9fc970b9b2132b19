"""The scheduler's state machine, for formations that drive several devices or wait to start.

Everything :class:`~tests.core.scheduler_machine.SchedulerMachine` checks holds here too; this file
adds what a group has beyond one device: homes, moves of key/value caches, denoise loops in several
launches, launches held back, priorities. What a formation must start is said again in plain words.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from tests.core.driving import SHARES, UNITS
from tests.core.group_fleet import BY_NAME, MODELS, PROFILE, SHAPES
from tests.core.machine_fleet import OBSERVATIONS, Account, Observation, solo
from tests.core.scheduler_machine import SchedulerMachine

from takt.core.disciplines import DISCIPLINES
from takt.core.events import Decide, Ended, Event, Finish, Moved
from takt.core.launch import Decision, Lane, Launch
from takt.core.model import Model
from takt.core.profile import CoRun, Work
from takt.core.request import Phase, Request, Stage
from takt.core.scheduler import Lateness
from takt.core.trace import Setup
from takt.errors import InvariantError


class GroupMachine(SchedulerMachine):
    """Any formation in any shape, with priorities."""

    @initialize(
        shape=st.sampled_from(SHAPES),
        discipline=st.sampled_from(sorted(DISCIPLINES)),
        lateness=st.sampled_from([Lateness.YIELD, Lateness.YIELD, *Lateness]),
        supersede=st.booleans(),
        paces=st.lists(st.sampled_from([100, 100, 60, 350]), min_size=1, max_size=5),
    )
    def load(
        self,
        *,
        shape: tuple[str, dict[str, Any]],
        discipline: str,
        lateness: Lateness,
        supersede: bool,
        paces: list[int],
    ) -> None:
        formation, options = shape
        self.setup = self.first_setup = Setup(
            models=MODELS,
            profile=PROFILE,
            formation=formation,
            options=options,
            discipline=discipline,
            lateness=lateness,
        )
        self.lay_out()
        self.supersede, self.paces = supersede, paces
        self.scheduler = self.build(self.setup)
        self.now = self.submitted = self.num_launches = 0
        self.wake_at: int | None = None
        self.link_free_at = 0
        self.live: dict[int, Account] = {}
        self.priority: dict[int, int] = {}
        self.at_home: dict[int, int] = {}
        self.arrives_at: dict[int, int] = {}
        self.steps_left: dict[int, int] = {}
        self.running: dict[Lane, Launch] = {}
        self.served_in: dict[tuple[int, str], int] = {}
        self.events: list[Event] = []
        self.is_sound = True

    def lay_out(self) -> None:
        """Take down what follows from the setup."""
        self.formation, self.options = self.setup.formation, self.setup.options
        self.costs = self.setup.costs()
        self.physical = self.setup.group.physical
        self.home = self.setup.group.home
        self.devices = [CoRun[Lane](self.costs) for _ in range(self.setup.group.num_physical)]

    @precondition(lambda self: not self.live and not self.running)
    @rule(shape=st.sampled_from(SHAPES), discipline=st.sampled_from(sorted(DISCIPLINES)))
    def switch(self, shape: tuple[str, dict[str, Any]], discipline: str) -> None:
        """The devices are driven in another way from here on."""
        formation, options = shape
        self.drive_by(
            replace(self.setup, formation=formation, options=options, discipline=discipline)
        )
        self.lay_out()
        self.served_in.clear()

    @precondition(lambda self: self.live or self.running)
    @rule(shape=st.sampled_from(SHAPES))
    def switch_too_early(self, shape: tuple[str, dict[str, Any]]) -> None:
        """Something is under way: nothing changes."""
        formation, options = shape
        with pytest.raises(InvariantError, match="nothing under way"):
            replace(self.setup, formation=formation, options=options).successor(
                self.scheduler, self.now
            )

    @property
    def is_split(self) -> bool:
        return self.formation == "step_admission" and not self.options.get("single_stage")

    @rule(
        observations=st.lists(
            st.tuples(OBSERVATIONS, st.sampled_from([0, 0, 0, 1, 3])), min_size=1, max_size=6
        )
    )
    def submit(self, observations: list[tuple[Observation, int]]) -> None:
        """Robots of several classes send observations at one instant."""
        for sent, priority in observations:
            model = BY_NAME[sent.model.name]
            request = Request(
                seq=self.submitted,
                model=model.name,
                session=f"session {sent.session}",
                arrival=self.now,
                due=self.now + sent.due,
                promise=self.now + sent.promise,
                expires=self.now + sent.life,
                layout=sent.layout % len(model.holds),
                supersede=self.supersede,
                priority=priority,
            )
            with self.checked():
                self.priority[request.seq] = priority
                self.arrive(request)

    def account_of(self, request: Request) -> Account:
        account = super().account_of(request)
        account.model = BY_NAME[request.model]
        return account

    # Devices

    def next_end(self) -> tuple[int, Lane] | None:
        ends = [end for device in self.devices if (end := device.next_end()) is not None]
        return min(ends, key=lambda end: end[0], default=None)

    def next_instant(self) -> int | None:
        end = self.next_end()
        instants = [end and end[0], self.wake_at]
        return min((instant for instant in instants if instant is not None), default=None)

    def end_launches(self, failing: int = 0) -> None:
        while (end := self.next_end()) is not None and end[0] <= self.now:
            self.devices[self.physical[end[1].device]].finish(end[1], self.now)
            self.finish(end[1], failing)

    def start(self, launch: Launch) -> None:
        self.num_launches += 1
        place = launch.lane.stage and 1 + launch.lane.device
        self.served_in[place, launch.model] = self.num_launches
        self.running[launch.lane] = launch
        phase = Phase.PREFIXING if launch.lane.stage is Stage.PREFIX else Phase.DENOISING
        for seq in launch.requests:
            self.live[seq].phase = phase
        work = launch.work(launch.model)
        time = self.costs.solo(work) * self.paces[self.num_launches % len(self.paces)] // 100
        device = self.devices[self.physical[launch.lane.device]]
        device.start(launch.lane, work, self.now, solo=time)

    # What becomes of rows

    def finish(self, lane: Lane, failing: int) -> None:
        launch = self.running.pop(lane)
        failed = tuple(seq for row, seq in enumerate(launch.requests) if failing >> row & 1)
        self.scheduler.finish(lane, self.now, failed)
        events: list[Event] = [Finish(self.now, lane, failed)]
        for seq in launch.requests:
            if seq in self.live:
                events += self.left(seq, lane, seq in failed)
        self.expect(events)

    def left(self, seq: int, lane: Lane, has_failed: bool) -> list[Event]:
        account = self.live[seq]
        if has_failed:
            return [self.end(seq, Phase.FAILED)]
        if lane.stage is Stage.PREFIX:
            if account.model.single_pass:
                return [self.end(seq, Phase.SERVED)]
            self.steps_left[seq] = account.model.steps if self.is_split else 1
            self.at_home[seq] = self.home[lane.device]
            if self.home[lane.device] != lane.device:
                return [self.moved(account, lane.device)]
        else:
            self.steps_left[seq] -= 1
            if not self.steps_left[seq]:
                return [self.end(seq, Phase.SERVED)]
        return self.readied(account)

    def moved(self, account: Account, source: int) -> Moved:
        """One cache after the other crosses the link."""
        account.phase = Phase.MOVING
        self.link_free_at = max(self.link_free_at, self.now) + 2 + account.layout
        self.arrives_at[account.seq] = self.link_free_at
        home = self.at_home[account.seq]
        return Moved(self.now, account.seq, source, home, self.link_free_at)

    def readied(self, account: Account) -> list[Event]:
        account.phase, account.since = Phase.READY, self.now
        return [self.end(account.seq, Phase.EXPIRED)] if self.now >= account.expires else []

    def decide(self) -> None:
        events: list[Event] = []
        moving = [it for it in self.live.values() if it.phase is Phase.MOVING]
        for it in sorted(moving, key=lambda it: self.arrives_at[it.seq]):
            if self.arrives_at[it.seq] <= self.now:
                events += self.readied(it)
        late = sorted((it.expires, it.seq) for it in self.waiting() if it.expires <= self.now)
        events += [self.end(seq, Phase.EXPIRED) for _, seq in late]
        decision = self.scheduler.decide(self.now)
        self.expect([*events, Decide(self.now, *decision)])
        self.check_lanes(decision)
        for launch in decision.launches:
            self.check_launch(launch)
            self.start(launch)
        self.check_wake(decision)

    def check_wake(self, decision: Decision) -> None:
        self.wake_at = decision.wake_at
        expiries = [it.expires for it in self.waiting()]
        # The cache of one who was cancelled on the way arrives too.
        arrivals = [at for at in self.arrives_at.values() if at > self.now]
        wanted = min([*expiries, *arrivals], default=None)
        if self.options.get("gathering") and self.formation == "flowing" and self.wake_at != wanted:
            assert self.wake_at is not None
            assert self.wake_at > self.now, "a launch that may wait no longer is not started"
            assert wanted is None or self.wake_at < wanted, "wrong instant to wake"
        else:
            assert self.wake_at == wanted, "wrong instant to wake"

    # What must hold of a decision

    def place(self, it: Account) -> tuple[int, int]:
        return it.due + self.priority[it.seq] * it.model.slo, it.seq

    def waiting_here(self, lane: Lane) -> list[Account]:
        """Those who wait for the stage, if it is the denoise stage on this very device."""
        waiting = self.waiting(lane.stage)
        if lane.stage is Stage.PREFIX:
            return waiting
        return [it for it in waiting if self.at_home[it.seq] == lane.device]

    def line(self, lane: Lane, model: str) -> list[Account]:
        waiting = [it for it in self.waiting_here(lane) if it.model.name == model]
        return sorted(waiting, key=lambda it: (self.yields(it), self.place(it)))

    def yields(self, it: Account) -> bool:
        if self.setup.lateness is not Lateness.YIELD:
            return False
        prefix, denoise = self.expected(it.model, it.layout)
        steps = it.model.steps if self.is_split else 1
        left = steps if it.phase is Phase.QUEUED else self.steps_left[it.seq]
        service = denoise * left // steps + (prefix if it.phase is Phase.QUEUED else 0)
        hopeless_from = max(it.since, it.latest - service + 1)
        regains = hopeless_from + it.model.slo
        is_worth_it = regains + service < it.expires
        return hopeless_from <= self.now and not (is_worth_it and regains <= self.now)

    def expected(self, model: Model, layout: int) -> tuple[int, int]:
        """Time of each stage with the largest batches and the partners the formation allows."""
        held = self.options.get("static_share", UNITS)
        share = SHARES[0] if "replicas" in self.options else held
        prefix = Work(model.name, Stage.PREFIX, layout, max(model.prefix_sizes), share)
        if model.single_pass:
            return self.beside_itself(prefix), 0
        denoise = Work(model.name, Stage.DENOISE, layout, max(model.denoise_sizes), UNITS)
        if self.formation == "monolithic":
            size = min(size for size in model.denoise_sizes if size >= prefix.size)
            half = denoise._replace(size=size, share=share)
            return self.beside_itself(prefix), self.beside_itself(half)
        if self.options.get("single_stage"):
            prefix = prefix._replace(size=model.prefix_sizes[0])
            denoise = denoise._replace(size=model.denoise_sizes[0])
            return self.costs.solo(prefix), self.costs.solo(denoise)
        steps = model.steps if self.is_split else 1
        if len(self.devices) > 1:
            loop = self.costs.solo(denoise)
            under_way = loop if self.formation == "disaggregated" else 0
            return self.costs.solo(prefix) + 2 + layout + under_way, steps * loop
        if self.formation != "step_admission" and "static_share" not in self.options:
            prefix = prefix._replace(share=self.best_share(prefix, denoise))
        ends = self.costs.pair_ends(prefix, denoise)
        first = max(ends) if self.formation == "lockstep" else ends[0]
        return first, steps * ends[1]

    def beside_itself(self, work: Work) -> int:
        return solo(work) * 5 // 4 if "replicas" in self.options else solo(work)

    def best_share(self, prefix: Work, denoise: Work) -> int:
        time = {s: PROFILE.pair_time(prefix._replace(share=s), denoise) for s in SHARES}
        return max(share for share in SHARES if time[share] == min(time.values()))

    def check_launch(self, launch: Launch) -> None:
        stage, model = launch.lane.stage, BY_NAME[launch.model]
        queue = self.line(launch.lane, launch.model)
        chosen = queue[: len(launch.requests)]
        assert launch.lane not in self.running, "a lane overlaps itself"
        assert chosen, "an empty launch"
        assert launch.requests == tuple(it.seq for it in chosen), "queue order"
        assert all(self.now < it.expires for it in chosen), "an expired request is started"
        holding = [size for size in model.sizes(stage) if size >= len(chosen)]
        assert launch.size == min(holding), "not the smallest captured size that holds the rows"
        left_out = [it for it in self.waiting_here(launch.lane) if it not in chosen]
        if any(self.yields(it) for it in chosen):
            assert all(self.yields(it) for it in left_out), "a hopeless request took a place"
        self.check_turn(launch.lane, launch.model)
        self.check_rows(launch, queue)

    def check_turn(self, lane: Lane, model: str) -> None:
        """The queue is the one the discipline chooses among those that need not yield."""
        queues = {name: self.line(lane, name) for name in BY_NAME}
        able = {name: line for name, line in queues.items() if line and not self.yields(line[0])}
        if able:
            keys = {n: (self.key_of(lane, n, q), self.place(q[0])) for n, q in able.items()}
            assert model in keys, "a hopeless queue goes before a feasible one"
            assert keys[model] == min(keys.values()), "discipline"
        else:
            first = min(map(self.place, self.waiting_here(lane)))
            assert self.place(queues[model][0]) == first, "earliest order first"

    def key_of(self, lane: Lane, name: str, queue: list[Account]) -> int:
        order = self.place(queue[0])[0]
        match self.setup.discipline:
            case "earliest_deadline":
                return order
            case "least_slack":
                return order - sum(self.expected(queue[0].model, queue[0].layout)[lane.stage :])
            case "round_robin":
                return self.served_in.get((lane.stage and 1 + lane.device, name), 0)
            case _:
                return -len(queue)

    def check_rows(self, launch: Launch, queue: list[Account]) -> None:
        """The batch takes as many as its formation lets it."""
        others = [it for it in self.waiting_here(launch.lane) if it.model.name != launch.model]
        if any(not self.yields(it) for it in others):
            queue = [it for it in queue if not self.yields(it)]
        sizes = BY_NAME[launch.model].sizes(launch.lane.stage)
        if self.options.get("single_stage"):
            wanted = min(len(queue), sizes[0])
        elif launch.lane.stage is Stage.DENOISE and self.pads:
            wanted = min(len(queue), sizes[-1])
        else:
            filled = max((size for size in sizes if size <= len(queue)), default=sizes[0])
            wanted = min(len(queue), filled)
        assert len(launch.requests) == wanted, "not as many rows as there could be"

    @property
    def pads(self) -> bool:
        """Whether a denoise launch takes all it can hold and leaves the rest of its size empty."""
        shaped = self.formation in ("monolithic", "step_admission")
        return shaped or bool(self.options.get("gathering"))

    def check_lanes(self, decision: Decision) -> None:
        """The lanes that could start something did; nothing else did."""
        started = {launch.lane for launch in decision.launches}
        assert len(started) == len(decision.launches)
        if self.formation in ("lockstep", "monolithic") or self.options.get("single_stage"):
            self.check_paired(started)
        else:
            idle = [lane for lane in self.lanes() if lane not in self.running]
            held = bool(self.options.get("gathering"))
            for lane in idle:
                if lane.stage is Stage.DENOISE:
                    assert lane in started or held or not self.waiting_here(lane), "wrong lanes"
            self.check_prefix_lanes(started)
        for launch in decision.launches:
            assert launch.share in self.shares_of(launch.lane.stage), "wrong share"

    def check_prefix_lanes(self, started: set[Lane]) -> None:
        prefixing = [lane for lane in self.lanes() if lane.stage is Stage.PREFIX]
        idle = [lane for lane in prefixing if lane not in self.running]
        prefixes = [lane for lane in started if lane.stage is Stage.PREFIX]
        if len(prefixes) < len(idle):
            left = len(self.waiting(Stage.PREFIX))
            rows = max(sum(model.prefix_sizes[-1] for _ in prefixes) for model in MODELS)
            assert left <= rows or not idle, "wrong lanes"

    def check_paired(self, started: set[Lane]) -> None:
        """Formations whose devices start only when both their lanes are idle."""
        busy = {lane.device for lane in self.running}
        assert all(lane.device not in busy for lane in started), "wrong lanes"
        for device in set(range(len(self.home))) - busy:
            lanes = {lane.stage for lane in started if lane.device == device}
            ready = bool(self.waiting_here(Lane(device, Stage.DENOISE)))
            if self.formation == "lockstep":
                assert ready <= (Stage.DENOISE in lanes or self.options.get("gathering", 0) > 0)
            elif ready:
                assert lanes == {Stage.DENOISE}, "wrong lanes"

    def lanes(self) -> list[Lane]:
        if self.formation == "disaggregated":
            last = len(self.home) - 1
            return [*(Lane(d, Stage.PREFIX) for d in range(last)), Lane(last, Stage.DENOISE)]
        return [Lane(0, Stage.PREFIX), Lane(len(self.home) - 1, Stage.DENOISE)]

    def shares_of(self, stage: Stage) -> tuple[int, ...]:
        if "replicas" in self.options:
            return SHARES[:1]
        if stage is Stage.DENOISE or self.formation in ("step_admission", "disaggregated"):
            return (UNITS,)
        return (self.options["static_share"],) if "static_share" in self.options else SHARES

    # Ended events of moves are in the order of arrival, so totals are checked as before.

    def outcomes(self) -> list[Ended]:
        return [event for event in self.events if isinstance(event, Ended)]
