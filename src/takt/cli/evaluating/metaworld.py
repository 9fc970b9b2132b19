"""One Meta-World task as an environment: what the `mini` policy sees, and nothing more.

Collecting demonstrations and evaluating share this module, so a policy is tested on the pictures it
was trained on. The policy gets the picture, the instruction, and the position and opening of the
gripper; where the objects are stays in :attr:`MetaworldTask.vector`, for experts and labels only.

Meta-World, MuJoCo and a display-less OpenGL are needed only when a task is opened. Keep one open
task per process: MuJoCo's rendering contexts get in each other's way.

Start reading at :class:`MetaworldTask`.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from takt.client.robots.described import Axis, RobotDescription
from takt.errors import ConfigError, UsageError

__all__ = [
    "CAMERA_NAME",
    "CAMERA_POSITION_M",
    "DEBIAN_PACKAGES",
    "EXTRA",
    "IMAGE_SIZE",
    "INSTRUCTIONS",
    "MAX_STEPS",
    "NUM_GOALS",
    "MetaworldEnvironment",
    "MetaworldTask",
]

EXTRA = "metaworld"
"""The extra of the distribution that brings the simulator."""
DEBIAN_PACKAGES = "libegl1 libgl1-mesa-dri"
"""What EGL needs to render on a CPU."""

CAMERA_NAME = "corner2"
CAMERA_POSITION_M = (0.75, 0.075, 0.7)
IMAGE_SIZE = 112
_OVERSAMPLING = 2
"""Pixels are rendered at this many times the size and averaged."""
NUM_GOALS = 50
"""Meta-World draws this many starts and goals per seed."""
MAX_STEPS = 500
"""Steps after which Meta-World wants a new start."""
_DARKEST_MEAN = 5.0
"""A lost rendering context gives black pictures and no error; a real one is brighter than this."""

INSTRUCTIONS: dict[str, tuple[str, ...]] = {
    "drawer-open-v3": (
        "open the drawer",
        "pull the green drawer open",
        "pull the drawer handle out",
        "slide the drawer towards you",
    ),
    "drawer-close-v3": (
        "close the drawer",
        "push the green drawer shut",
        "push the drawer handle in",
        "shut the open drawer",
    ),
    "button-press-topdown-v3": (
        "press the button from above",
        "push the red button down",
        "press the red button on the box",
        "hit the button from the top",
    ),
    "door-open-v3": (
        "open the door",
        "pull the door open by its handle",
        "swing the black door open",
        "open the door of the safe",
    ),
    "window-open-v3": (
        "open the window",
        "slide the window open",
        "push the window handle to the right",
        "move the window pane to open it",
    ),
    "faucet-open-v3": (
        "open the faucet",
        "turn the faucet on",
        "rotate the faucet handle to open it",
        "turn on the tap",
    ),
    "faucet-close-v3": (
        "close the faucet",
        "turn the faucet off",
        "rotate the faucet handle to close it",
        "turn off the tap",
    ),
    "handle-press-v3": (
        "press the handle down",
        "push the red handle down",
        "press down the red handle on the box",
        "move the handle to the bottom",
    ),
    "coffee-button-v3": (
        "press the button of the coffee machine",
        "push the coffee button",
        "make coffee with the machine",
        "start the coffee machine",
    ),
}
"""The tasks `mini` is trained on, each with the ways to ask for it; the first is the usual one."""


_DESCRIPTION = RobotDescription(
    action=(
        Axis("move_x", "cm"),
        Axis("move_y", "cm"),
        Axis("move_z", "cm"),
        Axis("gripper_effort", "share"),
    ),
    state=(
        Axis("gripper_x", "m"),
        Axis("gripper_y", "m"),
        Axis("gripper_z", "m"),
        Axis("gripper_opening", "share"),
    ),
)


class MetaworldTask:
    """A task with fixed starts and goals, one per index.

    Args:
        task: Name as Meta-World spells it, such as ``drawer-open-v3``.
        seed: Decides starts and goals.

    Raises:
        ConfigError: Meta-World, MuJoCo or OpenGL is missing; the message says what to install.
        UsageError: There is no such task.
    """

    def __init__(self, task: str, *, seed: int) -> None:
        # EGL renders without a display; MuJoCo reads this when it is imported.
        os.environ.setdefault("MUJOCO_GL", "egl")
        mujoco, benchmark = _imported()
        try:
            tasks = benchmark(task, seed=seed)
        except ValueError as error:
            raise UsageError(f"metaworld has no task {task!r}") from error
        self.task = task
        self._env: Any = tasks.train_classes[task]()
        self._goals: list[Any] = tasks.train_tasks
        self._picture = _Picture(mujoco, self._env)
        self.vector: NDArray[np.float64] = np.zeros(39)
        """All the simulator tells, objects and goal included. Never an input of a policy."""

    def reset(self, index: int) -> None:
        """Go to a start.

        Args:
            index: Which of the :data:`NUM_GOALS` starts and goals of the seed.
        """
        if not 0 <= index < len(self._goals):
            raise UsageError(f"episode index must lie in 0..{len(self._goals) - 1}, got {index}")
        self._env.set_task(self._goals[index])
        self.vector, _ = self._env.reset()

    def step(self, action: NDArray[np.floating[Any]]) -> bool:
        """Do one action.

        Args:
            action: Shape ``(4,)``: motion x, y, z in centimetres and the gripper's effort, each
                cut to -1..1.

        Returns:
            Whether the task is solved in the new state.
        """
        bounded = np.clip(np.asarray(action, np.float64), -1.0, 1.0)
        self.vector, _, _, _, told = self._env.step(bounded)
        return bool(told["success"] > 0)

    def state(self) -> NDArray[np.float32]:
        """Gripper position x, y, z in metres and its opening from 0 to 1, shape ``(4,)``."""
        return self.vector[:4].astype(np.float32)

    def image(self) -> NDArray[np.uint8]:
        """The camera's picture, ``(112, 112, 3)``, RGB."""
        return self._picture.take()

    def close(self) -> None:
        """Give the renderer back."""
        self._picture.close()
        self._env.close()


