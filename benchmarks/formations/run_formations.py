"""How many robots does one GPU carry, under each formation?

Every figure is simulated on modelled stage times (``docs/reference/hardware.md``); nothing here
depends on a clock or on this machine. Run it with::

    .venv/bin/python benchmarks/formations/run_formations.py          # twenty minutes, two cores
    .venv/bin/python benchmarks/formations/run_formations.py --quick  # a minute, writes nothing
    .venv/bin/python benchmarks/formations/run_formations.py --page   # only the page and the plots

It goes on where it was stopped. The cost model's parameters are written to
``benchmarks/results/formations.json`` before the first figure; a file made with other parameters
is refused. At the end it writes ``docs/results/formations.md`` and its plots.

The criterion is that of ``takt plan`` with shorter draws, because the phases of robots, not the
length of a run, make draws differ: up to 10 draws of 3 s after 1 s. Every formation gets the same
sweep of prefix batch limits, 1 to 4, on the same seeds, and the best one is shown; limits that do
not fit the slo (:func:`takt.sim.shapes.sound_shapes`) are left out.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from co_location import Misses, Placement, co_location_cells

from _record import RESULTS
from takt.core.profile import Profile, Work
from takt.core.request import Stage
from takt.core.trace import Setup
from takt.hardware import DEFAULT_INTERFERENCE, DEFAULT_STACK, model_for, profile_for
from takt.hardware.calibration import CALIBRATION
from takt.sim.fleet import Fleet, RobotGroup
from takt.sim.knee import Criterion, Job, draw, serially
from takt.sim.network import Wifi7Network
from takt.sim.shapes import Carried, Shape, best_shape, limits_of, sound_shapes
from takt.units import SECOND, to_ms

RESULT = RESULTS / "formations.json"
CRITERION = Criterion(num_draws=10, duration=3 * SECOND, warm_up=1 * SECOND)
RATE_HZ = 2.0
DENOISE_SIZES = (1, 2, 4, 8, 16)
LIMITS = (1, 2, 3, 4)
DEVICES = ("rtx-pro-6000", "h100", "a100", "rtx-4090")
MODELS = {"pi0": 156.0, "pi05": 158.0, "smolvla": 65.0, "groot-n1.7": 138.0, "xr0": 230.0}
TIGHTER = 0.64
"""100 ms where 156 ms is published."""
INTERFERENCES = (0.0, 0.12, 0.25, 0.5)
SLOS = (100.0, 156.0, 250.0)
GATHERED = (2, 4, 8, 16)
INSPECTIONS = (0.0, 0.9, 3.0, 5.0, 7.0, 9.0)
"""Milliseconds per denoise step; 0.9 makes it a third of a step of one row."""
MIX = {"pi0": 3, "groot-n1.7": 2, "smolvla": 1}
DISCIPLINES = ("earliest_deadline", "least_slack", "round_robin", "longest_queue")

Options = tuple[tuple[str, Any], ...]
SINGLE: tuple[tuple[str, Options], ...] = (
    ("monolithic", ()),
    ("monolithic", (("replicas", 2),)),
    ("lockstep", ()),
    ("lockstep", (("gathering", 4),)),
    ("flowing", ()),
    ("flowing", (("gathering", 4),)),
)
SHOWN = (SINGLE[0], *SINGLE[2:4], SINGLE[5])
"""Those of the large tables."""
RIVALS: tuple[tuple[str, Options], ...] = (
    ("lockstep", (("static_share", 96),)),
    ("lockstep", (("static_share", 188),)),
    ("step_admission", ()),
    ("step_admission", (("devices", 2),)),
    ("step_admission", (("single_stage", True),)),
    ("disaggregated", (("prefix_devices", 1),)),
    ("disaggregated", (("prefix_devices", 3),)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One question: how many robots?"""

    part: str
    device: str = "rtx-pro-6000"
    models: tuple[tuple[str, float, int], ...]
    """Name, slo in ms and proportion of each model."""
    formation: str
    options: Options = ()
    discipline: str = "earliest_deadline"
    interference: float = DEFAULT_INTERFERENCE
    limits: tuple[int, ...] = LIMITS
    skips: bool = False
    """Whether masked cameras and prompt padding are left out."""

    @property
    def key(self) -> str:
        """Name of the cell in the file, whatever its part."""
        return json.dumps({k: v for k, v in asdict(self).items() if k != "part"})

    def fleet(self, shape: Shape) -> Fleet:
        """One robot group per model on one device or group."""
        models = [
            model_for(
                name,
                slo_ms=slo,
                prefix_sizes=shape.prefix_sizes,
                denoise_sizes=shape.denoise_sizes,
                one_layout=not self.skips,
            )
            for name, slo, _ in self.models
        ]
        setup = Setup(
            models=tuple(models),
            profile=profile_of(
                self.device,
                tuple(name for name, _, _ in self.models),
                self.skips,
                self.interference,
            ),
            formation=self.formation,
            options=dict(self.options),
            discipline=self.discipline,
        )
        groups = [
            RobotGroup(model=name, count=part, device="gpu", rate_hz=RATE_HZ)
            for name, _, part in self.models
        ]
        return Fleet(devices={"gpu": setup}, robots=tuple(groups), network=Wifi7Network())


