"""Collect demonstrations for `mini`: Meta-World's scripted experts, seen by one camera.

    python examples/mini/collect.py --out demonstrations --jobs 2

Writes one ``<lesson>.npz`` per lesson and ``index.json``, which names them and their fields. A
lesson that is already there is kept, so an interrupted run goes on where it stopped.

Most lessons are a task solved by its own expert. A *crossed* lesson puts the expert of one task
into the scene of its partner, say "close the drawer" into the scene where it is closed already:
without those, a look at the drawer would tell the policy what to do and it need not listen.
"""

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from rich.progress import Progress

from takt.cli.evaluating.metaworld import INSTRUCTIONS, NUM_GOALS, MetaworldTask
from takt.errors import ConfigError

SEED = 1000
MAX_STEPS = 200
STEPS_AFTER_SUCCESS = 6
STEPS_CROSSED = 90
EPISODES_CROSSED = 24
JPEG_QUALITY = 90
BURST_PROBABILITY = 1 / 15
BURST_STEPS = (3, 9)
BURST_STD = 0.7
VERSION = 2


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """Who acts where."""

    task: str
    """The task of expert and instruction."""
    scene: str
    """The task whose scene and starts it happens in."""

    @property
    def is_crossed(self) -> bool:
        """The expert is in the scene of another task."""
        return self.task != self.scene

    @property
    def file(self) -> str:
        """Name of the lesson's file."""
        return f"{self.task}.in.{self.scene}.npz" if self.is_crossed else f"{self.task}.npz"


