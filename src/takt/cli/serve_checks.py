"""What ``takt serve`` refuses before it starts a process, which could only say so and end."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable
from pathlib import Path

from takt.cli.input_files import check_folder, check_tokenizer, named_by
from takt.cli.option_numbers import flag_of
from takt.cli.output_files import TRACE, check_named_after, check_outputs
from takt.core.formations import FORMATIONS
from takt.errors import ConfigError, UsageError
from takt.hardware.measured import MeasuredProfile
from takt.policies.catalog import KNOWN_POLICIES
from takt.policies.stand_in import PACED
from takt.runtime.config import worker_formations
from takt.schema.serving import ServedModel
from takt.server.composition import DevicePlan, ServerPlan
from takt.server.formation_choice import AUTO

__all__ = [
    "check_cores",
    "check_formation",
    "check_installed",
    "check_paths",
    "check_policies",
    "check_profile",
    "check_traces",
]


def check_cores(option: str, cores: Iterable[int]) -> None:
    """Refuse cores that this process must not use.

    Raises:
        ConfigError: One of them is none of the process's.
    """
    usable = os.sched_getaffinity(0)
    if missing := sorted(set(cores) - usable):
        here = ", ".join(map(str, sorted(usable)))
        raise ConfigError(f"{flag_of(option)}: no core {missing[0]} here; usable: {here}")


def check_formation(device: DevicePlan) -> None:
    """Refuse a misspelt formation; one that needs several devices is refused by its worker."""
    if device.formation not in (AUTO, *FORMATIONS):
        known = ", ".join((AUTO, *worker_formations()))
        raise ConfigError(f"no formation {device.formation!r}; known: {known}")


def check_installed(plan: ServerPlan) -> None:
    """Refuse to start children that would end at once.

    Raises:
        UsageError: A package is missing, and how to get it.
    """
    has_lerobot = any(gateway.lerobot is not None for gateway in plan.gateways)
    for package in ("picows", "grpc") if has_lerobot else ("picows",):
        if not _is_installed(package):
            raise UsageError(
                f"takt serve needs {package}, which comes with: pip install 'takt-serve[server]'"
            )


def check_policies(plan: ServerPlan) -> None:
    """Refuse to start children none of whose models exists: each of them would say so.

    Raises:
        ConfigError: Not a single policy is known or a directory.
    """
    models = [model for device in plan.devices for model in device.models]
    if models and not any(map(_may_exist, models)):
        raise ConfigError(
            f"model {models[0].name}: no policy {models[0].policy!r};"
            f" known: {', '.join(KNOWN_POLICIES)}, or the directory of a checkpoint"
        )


def _may_exist(model: ServedModel) -> bool:
    is_ours = model.policy in KNOWN_POLICIES or model.policy.startswith(PACED)
    return is_ours or os.path.isdir(model.policy)


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ValueError:  # it was made impossible to import
        return False


def check_paths(state_dir: Path | None, engine_cache: Path | None, tokenizer: Path | None) -> None:
    """Refuse what children would be the first to open.

    Raises:
        ConfigError: A folder is none, or there is no such tokenizer.
    """
    check_folder("--state-dir", state_dir)
    check_folder("--engine-cache", engine_cache)
    check_tokenizer(tokenizer)


def check_profile(device: DevicePlan, fleet: Path | None) -> None:
    """Refuse a profile without a model of its device, before a worker starts.

    Args:
        device: The device.
        fleet: The fleet file that names the profile; None: --profile does.

    Raises:
        ConfigError: The profile cannot be read, or lacks a model.
    """
    path = device.profile_path
    if path is None:
        return
    with named_by("--profile" if fleet is None else f"--fleet {fleet}: devices.{device.name}:"):
        measured = MeasuredProfile.read(Path(path))
        with named_by(f"{path}:"):
            for served in device.models:
                measured.model(served.name)


def check_traces(plan: ServerPlan, asked: Path | None, *inputs: Path | None) -> None:
    """Refuse traces that cannot be written, or would destroy what the server reads.

    Args:
        plan: The server.
        asked: What --trace says.
        inputs: Files that other options name; profiles are known from the plan.

    Raises:
        UsageError: A trace cannot be.
    """
    if len(plan.devices) > 1:
        check_named_after("--trace", asked)
    traces = [device.trace_path for device in plan.devices if device.trace_path is not None]
    profiles = [device.profile_path for device in plan.devices if device.profile_path is not None]
    written = [("--trace", Path(trace), TRACE) for trace in traces]
    check_outputs(written, *inputs, *map(Path, profiles))
