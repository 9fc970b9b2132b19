"""Golden checkpoints for tests, and copies of them to damage."""

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from takt.policies.lerobot.checkpoint import FlowCheckpoint
from takt.policies.lerobot.opening import CheckpointOptions, open_checkpoint
from takt.policies.lerobot.tensor_file import TensorFile
from takt.schema.observation import Observation

GOLDEN = Path(__file__).parents[2] / "golden" / "policies"
PI0 = GOLDEN / "pi0_relative"
SMOLVLA = GOLDEN / "smolvla"


def opened(golden: Path, options: CheckpointOptions | None = None) -> FlowCheckpoint:
    """The checkpoint of a golden directory."""
    return open_checkpoint(golden / "checkpoint", options or CheckpointOptions())


def copied(golden: Path, to: Path) -> Path:
    """A writable copy of a golden directory's checkpoint, with its sizes and tokenizer."""
    for name in ("checkpoint", "tokenizer"):
        shutil.copytree(golden / name, to / name)
    shutil.copyfile(golden / "dims.json", to / "dims.json")
    return to / "checkpoint"


def edit_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a JSON file in place."""
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def edit_tensors(path: Path, change: Callable[[dict[str, np.ndarray]], object]) -> None:
    """Change a safetensors file of float32 and other NumPy tensors in place."""
    with TensorFile(path) as file:
        arrays = {name: file.array(name) for name in file.tensors}
    change(arrays)
    write_tensors(path, arrays)


def write_tensors(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write a safetensors file."""
    names = {"float32": "F32", "float64": "F64", "int64": "I64", "float16": "F16", "bool": "BOOL"}
    header: dict[str, Any] = {}
    data = b""
    for name, array in arrays.items():
        start, data = len(data), data + array.tobytes()
        entry = {"dtype": names[str(array.dtype)], "shape": list(array.shape)}
        header[name] = {**entry, "data_offsets": [start, len(data)]}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def seen(prompt: str = "fold the towel", *cameras: str) -> Observation:
    """An observation of both golden checkpoints."""
    rng = np.random.default_rng(3)
    return Observation(
        state=np.linspace(-1, 1, 7, dtype=np.float32),
        images={
            name: rng.integers(0, 256, (48, 64, 3), np.uint8)
            for name in cameras or ("front", "wrist")
        },
        prompt=prompt,
    )
