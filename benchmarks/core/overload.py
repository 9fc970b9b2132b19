"""What becomes of a device that is asked for more than it can do, under each lateness rule?

One device and its pi0 model from ``examples/fleet.yaml``, open-loop robots at 2 Hz over WiFi 7,
12 to 60 of them, for both formations. Compared are the three rules of
:class:`~takt.core.scheduler.Lateness` and two variants of ``YIELD`` that Takt does not have, built
here so that the figures of ``docs/explanation/lateness.md`` can be checked:

- ``regain_always``: a request that has yielded for one slo regains its order even if its answer
  can no longer come before it expires;
- ``solo_times``: the expected service is that of the largest batches alone on the device, which
  is too short where launches run in pairs.

The figure is SLO attainment times population: how many robots' worth of requests are answered
within the slo. A second table shows who loses: the same overload with dues from the slo and with
dues from the robots' queues, starvation beside attainment. Every number is simulated and depends
on no clock. Run it with::

    .venv/bin/python benchmarks/core/overload.py          # four minutes on one core
    .venv/bin/python benchmarks/core/overload.py --quick  # few populations, writes no file

It writes ``benchmarks/results/overload.json`` and ``docs/images/overload.svg``.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean

from takt import __version__
from takt.core.attainment import summarise
from takt.core.disciplines import DISCIPLINES
from takt.core.formations import FORMATIONS
from takt.core.formations.lockstep import Lockstep
from takt.core.formations.monolithic import Monolithic
from takt.core.model import Model
from takt.core.profile import Profile
from takt.core.queue import Queue
from takt.core.request import Request
from takt.core.scheduler import Lateness, Scheduler
from takt.core.trace import Setup
from takt.server.fleet_file import FleetFile
from takt.sim.fleet import Deadline, Fleet, RobotGroup
from takt.sim.loop import simulate
from takt.units import SECOND, Nanos

ROOT = Path(__file__).parents[2]
FLEET = ROOT / "examples" / "fleet.yaml"
RESULTS = ROOT / "benchmarks" / "results" / "overload.json"
PLOT = ROOT / "docs" / "images" / "overload.svg"

MODEL, DEVICE, RATE_HZ = "pi0", "gpu0", 2.0
POPULATIONS = (12, 16, 18, 20, 22, 24, 26, 28, 30, 32, 36, 40, 44, 52, 60)
QUICK = (20, 36)
OVERLOAD = 36
SECONDS, WARM_UP_SECONDS = 60, 5
SEEDS, QUICK_SEEDS = (1, 2, 3), (1,)


class RegainAlways(Scheduler):
    """Yields as Takt does, and regains after one slo whatever the answer would be worth."""

    def _may_regain(self, request: Request, queue: Queue, now: Nanos) -> bool:
        return True


class SoloTimes(Lockstep):
    """Lockstep that expects a request to meet no partner."""

    def expected(self, profile: Profile, model: Model, layout: int) -> tuple[Nanos, Nanos]:
        """Times of the largest batches alone on the device."""
        return Monolithic().expected(profile, model, layout)


def _regain_always(setup: Setup) -> Scheduler:
    formation = FORMATIONS[setup.formation]()
    return RegainAlways(setup.models, setup.profile, formation, DISCIPLINES[setup.discipline])


def _solo_times(setup: Setup) -> Scheduler:
    return Scheduler(setup.models, setup.profile, SoloTimes(), DISCIPLINES[setup.discipline])


@dataclass(frozen=True, kw_only=True)
class Variant(Setup):
    """A setup whose scheduler is built by ``build``."""

    build: Callable[[Setup], Scheduler] = Setup.scheduler

    def scheduler(self) -> Scheduler:
        """A fresh scheduler."""
        return self.build(self)


RULES: Mapping[str, tuple[Lateness, Callable[[Setup], Scheduler]]] = {
    "yield": (Lateness.YIELD, Setup.scheduler),
    "serve_late": (Lateness.SERVE_LATE, Setup.scheduler),
    "refuse_at_due": (Lateness.REFUSE_AT_DUE, Setup.scheduler),
    "regain_always": (Lateness.YIELD, _regain_always),
    "solo_times": (Lateness.YIELD, _solo_times),
}
FORMATION_RULES: Mapping[str, Sequence[str]] = {
    "monolithic": [rule for rule in RULES if rule != "solo_times"],  # it has no pairs
    "lockstep": list(RULES),
}


def overloaded(formation: str, rule: str, population: int, due_from: Deadline) -> Fleet:
    """A fleet of ``population`` robots that ask for pi0."""
    example = FleetFile.read(FLEET).fleet()
    setup = example.devices[DEVICE]
    lateness, build = RULES[rule]
    variant = Variant(
        models=tuple(model for model in setup.models if model.name == MODEL),
        profile=setup.profile,
        formation=formation,
        lateness=lateness,
        build=build,
    )
    robots = RobotGroup(
        model=MODEL, count=population, device=DEVICE, rate_hz=RATE_HZ, deadline=due_from
    )
    return replace(example, devices={DEVICE: variant}, robots=(robots,))


@dataclass(frozen=True, kw_only=True)
class Point:
    """What the simulations of one population found, means over seeds; shares lie in 0..1."""

    formation: str
    rule: str
    due_from: Deadline
    robots: int
    robots_worth: float
    """Attainment times population."""
    attainment: float
    worst_robot: float
    """Attainment of the robot that was served worst, of all seeds."""
    starvation: float
    """Share of control ticks without an action."""
    worst_starvation: float
    """That of the robot that starved most, of all seeds."""


def measure(
    formation: str, rule: str, population: int, seeds: Sequence[int], due_from: Deadline = "slo"
) -> Point:
    """Simulate one point."""
    fleet = overloaded(formation, rule, population, due_from)
    runs = [
        simulate(fleet, duration=SECONDS * SECOND, warm_up=WARM_UP_SECONDS * SECOND, seed=seed)
        for seed in seeds
    ]
    summaries = [summarise(run.records) for run in runs]
    attainment = fmean(summary.total.attainment for summary in summaries)
    starved = [run.starved[name] / run.ticks[name] for run in runs for name in run.ticks]
    return Point(
        formation=formation,
        rule=rule,
        due_from=due_from,
        robots=population,
        robots_worth=round(attainment * population, 1),
        attainment=round(attainment, 3),
        worst_robot=round(min(p.attainment for s in summaries for p in s.by_robot.values()), 3),
        starvation=round(fmean(starved), 3),
        worst_starvation=round(max(starved), 3),
    )


Curves = dict[tuple[str, str], list[Point]]


def sweep(populations: Sequence[int], seeds: Sequence[int]) -> Curves:
    """Every curve, by formation and rule."""
    curves: Curves = {}
    for formation, rules in FORMATION_RULES.items():
        for rule in rules:
            points = [measure(formation, rule, population, seeds) for population in populations]
            curves[formation, rule] = points
            worth = " ".join(f"{point.robots}:{point.robots_worth:g}" for point in points)
            print(f"{formation:11} {rule:14} {worth}")
    return curves


def who_loses(seeds: Sequence[int]) -> list[Point]:
    """One overload with dues from the slo and from the queues."""
    dues: tuple[Deadline, ...] = ("slo", "queue")
    points = [
        measure(formation, rule, OVERLOAD, seeds, due)
        for formation in FORMATION_RULES
        for due in dues
        for rule in ("yield", "serve_late")
    ]
    for point in points:
        print(point)
    return points


def write_json(points: Iterable[Point]) -> None:
    """Write the points, one a line, after what they depend on."""
    facts = {
        "question": "which lateness rule keeps an overloaded device useful",
        "simulated": True,
        "fleet": f"{FLEET.relative_to(ROOT)}: {MODEL} alone on {DEVICE}, {RATE_HZ:g} Hz open loop",
        "seconds": SECONDS,
        "warm_up_seconds": WARM_UP_SECONDS,
        "seeds": SEEDS,
        "versions": {"takt": __version__, "python": platform.python_version()},
        "machine": f"{platform.system()} {platform.machine()}; no figure depends on it",
    }
    rows = ",\n".join(f"  {json.dumps(asdict(point))}" for point in points)
    text = json.dumps(facts, indent=1).removesuffix("\n}") + f',\n "points": [\n{rows}\n ]\n}}\n'
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(text, encoding="utf-8")


STYLE: Mapping[str, tuple[str, str]] = {
    "yield": ("#0b5cad", "-"),
    "refuse_at_due": ("#009e73", "--"),
    "solo_times": ("#e69f00", "-."),
    "regain_always": ("#cc79a7", ":"),
    "serve_late": ("#c2410c", "-"),
}
"""Colour and dashes of each rule, Okabe and Ito's colours among them."""


