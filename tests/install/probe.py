"""Runs in a fresh environment: drives a robot for a moment, then says what is installed, as JSON.

It imports what a robot computer has and nothing else.
"""

import json
import platform
import sys
from collections.abc import Mapping
from importlib.metadata import distributions

import numpy as np

from takt.client import ControlLoop, InProcess, LoopSettings, connect
from takt.robot.contract_table import State
from takt.units import seconds

UNCOUNTED = {"numpy", "pip", "setuptools", "wheel"}
PATIENCE = seconds(20)


class Stub:
    """A robot that goes nowhere."""

    def __init__(self) -> None:
        self.commands = 0

    def observe(self) -> dict[str, object]:
        """Two joints."""
        return {"observation/state": np.zeros(2, np.float32)}

    def act(self, action: np.ndarray) -> None:
        """Count."""
        assert action.shape == (2,)
        self.commands += 1


def stay(observation: Mapping[str, object]) -> np.ndarray:
    """A chunk that goes nowhere."""
    state = np.asarray(observation["observation/state"])
    return np.repeat(state[np.newaxis], 10, axis=0)


def drive() -> None:
    """Start, execute, stop."""
    robot = Stub()
    settings = LoopSettings(control_hz=100.0, policy_hz=50.0, merge="weighted_average")
    with ControlLoop(robot, lambda: InProcess(stay), settings) as loop:
        loop.start()
        assert loop.wait_for(State.ACTIVE, timeout=PATIENCE)
        loop.stop()
        assert loop.wait_for(State.STOPPED, timeout=PATIENCE)
    assert robot.commands > 0
    assert callable(connect)


def sizes_mb() -> dict[str, float]:
    """Size on disk of each distribution, and of what pip compiled for all of them."""
    sizes: dict[str, float] = {}
    compiled = 0.0
    for found in distributions():
        name = found.metadata["Name"].lower()
        assert name != "torch"
        if name in UNCOUNTED:
            continue
        for file in found.files or []:
            size = found.locate_file(file).stat().st_size / 1e6  # type: ignore[attr-defined]
            if file.suffix == ".pyc":
                compiled += size
            else:
                sizes[name] = sizes.get(name, 0.0) + size
    return {**sizes, "compiled files": compiled}


def largest_files() -> list[tuple[str, float]]:
    """Takt's three largest files, in MB."""
    (ours,) = [found for found in distributions() if found.metadata["Name"] == "takt-serve"]
    files = [(str(file), ours.locate_file(file).stat().st_size / 1e6) for file in ours.files or []]  # type: ignore[attr-defined]
    return sorted(files, key=lambda pair: -pair[1])[:3]


if __name__ == "__main__":
    drive()
    assert "torch" not in sys.modules
    said = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "sizes_mb": sizes_mb(),
        "largest": largest_files(),
    }
    sys.stdout.write(json.dumps(said))
