"""Write a `mini` checkpoint with random weights: the card from a folder of demonstrations.

    python examples/mini/build_weights.py --data DIR --out src/takt/policies/mini/weights

DIR holds ``index.json`` and one ``<task>.npz`` per task; vocabulary and state statistics come from
there. The weights are drawn from a seed, so the policy moves without purpose until it is trained,
and the same folder and seed give the same files, byte for byte.
"""

import argparse
import json
import math
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from takt.policies.mini.checkpoint import CARD_FILE, WEIGHTS_FILE, MiniCard
from takt.policies.mini.sizes import MiniSizes, num_parameters, tensor_shapes
from takt.policies.mini.words import FIRST_WORD, split_words
from takt.schema.plain import to_plain
from takt.schema.spec import AxisSpec, CameraSpec

MIN_STD = 1e-3


def main(data: Path, out: Path, seed: int) -> None:
    """Write ``policy.json`` and ``model.safetensors`` to ``out``."""
    index = json.loads((data / "index.json").read_text(encoding="utf-8"))
    texts = [text for task in index["tasks"] for text in task["instructions"]]
    vocabulary = tuple(sorted({word for text in texts for word in split_words(text)}))
    core = [task["file"] for task in index["tasks"] if task["core"]]
    states = np.concatenate([np.load(data / file)["proprio"] for file in core]).astype(np.float64)
    card = card_of(vocabulary, states)
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(to_plain(card), indent=1)
    (out / CARD_FILE).write_text(text + "\n", encoding="utf-8")
    save_file(random_tensors(card.sizes, seed), out / WEIGHTS_FILE)
    (out / WEIGHTS_FILE).chmod(0o644)  # safetensors keeps new files private
    count = num_parameters(card.sizes)
    sys.stdout.write(f"{out}: {count:,} parameters, {len(vocabulary)} words\n")


def card_of(vocabulary: tuple[str, ...], states: np.ndarray) -> MiniCard:
    """The card of an untrained checkpoint."""
    sizes = MiniSizes(vocabulary_size=FIRST_WORD + len(vocabulary))
    camera = CameraSpec(
        name="image",
        height=sizes.image_size,
        width=sizes.image_size,
        resize="pad_center",
        interpolation="area",
    )
    return MiniCard(
        family="mini",
        description="Random weights: for tests and demonstrations, it solves no task",
        sizes=sizes,
        num_steps=10,
        execution_horizon=8,
        # The simulator has no pace of its own. At 16 steps per second the eight executed steps
        # last half a second.
        control_hz=16.0,
        camera=camera,
        state=(
            AxisSpec(name="gripper_x", unit="m"),
            AxisSpec(name="gripper_y", unit="m"),
            AxisSpec(name="gripper_z", unit="m"),
            AxisSpec(name="gripper_opening", unit="share"),
        ),
        state_mean=rounded(states.mean(0)),
        state_std=rounded(np.maximum(states.std(0), MIN_STD)),
        action=(
            AxisSpec(name="move_x", unit="cm", low=-1.0, high=1.0),
            AxisSpec(name="move_y", unit="cm", low=-1.0, high=1.0),
            AxisSpec(name="move_z", unit="cm", low=-1.0, high=1.0),
            AxisSpec(name="gripper_effort", unit="share", low=-1.0, high=1.0),
        ),
        action_mean=(0.0, 0.0, 0.0, 0.0),
        action_std=(1.0, 1.0, 1.0, 1.0),
        vocabulary=vocabulary,
    )


def rounded(values: np.ndarray) -> tuple[float, ...]:
    """Six significant digits are enough and make a readable file."""
    return tuple(float(f"{value:.6g}") for value in values)


def random_tensors(sizes: MiniSizes, seed: int) -> dict[str, np.ndarray]:
    """Weights with variance 1 / inputs, norms of one, biases of zero, as float16."""
    tensors: dict[str, np.ndarray] = {}
    for number, (name, shape) in enumerate(tensor_shapes(sizes).items()):
        if name.endswith("norm.weight"):
            value = np.ones(shape)
        elif name.endswith(".bias"):
            value = np.zeros(shape)
        else:
            rng = np.random.default_rng([seed, number])
            inputs = 2500 if name.endswith("position") else math.prod(shape[1:])
            value = rng.standard_normal(shape) / math.sqrt(inputs)
        tensors[name] = value.astype(np.float16)
    return tensors


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of demonstrations")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights")
    arguments = parser.parse_args()
    main(arguments.data, arguments.out, arguments.seed)
