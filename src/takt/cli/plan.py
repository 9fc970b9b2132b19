"""``takt plan``: how many robots a device carries, and how to drive it.

Here a question is checked and put to the simulator; ``plan_report.py`` says what came out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec
import tyro
from rich.console import Console

from takt.cli.input_files import named_by
from takt.cli.option_numbers import check_numbers, naming_flags
from takt.cli.plan_report import Answer, figures, show
from takt.core.disciplines import DISCIPLINES
from takt.core.model import Model
from takt.core.profile import Profile
from takt.core.trace import Setup
from takt.errors import ConfigError, UsageError
from takt.hardware import (
    DEFAULT_INTERFERENCE,
    DEFAULT_STACK,
    known_architectures,
    known_devices,
    known_stacks,
    model_for,
    profile_for,
)
from takt.hardware.measured import MeasuredProfile
from takt.server.fleet_entries import LEAST_SECONDS
from takt.server.fleet_file import FleetFile
from takt.server.formation_choice import driven_in, shapes_here
from takt.sim.fleet import MOST_HZ, Fleet, RobotGroup
from takt.sim.knee import Criterion, Measured
from takt.sim.network import Wifi7Network
from takt.sim.processes import Processes, processes
from takt.sim.shapes import LARGEST, Carried, Shape, best_shape, shapes_of, sound_shapes
from takt.units import SECOND, ms

__all__ = ["Plan"]

_DEVICE = "device"
_FEWEST_SEEDS, _MOST_SEEDS = 2, 1_000
_MOST = {"slo_ms": 1e7, "rate_hz": MOST_HZ, "seconds": 3_600.0}
_OF_A_DEVICE = ("slo_ms", "rate_hz", "discipline", "skip_masked", "stack", "interference")
"""Options that a fleet file answers itself."""

_Fleets: TypeAlias = Callable[[Shape], Fleet]
"""The fleet, driven in a shape."""


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
    profile: Path | None = None
    """Profile that 'takt profile' wrote, instead of --hardware: measured times, not modelled."""
    model: str | None = None
    """Model, such as pi0: how many robots with it are carried?"""
    robots: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """NAME=N: robots of a model. Give it once for each model of a mix: does the mix fit?"""
    slo_ms: float | None = None
    """Promised time of each model; each one's own when absent."""
    rate_hz: float = 2.0
    """Observations per second and robot, open loop."""
    formation: str | None = None
    """auto, monolithic, lockstep, flowing, step_admission or disaggregated. When absent auto, or
    what the fleet file says."""
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
    """Attainment to hold, above 0 and below 1."""
    seeds: int = 20
    """Draws of every population that is in doubt."""
    seconds: float = 60.0
    """Traffic per draw, in seconds."""
    json: bool = False
    """Print the plan as JSON."""

    def run(self) -> None:
        """Simulate and print."""
        self._check()
        asked = self._asked()
        criterion = Criterion(
            target=self.target, num_draws=self.seeds, duration=round(self.seconds * SECOND)
        )
        fleets = self._fleets(asked)
        shapes, left_out = self._shapes(fleets)
        console = Console(stderr=True)
        with processes() as pool, console.status("simulating") as status:
            tell = status.update if console.is_terminal else _line_by_line(console)
            carried = _best(shapes, fleets, pool, criterion, tell)
        answer = Answer(
            carried=carried,
            fleet=fleets(carried.shape),
            criterion=criterion,
            asked=asked if self.robots else {},
            where=self._where(),
            left_out=left_out,
        )
        found = figures(answer, self.hardware, self.rate_hz if self.fleet is None else None)
        print(json.dumps(found, indent=2)) if self.json else show(found)

    def _where(self) -> str | None:
        named = self.fleet or self.profile
        return self.hardware if named is None else named.name

    # What is asked

    def _check(self) -> None:
        """Refuse what could not be answered, before anything is simulated."""
        if self.fleet is not None:
            self._check_with_file(self.fleet)
        else:
            self._check_device()
        check_numbers(self, _MOST)
        if self.seconds < LEAST_SECONDS:
            raise UsageError(f"--seconds must be at least {LEAST_SECONDS:g}, got {self.seconds:g}")
        if not 0 < self.target < 1:
            raise UsageError(_target_complaint(self.target))
        if not _FEWEST_SEEDS <= self.seeds <= _MOST_SEEDS:
            limits = f"{_FEWEST_SEEDS} to {_MOST_SEEDS}"
            raise UsageError(f"--seeds must lie in {limits}, got {self.seeds}: a bound needs draws")

    def _check_with_file(self, path: Path) -> None:
        if "=" in path.name and self.hardware:
            raise UsageError(
                f"give --robots once for each model: --robots {path.name} is what it looks like"
            )
        if self.hardware or self.profile or self.model or self.robots:
            raise UsageError("give a fleet file or --hardware with --model, not both")
        for field in fields(self):
            if field.name in _OF_A_DEVICE and getattr(self, field.name) != field.default:
                flag = field.name.replace("_", "-")
                raise UsageError(f"--{flag} is for --hardware; a fleet file says it itself")
        if self.gathering is not None and self.formation is None:
            raise UsageError("--gathering needs --formation; the fleet file says how it is driven")

    def _check_device(self) -> None:
        if (self.hardware is None) == (self.profile is None):
            raise UsageError(
                "give a fleet file, or --hardware or --profile with --model or --robots"
            )
        if (self.model is None) == (not self.robots):
            raise UsageError("give --model or --robots, one of them")
        if self.hardware is not None:
            _known("--hardware", self.hardware, known_devices())
        _known("--stack", self.stack, known_stacks())
        if self.discipline not in DISCIPLINES:
            raise UsageError(f"no discipline {self.discipline!r}; known: {', '.join(DISCIPLINES)}")

    def _asked(self) -> dict[str, int]:
        """Robots per model, where a mix is given; 1 of the only model otherwise."""
        if self.fleet is not None:
            return {}
        if self.model is not None:
            _known("--model", self.model, self._known_models())
            return {self.model: 1}
        asked: dict[str, int] = {}
        for text in self.robots:
            name, count = _robots(text)
            _known("--robots", name, self._known_models())
            if name in asked:
                raise UsageError(f"--robots: {name} is named twice; add its robots up")
            asked[name] = count
        return asked

    def _known_models(self) -> tuple[str, ...]:
        if self.profile is None:
            return known_architectures()
        return tuple(model.name for model in _profile(self.profile).models)

    # What is simulated

    def _fleets(self, asked: Mapping[str, int]) -> _Fleets:
        """The fleet in each shape, built once."""
        if self.profile is not None:
            measured = _profile(self.profile)
            build: _Fleets = lambda shape: self._measured(shape, asked, measured)  # noqa: E731
        elif self.fleet is None:
            models = self._models(LARGEST, asked)
            assert self.hardware is not None
            with naming_flags("interference"):
                profile = profile_for(
                    self.hardware, models, stack=self.stack, interference=self.interference
                )
            build = lambda shape: self._modelled(  # noqa: E731
                self._models(shape, asked), shape, asked, profile
            )
        else:
            file = FleetFile.read(self.fleet)
            if self.formation is None and file.is_undecided:
                raise UsageError(f"{self.fleet}: its formation is auto; give --formation auto")
            build = lambda shape: self._driven(shape, file)  # noqa: E731
        built: dict[int, Fleet] = {}

        def fleet_of(shape: Shape) -> Fleet:
            if id(shape) not in built:
                built[id(shape)] = build(shape)
            return built[id(shape)]

        return fleet_of

    def _models(self, shape: Shape, asked: Mapping[str, int]) -> tuple[Model, ...]:
        return tuple(
            model_for(
                name,
                slo_ms=self.slo_ms,
                prefix_sizes=shape.prefix_sizes,
                denoise_sizes=shape.denoise_sizes,
                one_layout=not self.skip_masked,
            )
            for name in asked
        )

    def _measured(self, shape: Shape, asked: Mapping[str, int], measured: MeasuredProfile) -> Fleet:
        """A device as it was measured: the batch sizes of its models, within those of a shape."""
        models = [measured.model(name) for name in asked]
        if self.slo_ms is not None:
            models = [replace(model, slo=ms(self.slo_ms)) for model in models]
        return self._modelled(driven_in(models, shape), shape, asked, measured.profile)

    def _modelled(
        self, models: tuple[Model, ...], shape: Shape, asked: Mapping[str, int], profile: Profile
    ) -> Fleet:
        setup = Setup(
            models=models,
            profile=profile,
            formation=shape.formation,
            options=shape.options,
            discipline=self.discipline,
        )
        groups = tuple(
            RobotGroup(
                model=model.name,
                count=asked[model.name],
                device=_DEVICE,
                rate_hz=self.rate_hz,
                layout=0 if self.skip_masked else len(model.holds) - 1,
            )
            for model in models
        )
        return Fleet(devices={_DEVICE: setup}, robots=groups, network=Wifi7Network())

    def _driven(self, shape: Shape, file: FleetFile) -> Fleet:
        """The fleet of a file, driven as it says or, if that is asked for, as ``shape`` says."""
        if self.formation is None:
            return file.fleet()
        devices = {
            name: msgspec.structs.replace(
                device, formation=shape.formation, options=dict(shape.options)
            )
            for name, device in file.devices.items()
        }
        return msgspec.structs.replace(file, devices=devices).fleet()

    def _shapes(self, fleet_of: _Fleets) -> tuple[list[Shape], dict[str, str]]:
        """What to choose among, and what is left out, why. A fleet file has its own batch sizes."""
        if self.fleet is not None and self.formation is None:
            return [Shape(formation="as the file says", prefix_limit=1, denoise_limit=1)], {}
        gathering = {"on": True, "off": False, None: None}[self.gathering]
        if self.profile is not None:
            # What was not measured, replicas and single steps, is not among them.
            measured = _profile(self.profile)
            here = shapes_here(measured.models, self.formation or "auto")
            return sound_shapes(_gathering(here, gathering), fleet_of), {}
        shapes = shapes_of(self.formation or "auto", gathering)
        if self.fleet is None:
            return sound_shapes(shapes, fleet_of), {}
        kinds = {str(shape): shape for shape in shapes}
        refusals = {name: _refusal(fleet_of, shape) for name, shape in kinds.items()}
        left_out = {name: why for name, why in refusals.items() if why is not None}
        if len(left_out) == len(kinds):
            raise ConfigError(next(iter(left_out.values())))
        return [shape for name, shape in kinds.items() if name not in left_out], left_out


