"""Builds small schedulers with round numbers, and drives one the way a worker would.

Time is counted in bare nanoseconds, so that instants in tests stay readable and ties are common.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import NamedTuple

from takt.core.events import Ended, Event
from takt.core.launch import Lane, Launch
from takt.core.model import Model
from takt.core.profile import CoRun, Profile, Work
from takt.core.request import Phase, Request, Stage
from takt.core.scheduler import Lateness, Scheduler
from takt.core.trace import Setup

UNITS = 4
SHARES = (2, 4)
PREFIX = Lane(0, Stage.PREFIX)
DENOISE = Lane(0, Stage.DENOISE)


def model_of(
    name: str = "pi0",
    *,
    slo: int = 100,
    prefix: tuple[int, ...] = (1, 2, 4),
    denoise: tuple[int, ...] = (1, 2, 4),
    holds: tuple[int, ...] = (1,),
    steps: int = 1,
) -> Model:
    """A model whose architecture is called like itself."""
    return Model(
        name=name,
        architecture=name,
        slo=slo,
        prefix_sizes=prefix,
        denoise_sizes=denoise,
        holds=holds,
        steps=steps,
    )


def works_of(model: Model) -> Iterator[Work]:
    """Every launch of ``model`` that a device may run."""
    for stage in Stage:
        for layout, size, share in product(range(len(model.holds)), model.sizes(stage), SHARES):
            yield Work(model.architecture, stage, layout, size, share)


def profile_of(*models: Model, prefix: int = 10, denoise: int = 20) -> Profile:
    """A device on which a launch takes the time of its stage, whatever its shape and company."""
    works = [work for model in models for work in works_of(model)]
    time = {Stage.PREFIX: prefix, Stage.DENOISE: denoise}
    return Profile(
        units=UNITS,
        shares=SHARES,
        solo={work: time[work.stage] for work in works},
        slowdown={
            pair: 1.0 for pair in product(works, works) if pair[0].stage is not pair[1].stage
        },
    )


def request_of(
    seq: int,
    model: str = "pi0",
    *,
    session: str | None = None,
    at: int = 0,
    due: int = 1_000,
    promise: int | None = None,
    expires: int = 10_000,
    layout: int = 0,
    supersede: bool = True,
    priority: int = 0,
) -> Request:
    """A request with time to spare, in a session of its own; its promise is its due."""
    return Request(
        seq=seq,
        model=model,
        session=f"session {seq}" if session is None else session,
        arrival=at,
        due=due,
        promise=due if promise is None else promise,
        expires=expires,
        layout=layout,
        supersede=supersede,
        priority=priority,
    )


def scheduler_of(
    *models: Model,
    profile: Profile | None = None,
    formation: str = "monolithic",
    discipline: str = "earliest_deadline",
    lateness: Lateness = Lateness.YIELD,
) -> Scheduler:
    """A scheduler of ``models``, by default on a device where shapes cost nothing."""
    loaded = models or (model_of(),)
    return Setup(
        models=loaded,
        profile=profile or profile_of(*loaded),
        formation=formation,
        discipline=discipline,
        lateness=lateness,
    ).scheduler()


def endings(scheduler: Scheduler) -> list[tuple[int, int, Phase]]:
    """Take the events so far; the outcomes among them as (instant, request, phase)."""
    return [
        (event.at, event.seq, event.phase)
        for event in scheduler.take_events()
        if isinstance(event, Ended)
    ]


class Run(NamedTuple):
    """One launch from its start to its end: a line of a schedule."""

    start: int
    end: int
    stage: str
    model: str
    requests: tuple[int, ...]
    size: int
    share: int


class Driver:
    """One device in virtual time: launches take their profiled time side by side."""

    def __init__(self, setup: Setup) -> None:
        self.scheduler = setup.scheduler()
        self.events: list[Event] = []
        self.schedule: list[Run] = []
        """Launches that ended, in the order of their starts."""
        self._architecture = {model.name: model.architecture for model in setup.models}
        self._physical = setup.group.physical
        self._devices = [CoRun[Lane](setup.costs()) for _ in range(setup.group.num_physical)]
        self._running: dict[Lane, tuple[int, Launch]] = {}
        self._wake_at: int | None = None

    def run(self, requests: Iterable[Request], failures: Mapping[int, int] | None = None) -> None:
        """Submit each request at its arrival and go on until all have ended.

        Args:
            requests: In any order.
            failures: Rows that cannot be computed, by the instant their launch ends at.
        """
        coming = deque(sorted(requests, key=lambda request: (request.arrival, request.seq)))
        while coming or self.scheduler.unfinished:
            now = self._next_instant(coming[0].arrival if coming else None)
            while coming and coming[0].arrival == now:
                self.scheduler.submit(coming.popleft(), now)
            self._end_launches(now, (failures or {}).get(now))
            self._decide(now)
        self.schedule.sort()

    def _next_instant(self, arrival: int | None) -> int:
        end = self._next_end()
        instants = (arrival, end and end[0], self._wake_at)
        return min(instant for instant in instants if instant is not None)

    def _next_end(self) -> tuple[int, Lane] | None:
        ends = [end for device in self._devices if (end := device.next_end()) is not None]
        return min(ends, key=lambda end: end[0], default=None)

    def _end_launches(self, now: int, failed: int | None) -> None:
        while (end := self._next_end()) is not None and end[0] == now:
            lane = end[1]
            start, launch = self._running.pop(lane)
            self._devices[self._physical[lane.device]].finish(lane, now)
            self.scheduler.finish(lane, now, [seq for seq in launch.requests if seq == failed])
            self.schedule.append(_run(start, now, launch))

    def _decide(self, now: int) -> None:
        launches, self._wake_at = self.scheduler.decide(now)
        for launch in launches:
            work = launch.work(self._architecture[launch.model])
            self._devices[self._physical[launch.lane.device]].start(launch.lane, work, now)
            self._running[launch.lane] = now, launch
        self.events += self.scheduler.take_events()


def _run(start: int, end: int, launch: Launch) -> Run:
    stage = launch.lane.stage.name.lower()
    return Run(start, end, stage, launch.model, launch.requests, launch.size, launch.share)
