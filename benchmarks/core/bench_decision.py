"""How long does one decision of the scheduler take?

Why it matters: a denoise step lasts a few milliseconds, and while the scheduler thinks a device may
stand still. Budget: p99 below 50 us with 64 waiting requests over 1 to 4 models, and below 200 us
with 1,000 waiting over 16.

    python benchmarks/core/bench_decision.py [--quick] [--out FILE]

Two kinds of decisions are timed apart. A *launch* finds an idle device, many who wait, and starts
something. A *wake-up* comes while launches run, because a request expires. Between two launches as
many requests arrive as have left. In ``calm`` cases robots have minutes left and nobody yields; in
``overload`` more is asked than the device can do, so requests become hopeless, yield and expire.

Nothing a case does depends on a clock, so every case is run several times alike, in rounds over all
cases so that a slow minute of the machine hits one run of each. The time of a decision is the least
of its times: what the decision itself costs, garbage collections included, without the turns and
the cache of a neighbour. It is read from the processor's clock of the thread.
The wall clock's p99 over all runs stands beside it in the JSON: what this machine made of it.

The p99 of launches rests on 1,000 launches a case, ten of which took longer; each is the least of
five runs. That takes about four minutes on one core; the time left is told as it goes. Exit status
1 when a budget is missed.
"""

import argparse
import gc
import sys
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from random import Random
from statistics import fmean
from time import perf_counter, perf_counter_ns, thread_time_ns
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from _record import RESULTS, circumstances, write
from takt.core.disciplines import DISCIPLINES
from takt.core.launch import Decision
from takt.core.model import Model
from takt.core.profile import Profile, Work
from takt.core.request import Request, Stage
from takt.core.scheduler import Scheduler
from takt.core.trace import Setup
from takt.units import Nanos, ms

SEED = 7
UNITS, SHARES = 132, (66, 99, 132)
SIZES = (1, 2, 4, 8)
PREFIX_MS = {1: 16.0, 2: 24.0, 4: 40.0, 8: 72.0}
DENOISE_MS = {1: 20.0, 2: 21.0, 4: 23.0, 8: 27.0}
WARM_UP, NUM_RUNS = 50, 5
TELL_EVERY = 20
"""Runs between two words on how far it is."""
SHAPES: dict[str, tuple[str, dict[str, int]]] = {
    "monolithic": ("monolithic", {}),
    "lockstep": ("lockstep", {}),
    "flowing": ("flowing", {}),
    "lockstep, gathering": ("lockstep", {"gathering": 4}),
    "flowing, gathering": ("flowing", {"gathering": 4}),
}
"""Formations of one device, by the name of their row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row of the result."""

    waiting: int
    models: int
    formation: str
    discipline: str
    load: str

    @property
    def budget_us(self) -> float:
        """What p99 may be."""
        return 50.0 if self.waiting <= 64 else 200.0


def cases() -> Iterator[Case]:
    populations = [(64, 1), (64, 4), (1_000, 16)]
    names = product(populations, SHAPES, sorted(DISCIPLINES), ["calm", "overload"])
    for (waiting, models), formation, discipline, load in names:
        yield Case(
            waiting=waiting, models=models, formation=formation, discipline=discipline, load=load
        )


def profile_of(models: tuple[Model, ...]) -> Profile:
    """A GPU of 132 units: a prefix is compute-bound, a denoise launch nearly free of its batch."""
    solo: dict[Work, Nanos] = {}
    slowdown: dict[tuple[Work, Work], float] = {}
    for model, size, share in product(models, SIZES, SHARES):
        prefix = Work(model.architecture, Stage.PREFIX, 0, size, share)
        solo[prefix] = ms(PREFIX_MS[size] * (UNITS / share) ** 0.5)
        solo[prefix._replace(stage=Stage.DENOISE)] = ms(DENOISE_MS[size])
    for one, other in product(solo, solo):
        if one.stage is not other.stage:
            slowdown[one, other] = 1.1 if SHARES[-1] not in (one.share, other.share) else 1.5
    return Profile(units=UNITS, shares=SHARES, solo=solo, slowdown=slowdown)


def models_of(count: int) -> tuple[Model, ...]:
    """Fine-tuned variants of one policy, so that all share the profile."""
    return tuple(
        Model(
            name=f"model-{number}",
            architecture="pi0",
            slo=ms(150),
            prefix_sizes=SIZES,
            denoise_sizes=SIZES,
        )
        for number in range(count)
    )


class Timings:
    """Nanoseconds of decisions on two clocks. They lie in arrays, which no collection looks into:
    what was measured must not make what is measured slower.
    """

    def __init__(self) -> None:
        self.processor = array("q")
        self.wall = array("q")


