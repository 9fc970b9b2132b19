"""``takt plan``: how many robots a device carries, and how to drive it."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.table import Table

from takt.core.disciplines import DISCIPLINES
from takt.core.events import Decide
from takt.core.trace import Setup
from takt.errors import UsageError
from takt.hardware import DEFAULT_INTERFERENCE, DEFAULT_STACK, model_for, profile_for
from takt.server.fleet_file import FleetFile
from takt.sim.fleet import Fleet, RobotGroup
from takt.sim.knee import Criterion, Knee, Measured
from takt.sim.loop import simulate
from takt.sim.network import Wifi7Network
from takt.sim.processes import Processes, processes
from takt.sim.shapes import Carried, Shape, best_shape, shapes_of, sound_shapes
from takt.units import SECOND, to_ms

__all__ = ["Plan"]

_DEVICE = "device"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Say how many robots a device carries at the target, by simulation, without a GPU.

    Give a fleet file, or a device by name with --hardware and what it serves with --model or
    --robots. Every figure is simulated; without a fleet file the times of the device are modelled.
    """

    fleet: Annotated[Path | None, tyro.conf.Positional] = None
    """Fleet file (YAML): the fleet is scaled in its proportions."""
    hardware: str | None = None
    """Device, such as rtx-pro-6000; ``takt hardware`` lists them."""
    model: str | None = None
    """Model, such as pi0: how many robots with it are carried?"""
    robots: tuple[str, ...] = ()
    """A mix, one NAME=N for each model: does it fit?"""
    slo_ms: float | None = None
    """Promised time of each model; each one's own when absent."""
    rate_hz: float = 2.0
    """Observations per second and robot, open loop."""
    formation: str | None = None
    """auto, monolithic, lockstep, flowing, step_admission or disaggregated. Without a fleet file
    auto; with one what the file says."""
    gathering: Literal["on", "off"] | None = None
    """Whether denoise launches may wait for more rows; both are tried when absent."""
    discipline: str = "earliest_deadline"
    """Which model's queue goes next."""
    skip_masked: bool = False
    """Do not compute masked cameras and the padding of prompts: rows of the cheapest layout."""
    stack: str = DEFAULT_STACK
    """How the networks are run."""
    interference: float = DEFAULT_INTERFERENCE
    """Slowdown of a denoise launch by a prefix that takes all memory bandwidth."""
    target: float = 0.98
    """Attainment to hold."""
    seeds: int = 20
    """Draws of every population that is in doubt."""
    seconds: float = 60.0
    """Traffic per draw, in seconds."""
    json: bool = False
    """Print the plan as JSON."""

    def run(self) -> None:
        """Simulate and print."""
        asked = self._asked()
        criterion = Criterion(
            target=self.target, num_draws=self.seeds, duration=round(self.seconds * SECOND)
        )
        console = Console(stderr=True)
        with processes() as pool, console.status("simulating") as status:
            carried = self._best(pool, criterion, asked, lambda text: status.update(text))
        figures = self._figures(carried, asked)
        print(json.dumps(figures, indent=2)) if self.json else _show(figures)

    # What is asked

    def _asked(self) -> dict[str, int]:
        """Robots per model, where a mix is given; 1 of the only model otherwise."""
        if self.fleet is not None:
            if self.hardware or self.model or self.robots:
                raise UsageError("give a fleet file or --hardware with --model, not both")
            return {}
        if self.hardware is None:
            raise UsageError("give a fleet file, or --hardware with --model or --robots")
        if (self.model is None) == (not self.robots):
            raise UsageError("give --model or --robots, one of them")
        if self.discipline not in DISCIPLINES:
            raise UsageError(f"no discipline {self.discipline!r}; known: {', '.join(DISCIPLINES)}")
        return {self.model: 1} if self.model is not None else dict(map(_robots, self.robots))

    def _best(
        self,
        pool: Processes,
        criterion: Criterion,
        asked: Mapping[str, int],
        tell: Callable[[str], None],
    ) -> Carried:
        fleets: dict[int, Fleet] = {}

        def fleet_of(shape: Shape) -> Fleet:
            if id(shape) not in fleets:
                fleets[id(shape)] = self._fleet(shape, asked)
            return fleets[id(shape)]

        def progress(shape: Shape, measured: Measured | None) -> None:
            at = "" if measured is None else f": {measured.population} robots"
            tell(f"{shape}, prefix batches up to {shape.prefix_limit}{at}")

        return best_shape(
            self._shapes(fleet_of), lambda shape: pool.runner(fleet_of(shape)), criterion, progress
        )

    def _shapes(self, fleet_of: Callable[[Shape], Fleet]) -> list[Shape]:
        """What to choose among. A fleet file has its own batch sizes."""
        if self.fleet is not None and self.formation is None:
            return [Shape(formation="as the file says", prefix_limit=1, denoise_limit=1)]
        gathering = {"on": True, "off": False, None: None}[self.gathering]
        shapes = shapes_of(self.formation or "auto", gathering)
        if self.fleet is None:
            return sound_shapes(shapes, fleet_of)
        return list({str(shape): shape for shape in shapes}.values())

    def _fleet(self, shape: Shape, asked: Mapping[str, int]) -> Fleet:
        if self.fleet is not None:
            fleet = FleetFile.read(self.fleet).fleet()
            if self.formation is None:
                return fleet
            devices = {
                name: replace(setup, formation=shape.formation, options=shape.options)
                for name, setup in fleet.devices.items()
            }
            return replace(fleet, devices=devices)
        assert self.hardware is not None
        models = [
            model_for(
                name,
                slo_ms=self.slo_ms,
                prefix_sizes=shape.prefix_sizes,
                denoise_sizes=shape.denoise_sizes,
                one_layout=not self.skip_masked,
            )
            for name in asked
        ]
        setup = Setup(
            models=tuple(models),
            profile=profile_for(
                self.hardware, models, stack=self.stack, interference=self.interference
            ),
            formation=shape.formation,
            options=shape.options,
            discipline=self.discipline,
        )
        groups = tuple(
            RobotGroup(model=name, count=count, device=_DEVICE, rate_hz=self.rate_hz)
            for name, count in asked.items()
        )
        return Fleet(devices={_DEVICE: setup}, robots=groups, network=Wifi7Network())

    # What is answered

    def _figures(self, carried: Carried, asked: Mapping[str, int]) -> dict[str, Any]:
        knee, shape = carried.knee, carried.shape
        fleet = self._fleet(shape, asked)
        num_devices = sum(setup.group.num_physical for setup in fleet.devices.values())
        setups = list(fleet.devices.values())
        return {
            "simulated": True,
            "hardware": self.hardware,
            "fleet": None if self.fleet is None else self.fleet.name,
            "models": {m.name: {"slo_ms": to_ms(m.slo)} for s in setups for m in s.models},
            "rate_hz": self.rate_hz if self.fleet is None else None,
            "target": self.target,
            "seeds": self.seeds,
            "devices": num_devices,
            "robots_at_target": knee.robots,
            "robots_at_target_mean": knee.robots_by_mean,
            "robots_at_target_per_device": round(knee.robots / num_devices, 2),
            "interval": _interval(knee),
            "formation": sorted({setup.formation for setup in setups}),
            "options": {name: dict(s.options) for name, s in fleet.devices.items()},
            "discipline": sorted({setup.discipline for setup in setups}),
            "prefix_sizes": {m.name: list(m.prefix_sizes) for s in setups for m in s.models},
            "attainment": [_population(measured) for measured in knee.measured],
            **_launches(fleet, knee),
            **({"mix": _mix(asked, knee)} if len(asked) > 1 or self.robots else {}),
        }


