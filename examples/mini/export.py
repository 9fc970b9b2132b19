"""Write a trained run as a checkpoint of the package: ``policy.json`` and float16 weights.

    python examples/mini/export.py --run run --data demonstrations --out checkpoint

The averaged weights are written. Vocabulary and the statistics of the state come from the
demonstrations; actions are written as they are, -1..1.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import torch
from demonstrations import Demonstrations
from safetensors.numpy import save_file

from takt.policies.mini.checkpoint import CARD_FILE, WEIGHTS_FILE, MiniCard, read_weights
from takt.policies.mini.sizes import MiniSizes, num_parameters
from takt.policies.mini.words import FIRST_WORD
from takt.schema.plain import to_plain
from takt.schema.spec import AxisSpec, CameraSpec

DESCRIPTION = "Nine Meta-World tasks, told apart by their instruction"


def main(run: Path, data: Path, out: Path) -> None:
    """Write the checkpoint."""
    demonstrations = Demonstrations(data, MiniSizes().num_words)
    card = card_of(demonstrations)
    state = torch.load(run / "state.pt", weights_only=True)
    samples = state["progress"]["log"][-1]["samples"] if state["progress"]["log"] else 0
    write(card, state["average"], out)
    count = num_parameters(card.sizes)
    sys.stdout.write(f"{out}: {count:,} parameters after {samples:,} samples\n")


def write(card: MiniCard, average: dict[str, torch.Tensor], out: Path) -> None:
    """Write card and weights, and read them back as the server does."""
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(to_plain(card), indent=1)
    (out / CARD_FILE).write_text(text + "\n", encoding="utf-8")
    tensors = {name: tensor.numpy().astype(np.float16) for name, tensor in average.items()}
    save_file(tensors, out / WEIGHTS_FILE)
    (out / WEIGHTS_FILE).chmod(0o644)  # safetensors keeps new files private
    read_weights(out, card.sizes)


def card_of(data: Demonstrations) -> MiniCard:
    """The card of a network trained on these demonstrations."""
    sizes = MiniSizes(vocabulary_size=FIRST_WORD + len(data.vocabulary))
    camera = CameraSpec(
        name="image",
        height=sizes.image_size,
        width=sizes.image_size,
        resize="pad_center",
        interpolation="area",
    )
    return MiniCard(
        family="mini",
        description=DESCRIPTION,
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
        state_mean=rounded(data.state_mean),
        state_std=rounded(data.state_std),
        action=(
            AxisSpec(name="move_x", unit="cm", low=-1.0, high=1.0),
            AxisSpec(name="move_y", unit="cm", low=-1.0, high=1.0),
            AxisSpec(name="move_z", unit="cm", low=-1.0, high=1.0),
            AxisSpec(name="gripper_effort", unit="share", low=-1.0, high=1.0),
        ),
        action_mean=(0.0, 0.0, 0.0, 0.0),
        action_std=(1.0, 1.0, 1.0, 1.0),
        vocabulary=data.vocabulary,
    )


def rounded(values: np.ndarray) -> tuple[float, ...]:
    """Six significant digits are enough and make a readable file."""
    return tuple(float(f"{value:.6g}") for value in values)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, required=True, help="folder that train.py wrote")
    parser.add_argument("--data", type=Path, required=True, help="the demonstrations it read")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    given = parser.parse_args()
    main(given.run, given.data, given.out)
