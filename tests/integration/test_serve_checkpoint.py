"""A LeRobot checkpoint served by ``takt serve`` gives LeRobot's actions through the openpi door."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from takt.client import connect
from takt.policies.lerobot.golden import read_golden
from takt.policies.lerobot.opening import CheckpointOptions, open_checkpoint

GOLDEN = Path(__file__).parents[1] / "golden" / "policies"

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("family", ["pi0_relative", "smolvla"])
def test_a_served_checkpoint_gives_the_golden_actions(family: str) -> None:
    pytest.importorskip("torch", reason="the networks need torch")
    directory = GOLDEN / family
    golden = read_golden(directory)
    case = next(case for case in golden.cases if case.name == "A")
    name = case.observations[0]
    observation = {
        "observation/state": golden.frames[f"{name}.state"],
        **{f"observation/images/{c}": golden.frames[f"{name}.{c}"] for c in case.cameras},
        "prompt": case.tasks[0],
        "noise": case.noise[0].ravel(),
    }

    actions = served(directory, observation)

    checkpoint = open_checkpoint(directory / "checkpoint", CheckpointOptions())
    unit = checkpoint.pipeline.action.unit
    expected = case.tensors["action_robot"][0]
    assert actions.shape == expected.shape
    allowed = 2e-4 * unit + 4 * np.spacing(np.abs(expected).max(0))
    assert (np.abs(actions - expected) <= allowed).all()


def served(directory: Path, observation: dict[str, object]) -> np.ndarray:
    command = [sys.executable, "-m", "takt.cli.main", "serve", "--json", "--openpi", "0"]
    command += ["--model", f"fold={directory / 'checkpoint'}", "--deterministic"]
    command += ["--tokenizer", str(directory / "tokenizer"), "--slo-ms", "30000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        port = None
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            assert event["event"] != "model_failed", event
            port = event.get("port", port)
            if event["event"] == "ready" and event["process"].startswith("gateway"):
                break
        with connect(f"127.0.0.1:{port}") as robot:
            return np.array(robot.infer(observation).actions)
    finally:
        process.terminate()
        process.communicate(timeout=20)
