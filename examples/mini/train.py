"""Train `mini` on demonstrations: flow matching, on CPU cores.

    python examples/mini/train.py --data demonstrations --out run

The network is the one that is served, ``takt.policies.mini.structure``, over PyTorch's operations.
A second head, which is thrown away, must tell where object and goal are from the last prefix
token's keys and values: that makes the prefix look at the right things early on.

``run/state.pt`` is written every few minutes; the same command goes on from there, and another
``--samples`` then changes how long it goes on. Batches and noise depend on seed, step and number of
processes alone, so an interrupted run sees what an uninterrupted one would have seen. On cores that
also do something else, ``--processes 2 --threads 1`` wastes less than two threads.
"""

import argparse
import contextlib
import json
import math
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # spinning threads take cores from others

import numpy as np
import torch
from curves import draw
from demonstrations import Batch, Demonstrations
from peers import Peers, run_in_processes
from rich.progress import Progress
from torch import Tensor
from torch.nn import functional
from torch_ops import TorchOps, new_weights

from takt.policies.mini import structure
from takt.policies.mini.sizes import MiniSizes
from takt.policies.mini.words import FIRST_WORD

DRAWS = 2
"""Noise draws per prefix pass: the prefix costs most, a second draw is nearly free."""
POSE_SHARE = 0.5
POSE_VALUES = 6
CLIP_NORM = 1.0
HELD_OUT_ROWS = 256
LONGEST_STEP_S = 10.0
"""A step that took longer was interrupted; the time beyond is not training time."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to train."""

    samples: int = 75_000
    """Rows to see; the learning rate falls over them."""
    batch: int = 32
    """Rows per step."""
    learning_rate: float = 7e-4
    """Highest learning rate."""
    warm_up_steps: int = 200
    """Steps until it is reached."""
    weight_decay: float = 0.02
    """Of matrices alone."""
    ema: float = 0.998
    """Share of the averaged weights that stays in each step."""
    seed: int = 0
    """Decides first weights, batches and noise."""
    log_every: int = 100
    """Steps between lines of the log."""
    held_out_every: int = 5
    """Lines of the log from one look at held-out episodes to the next."""
    save_every_s: float = 180.0
    """Seconds between checkpoints."""

    def rate(self, step: int) -> float:
        """Learning rate of a step: up linearly, down as a cosine."""
        done = min(1.0, step * self.batch / self.samples)
        warm = min(1.0, (step + 1) / self.warm_up_steps)
        return self.learning_rate * warm * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * done)))


@dataclass(kw_only=True)
class Progressed:
    """Where training stands."""

    step: int = 0
    """Steps done."""
    seconds: float = 0.0
    """Time they took."""
    log: list[dict[str, float]] = field(default_factory=list)
    """One line each few steps."""