def _robots(text: str) -> tuple[str, int]:
    name, _, count = text.partition("=")
    if not name or not count.isdecimal() or int(count) < 1:
        raise UsageError(f"--robots wants NAME=N with N at least 1, got {text!r}")
    return name, int(count)


def _interval(knee: Knee) -> list[float] | None:
    at = knee.at(knee.robots)
    return None if at is None else [round(at.interval.low, 5), round(at.interval.high, 5)]


def _population(measured: Measured) -> dict[str, object]:
    return {
        "robots": measured.population,
        "attainment": round(measured.mean, 5),
        "bound": round(measured.bound, 5),
        "worst_robot": round(measured.worst_robot, 5),
        "draws": len(measured.draws),
    }


def _launches(fleet: Fleet, knee: Knee) -> dict[str, object]:
    """Sizes and shares of the launches at the knee, as parts of all launches of a stage."""
    if not knee.robots:
        return {"launch_sizes": {}, "shares": {}}
    run = simulate(fleet.resized(knee.robots), duration=20 * SECOND, keep_events=True)
    sizes: dict[str, Counter[int]] = {"prefix": Counter(), "denoise": Counter()}
    shares: Counter[int] = Counter()
    for device in run.devices.values():
        for event in device.events:
            for launch in event.launches if isinstance(event, Decide) else ():
                stage = launch.lane.stage.name.lower()
                sizes[stage][len(launch.requests)] += 1
                if stage == "prefix":
                    shares[launch.share] += 1
    return {
        "launch_sizes": {stage: _parts(counts) for stage, counts in sizes.items()},
        "shares": _parts(shares),
    }


