"""The training scripts as modules, and a toy task to train on."""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import cv2
import numpy as np
import pytest

from takt.policies.mini.sizes import MiniSizes

SCRIPTS = Path(__file__).parents[3] / "examples" / "mini"
LESSONS = {"left": -1.0, "right": 1.0}
EPISODES, STEPS = 20, 12
SIZES = MiniSizes(
    image_size=32,
    num_words=4,
    vocabulary_size=8,
    stem_width=16,
    prefix_width=32,
    denoise_width=32,
    num_layers=2,
    num_heads=2,
    head_width=16,
    horizon=4,
)


@pytest.fixture(scope="session")
def scripts() -> Iterator[ModuleType]:
    """``examples/mini/train.py``; its neighbours are its attributes' modules."""
    torch = pytest.importorskip("torch", reason="torch is not installed: make torch")
    torch.set_num_threads(1)  # the networks are too small for two
    sys.path.insert(0, str(SCRIPTS))
    yield importlib.import_module("train")
    sys.path.remove(str(SCRIPTS))


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Demonstrations: move in the told direction as far as the bright square is high."""
    folder = tmp_path_factory.mktemp("toy")
    lessons = []
    for number, (word, sign) in enumerate(LESSONS.items()):
        arrays: Any = lesson(np.random.default_rng(number), sign)
        np.savez(folder / f"{word}.npz", **arrays)
        lessons.append({"file": f"{word}.npz", "instructions": [f"go {word}", f"move {word} now"]})
    (folder / "index.json").write_text(json.dumps({"lessons": lessons}))
    return folder


def lesson(rng: np.random.Generator, sign: float) -> dict[str, np.ndarray]:
    total = EPISODES * STEPS
    heights = np.repeat(rng.integers(2, 24, EPISODES), STEPS)
    frames: list[bytes] = []
    for height in heights:
        image = np.full((32, 32, 3), 40, np.uint8)
        image[height : height + 6, 12:18] = 250
        frames.append(cv2.imencode(".jpg", image)[1].tobytes())
    action = np.zeros((total, 4), np.float32)
    action[:, 0] = sign * heights / 24
    state = np.zeros((total, 39), np.float32)
    state[:, 4] = heights / 24
    return {
        "jpeg": np.frombuffer(b"".join(frames), np.uint8),
        "jpeg_offset": np.cumsum([0, *map(len, frames)], dtype=np.int64),
        "proprio": rng.standard_normal((total, 4)).astype(np.float32),
        "state": state,
        "action": action,
        "episode": np.repeat(np.arange(EPISODES, dtype=np.int32), STEPS),
        "episode_length": np.full(EPISODES, STEPS, np.int32),
    }