@lru_cache(maxsize=8)
def profile_of(device: str, names: tuple[str, ...], skips: bool, interference: float) -> Profile:
    """Times of every size any shape has; slos do not matter."""
    models = [
        model_for(name, prefix_sizes=LIMITS, denoise_sizes=DENOISE_SIZES, one_layout=not skips)
        for name in names
    ]
    return profile_for(device, models, interference=interference)


def one(name: str, slo_ms: float) -> tuple[tuple[str, float, int], ...]:
    return ((name, slo_ms, 1),)


def cells() -> Iterator[Cell | Misses | Placement]:
    """Every question, the most telling first."""
    yield from paper_cells()
    yield from pi0_cells()
    yield from mix_cells()
    yield from co_location_cells()
    yield from skipping_cells()
    yield from device_cells("formations", 1.0)
    yield from device_cells("tighter", TIGHTER)


def paper_cells() -> Iterator[Cell]:
    """All rules on the paper's GPU, and the effect of the batch limit."""
    pi0 = one("pi0", MODELS["pi0"])
    for formation, options in (*SINGLE, *RIVALS):
        yield Cell(part="paper", models=pi0, formation=formation, options=options)
    limited = (SINGLE[0], SINGLE[2], RIVALS[0])
    for limit, (formation, options) in product((1, 2, 4), limited):
        yield Cell(part="limits", models=pi0, formation=formation, options=options, limits=(limit,))

    for devices, inspection in product((1, 2), INSPECTIONS):
        options = (("devices", devices), ("inspection_ms", inspection))
        yield Cell(part="inspection", models=pi0, formation="step_admission", options=options)


def pi0_cells() -> Iterator[Cell]:
    """Interference and gathering rules, over three slos."""
    for slo, interference in product(SLOS, INTERFERENCES):
        for formation, options in SHOWN:
            yield Cell(
                part="interference",
                models=one("pi0", slo),
                formation=formation,
                options=options,
                interference=interference,
            )
    for slo, formation, rows in product(SLOS, ("lockstep", "flowing"), GATHERED):
        options = (("gathering", rows),)
        yield Cell(part="gathering", models=one("pi0", slo), formation=formation, options=options)


def mix_cells() -> Iterator[Cell]:
    """Disciplines differ only where several models share a GPU."""
    mix = tuple((name, MODELS[name], part) for name, part in MIX.items())
    for discipline, (formation, options) in product(DISCIPLINES, SHOWN[1:]):
        yield Cell(
            part="disciplines",
            models=mix,
            formation=formation,
            options=options,
            discipline=discipline,
        )


def device_cells(part: str, tightness: float) -> Iterator[Cell]:
    """Every model on every GPU."""
    for device, (name, slo), (formation, options) in product(DEVICES, MODELS.items(), SHOWN):
        model = one(name, round(slo * tightness, 1))
        yield Cell(part=part, device=device, models=model, formation=formation, options=options)


def skipping_cells() -> Iterator[Cell]:
    """What masked cameras and prompt padding cost."""
    for device, name in product(DEVICES[:1], ("pi0", "pi05", "smolvla")):
        for skips in (False, True):
            yield Cell(
                part="skipping",
                device=device,
                models=one(name, MODELS[name]),
                formation="lockstep",
                options=(("gathering", 4),),
                skips=skips,
            )


def measure(cell: Cell | Misses | Placement) -> dict[str, Any]:
    """The figures of one cell."""
    if not isinstance(cell, Cell):
        return cell.measure()
    shapes = limits_of(cell.formation, dict(cell.options), cell.limits)
    fleets = {id(shape): cell.fleet(shape) for shape in shapes}
    sound = sound_shapes(shapes, lambda shape: fleets[id(shape)])
    best = best_shape(sound, lambda shape: serially(fleets[id(shape)]), CRITERION)
    fleet = fleets[id(best.shape)]
    worth = overload(fleet, best.knee.robots) if cell.part == "paper" else {}
    return {**asdict(cell), **figures(best, fleet), "overload": worth}


