"""What a device is to carry, and its times: what a formation is chosen by.

Both come from a fleet file, or from the options of ``takt serve``: robots by number, times from a
measured profile or, for a paced device, from its table.

Start reading at :func:`load_of_fleet` and :func:`load_of_device`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from takt.core.model import Model
from takt.core.profile import Profile
from takt.errors import ConfigError
from takt.hardware import model_for, profile_for
from takt.hardware.measured import MeasuredProfile
from takt.policies.stand_in import StandInOptions, paced_architecture
from takt.schema.plain import read_plain
from takt.schema.serving import ServedModel
from takt.server.composition import DevicePlan
from takt.server.fleet_file import FleetFile
from takt.server.formation_choice import Load
from takt.sim.fleet import RobotGroup
from takt.sim.network import Wifi7Network
from takt.units import ms

__all__ = ["RATE_HZ", "load_of_device", "load_of_fleet", "robots_by_number"]

RATE_HZ = 2.0
"""Observations per second of a robot of which only the number is said, as in ``takt plan``."""


def load_of_fleet(path: Path, device: str) -> Load:
    """What the robots of a fleet file ask of one of its devices.

    Raises:
        ConfigError: The file cannot be read, or does not say what a launch takes on the device.
    """
    fleet = FleetFile.read(path).fleet()
    setup = fleet.devices[device]
    return Load(
        models=setup.models,
        profile=setup.profile,
        robots=tuple(group for group in fleet.robots if group.device == device),
        network=fleet.network,
        spread=fleet.spreads.get(device, 0.0),
    )


def load_of_device(device: DevicePlan, robots: Mapping[str, int]) -> Load:
    """What so many robots per model ask of a device, each twice a second.

    Raises:
        ConfigError: The device has no times, or a model is not on it.
    """
    models, profile = _costs(device)
    served = [model.name for model in models]
    for name in robots:
        if name not in served:
            raise ConfigError(f"robots {name!r}: no such model; it serves: {', '.join(served)}")
    groups = (
        robots_by_number(model, robots[model.name], device.name)
        for model in models
        if model.name in robots
    )
    return Load(models=models, profile=profile, robots=tuple(groups), network=Wifi7Network())


def robots_by_number(model: Model, count: int, device: str) -> RobotGroup:
    """Robots of which only the number is said: twice a second, in the layout of every row."""
    return RobotGroup(
        model=model.name,
        count=count,
        device=device,
        rate_hz=RATE_HZ,
        layout=len(model.holds) - 1,
    )


def _costs(device: DevicePlan) -> tuple[tuple[Model, ...], Profile]:
    if device.profile_path is not None:
        measured = MeasuredProfile.read(Path(device.profile_path))
        known = ((measured.model(served.name), served) for served in device.models)
        models = tuple(replace(model, slo=ms(served.slo_ms)) for model, served in known)
        return models, measured.profile_for(models)
    if device.paced is None:
        raise ConfigError("it needs times to choose by; takt profile measures them")
    models = tuple(map(_stand_in, device.models))
    return models, profile_for(device.paced, models)


def _stand_in(served: ServedModel) -> Model:
    architecture = paced_architecture(served.policy) or served.policy
    sizes = read_plain(StandInOptions, dict(served.options), f"options of {served.name}")
    return model_for(
        architecture, served.name, served.slo_ms, sizes.prefix_sizes, sizes.denoise_sizes
    )
