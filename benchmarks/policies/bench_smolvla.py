"""How long do the stages of a full-size SmolVLA take on a CPU, and what do compact layouts save?

Why it matters: a robot's deadline is prefix plus denoise. Masked cameras and the padding of
instructions must cost nothing, and serving must not be slower than LeRobot's own code.
Budget: no row slower than LeRobot 0.4.4 in the same run, measured in turns.

    python benchmarks/policies/bench_smolvla.py [--quick] [--lerobot PYTHON] [--out FILE]

PYTHON is an interpreter of an environment with LeRobot 0.4.4; without it our side runs alone.
"""

import argparse
import json
import multiprocessing
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from lerobot_peer import peak_mib

from _record import RESULTS, circumstances, write

SEED = 5
NUM_CAMERAS = 2
PROMPT_TOKENS = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--lerobot", metavar="PYTHON")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS / "smolvla.json")
    asked = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("skipped: needs torch")
        return
    torch.set_num_threads(asked.threads)
    sizes = (1,) if asked.quick else (1, 2)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "smolvla"
        _write(checkpoint)
        ours = _load(checkpoint, sizes)
        with _peer(asked.lerobot, asked.threads, checkpoint) as (peer, facts):
            loading = {"takt": ours.facts, "lerobot": facts}
            result = {
                "loading": loading,
                **_measure(ours, peer, sizes, 2 if asked.quick else 3),
            }
    result["circumstances"] = circumstances(seed=SEED, packages=("torch", "numpy"))
    result["threads"] = asked.threads
    print(json.dumps(result, indent=1))
    if not asked.quick:
        write(asked.out, result)


class _Ours:
    """Our network, loaded."""

    def __init__(self, runner: Any, facts: dict[str, Any]) -> None:  # noqa: ANN401
        self.runner = runner
        self.facts = facts

    def times(self, size: int, layout: int) -> dict[str, float]:
        """One launch of each stage, in ms."""
        slots = self.runner._slots(range(size), size)
        start = time.perf_counter()
        self.runner._run_prefix(size, layout, slots)
        between = time.perf_counter()
        self.runner._run_denoise(size, layout, slots)
        end = time.perf_counter()
        return {
            "prefix_ms": 1e3 * (between - start),
            "denoise_ms": 1e3 * (end - between),
            "peak_mib": peak_mib(),
        }


def _write(folder: Path) -> None:
    """Write the checkpoint in a process of its own, so that its memory does not count as ours."""
    from smolvla_full import write_checkpoint

    process = multiprocessing.get_context("spawn").Process(
        target=write_checkpoint, args=(folder, NUM_CAMERAS, SEED)
    )
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit("the checkpoint was not written")


def _load(folder: Path, sizes: tuple[int, ...]) -> _Ours:
    from takt.policies.catalog import open_policy
    from takt.policies.interface import Placement

    parts = open_policy(str(folder), options={"prefix_sizes": sizes, "denoise_sizes": sizes})
    runner: Any = parts.network(Placement(kv_slots=8, precision="f32"))
    start = time.perf_counter()
    runner.load()
    facts = {"load_s": round(time.perf_counter() - start, 2), "peak_mib_after_load": peak_mib()}
    for stage in runner._parts().arrays.buffers.values():
        for name, array in stage.items():
            if name == "num_images":
                array[...] = NUM_CAMERAS
            elif name == "num_tokens":
                array[...] = PROMPT_TOKENS
            elif array.dtype == np.float32:
                array[...] = np.random.default_rng(SEED).random(array.shape, np.float32)
    return _Ours(runner, facts)


@contextmanager
def _peer(
    python: str | None, threads: int, checkpoint: Path
) -> Iterator[tuple["subprocess.Popen[str] | None", dict[str, Any]]]:
    """LeRobot's network with the same weights, and what loading it took."""
    if python is None:
        yield None, {}
        return
    from takt.policies.lerobot.checkpoint import WEIGHTS_FILE

    script = Path(__file__).with_name("lerobot_peer.py")
    arguments = [python, str(script), str(NUM_CAMERAS), str(PROMPT_TOKENS), str(threads)]
    arguments.append(str(checkpoint / WEIGHTS_FILE))
    process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())
    finally:
        process.terminate()
        process.wait()


def _measure(
    ours: _Ours, peer: "subprocess.Popen[str] | None", sizes: tuple[int, ...], repeats: int
) -> dict[str, Any]:
    layouts = ours.runner._checkpoint.layouts
    # The shortest layout with all cameras is what the peer computes; the last one has all padding.
    compact = next(n for n, shape in enumerate(layouts) if shape.images == NUM_CAMERAS)
    rows: list[dict[str, Any]] = []
    for size in sizes:
        found: dict[str, list[dict[str, float]]] = {"takt": [], "lerobot": []}
        ours.times(size, compact)
        _ask(peer, size)
        for _ in range(repeats):
            found["takt"].append(ours.times(size, compact))
            found["lerobot"] += _ask(peer, size)
        rows.append({"rows": size, **{name: _best(each) for name, each in found.items() if each}})
    saved = [
        {"layout": shape.name, **_best([ours.times(1, place) for _ in range(repeats)])}
        for place, shape in enumerate(layouts)
    ]
    return {"stages": rows, "layouts_one_row": saved}


def _ask(peer: "subprocess.Popen[str] | None", size: int) -> list[dict[str, float]]:
    if peer is None:
        return []
    assert peer.stdin is not None
    assert peer.stdout is not None
    peer.stdin.write(f"{size}\n")
    peer.stdin.flush()
    return [json.loads(peer.stdout.readline())]


def _best(times: list[dict[str, float]]) -> dict[str, float]:
    return {key: round(min(each[key] for each in times), 1) for key in times[0]}


if __name__ == "__main__":
    main()
