"""The fleet file: models, devices, robots and the network between them, as an operator writes it.

Every structure refuses unknown keys, and numbers that no fleet could have, before anything is built
from them. Start reading at :class:`FleetFile`; :meth:`FleetFile.fleet` turns it into what the
simulator runs.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from takt.core.model import Model
from takt.core.profile import Profile
from takt.core.scheduler import MOST_PRIORITY, Lateness
from takt.core.trace import Setup
from takt.errors import ConfigError
from takt.hardware import model_for, profile_for
from takt.hardware.measured import MeasuredProfile
from takt.policies.stand_in import StandInOptions
from takt.server.hand_made import HandMadeProfile
from takt.server.yaml_file import read_yaml
from takt.sim.fleet import MOST_HORIZON, MOST_HZ, MOST_ROBOTS, Fleet, RobotGroup
from takt.sim.network import ConstantNetwork, LogNormalNetwork, Network, Wifi7Network
from takt.units import ms

__all__ = [
    "LEAST_SECONDS",
    "MOST_SECONDS",
    "ConstantEntry",
    "CpuEntry",
    "DeviceEntry",
    "FleetFile",
    "GatewayEntry",
    "LogNormalEntry",
    "ModelEntry",
    "RobotsEntry",
    "SimilarStateEntry",
    "SimulationEntry",
    "Wifi7Entry",
]

LEAST_SECONDS = 0.001
"""Shortest simulation."""
MOST_SECONDS = 1e6
"""Longest simulation."""

# Each has an upper limit, which also refuses `.inf`.
_Milliseconds = Annotated[float, Meta(ge=0, le=1e7)]
_Slo = Annotated[float, Meta(ge=0.001, le=1e7)]
_Hertz = Annotated[float, Meta(gt=0, le=MOST_HZ)]
_Probability = Annotated[float, Meta(ge=0, le=1)]
_Sigma = Annotated[float, Meta(ge=0, le=3)]
_Bandwidth = Annotated[float, Meta(ge=1e-6, le=1e6)]
_Size = Annotated[int, Meta(ge=1, le=65_536)]
_Cameras = Annotated[int, Meta(ge=0, le=1_000)]
_Core = Annotated[int, Meta(ge=0, le=65_535)]
_FileName = Annotated[str, Meta(pattern=r"^[\w.-]+$")]  # becomes part of a trace's file name


_MEASURED = ".json"


class _Entry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One part of the file."""


class SimilarStateEntry(_Entry, frozen=True, kw_only=True):
    """See :class:`~takt.doors.lerobot_options.SimilarState`."""

    tolerance: Annotated[float, Meta(gt=0, le=1e9)]
    unit: Annotated[str, Meta(min_length=1, max_length=32)]


class ModelEntry(_Entry, frozen=True, kw_only=True):
    """A model that robots may ask for."""

    slo_ms: _Slo
    """Promised time from sending an observation to the answer being at the robot."""
    architecture: str | None = None
    """Its entries in the profile; the model's name when absent."""
    prefix_sizes: Annotated[tuple[_Size, ...], Meta(min_length=1, max_length=64)] | None = None
    """Batch sizes of the prefix stage, rising. When absent 1 alone, or what a paced device's
    architecture is captured for."""
    denoise_sizes: Annotated[tuple[_Size, ...], Meta(max_length=64)] | None = None
    """Batch sizes of the denoise stage, rising; empty for a single-pass policy. Likewise."""
    policy: str | None = None
    """For ``takt serve``: a policy of the package, or the directory of a checkpoint seen from the
    folder of this file; the model's name when absent. A paced device needs none."""
    options: dict[str, Any] = {}
    """Options of the policy."""
    aliases: tuple[str, ...] = ()
    """For LeRobot robots: further names of the model, what they give as
    ``pretrained_name_or_path``. Nothing is downloaded or opened."""
    similar_state: SimilarStateEntry | None = None
    """For LeRobot robots: drop observations whose state has hardly changed."""


class CpuEntry(_Entry, frozen=True, kw_only=True):
    """Cores of this computer that are a device."""

    prefix_cores: tuple[_Core, ...] = ()
    """Of the prefix lane; empty: any."""
    denoise_cores: tuple[_Core, ...] = ()
    """Of the denoise lane; empty: any."""


