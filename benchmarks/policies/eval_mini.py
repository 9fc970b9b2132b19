"""Does `mini` solve its tasks, does it listen, does it look, and do its graphs equal torch?

    python benchmarks/policies/eval_mini.py --jobs 2 --out benchmarks/results/mini.json

Needs the extras ``server`` and ``metaworld``, and torch. Each task is run from 25 starts of a seed
that neither training nor the choice of a setting has seen: in this process, through a server that
is started here, and with black pictures; tasks that share a scene also with the partner's words.
Targets: mean success at least 80 % and no task below 50 %; at most 20 % with the partner's words;
half or less with black pictures; actions within 1e-4 of torch in float32.
``--quick`` runs two starts of two tasks.
"""

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from takt.cli.driving.server_process import serving
from takt.cli.evaluating.in_process import InProcessPolicy
from takt.cli.evaluating.metaworld import INSTRUCTIONS, MetaworldEnvironment, MetaworldTask
from takt.cli.evaluating.summary import summary_of, wilson_interval
from takt.client.connection import connect
from takt.client.rollout import Ask, EpisodeRules, run_episode
from takt.errors import ConfigError
from takt.policies.catalog import open_policy
from takt.policies.interface import Placement, Precision
from takt.policies.mini import structure
from takt.policies.mini.checkpoint import SHIPPED, read_card, read_weights
from takt.policies.mini.network import MiniNetwork
from takt.policies.mini.replay import load_recordings
from takt.schema.row import Row, RowRequest
from takt.units import SECOND

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "examples/mini")]

import _record  # noqa: E402

SEED = 2
EPISODES = 25
BLACK_EPISODES = 15
"""Blindfolded episodes mostly last to the end, and the question is a coarse one."""
MAX_STEPS = 200
BATCH = 8
READY_TIMEOUT = 300 * SECOND
PARTNERS = {
    "drawer-open-v3": "drawer-close-v3",
    "drawer-close-v3": "drawer-open-v3",
    "faucet-open-v3": "faucet-close-v3",
    "faucet-close-v3": "faucet-open-v3",
}
MODES = ("in process", "server", "black images", "partner's words")


def evaluate_task(task_name: str, episodes: int, policy_name: str, address: str) -> dict[str, Any]:
    """Every mode of one task."""
    found: dict[str, Any] = {"task": task_name}
    task = MetaworldTask(task_name, seed=SEED)
    policy = InProcessPolicy(policy_name)
    rules = EpisodeRules(max_steps=MAX_STEPS, execute=policy.spec.action.execution_horizon)

    def run(ask: Ask, words: str, *, black: bool = False) -> dict[str, Any]:
        environment = MetaworldEnvironment(task, instruction=words, black_images=black)
        starts = range(min(episodes, BLACK_EPISODES) if black else episodes)
        results = [run_episode(environment, ask, rules, index=index) for index in starts]
        return {"instruction": words, **summary_of(results)}

    usual = INSTRUCTIONS[task_name][0]
    with closing(task), closing(policy):
        found["in process"] = run(policy.ask, usual)
        with connect(address, answer_timeout=60 * SECOND) as connection:
            found["server"] = run(lambda seen: connection.infer(seen).actions, usual)
        found["black images"] = run(policy.ask, usual, black=True)
        if task_name in PARTNERS:
            words = INSTRUCTIONS[PARTNERS[task_name]][0]
            found["partner's words"] = run(policy.ask, words)
    return found


def mean_success(tasks: list[dict[str, Any]], mode: str) -> dict[str, Any]:
    ran = [task[mode] for task in tasks if mode in task]
    solved, total = (sum(each[key] for each in ran) for key in ("solved", "episodes"))
    return {
        "success": round(solved / total, 4),
        "interval_95": [round(limit, 4) for limit in wilson_interval(solved, total)],
        "lowest_task": min(each["success"] for each in ran),
        "highest_task": max(each["success"] for each in ran),
    }


def parity(policy_name: str) -> dict[str, float]:
    """Largest differences of model-space actions, over recorded observations.

    Without a figure for bf16 where the CPU has no bf16.
    """
    import torch
    from torch_ops import TorchOps  # pyright: ignore[reportMissingImports]

    directory = SHIPPED if policy_name == "mini" else Path(policy_name)
    card = read_card(directory)
    rows = recorded_rows(policy_name)
    weights = read_weights(directory, card.sizes)
    ops = TorchOps({name: torch.from_numpy(value) for name, value in weights.items()})
    stacked = {
        name: torch.from_numpy(np.stack([row.tensors[name] for row in rows]))
        for name in ("image", "words", "state", "noise")
    }
    with torch.no_grad():
        kv = structure.prefix(ops, card.sizes, stacked["image"], stacked["words"])
        wanted = structure.denoise(
            ops,
            card.sizes,
            card.num_steps,
            kv=kv,
            state=stacked["state"],
            noise=stacked["noise"],
            previous=torch.zeros_like(stacked["noise"]),
            hold=torch.zeros(len(rows), card.sizes.horizon, 1),
        ).numpy()
    found: dict[str, float] = {}
    singles = {}
    precisions: tuple[Precision, ...] = ("f32", "bf16")
    for precision in precisions:
        try:
            network = network_of(policy_name, precision)
        except ConfigError:
            if precision == "f32":
                raise
            break
        singles[precision] = np.concatenate([launched(network, [row], 1) for row in rows])
        found[f"{precision}_to_torch"] = off(singles[precision], wanted)
        if precision == "f32":
            batch = launched(network, rows, BATCH)
            found["batch_8_to_singles"] = off(batch, singles[precision])
        network.close()
    return found