def _parts(counts: Counter[int]) -> dict[str, float]:
    return {str(key): round(counts[key] / counts.total(), 3) for key in sorted(counts)}


def _mix(asked: Mapping[str, int], knee: Knee) -> dict[str, object]:
    """Whether a mix fits on one device, and what it would take if not."""
    wanted = sum(asked.values())
    return {
        "robots": dict(asked),
        "fits": wanted <= knee.robots,
        "part_that_fits": round(min(knee.robots / wanted, 1.0), 3),
        "devices_needed": math.ceil(wanted / knee.robots) if knee.robots else None,
    }


def _show(figures: Mapping[str, Any]) -> None:
    console = Console()
    where = figures["hardware"] or figures["fleet"]
    names = ", ".join(f"{name} ({m['slo_ms']:g} ms)" for name, m in figures["models"].items())
    console.print(
        f"[bold]{figures['robots_at_target']} robots[/bold] hold {figures['target']:.0%} on {where}"
        f" with {names} [bold](simulated)[/bold]; {figures['robots_at_target_mean']} by the mean"
        " of five draws"
    )
    if figures["devices"] > 1:
        console.print(
            f"on {figures['devices']} devices, {figures['robots_at_target_per_device']} on each"
        )
    options = next(iter(figures["options"].values()))
    said = ", ".join(f"{name} {value}" for name, value in options.items())
    console.print(f"formation: {', '.join(figures['formation'])}{f', {said}' if said else ''}")
    if "mix" in figures:
        console.print(_mix_sentence(figures["mix"]))
    table = Table("robots", "attainment", "bound", "worst robot", "draws")
    for row in figures["attainment"]:
        shares = (f"{row[key]:.2%}" for key in ("attainment", "bound", "worst_robot"))
        table.add_row(str(row["robots"]), *shares, str(row["draws"]))
    console.print(table)
    console.print(f"rows per launch: {figures['launch_sizes']}; shares: {figures['shares']}")


def _mix_sentence(mix: Mapping[str, Any]) -> str:
    named = ", ".join(f"{count} {name}" for name, count in mix["robots"].items())
    if mix["fits"]:
        return f"{named}: [bold]fits[/bold]"
    if mix["devices_needed"] is None:
        return f"{named}: [bold]does not fit[/bold], not even one robot; relax slo or rate"
    return (
        f"{named}: [bold]does not fit[/bold]; {mix['part_that_fits']:.0%} of it does,"
        f" so it takes {mix['devices_needed']} such devices"
    )