class Trainer:
    """Weights, their average and the optimiser.

    Args:
        data: What to learn from.
        sizes: Sizes of the network.
        recipe: How.
        peers: The processes that share each batch.
    """

    def __init__(
        self,
        data: Demonstrations,
        sizes: MiniSizes,
        recipe: Recipe,
        peers: Peers | None = None,
    ) -> None:
        self._data, self._sizes, self._recipe = data, sizes, recipe
        self._peers = peers or Peers()
        self.weights = new_weights(sizes, recipe.seed)
        self.average = {name: tensor.detach().clone() for name, tensor in self.weights.items()}
        self._pose_head = torch.zeros(2 * sizes.attention_width, POSE_VALUES, requires_grad=True)
        self._pose_bias = torch.zeros(POSE_VALUES, requires_grad=True)
        self._optimizer = self._new_optimizer()
        self._recent: list[tuple[float, float]] = []
        self.progress = Progressed()

    @property
    def is_done(self) -> bool:
        """All samples were seen."""
        return self.progress.step * self._recipe.batch >= self._recipe.samples

    def step(self, *, wants_end: bool = False) -> bool:
        """One batch.

        Args:
            wants_end: Whether this process was asked to end.

        Returns:
            Whether any process was.
        """
        begun = time.monotonic()
        number, peers = self.progress.step, self._peers
        chosen = np.random.default_rng([self._recipe.seed, number])
        steps = chosen.choice(self._data.training_steps, self._recipe.batch)
        steps = steps[peers.rank :: peers.count]
        rng = np.random.default_rng([self._recipe.seed, number, peers.rank])
        batch = self._data.batch(steps, self._sizes.horizon, rng, augment=True)
        for group in self._optimizer.param_groups:
            group["lr"] = self._recipe.rate(number)
        flow, pose = self._losses(self.weights, batch, rng)
        self._optimizer.zero_grad()
        (flow + POSE_SHARE * pose).backward()
        is_ending = peers.average(self._trained(), wants_end)
        torch.nn.utils.clip_grad_norm_(self._trained(), CLIP_NORM)
        self._optimizer.step()
        self._follow()
        self.progress.step += 1
        self.progress.seconds += min(time.monotonic() - begun, LONGEST_STEP_S)
        self._recent.append((flow.item(), pose.item()))
        if peers.rank == 0 and self.progress.step % self._recipe.log_every == 0:
            self._log(*np.mean(self._recent, axis=0).tolist())
            self._recent.clear()
        return is_ending

    def held_out_loss(self) -> float:
        """Flow loss of the averaged weights on episodes that are not trained on."""
        rng = np.random.default_rng(0)
        steps = rng.choice(self._data.held_out_steps, HELD_OUT_ROWS)
        batch = self._data.batch(steps, self._sizes.horizon, rng, augment=False)
        with torch.no_grad():
            return self._losses(self.average, batch, rng)[0].item()

    def save(self, path: Path) -> None:
        """Write everything that going on needs, in one piece."""
        state: dict[str, Any] = {
            "weights": {name: tensor.detach() for name, tensor in self.weights.items()},
            "average": self.average,
            "pose": [self._pose_head.detach(), self._pose_bias.detach()],
            "optimizer": self._optimizer.state_dict(),
            "progress": vars(self.progress),
        }
        part = path.with_suffix(".part")
        torch.save(state, part)
        part.replace(path)

    def restore(self, path: Path) -> None:
        """Go on from a file of :meth:`save`."""
        state = torch.load(path, weights_only=True)
        with torch.no_grad():
            for name, tensor in self.weights.items():
                tensor.copy_(state["weights"][name])
                self.average[name].copy_(state["average"][name])
            self._pose_head.copy_(state["pose"][0])
            self._pose_bias.copy_(state["pose"][1])
        self._optimizer.load_state_dict(state["optimizer"])
        self.progress = Progressed(**state["progress"])

    def _losses(
        self, weights: dict[str, Tensor], batch: Batch, rng: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        ops, sizes = TorchOps(weights), self._sizes
        actions = batch.actions.repeat(DRAWS, 1, 1)
        # Beta(1.5, 1) prefers times near 1, which is noise: there the picture decides most.
        times = (0.001 + 0.999 * rng.beta(1.5, 1.0, len(actions))).astype(np.float32)
        noise = torch.from_numpy(rng.standard_normal(actions.shape, np.float32))
        share = torch.from_numpy(times)[:, None, None]
        noisy = share * noise + (1 - share) * actions
        kv = structure.prefix(ops, sizes, batch.images, batch.words)
        vectors = structure.time_vectors(ops, sizes, times)
        layers = kv.unbind(1)
        caches = [
            ops.keys_and_values(layer.repeat(DRAWS, 1, 1), sizes.num_heads) for layer in layers
        ]
        states = batch.states.repeat(DRAWS, 1)
        slope = structure.velocity(ops, sizes, caches, states, x=noisy, time_vector=vectors)
        flow = functional.mse_loss(slope, noise - actions)
        poses = layers[-1][:, -1] @ self._pose_head + self._pose_bias
        return flow, functional.smooth_l1_loss(poses, batch.poses)

    def _follow(self) -> None:
        # A young average follows faster, else the first weights would stay in it for long.
        keep = min(self._recipe.ema, (1 + self.progress.step) / (10 + self.progress.step))
        with torch.no_grad():
            for name, tensor in self.weights.items():
                self.average[name].lerp_(tensor, 1 - keep)

    def _log(self, flow: float, pose: float) -> None:
        done = self.progress
        line = {
            "samples": done.step * self._recipe.batch,
            "seconds": round(done.seconds, 1),
            "rate": self._recipe.rate(done.step),
            "loss": flow,
            "pose_loss": pose,
        }
        is_time = done.step % (self._recipe.held_out_every * self._recipe.log_every) == 0
        if is_time and len(self._data.held_out_steps):
            line["held_out_loss"] = self.held_out_loss()
        done.log.append(line)

    def _trained(self) -> list[Tensor]:
        return [*self.weights.values(), self._pose_head, self._pose_bias]

    def _new_optimizer(self) -> torch.optim.AdamW:
        matrices = [w for name, w in self.weights.items() if _decays(name)]
        others = [w for name, w in self.weights.items() if not _decays(name)]
        others += [self._pose_head, self._pose_bias]
        groups = [
            {"params": matrices, "weight_decay": self._recipe.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, betas=(0.9, 0.95), fused=True)


def _decays(name: str) -> bool:
    return name.endswith(".weight") and ".norm." not in name and ".words." not in name


def work(peers: Peers, data: Path, out: Path, recipe: Recipe, threads: int) -> None:
    """Train until all samples were seen or a process is asked to end."""
    torch.set_num_threads(threads)
    sizes = MiniSizes()
    demonstrations = Demonstrations(data, sizes.num_words)
    sizes = MiniSizes(vocabulary_size=FIRST_WORD + len(demonstrations.vocabulary))
    trainer = Trainer(demonstrations, sizes, recipe, peers)
    out.mkdir(parents=True, exist_ok=True)
    state = out / "state.pt"
    if state.exists():
        trainer.restore(state)
    with asked_to_end() as signals:
        if peers.rank == 0:
            run(trainer, out, recipe, signals)
        else:
            while not trainer.is_done and not trainer.step(wants_end=bool(signals)):
                pass


@contextlib.contextmanager
def asked_to_end() -> Iterator[list[int]]:
    """A list that fills with the signals which ask this process to end."""
    received: list[int] = []
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, lambda got, _: received.append(got)) for number in numbers]
    try:
        yield received
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def run(trainer: Trainer, out: Path, recipe: Recipe, signals: list[int]) -> None:
    """Step, show, save."""
    saved, is_ending = time.monotonic(), False
    with Progress() as progress:
        bar = progress.add_task("training", total=recipe.samples)
        while not trainer.is_done and not is_ending:
            is_ending = trainer.step(wants_end=bool(signals))
            loss = trainer.progress.log[-1]["loss"] if trainer.progress.log else math.nan
            done = trainer.progress.step * recipe.batch
            progress.update(bar, completed=done, description=f"loss {loss:.3f}")
            if time.monotonic() - saved > recipe.save_every_s:
                keep(trainer, out)
                saved = time.monotonic()
    keep(trainer, out)


def keep(trainer: Trainer, out: Path) -> None:
    """Write state, log and curves."""
    trainer.save(out / "state.pt")
    lines = [json.dumps(line) + "\n" for line in trainer.progress.log]
    (out / "log.jsonl").write_text("".join(lines), encoding="utf-8")
    draw(trainer.progress.log, out / "curves.svg")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of demonstrations")
    parser.add_argument("--out", type=Path, required=True, help="folder of the run")
    parser.add_argument("--samples", type=int, default=Recipe.samples, help="rows to see")
    parser.add_argument("--seed", type=int, default=Recipe.seed, help="seed of everything random")
    parser.add_argument("--processes", type=int, default=1, help="processes that share a batch")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads of each process")
    given = parser.parse_args()
    how = Recipe(samples=given.samples, seed=given.seed)
    run_in_processes(given.processes, work, given.data, given.out, how, given.threads)