class MetaworldEnvironment:
    """A task as a policy meets it: a :class:`takt.client.rollout.Environment`, and a robot.

    Args:
        task: The task.
        instruction: What the policy is told.
        black_images: Show it black pictures instead, to see whether it looks.
    """

    def __init__(
        self, task: MetaworldTask, *, instruction: str, black_images: bool = False
    ) -> None:
        self._task = task
        self._instruction = instruction
        self._black_images = black_images

    def act(self, action: NDArray[np.floating[Any]], /) -> object:
        """Do one action."""
        return self.step(action)

    def describe(self) -> RobotDescription:
        """Names and units, as `mini`'s card has them."""
        return _DESCRIPTION

    def reset(self, index: int) -> None:
        """Go to start ``index`` of the task's seed."""
        self._task.reset(index)

    def observe(self) -> Mapping[str, object]:
        """Picture, gripper and instruction, in openpi's keys."""
        image = self._task.image()
        return {
            "observation/image": np.zeros_like(image) if self._black_images else image,
            "observation/state": self._task.state(),
            "prompt": self._instruction,
        }

    def step(self, action: NDArray[np.floating[Any]]) -> bool:
        """Do one action; whether the task is solved now."""
        return self._task.step(action)


class _Picture:
    """Renders the moved corner camera without what costs most: shadows and multisampling."""

    def __init__(self, mujoco: Any, env: Any) -> None:  # noqa: ANN401 - no annotations there
        model = env.model
        model.vis.quality.offsamples = 0
        model.vis.quality.shadowsize = 0
        model.cam_pos[model.camera(CAMERA_NAME).id] = CAMERA_POSITION_M
        side = IMAGE_SIZE * _OVERSAMPLING
        self._data = env.data
        try:
            self._renderer = mujoco.Renderer(model, side, side)
        except (AttributeError, ImportError, OSError, RuntimeError) as error:
            raise _no_opengl(error) from error
        flags = mujoco.mjtRndFlag
        for flag in (flags.mjRND_SHADOW, flags.mjRND_REFLECTION):
            self._renderer.scene.flags[flag] = False

    def take(self) -> NDArray[np.uint8]:
        self._renderer.update_scene(self._data, camera=CAMERA_NAME)
        frame: NDArray[np.uint8] = self._renderer.render()
        if frame.mean() < _DARKEST_MEAN:
            raise ConfigError("the simulator renders black pictures: its OpenGL context is lost")
        tall = frame.reshape(IMAGE_SIZE, _OVERSAMPLING, IMAGE_SIZE, _OVERSAMPLING, 3)
        small = (tall.mean((1, 3)) + 0.5).astype(np.uint8)
        return np.ascontiguousarray(small[::-1, ::-1])  # the camera itself hangs upside down

    def close(self) -> None:
        self._renderer.close()


def _imported() -> tuple[Any, Any]:
    try:
        mujoco: Any = importlib.import_module("mujoco")
        metaworld: Any = importlib.import_module("metaworld")
    except ImportError as error:
        raise ConfigError(
            f"Meta-World comes with: pip install 'takt-serve[server,{EXTRA}]', in a clone"
            f" pip install -e '.[server,{EXTRA}]' ({error})"
        ) from error
    except (AttributeError, OSError, RuntimeError) as error:  # the renderer, without OpenGL
        raise _no_opengl(error) from error
    return mujoco, metaworld.MT1


def _no_opengl(error: Exception) -> ConfigError:
    return ConfigError(f"no OpenGL to render with: apt-get install {DEBIAN_PACKAGES} ({error})")
