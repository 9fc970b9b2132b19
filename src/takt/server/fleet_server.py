"""Turns a fleet file into the plan of a server: a worker per device, and its gateways.

The file that ``takt simulate`` runs can be served where its devices are cores of this computer or
paced. Assignments are those of the file: models to devices, devices to gateways, gateways to ports.
Its robots and its network are what the simulator invents; a server gets real ones.

Start reading at :func:`server_plan`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from takt.doors.lerobot_options import LerobotModelOptions, LerobotOptions, SimilarState
from takt.errors import ConfigError
from takt.policies.stand_in import PACED, check_fits_device
from takt.schema.serving import ServedModel
from takt.server.composition import DevicePlan, GatewayPlan, ServerPlan, split_cores
from takt.server.fleet_entries import DeviceEntry, GatewayEntry, ModelEntry
from takt.server.fleet_file import FleetFile
from takt.server.model_roots import ModelRoots

__all__ = ["server_plan"]


def server_plan(
    path: Path,
    *,
    cores: tuple[int, ...],
    host: str = "127.0.0.1",
    token: str | None = None,
    network_allowance_ms: float = 0.0,
    trace: Path | None = None,
    state_dir: Path | None = None,
) -> ServerPlan:
    """The server that a fleet file describes.

    Args:
        path: The fleet file.
        cores: Cores of a CPU device that names none.
        host: Address of doors that name none.
        token: What robots must present.
        network_allowance_ms: What the network of a stock client takes, both ways.
        trace: File for the trace of the scheduler; with several devices, one file per device:
            ``run.jsonl`` becomes ``run-gpu0.jsonl``.
        state_dir: Directory in which each gateway keeps its sessions; None: in memory.

    Raises:
        ConfigError: The file cannot be read, or describes no server; the message names the place.
    """
    file = FleetFile.read_unchecked(path)
    try:
        roots = _roots(file, path.parent)
        gateways = file.gateways or {"0": GatewayEntry()}
        return ServerPlan(
            devices=tuple(
                _device(file, name, path.parent, cores, _trace_of(trace, name, len(file.devices)))
                for name in file.devices
            ),
            gateways=tuple(
                GatewayPlan(
                    name=name,
                    devices=tuple(file.devices) if entry.devices is None else entry.devices,
                    host=entry.host or host,
                    openpi_port=entry.openpi,
                    default_model=entry.default_model,
                    lerobot=_lerobot(file, name, entry, host, state_dir),
                )
                for name, entry in gateways.items()
            ),
            token=token,
            network_allowance_ms=network_allowance_ms,
            model_roots=roots,
        )
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _lerobot(
    file: FleetFile, name: str, entry: GatewayEntry, host: str, state_dir: Path | None
) -> LerobotOptions | None:
    if entry.lerobot is None:
        return None
    devices = file.devices if entry.devices is None else entry.devices
    served = {
        model for name in devices if name in file.devices for model in file.devices[name].models
    }
    return LerobotOptions(
        host=entry.host or host,
        port=entry.lerobot,
        allow_from=entry.lerobot_allow_from,
        state_dir=None if state_dir is None else str(state_dir.resolve() / name),
        models={
            model: _lerobot_model(given)
            for model, given in file.models.items()
            if model in served and (given.aliases or given.similar_state)
        },
    )


def _lerobot_model(entry: ModelEntry) -> LerobotModelOptions:
    similar = entry.similar_state
    return LerobotModelOptions(
        aliases=entry.aliases,
        similar_state=None
        if similar is None
        else SimilarState(tolerance=similar.tolerance, unit=similar.unit),
    )


def _device(
    file: FleetFile, name: str, folder: Path, cores: tuple[int, ...], trace: str | None
) -> DevicePlan:
    entry = file.devices[name]
    try:
        prefix, denoise = _cores(entry, cores)
        return DevicePlan(
            name=name,
            models=tuple(_model(file, model, folder, entry) for model in entry.models),
            formation=entry.formation,
            options=entry.options,
            discipline=entry.discipline,
            lateness=entry.lateness,
            prefix_cores=prefix,
            denoise_cores=denoise,
            paced=entry.paced,
            paced_seed=entry.paced_seed,
            profile_path=file.profile_path(entry),
            trace_path=trace,
        )
    except ConfigError as error:
        raise ConfigError(f"devices.{name}: {error}") from None


def _cores(entry: DeviceEntry, cores: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Cores of the prefix lane and of the denoise lane."""
    if entry.paced is not None:
        if entry.cpu is not None:
            raise ConfigError("cpu: a paced device computes nothing; leave one of the two out")
        return (), ()
    if entry.cpu is None:
        raise ConfigError(
            "cpu: missing; this version serves cores of this computer (cpu) and paced devices"
        )
    if entry.cpu.prefix_cores or entry.cpu.denoise_cores:
        return entry.cpu.prefix_cores, entry.cpu.denoise_cores
    return split_cores(cores)


def _roots(file: FleetFile, folder: Path) -> ModelRoots:
    try:
        return ModelRoots.of(file.model_roots, folder)
    except ConfigError as error:
        raise ConfigError(f"model_roots: {error}") from None


def _model(file: FleetFile, name: str, folder: Path, device: DeviceEntry) -> ServedModel:
    entry = file.entry(name)
    options: Mapping[str, Any] = entry.options
    if device.paced is not None:
        policy = entry.policy or PACED + (entry.architecture or name)
        if options:
            raise ConfigError(f"models.{name}.options: a stand-in takes its batch sizes alone")
        options = dataclasses.asdict(file.stand_in_options(name))
    else:
        policy, options = _roots(file, folder).placed(entry.policy or name, options, folder)
    check_fits_device(name, policy, is_paced=device.paced is not None)
    return ServedModel(name=name, policy=policy, options=options, slo_ms=entry.slo_ms)


def _trace_of(trace: Path | None, device: str, num_devices: int) -> str | None:
    if trace is None:
        return None
    if num_devices > 1:
        trace = trace.with_name(f"{trace.stem}-{device}{trace.suffix}")
    return str(trace.resolve())