class DeviceEntry(_Entry, frozen=True, kw_only=True):
    """A device and how it is driven."""

    profile: str | None = None
    """Its entry in ``profiles``. A measured one is what simulations take and the scheduler of a
    server believes; any other is for simulations."""
    paced: str | None = None
    """A GPU of ``takt hardware``. Simulations take its modelled times; a server's launches take
    them by waiting and compute nothing."""
    paced_seed: int | None = None
    """Served, the paced device is a stranger: its times differ from the model's by up to a
    fifth."""
    cpu: CpuEntry | None = None
    """For servers: cores of this computer."""
    models: Annotated[tuple[str, ...], Meta(min_length=1)]
    """Models loaded on it."""
    formation: str = "lockstep"
    """How its lanes are driven; ``auto`` lets ``takt serve`` choose for the robots of this file."""
    options: dict[str, Any] = {}
    """Options of the formation."""
    discipline: str = "earliest_deadline"
    lateness: str = "yield"


class RobotsEntry(_Entry, frozen=True, kw_only=True):
    """Robots that behave alike; see :class:`~takt.sim.fleet.RobotGroup`."""

    model: str
    count: Annotated[int, Meta(ge=0, le=MOST_ROBOTS)]
    name: Annotated[str, Meta(min_length=1)] | None = None
    """What reports call them. When absent the model's name; the second unnamed group of a model is
    ``<model>.2``."""
    device: str | None = None
    """Device that serves them; may be left out when only one serves the model."""
    rate_hz: _Hertz | None = None
    jitter_ms: _Milliseconds = 0.0
    threshold: _Probability = 0.5
    control_hz: _Hertz = 30.0
    horizon: Annotated[int, Meta(ge=1, le=MOST_HORIZON)] = 50
    deadline: str = "slo"
    supersede: bool = False
    priority: Annotated[int, Meta(ge=0, le=MOST_PRIORITY)] = 0
    """Class of the robots, 0 first; see :attr:`~takt.core.request.Request.priority`."""
    layout: Annotated[int, Meta(ge=0, le=63)] | None = None
    """Layout of their rows on a paced device, numbered from the cheapest; when absent the one that
    holds every row. Live, it follows from what a robot sends."""
    num_cameras: _Cameras = 2
    encoding: str = "raw"


class GatewayEntry(_Entry, frozen=True, kw_only=True):
    """A gateway of a server, and its doors."""

    openpi: Annotated[int, Meta(ge=0, le=65_535)] = 8000
    """Port of the openpi door; 0 takes a free one."""
    host: str | None = None
    """Address its doors bind; what the command line says when absent."""
    devices: tuple[str, ...] | None = None
    """Devices it sends to; all when absent."""
    default_model: str | None = None
    """Model of robots that name none; the first of its devices when absent."""
    lerobot: Annotated[int, Meta(ge=0, le=65_535)] | None = None
    """Port of the LeRobot door; 0 takes a free one. There is no such door when absent."""
    lerobot_allow_from: tuple[str, ...] = ()
    """Networks that LeRobot robots may come from; needed where others can reach the host, since
    their protocol cannot carry a token."""


class ConstantEntry(_Entry, frozen=True, kw_only=True, tag_field="kind", tag="constant"):
    """See :class:`~takt.sim.network.ConstantNetwork`."""

    up_ms: _Milliseconds = 2.0
    down_ms: _Milliseconds = 2.0

    def network(self) -> Network:
        """The model of delays it describes."""
        return ConstantNetwork(**msgspec.structs.asdict(self))


class LogNormalEntry(_Entry, frozen=True, kw_only=True, tag_field="kind", tag="log_normal"):
    """See :class:`~takt.sim.network.LogNormalNetwork`."""

    median_ms: _Milliseconds = 2.0
    sigma: _Sigma = 0.5
    base_ms: _Milliseconds = 0.0
    burst_probability: _Probability = 0.0
    burst_ms: tuple[_Milliseconds, _Milliseconds] = (20.0, 40.0)

    def network(self) -> Network:
        """The model of delays it describes."""
        return LogNormalNetwork(**msgspec.structs.asdict(self))


class Wifi7Entry(_Entry, frozen=True, kw_only=True, tag_field="kind", tag="wifi7"):
    """See :class:`~takt.sim.network.Wifi7Network`."""

    bandwidth_gbps: _Bandwidth = 1.0
    base_ms: _Milliseconds = 1.5
    jitter_median_ms: _Milliseconds = 0.8
    jitter_sigma: _Sigma = 0.7
    burst_probability: _Probability = 0.0
    burst_ms: tuple[_Milliseconds, _Milliseconds] = (20.0, 40.0)
    num_cameras: _Cameras = 2
    encoding: str = "raw"
    planned_robots: Annotated[int, Meta(ge=1, le=MOST_ROBOTS)] = 1

    def network(self) -> Network:
        """The model of delays it describes."""
        return Wifi7Network(**msgspec.structs.asdict(self))


class SimulationEntry(_Entry, frozen=True, kw_only=True):
    """How long to simulate, and with which seed."""

    seconds: Annotated[float, Meta(ge=LEAST_SECONDS, le=MOST_SECONDS)] = 60.0
    """Time reported on."""
    warm_up_seconds: Annotated[float, Meta(ge=0, le=MOST_SECONDS)] = 5.0
    """Time before it."""
    seed: int = 0


