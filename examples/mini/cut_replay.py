"""Cut the episodes that the package replays out of a folder of demonstrations.

    python examples/mini/cut_replay.py --data DIR --out src/takt/policies/mini/recordings/replay.npz

DIR is what ``collect.py`` wrote. Every third step of the first episodes
of six tasks is kept; each episode gets another paraphrase of its instruction. The same folder gives
the same file, byte for byte.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from takt.cli.evaluating.metaworld import INSTRUCTIONS

TASKS = (
    "drawer-open-v3",
    "drawer-close-v3",
    "button-press-topdown-v3",
    "window-open-v3",
    "faucet-open-v3",
    "faucet-close-v3",
)
EPISODES = 2
STRIDE = 3
MAX_BYTES = 2_000_000


def cut(data: Path, out: Path) -> None:
    """Write the chosen steps of ``data`` to ``out``."""
    frames: list[bytes] = []
    states: list[np.ndarray] = []
    starts: list[int] = []
    labels: list[tuple[str, str]] = []
    for task in TASKS:
        with np.load(data / f"{task}.npz", allow_pickle=False) as file:
            for number in range(EPISODES):
                steps = np.flatnonzero(file["episode"] == number)[::STRIDE]
                starts.append(len(frames))
                labels.append((task, INSTRUCTIONS[task][number % len(INSTRUCTIONS[task])]))
                jpeg, offset = file["jpeg"], file["jpeg_offset"]
                frames += [jpeg[offset[i] : offset[i + 1]].tobytes() for i in steps]
                states.append(file["proprio"][steps])
    size = sum(map(len, frames))
    if size > MAX_BYTES:
        raise SystemExit(f"{size} bytes of images, the package takes at most {MAX_BYTES}")
    out.parent.mkdir(parents=True, exist_ok=True)
    np.savez(
        out,
        jpeg=np.frombuffer(b"".join(frames), np.uint8),
        jpeg_offset=np.cumsum([0, *map(len, frames)], dtype=np.int64),
        state=np.concatenate(states),
        episode_start=np.array(starts, np.int64),
        task=np.array([task for task, _ in labels]),
        instruction=np.array([instruction for _, instruction in labels]),
    )
    size = out.stat().st_size
    sys.stdout.write(f"{out}: {len(starts)} episodes, {len(frames)} steps, {size} bytes\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of demonstrations")
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    arguments = parser.parse_args()
    cut(arguments.data, arguments.out)
