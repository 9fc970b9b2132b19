"""Golden cases: what LeRobot computed for given observations, tensor by tensor.

A directory holds ``checkpoint/``, ``golden.json`` (the cases), ``golden.safetensors`` (their
tensors, ``<case>.<name>``), ``raw_observations.npz`` and, where the checkpoint names a tokenizer of
the hub, ``tokenizer/``.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from takt.errors import ConfigError
from takt.policies.guidance import Schedule
from takt.policies.lerobot.documents import Section, read_document
from takt.policies.lerobot.tensor_file import read_arrays

__all__ = ["GoldenCase", "GoldenSet", "GuidedCall", "read_golden"]

_CASES_FILE = "golden.json"
_TENSORS_FILE = "golden.safetensors"
_OBSERVATIONS_FILE = "raw_observations.npz"
_MAX_ROWS = 64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GuidedCall:
    """Arguments of a call with real-time chunking."""

    delay: int
    execution_horizon: int
    schedule: Schedule
    max_guidance: float
    leftover: NDArray[np.float32]
    """``(rows, steps, columns)``, model space."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GoldenCase:
    """One case."""

    name: str
    inputs_of: str
    """Case whose observations and noise it uses; often itself."""
    observations: tuple[str, ...]
    cameras: tuple[str, ...]
    """Cameras given."""
    tasks: tuple[str, ...]
    tensors: Mapping[str, NDArray[Any]]
    """Golden tensors by name, without the case."""
    noise: NDArray[np.float32]
    guided: GuidedCall | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GoldenSet:
    """The cases of a directory."""

    cases: tuple[GoldenCase, ...]
    frames: Mapping[str, NDArray[Any]]
    """Raw frames and states, ``<observation>.<camera>`` and ``<observation>.state``."""


def read_golden(directory: Path) -> GoldenSet:
    """Read the cases of a directory.

    Raises:
        ConfigError: A file is missing or is not what it should be.
    """
    document = read_document(directory / _CASES_FILE).take_section("cases")
    tensors = read_arrays(directory / _TENSORS_FILE)
    cases = tuple(_case(document, name, tensors) for name in document.values)
    if not cases:
        raise ConfigError(f"{directory / _CASES_FILE}: no cases")
    return GoldenSet(cases=cases, frames=_frames(directory / _OBSERVATIONS_FILE))


def _frames(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with path.open("rb") as data, np.load(data, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, TypeError, KeyError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error


def _case(document: Section, name: str, tensors: Mapping[str, NDArray[Any]]) -> GoldenCase:
    section = document.take_section(name)
    inputs_of = section.take_text("inputs_of_case", name)
    inputs = document.take_section(inputs_of)
    own = {
        key.removeprefix(f"{name}."): array
        for key, array in tensors.items()
        if key.startswith(f"{name}.")
    }
    noise = tensors.get(f"{inputs_of}.noise")
    observations, tasks, cameras = (
        inputs.take_texts(key) or () for key in ("observations", "tasks", "cameras_given")
    )
    if noise is None or not observations or not len(observations) == len(tasks) == len(noise):
        raise ConfigError(f"{section.where}: observations, tasks and noise do not belong together")
    if len(observations) > _MAX_ROWS:
        raise ConfigError(f"{section.where}: expected at most {_MAX_ROWS} rows")
    return GoldenCase(
        name=name,
        inputs_of=inputs_of,
        observations=observations,
        cameras=cameras,
        tasks=tasks,
        tensors=own,
        noise=noise,
        guided=_guided(section, own, len(observations)),
    )


def _guided(
    section: Section, tensors: Mapping[str, NDArray[Any]], num_rows: int
) -> GuidedCall | None:
    if "schedule" not in section.values:
        return None
    leftover = tensors.get("prev_chunk_left_over")
    if leftover is None:
        raise ConfigError(f"{section.where}: prev_chunk_left_over is missing")
    if leftover.ndim == len(("steps", "columns")):
        leftover = np.broadcast_to(leftover, (num_rows, *leftover.shape))
    schedule: Any = section.take_text("schedule")
    return GuidedCall(
        delay=section.take_int("inference_delay", 0, 1 << 20),
        execution_horizon=section.take_int("execution_horizon_argument", 1, 1 << 20),
        schedule=schedule,
        max_guidance=section.take_float("max_guidance_weight"),
        leftover=leftover,
    )