LESSONS = (
    *(Lesson(task=task, scene=task) for task in INSTRUCTIONS),
    Lesson(task="drawer-open-v3", scene="drawer-close-v3"),
    Lesson(task="drawer-close-v3", scene="drawer-open-v3"),
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Episode:
    """One recorded episode; arrays have one row per step."""

    goal: int
    noisy: bool
    frames: list[bytes]
    arrays: dict[str, np.ndarray]
    success_step: int
    """Step after which success was first told, -1 for never."""


class Bursts:
    """Now and then pushes the hand aside for some steps, so that experts show how to come back."""

    def __init__(self, goal: int) -> None:
        self._rng = np.random.default_rng([SEED, goal])
        self._left = 0
        self._offset = np.zeros(3)

    def disturb(self, action: np.ndarray) -> np.ndarray:
        """The action to execute instead of ``action``."""
        if self._left == 0 and self._rng.random() < BURST_PROBABILITY:
            self._left = int(self._rng.integers(*BURST_STEPS))
            self._offset = self._rng.normal(0, BURST_STD, 3)
        if self._left == 0:
            return action
        self._left -= 1
        return np.clip(action + np.append(self._offset, 0.0), -1, 1)


def main(out: Path, lessons: tuple[Lesson, ...], episodes: int, jobs: int) -> None:
    """Collect what is missing in ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    missing = [lesson for lesson in lessons if not (out / lesson.file).exists()]
    with Progress() as progress, ProcessPoolExecutor(jobs, max_tasks_per_child=1) as pool:
        bar = progress.add_task(
            "lessons", total=len(lessons), completed=len(lessons) - len(missing)
        )
        counts = [EPISODES_CROSSED if lesson.is_crossed else episodes for lesson in missing]
        for file, kept, tried in pool.map(record, missing, [out] * len(missing), counts):
            progress.console.print(f"{file}: {kept} episodes of {tried} tried")
            progress.advance(bar)
    write_index(out)


def record(lesson: Lesson, out: Path, episodes: int) -> tuple[str, int, int]:
    """Record one lesson to its file; returns its name, episodes kept and tried."""
    scene, expert = MetaworldTask(lesson.scene, seed=SEED), expert_of(lesson.task)
    kept: list[Episode] = []
    tried = 0
    while len(kept) < episodes and tried < NUM_GOALS:
        episode = play(lesson, scene, expert, tried)
        tried += 1
        if lesson.is_crossed or episode.success_step >= 0:
            kept.append(episode)
    scene.close()
    save(out / lesson.file, kept, tried)
    return lesson.file, len(kept), tried


def expert_of(task: str) -> Any:  # noqa: ANN401 - a class of Meta-World
    """Meta-World's scripted expert of a task."""
    from metaworld.policies import ENV_POLICY_MAP  # after the renderer is chosen

    return ENV_POLICY_MAP[task]()


def play(
    lesson: Lesson,
    scene: MetaworldTask,
    expert: Any,  # noqa: ANN401 - a class of Meta-World
    goal: int,
) -> Episode:
    """Let the expert act from one start; odd starts are noisy."""
    scene.reset(goal)
    bursts = Bursts(goal) if goal % 2 else None
    frames: list[bytes] = []
    rows: dict[str, list[np.ndarray]] = {
        name: [] for name in ("proprio", "state", "action", "action_executed")
    }
    success_step, most = -1, STEPS_CROSSED if lesson.is_crossed else MAX_STEPS
    while len(frames) < most:
        action = np.clip(expert.get_action(scene.vector), -1, 1)
        executed = bursts.disturb(action) if bursts else action
        frames.append(jpeg_of(scene.image()))
        values = (scene.state(), scene.vector, action, executed)
        for name, value in zip(rows, values, strict=True):
            rows[name].append(np.asarray(value, np.float32))
        solved = scene.step(executed)
        if solved and success_step < 0 and not lesson.is_crossed:
            success_step = len(frames) - 1
            most = min(most, len(frames) + STEPS_AFTER_SUCCESS)
    arrays = {name: np.stack(values) for name, values in rows.items()}
    return Episode(
        goal=goal,
        noisy=bursts is not None,
        frames=frames,
        arrays=arrays,
        success_step=success_step,
    )


def jpeg_of(image: np.ndarray) -> bytes:
    """An RGB picture as JPEG."""
    bgr = cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
    done, data = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
    if not done:
        raise SystemExit("OpenCV cannot write JPEG")
    return data.tobytes()


def save(path: Path, episodes: list[Episode], tried: int) -> None:
    """Write a lesson in one piece, so that a file that is there is complete."""
    frames = [frame for episode in episodes for frame in episode.frames]
    lengths = [len(episode.frames) for episode in episodes]
    arrays = {
        name: np.concatenate([episode.arrays[name] for episode in episodes])
        for name in episodes[0].arrays
    }
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        np.savez(
            file,
            jpeg=np.frombuffer(b"".join(frames), np.uint8),
            jpeg_offset=np.cumsum([0, *map(len, frames)], dtype=np.int64),
            episode=np.repeat(np.arange(len(episodes), dtype=np.int32), lengths),
            episode_length=np.array(lengths, np.int32),
            episode_noisy=np.array([episode.noisy for episode in episodes]),
            episode_goal=np.array([episode.goal for episode in episodes], np.int32),
            success_step=np.array([episode.success_step for episode in episodes], np.int32),
            tried=np.array(tried, np.int32),
            **arrays,
        )
    part.replace(path)


def write_index(out: Path) -> None:
    """Name every lesson that is there, with the instructions that belong to it."""
    lessons: list[dict[str, Any]] = []
    for lesson in LESSONS:
        if not (out / lesson.file).exists():
            continue
        with np.load(out / lesson.file, allow_pickle=False) as file:
            lessons.append(
                {
                    "file": lesson.file,
                    "task": lesson.task,
                    "scene": lesson.scene,
                    "episodes": len(file["episode_length"]),
                    "steps": len(file["action"]),
                    "instructions": INSTRUCTIONS[lesson.task],
                }
            )
    versions = {name: metadata.version(name) for name in ("metaworld", "mujoco", "numpy")}
    index = {"version": VERSION, "seed": SEED, "versions": versions, "lessons": lessons}
    text = json.dumps(index, indent=1)
    (out / "index.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--tasks", nargs="*", default=list(INSTRUCTIONS), help="tasks to collect")
    parser.add_argument("--episodes", type=int, default=40, help="episodes per task")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    arguments = parser.parse_args()
    chosen = tuple(lesson for lesson in LESSONS if lesson.task in arguments.tasks)
    try:
        main(arguments.out, chosen, arguments.episodes, arguments.jobs)
    except ConfigError as error:
        sys.exit(f"error: {error}")