def recorded_rows(policy_name: str) -> list[Row]:
    parts = open_policy(policy_name)
    preprocessor, rows = parts.preprocessor(), []
    for number, recording in enumerate(load_recordings()[:BATCH]):
        slot = {each.name: np.zeros(each.shape, each.dtype) for each in parts.spec.slot_tensors}
        request = RowRequest(session="parity", sequence=number)
        header = preprocessor.write(recording.observation(5), slot, request)
        rows.append(Row(header, slot))
    return rows


def network_of(policy_name: str, precision: Precision) -> MiniNetwork:
    placement = Placement(kv_slots=BATCH, precision=precision)
    network = open_policy(policy_name).network(placement)
    assert isinstance(network, MiniNetwork)
    network.load()
    return network


def launched(network: MiniNetwork, rows: list[Row], size: int) -> np.ndarray:
    # The prefix stage is compiled for fewer rows than the denoise stage.
    most = max(network.spec.prefix_sizes)
    for start in range(0, len(rows), most):
        part = rows[start : start + most]
        slots = list(range(start, start + len(part)))
        fits = next(each for each in network.spec.prefix_sizes if each >= len(part))
        network.prefix(part, size=fits, layout=0, kv_slots=slots)
    slots = list(range(len(rows)))
    return network.denoise(rows, size=size, layout=0, kv_slots=slots)


def off(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.abs(found - wanted).max())


def table(tasks: list[dict[str, Any]], means: dict[str, Any]) -> str:
    """The figures as a table of Markdown."""
    lines = [f"| task | {' | '.join(MODES)} |", "|---" * (1 + len(MODES)) + "|"]
    for task in tasks:
        cells = [cell(task[mode]) if mode in task else "" for mode in MODES]
        lines.append(f"| {task['task']} | {' | '.join(cells)} |")
    cells = [f"**{means[mode]['success']:.0%}**" if mode in means else "" for mode in MODES]
    lines.append(f"| mean | {' | '.join(cells)} |")
    return "\n".join(lines)


def cell(summary: dict[str, Any]) -> str:
    low, high = summary["interval_95"]
    return f"{summary['solved']}/{summary['episodes']} ({low:.0%} to {high:.0%})"


def main(policy: str, out: Path | None, jobs: int, *, quick: bool) -> None:
    names = list(INSTRUCTIONS)[:2] if quick else list(INSTRUCTIONS)
    episodes = 2 if quick else EPISODES
    compared = parity(policy)
    print(json.dumps(compared, indent=1))
    with (
        serving(["--model", policy, "--openpi", "0"]) as server,
        ProcessPoolExecutor(jobs, max_tasks_per_child=1) as pool,
    ):
        address = server.wait_until_ready(READY_TIMEOUT)
        given = ([each] * len(names) for each in (episodes, policy, address))
        tasks = []
        for task in pool.map(evaluate_task, names, *given):
            tasks.append(task)
            said = {mode: task[mode]["solved"] for mode in MODES if mode in task}
            print(f"{task['task']}: of {episodes} {said}", flush=True)
    means = {mode: mean_success(tasks, mode) for mode in MODES if any(mode in t for t in tasks)}
    print(table(tasks, means))
    if out is not None:
        packages = ("metaworld", "mujoco", "openvino", "numpy", "torch")
        result = {
            "benchmark": "mini",
            "digest": open_policy(policy).spec.digest,
            "circumstances": _record.circumstances(seed=SEED, packages=packages),
            "max_steps": MAX_STEPS,
            "parity": compared,
            "mean": means,
            "tasks": tasks,
        }
        _record.write(out, result)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--policy", default="mini", help="mini, or the directory of a checkpoint")
    parser.add_argument("--jobs", type=int, default=1, help="tasks at once")
    parser.add_argument("--out", type=Path, help="file for the figures")
    parser.add_argument("--quick", action="store_true", help="two starts of two tasks")
    given = parser.parse_args()
    main(given.policy, given.out, given.jobs, quick=given.quick)