class FleetFile(_Entry, frozen=True, kw_only=True):
    """A fleet file."""

    models: dict[str, ModelEntry]
    devices: dict[_FileName, DeviceEntry]
    robots: tuple[RobotsEntry, ...] = ()
    gateways: dict[_FileName, GatewayEntry] = {}
    """Gateways of a server, by name; one that sends to every device when empty."""
    network: ConstantEntry | LogNormalEntry | Wifi7Entry = Wifi7Entry()
    profiles: dict[str, HandMadeProfile | str] = {}
    """Profiles of devices. A text is the path of a file that holds the profile, seen from the
    folder of this file; one that ends in ``.json`` was written by ``takt profile``."""
    simulation: SimulationEntry = SimulationEntry()
    model_roots: tuple[str, ...] = ()
    """For ``takt serve``: folders that models are kept in, seen from the folder of this file. With
    them a ``policy`` that is a directory is a path inside one of them, and nothing outside of them
    is read, links included."""

    @classmethod
    def read(cls, path: Path) -> FleetFile:
        """The fleet file at ``path``, with the profiles it names read as well.

        Raises:
            ConfigError: It cannot be read, or something in it is wrong; :meth:`fleet` of a file
                that was read does not raise.
        """
        file = cls.read_unchecked(path)
        try:
            file.fleet()
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None
        return file

    @classmethod
    def read_unchecked(cls, path: Path) -> FleetFile:
        """The fleet file at ``path``, which may describe something that cannot be simulated.

        Raises:
            ConfigError: It, or a profile it names, cannot be read.
        """
        file = read_yaml(path, cls)
        profiles: dict[str, HandMadeProfile | str] = {}
        for name, entry in file.profiles.items():
            if isinstance(entry, str) and entry.endswith(_MEASURED):
                profiles[name] = str((path.parent / entry).resolve())
            elif isinstance(entry, str):
                profiles[name] = read_yaml(path.parent / entry, HandMadeProfile)
            else:
                profiles[name] = entry
        return msgspec.structs.replace(file, profiles=profiles)

    def fleet(self) -> Fleet:
        """What the simulator runs.

        Raises:
            ConfigError: A name leads nowhere, or a value is impossible; the message names it.
        """
        return Fleet(
            devices={name: self._setup(name, device) for name, device in self.devices.items()},
            robots=tuple(self._group(index) for index in range(len(self.robots))),
            network=self._network(),
        )

    def _network(self) -> Network:
        try:
            return self.network.network()
        except ConfigError as error:
            raise ConfigError(f"network: {error}") from None

    def _setup(self, name: str, device: DeviceEntry) -> Setup:
        try:
            _refuse_repeated("models", device.models)
            models, profile = self._costs(device)
            setup = Setup(
                models=models,
                profile=profile,
                formation="lockstep" if device.formation == "auto" else device.formation,
                options=device.options,
                discipline=device.discipline,
                lateness=_lateness(device.lateness),
            )
            if device.profile is not None and self.profile_path(device) is None:
                with _within(f"profile {device.profile!r}"):
                    self._hand_made(device.profile).check(setup)
            return setup
        except ConfigError as error:
            raise ConfigError(f"devices.{name}: {error}") from None

    def _costs(self, device: DeviceEntry) -> tuple[tuple[Model, ...], Profile]:
        """The models of a device, and what their launches take on it."""
        path = self.profile_path(device)
        if path is not None:
            measured = _measured(path)
            models = tuple(self._measured_model(name, measured) for name in device.models)
            return models, measured.profile_for(models)
        if device.paced is not None:
            if device.profile is not None:
                raise ConfigError(
                    "profile: a paced device has the times of its GPU, or those that takt profile"
                    " has measured; leave it out"
                )
            models = tuple(self._paced_model(name) for name in device.models)
            return models, profile_for(device.paced, models)
        if device.profile is None:
            raise ConfigError("profile: missing; a simulation needs it, or paced with a GPU's name")
        described = self._hand_made(device.profile)
        models = tuple(self._model(name) for name in device.models)
        with _within(f"profile {device.profile!r}"):
            return described.stepped(models), described.profile(models)

    def profile_path(self, device: DeviceEntry) -> str | None:
        """File with the measured profile of a device; None where it has none."""
        entry = None if device.profile is None else self.profiles.get(device.profile)
        return entry if isinstance(entry, str) and entry.endswith(_MEASURED) else None

    @property
    def is_undecided(self) -> bool:
        """Whether the formation of a device is still to be chosen; :meth:`fleet` takes lockstep."""
        return any(device.formation == "auto" for device in self.devices.values())

    def entry(self, name: str) -> ModelEntry:
        """What the file says of a model.

        Raises:
            ConfigError: Nothing.
        """
        entry = self.models.get(name)
        if entry is None:
            raise ConfigError(f"no model {name!r} in models: {_names(self.models)}")
        return entry

    def _model(self, name: str) -> Model:
        entry = self.entry(name)
        return Model(
            name=name,
            architecture=entry.architecture or name,
            slo=ms(entry.slo_ms),
            prefix_sizes=entry.prefix_sizes or (1,),
            denoise_sizes=(1,) if entry.denoise_sizes is None else entry.denoise_sizes,
        )

    def _measured_model(self, name: str, measured: MeasuredProfile) -> Model:
        entry, known = self.entry(name), measured.model(name)
        return replace(
            known,
            slo=ms(entry.slo_ms),
            prefix_sizes=entry.prefix_sizes or known.prefix_sizes,
            denoise_sizes=known.denoise_sizes
            if entry.denoise_sizes is None
            else entry.denoise_sizes,
        )

    def _paced_model(self, name: str) -> Model:
        entry, sizes = self.entry(name), self.stand_in_options(name)
        return model_for(
            entry.architecture or name,
            name,
            entry.slo_ms,
            sizes.prefix_sizes,
            sizes.denoise_sizes,
        )

    def stand_in_options(self, name: str) -> StandInOptions:
        """What a model is captured for on a paced device.

        Raises:
            ConfigError: The file names no batch size of the denoise stage.
        """
        entry = self.entry(name)
        sizes = {"prefix_sizes": entry.prefix_sizes, "denoise_sizes": entry.denoise_sizes}
        try:
            return StandInOptions(
                **{key: value for key, value in sizes.items() if value is not None}
            )
        except ConfigError as error:
            raise ConfigError(f"models.{name}: {error}") from None

    def _hand_made(self, name: str) -> HandMadeProfile:
        entry = self.profiles.get(name)
        if not isinstance(entry, HandMadeProfile):  # none, or one whose file was not read
            raise ConfigError(f"no profile {name!r} in profiles: {_names(self.profiles)}")
        return entry

    def _group(self, index: int) -> RobotGroup:
        entry = self.robots[index]
        try:
            fields = msgspec.structs.asdict(entry)
            fields["device"] = entry.device or self._only_device(entry.model)
            fields["name"] = entry.name or self._default_name(index)
            fields["layout"] = self._layout(entry, fields["device"])
            return RobotGroup(**fields)
        except ConfigError as error:
            raise ConfigError(f"robots[{index}]: {error}") from None

    def _only_device(self, model: str) -> str:
        serving = [name for name, device in self.devices.items() if model in device.models]
        if not serving:
            raise ConfigError(f"no device serves {model!r}")
        if len(serving) > 1:
            raise ConfigError(f"device: missing; {model!r} is served by {', '.join(serving)}")
        return serving[0]

    def _layout(self, entry: RobotsEntry, device: str) -> int:
        found = self.devices.get(device)
        if found is None or (found.paced is None and self.profile_path(found) is None):
            return entry.layout or 0
        path = self.profile_path(found)
        known = _measured(path).model if path is not None else self._paced_model
        last = len(known(entry.model).holds) - 1
        layout = last if entry.layout is None else entry.layout
        if layout > last:
            raise ConfigError(f"layout: expected 0..{last}, got {layout}")
        return layout

    def _default_name(self, index: int) -> str:
        model = self.robots[index].model
        before = [r for r in self.robots[:index] if r.model == model and r.name is None]
        return f"{model}.{len(before) + 1}" if before else model


def _measured(path: str) -> MeasuredProfile:
    try:
        changed = Path(path).stat().st_mtime_ns
    except OSError:
        changed = 0  # reading it says what is wrong
    return _read_measured(path, changed)


@lru_cache(maxsize=8)
def _read_measured(path: str, changed: int) -> MeasuredProfile:
    """A profile, read again only when its file has changed; one fleet asks for it many times."""
    del changed
    return MeasuredProfile.read(Path(path))


@contextmanager
def _within(place: str) -> Generator[None]:
    """Puts ``place`` before what is wrong."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from None


def _lateness(name: str) -> Lateness:
    try:
        return Lateness(name)
    except ValueError:
        known = ", ".join(lateness.value for lateness in Lateness)
        raise ConfigError(f"no lateness {name!r}; known: {known}") from None


def _refuse_repeated(key: str, names: tuple[str, ...]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{key}: {name!r} is named twice")


def _names(table: dict[str, Any]) -> str:
    return ", ".join(sorted(table)) or "none"