def draw(curves: Curves) -> None:
    """Write the plot: one panel per formation."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": "takt", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(8.4, 4.2), layout="constrained")
        panels = figure.subplots(1, len(FORMATION_RULES), sharey=True)
        for axes, formation in zip(panels, FORMATION_RULES, strict=True):
            for rule, (colour, dashes) in STYLE.items():
                points = curves.get((formation, rule), [])
                x = [point.robots for point in points]
                y = [point.robots_worth for point in points]
                if points:
                    axes.plot(x, y, dashes, color=colour, label=rule, linewidth=1.6)
            axes.axline((0, 0), slope=1, color="#9ca3af", linewidth=0.8, label="all of them")
            axes.set(title=formation, xlabel="robots that ask, 2 Hz each", ylim=(0, 36))
            axes.set_xlim(POPULATIONS[0], POPULATIONS[-1])
            axes.grid(color="#e5e7eb", linewidth=0.6)
        panels[0].set_ylabel("robots' worth answered within the slo")
        handles, labels = panels[-1].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=6, frameon=False)
        figure.suptitle("One overloaded device, by lateness rule (simulated)", fontsize=10)
        figure.savefig(PLOT, format="svg", metadata={"Date": None}, facecolor="white")


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description="Lateness rules on an overloaded device.")
    parser.add_argument("--quick", action="store_true", help="few populations, one seed, no files")
    quick: bool = parser.parse_args().quick
    seeds = QUICK_SEEDS if quick else SEEDS
    curves = sweep(QUICK if quick else POPULATIONS, seeds)
    losers = who_loses(seeds)
    if not quick:
        write_json([*(point for points in curves.values() for point in points), *losers])
        draw(curves)


if __name__ == "__main__":
    main()
