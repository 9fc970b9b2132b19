"""A SmolVLA checkpoint of the published sizes with random weights, for benchmarks."""

import json
import re
import shutil
import struct
from pathlib import Path

import numpy as np
import torch

from takt.policies.lerobot.checkpoint import WEIGHTS_FILE
from takt.policies.lerobot.config import read_config
from takt.policies.lerobot.documents import read_document
from takt.policies.lerobot.sizes import StackSizes, TowerSizes
from takt.policies.lerobot.tensor_file import TensorFile
from takt.policies.smolvla.network import SmolvlaNetwork
from takt.policies.smolvla.sizes import SMOLVLA, SmolvlaSizes

TINY = Path(__file__).parents[2] / "tests" / "golden" / "policies" / "smolvla"
SIZES = SmolvlaSizes(
    vision=TowerSizes(width=768, depth=12, heads=12, mlp=3072, patch=16, positions=1024),
    language=StackSizes(width=960, depth=16, mlp=2560, heads=15, kv_heads=5, head_dim=64),
    expert=StackSizes(width=720, depth=16, mlp=2048, heads=15, kv_heads=5, head_dim=64),
    vocabulary=49280,
    image_tokens=64,
    shuffle=4,
    has_specials=False,
    num_empty=0,
    self_attention=tuple(layer % 2 == 0 for layer in range(16)),
)


def write_checkpoint(folder: Path, num_cameras: int, seed: int) -> Path:
    """Write the checkpoint into ``folder``: 1.8 GB, as LeRobot would save it."""
    shutil.copytree(TINY / "checkpoint", folder)
    shutil.copytree(TINY / "tokenizer", folder, dirs_exist_ok=True)
    document = json.loads((folder / "config.json").read_text())
    camera = document["input_features"].pop("observation.images.front")
    document["input_features"].pop("observation.images.wrist")
    for number in range(num_cameras):
        document["input_features"][f"observation.images.camera{number}"] = camera
    document |= {"resize_imgs_with_padding": [512, 512], "num_vlm_layers": 16}
    (folder / "config.json").write_text(json.dumps(document))
    config = read_config(read_document(folder / "config.json"), SMOLVLA)
    with torch.device("meta"):
        network = SmolvlaNetwork(SIZES, config)
    shapes = {name: tuple(parameter.shape) for name, parameter in network.named_parameters()}
    _write_weights(folder / WEIGHTS_FILE, shapes, _stored_names(), seed)
    return folder


def _stored_names() -> dict[str, str]:
    """LeRobot's name by ours, of the tiny checkpoint."""
    with TensorFile(TINY / "checkpoint" / WEIGHTS_FILE) as file:
        return SMOLVLA.names.translate(file.tensors)


def _write_weights(
    path: Path, shapes: dict[str, tuple[int, ...]], names: dict[str, str], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    header: dict[str, object] = {}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + 4 * int(np.prod(shape))
        stored = names[re.sub(r"layers\.\d+\.", "layers.0.", name)]
        layer = re.search(r"layers\.(\d+)\.", name)
        if layer is not None:
            stored = stored.replace("layers.0.", f"layers.{layer[1]}.")
        header[stored] = {"dtype": "F32", "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for shape in shapes.values():
            file.write((rng.standard_normal(shape, np.float32) * np.float32(0.02)).tobytes())
