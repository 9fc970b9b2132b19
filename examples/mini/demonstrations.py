"""Demonstrations in memory, and the batches drawn from them."""

import itertools
import json
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import torch
from torch import Tensor

from takt.policies.mini.words import WordTokenizer, split_words

MIN_STD = 1e-2
HELD_OUT_EVERY = 20
"""Of each lesson, the last of this many episodes is not trained on."""
OBJECT, GOAL = slice(4, 7), slice(36, 39)
"""Where the simulator's vector has the first object's position and the goal's, in metres."""

MAX_SHIFT = 2
STATE_NOISE = 0.02
MAX_GAIN = 0.1
MAX_OFFSET = 8.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Rows to train on; ``b`` of them."""

    images: Tensor
    """``(b, size, size, 3)``, 0..255."""
    words: Tensor
    """``(b, num_words)``."""
    states: Tensor
    """``(b, 4)``, normalised."""
    actions: Tensor
    """``(b, horizon, 4)``, -1..1."""
    poses: Tensor
    """``(b, 6)``, normalised positions of object and goal: a target, never an input."""


class Demonstrations:
    """Every step of every lesson in a folder made by ``collect.py``; about 40 KB a step.

    Args:
        folder: Holds ``index.json`` and the lessons' files.
        num_words: Words of an instruction, as in the network's sizes.
    """

    def __init__(self, folder: Path, num_words: int) -> None:
        index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
        self.instructions = [tuple(lesson["instructions"]) for lesson in index["lessons"]]
        texts = [text for group in self.instructions for text in group]
        self.vocabulary = tuple(sorted({word for text in texts for word in split_words(text)}))
        tokenizer = WordTokenizer(self.vocabulary, num_words)
        self._tokens = [
            np.stack([tokenizer.encode(text) for text in group]) for group in self.instructions
        ]
        lessons = [_Lesson.read(folder / lesson["file"]) for lesson in index["lessons"]]
        self.images = np.concatenate([lesson.images for lesson in lessons])
        self.states = np.concatenate([lesson.states for lesson in lessons])
        self.actions = np.concatenate([lesson.actions for lesson in lessons])
        self._poses = _normalised(np.concatenate([lesson.poses for lesson in lessons]))
        self.state_mean = self.states.mean(0, dtype=np.float64)
        self.state_std = np.maximum(self.states.std(0, dtype=np.float64), MIN_STD)
        lengths = [len(lesson.states) for lesson in lessons]
        starts = np.cumsum([0, *lengths[:-1]])
        self._lesson = np.repeat(np.arange(len(lessons)), lengths)
        self._last = np.concatenate(
            [lesson.last + start for lesson, start in zip(lessons, starts, strict=True)]
        )
        held = np.concatenate([lesson.held_out for lesson in lessons])
        self.training_steps = np.flatnonzero(~held)
        self.held_out_steps = np.flatnonzero(held)

    def batch(
        self, steps: np.ndarray, horizon: int, rng: np.random.Generator, *, augment: bool
    ) -> Batch:
        """The rows of some steps.

        Args:
            steps: Which, ``(b,)``.
            horizon: Actions in a chunk.
            rng: Chooses the instruction and, if asked, shifts, brightness and state noise.
            augment: Whether to disturb what the network sees.
        """
        ahead = steps[:, None] + np.arange(horizon)
        actions = self.actions[np.minimum(ahead, self._last[steps][:, None])]
        states = (self.states[steps] - self.state_mean) / self.state_std
        images = torch.from_numpy(self.images[steps])
        if augment:
            states = states + rng.normal(0, STATE_NOISE, states.shape)
            images = _disturbed(self.images[steps], rng)
        choices = [self._tokens[lesson] for lesson in self._lesson[steps]]
        words = [tokens[rng.integers(len(tokens))] for tokens in choices]
        return Batch(
            images=images,
            words=torch.from_numpy(np.stack(words)),
            states=torch.from_numpy(states.astype(np.float32)),
            actions=torch.from_numpy(actions),
            poses=torch.from_numpy(self._poses[steps]),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Lesson:
    images: np.ndarray
    states: np.ndarray
    actions: np.ndarray
    poses: np.ndarray
    last: np.ndarray
    held_out: np.ndarray

    @classmethod
    def read(cls, path: Path) -> "_Lesson":
        with np.load(path, allow_pickle=False) as file:
            jpeg, offset, vector = file["jpeg"], file["jpeg_offset"], file["state"]
            frames = [
                cv2.imdecode(jpeg[start:stop], cv2.IMREAD_COLOR_RGB)
                for start, stop in itertools.pairwise(offset)
            ]
            episode, ends = file["episode"], np.cumsum(file["episode_length"]) - 1
            return cls(
                images=np.stack(frames),
                states=file["proprio"],
                actions=file["action"],
                poses=np.concatenate([vector[:, OBJECT], vector[:, GOAL]], axis=1),
                last=ends[episode],
                held_out=episode % HELD_OUT_EVERY == HELD_OUT_EVERY - 1,
            )


def _normalised(values: np.ndarray) -> np.ndarray:
    spread = np.maximum(values.std(0), MIN_STD)
    return ((values - values.mean(0)) / spread).astype(np.float32)


def _disturbed(images: np.ndarray, rng: np.random.Generator) -> Tensor:
    """Shift each picture by up to two pixels and change its brightness a little."""
    count, height, width, _ = images.shape
    down, right = rng.integers(-MAX_SHIFT, MAX_SHIFT + 1, (2, count))
    rows = np.clip(np.arange(height) + down[:, None], 0, height - 1)
    columns = np.clip(np.arange(width) + right[:, None], 0, width - 1)
    shifted = images[np.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]
    gain = rng.uniform(1 - MAX_GAIN, 1 + MAX_GAIN, (count, 1, 1, 1)).astype(np.float32)
    offset = rng.uniform(-MAX_OFFSET, MAX_OFFSET, (count, 1, 1, 1)).astype(np.float32)
    bright = torch.from_numpy(shifted).float() * torch.from_numpy(gain) + torch.from_numpy(offset)
    return bright.clamp_(0, 255)
