"""Cuts a directory of golden cases down to what the repository keeps.

    python tests/golden/policies/trim.py FULL_DIRECTORY NEW_DIRECTORY CASE...

A case that uses another one's inputs keeps that one too.
"""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file


def main(full: Path, new: Path, names: list[str]) -> None:
    """Copy the checkpoint and the tokenizer whole, of the rest what the cases need."""
    document = json.loads((full / "golden.json").read_text())
    cases = {name: document["cases"][name] for name in names}
    new.mkdir(parents=True)
    for folder in ("checkpoint", "tokenizer"):
        shutil.copytree(full / folder, new / folder, copy_function=shutil.copyfile)
    shutil.copyfile(full / "dims.json", new / "dims.json")
    kept = {key: document[key] for key in ("family", "lerobot", "transformers", "torch", "seed")}
    (new / "golden.json").write_text(json.dumps({**kept, "cases": cases}, indent=1) + "\n")
    tensors = load_file(full / "golden.safetensors")
    wanted = {key: value for key, value in tensors.items() if key.split(".")[0] in cases}
    save_file(wanted, new / "golden.safetensors")
    seen = {name for case in cases.values() for name in case.get("observations", ())}
    with np.load(full / "raw_observations.npz") as raw:
        frames = {key: raw[key] for key in raw.files if key.split(".")[0] in seen}
    np.savez_compressed(new / "raw_observations.npz", **frames)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