class Fleet:
    """Robots that keep a fixed number of requests waiting at one scheduler."""

    def __init__(self, case: Case) -> None:
        models = models_of(case.models)
        formation, options = SHAPES[case.formation]
        setup = Setup(
            models=models,
            profile=profile_of(models[:1]),
            formation=formation,
            options=options,
            discipline=case.discipline,
        )
        self.scheduler: Scheduler = setup.scheduler()
        self._case = case
        self._names = [model.name for model in models]
        self._random = Random(SEED)
        self._num_sent = 0
        self._now: Nanos = 0

    def run(self, num_launches: int) -> dict[str, Timings]:
        """Time decisions until ``num_launches`` of them have started something."""
        launches, wake_ups = Timings(), Timings()
        for _ in range(num_launches):
            for _ in range(self._case.waiting - self.scheduler.waiting):
                self.scheduler.submit(self._request(), self._now)
            decision = self._decide(launches)
            if not decision.launches:
                raise SystemExit(f"{self._case}: a decision started nothing")
            end = self._now + ms(self._random.uniform(15, 60))
            wake_at = decision.wake_at
            while wake_at is not None and wake_at < end:
                self._now = wake_at
                _, wake_at = self._decide(wake_ups)
            self._now = end
            for launch in decision.launches:
                self.scheduler.finish(launch.lane, end)
        return {"launch": launches, "wake_up": wake_ups}

    def _decide(self, timings: Timings) -> Decision:
        self.scheduler.take_events()
        begin, wall_begin = thread_time_ns(), perf_counter_ns()
        decision = self.scheduler.decide(self._now)
        wall_end, end = perf_counter_ns(), thread_time_ns()
        timings.processor.append(end - begin)
        timings.wall.append(wall_end - wall_begin)
        return decision

    def _request(self) -> Request:
        is_calm = self._case.load == "calm"
        due = self._now + ms(self._random.uniform(-20, 300) + (600_000 if is_calm else 0))
        self._num_sent += 1
        return Request(
            seq=self._num_sent,
            model=self._random.choice(self._names),
            session=f"robot-{self._num_sent}",
            arrival=self._now,
            due=due,
            promise=self._now + ms(140),
            expires=due + ms(150),
        )


def measure(num_launches: int, num_runs: int) -> Iterator[dict[str, Any]]:
    """Every case's figures, from ``num_runs`` rounds over all cases."""
    runs: dict[Case, list[dict[str, Timings]]] = {case: [] for case in cases()}
    took_s: dict[Case, float] = {}
    todo = list(runs) * num_runs
    while todo:
        case = todo.pop(0)
        begin = perf_counter()
        runs[case].append(timed_run(case, num_launches))
        took_s[case] = perf_counter() - begin
        if len(todo) % TELL_EVERY == 0:
            tell(len(runs) * num_runs, todo, took_s)
    yield from (figures(case, found) for case, found in runs.items())


def tell(num_all: int, todo: Sequence[Case], took_s: dict[Case, float]) -> None:
    """Say how far it is; a case that has not run yet takes as long as the others, until it has."""
    usual_s = fmean(took_s.values())
    left_s = sum(took_s.get(case, usual_s) for case in todo)
    print(
        f"{num_all - len(todo)} of {num_all} runs, about {left_s:.0f} s left",
        file=sys.stderr,
        flush=True,
    )


def figures(case: Case, runs: list[dict[str, Timings]]) -> dict[str, Any]:
    """Of decisions that started something, and of the wake-ups between them."""
    kinds = {kind: summary([run[kind] for run in runs]) for kind in ("launch", "wake_up")}
    worst_us = max(kind.get("p99_us", 0.0) for kind in kinds.values())
    return {
        **asdict(case),
        **kinds,
        "budget_us": case.budget_us,
        "is_within_budget": worst_us < case.budget_us,
    }


def timed_run(case: Case, num_launches: int) -> dict[str, Timings]:
    fleet = Fleet(case)
    fleet.run(WARM_UP)
    gc.collect()  # so that collections fall on the same decisions in every run
    return fleet.run(num_launches)


def summary(runs: list[Timings]) -> dict[str, float]:
    """Nearest-rank quantiles in microseconds; nothing where nothing was timed."""
    if not runs[0].wall:
        return {"count": 0}
    least = sorted(map(min, zip(*(run.processor for run in runs), strict=True)))
    wall = sorted(time for run in runs for time in run.wall)
    return {
        "count": len(least),
        "p50_us": quantile_us(least, 50),
        "p99_us": quantile_us(least, 99),
        "max_us": quantile_us(least, 100),
        "wall_p99_us": quantile_us(wall, 99),
    }


def quantile_us(ordered: list[int], percent: int) -> float:
    return round(ordered[-(-percent * len(ordered) // 100) - 1] / 1e3, 1)


def line(row: dict[str, Any]) -> str:
    launch, wake_up = row["launch"], row["wake_up"]
    return (
        f"{row['waiting']:>7} {row['models']:>6} {row['formation']:<20} {row['discipline']:<18}"
        f"{row['load']:<9} {launch['p50_us']:>7} {launch['p99_us']:>7} {launch['max_us']:>8}"
        f" {wake_up.get('p50_us', '-'):>7} {wake_up.get('p99_us', '-'):>7}"
        f"{'' if row['is_within_budget'] else '  MISSED'}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer decisions and rounds")
    parser.add_argument("--out", type=Path, help="where the JSON goes; --quick writes none else")
    options = parser.parse_args()
    num_launches, num_runs = (200, 2) if options.quick else (1_000, NUM_RUNS)
    out: Path | None = options.out or (None if options.quick else RESULTS / "decision.json")

    rows = list(measure(num_launches, num_runs))
    print(" " * 64 + "launch: p50 us     p99      max  wake-up: p50 us  p99")
    for row in rows:
        print(line(row))
    print(
        f"p99 of {num_launches} launches a case, {num_launches // 100} of which took longer;"
        f" each is the least of {num_runs} runs"
    )
    missed = sum(not row["is_within_budget"] for row in rows)
    print(f"{len(rows) - missed} of {len(rows)} cases within their budget")
    if out is not None:
        result = {
            "benchmark": "core/decision",
            "circumstances": circumstances(seed=SEED),
            "launches_per_case": num_launches,
            "runs_per_case": num_runs,
            "cases": rows,
        }
        write(out, result)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