def figures(best: Carried, fleet: Fleet) -> dict[str, Any]:
    knee = best.knee
    at = knee.at(knee.robots)
    gpus = fleet.devices["gpu"].group.num_physical
    return {
        "gpus": gpus,
        "robots": knee.robots,
        "robots_by_mean": knee.robots_by_mean,
        "robots_per_gpu": round(knee.robots / gpus, 2),
        "robots_by_mean_per_gpu": round(knee.robots_by_mean / gpus, 2),
        "prefix_limit": best.shape.prefix_limit,
        "denoise_limit": best.shape.denoise_limit,
        "worst_robot": None if at is None else round(at.worst_robot, 4),
        "attainment": [[it.population, round(it.mean, 4)] for it in knee.measured],
    }


def overload(fleet: Fleet, robots: int) -> dict[str, float]:
    """Robots' worth of requests answered in time at the knee and beyond it."""
    worth: dict[str, float] = {}
    for percent in (100, 150, 200):
        population = max(robots * percent // 100, 1)
        jobs = [Job(population, seed, 6 * SECOND, 2 * SECOND) for seed in range(3)]
        mean = fmean(fmean(draw(fleet, job).by_model.values()) for job in jobs)
        worth[str(percent)] = round(mean * population, 1)
    return worth


def parameters() -> dict[str, Any]:
    """The cost model, before anything is compared."""
    return {
        "simulated": True,
        "stack": DEFAULT_STACK,
        "calibration": asdict(CALIBRATION),
        "interference": DEFAULT_INTERFERENCE,
        "rate_hz": RATE_HZ,
        "network": asdict(Wifi7Network()) | {"_air": None},
        "denoise_sizes": list(DENOISE_SIZES),
        "criterion": asdict(CRITERION),
        "step_admission": {"inspection_ms": 0.9, "packing_ms": 0.1},
        "stage_ms": {f"{d} {m}": stage_times(d, m) for d, m in product(DEVICES, MODELS)},
    }


def stage_times(device: str, name: str) -> dict[str, list[float]]:
    """Times alone on the whole device by batch size, all cameras computed."""
    model = model_for(name, one_layout=True, denoise_sizes=DENOISE_SIZES)
    profile = profile_for(device, [model])
    return {
        stage.name.lower(): [
            round(to_ms(profile.solo(Work(name, stage, 0, size, profile.units))), 2)
            for size in model.sizes(stage)
        ]
        for stage in Stage
    }


def load() -> dict[str, dict[str, Any]]:
    """Cells measured before, by key."""
    if not RESULT.exists():
        save({})
        return {}
    data = json.loads(RESULT.read_text())
    if data["parameters"] != json.loads(json.dumps(parameters())):
        raise SystemExit(f"{RESULT.name} was made with other parameters; move it away first")
    return {row["key"]: row for row in data["cells"]}


def save(rows: dict[str, dict[str, Any]]) -> None:
    text = json.dumps({"parameters": parameters()}, indent=1).removesuffix("\n}")
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows.values())
    fresh = RESULT.with_suffix(".new")
    fresh.parent.mkdir(exist_ok=True)
    fresh.write_text(f'{text},\n "cells": [\n{lines}\n ]\n}}\n')
    fresh.replace(RESULT)


def run(
    wanted: Sequence[Cell | Misses | Placement],
    rows: dict[str, dict[str, Any]],
    keep: Callable[[], None],
) -> None:
    """Measure what is missing, on all cores, and keep each figure at once."""
    missing = {cell.key: cell for cell in reversed(wanted) if cell.key not in rows}
    missing = dict(reversed(missing.items()))  # of two parts that ask the same the first one asks
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), initializer=gc.disable) as pool:
        futures = {pool.submit(measure, cell): cell for cell in missing.values()}
        for number, future in enumerate(as_completed(futures), 1):
            cell = futures[future]
            rows[cell.key] = {"key": cell.key, **future.result()}
            keep()
            print(f"{number}/{len(missing)} {said(cell, rows[cell.key])}", flush=True)


def said(cell: Cell | Misses | Placement, row: dict[str, Any]) -> str:
    """One line of a cell and what came out."""
    if isinstance(cell, Cell):
        return (
            f"{cell.part} {cell.device} {cell.models} {cell.formation} {dict(cell.options)}"
            f" {cell.interference}: {row['robots_per_gpu']} per GPU"
        )
    found = row["misses"] if isinstance(cell, Misses) else f"{row['robots']} robots"
    return f"{cell.part} {cell.loaded} {cell.formation}: {found}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="pi0 on one GPU, writes nothing")
    parser.add_argument("--page", action="store_true", help="only write the page and the plots")
    options = parser.parse_args()
    if options.quick:
        quick = [replace(cell, limits=(2,)) for cell in list(paper_cells())[:4]]
        run(quick, {}, lambda: None)
        return
    rows = load()
    if not options.page:
        run(list(cells()), rows, lambda: save(rows))
    from page import write_page

    write_page(list(cells()), rows)


if __name__ == "__main__":
    main()
