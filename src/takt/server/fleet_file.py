"""The fleet file: models, devices, robots and the network between them, as an operator writes it.

Its parts are those of :mod:`takt.server.fleet_entries`, which refuse what no fleet could have. Here
they are read and made to fit together. Start reading at :meth:`FleetFile.fleet`, which turns a file
into what the simulator runs.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from takt.core.model import Model
from takt.core.profile import Profile
from takt.core.scheduler import Lateness
from takt.core.trace import Setup
from takt.errors import ConfigError
from takt.hardware import model_for, profile_for
from takt.hardware.measured import MeasuredProfile
from takt.policies.stand_in import StandInOptions
from takt.server.fleet_entries import (
    ConstantEntry,
    DeviceEntry,
    FileName,
    GatewayEntry,
    LogNormalEntry,
    ModelEntry,
    RobotsEntry,
    SimulationEntry,
    Wifi7Entry,
)
from takt.server.hand_made import HandMadeProfile
from takt.server.yaml_file import read_yaml
from takt.sim.fleet import Fleet, RobotGroup
from takt.sim.network import Network
from takt.units import ms

__all__ = ["FleetFile"]

_MEASURED = ".json"
"""Ending of profiles that were measured."""


class FleetFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fleet file."""

    models: dict[str, ModelEntry]
    devices: dict[FileName, DeviceEntry]
    robots: tuple[RobotsEntry, ...] = ()
    gateways: dict[FileName, GatewayEntry] = {}
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
                with _within(f"{path}: profiles.{name}"):
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
            network=_network(self.network),
            spreads={name: device.spread for name, device in self.devices.items()},
        )

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
    def measured_paths(self) -> tuple[Path, ...]:
        """Files with the measured profiles of its devices."""
        found = map(self.profile_path, self.devices.values())
        return tuple(Path(path) for path in found if path is not None)

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
            fields["network"] = None if entry.network is None else _network(entry.network)
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


def _network(entry: ConstantEntry | LogNormalEntry | Wifi7Entry) -> Network:
    try:
        return entry.network()
    except ConfigError as error:
        raise ConfigError(f"network: {error}") from None


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