def _profile(path: Path) -> MeasuredProfile:
    with named_by("--profile"):
        return MeasuredProfile.read(path)


def _line_by_line(console: Console) -> Callable[[str], None]:
    """Progress for a log, which shows no line that changes: one for each shape tried."""
    told: set[str] = set()

    def tell(text: str) -> None:
        shape = text.partition(":")[0]
        if shape not in told:
            told.add(shape)
            console.print(f"simulating {shape}")

    return tell


def _gathering(shapes: list[Shape], gathering: bool | None) -> list[Shape]:
    return [it for it in shapes if gathering in (None, bool(it.options.get("gathering")))]


def _best(
    shapes: list[Shape],
    fleet_of: _Fleets,
    pool: Processes,
    criterion: Criterion,
    tell: Callable[[str], None],
) -> Carried:
    def progress(shape: Shape, measured: Measured | None) -> None:
        at = "" if measured is None else f": {measured.population} robots"
        tell(f"{shape}, prefix batches up to {shape.prefix_limit}{at}")

    return best_shape(shapes, lambda shape: pool.runner(fleet_of(shape)), criterion, progress)


def _refusal(fleet_of: _Fleets, shape: Shape) -> str | None:
    """Why a fleet cannot be driven in a shape."""
    try:
        for setup in fleet_of(shape).devices.values():
            for model in setup.models:
                setup.expected(model)  # asks the profile for every share that the shape takes
    except ConfigError as error:
        return str(error)
    return None


def _known(flag: str, name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        raise UsageError(f"{flag}: unknown {name!r}; known: {', '.join(known)}")


def _target_complaint(target: float) -> str:
    said = f"--target must lie above 0 and below 1, got {target:g}"
    if 1 < target < 100:  # noqa: PLR2004 - meant as per cent
        return f"{said}; {target:g} % is {target / 100:g}"
    if target == 1:
        return f"{said}; no number of draws shows that nothing is ever late"
    return said


def _robots(text: str) -> tuple[str, int]:
    name, _, count = text.partition("=")
    if not name or not count.isdecimal() or int(count) < 1:
        raise UsageError(f"--robots wants NAME=N with N at least 1, got {text!r}")
    return name, int(count)
