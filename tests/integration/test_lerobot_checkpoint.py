"""A LeRobot checkpoint served by ``takt serve`` gives LeRobot's actions at the LeRobot door."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.integration.lerobot_server import LerobotClient

from takt.policies.lerobot.golden import read_golden
from takt.policies.lerobot.opening import CheckpointOptions, open_checkpoint
from takt.wire.lerobot import LerobotSetup, LerobotValue, encode_setup
from takt.wire.lerobot_features import LerobotFeature
from takt.wire.lerobot_messages import encode_policy_setup_message
from takt.wire.lerobot_objects import Spelling

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
    state = golden.frames[f"{name}.state"].ravel()
    # A robot has names of its own for its cameras; the rename map says which is which.
    images = {f"my_{c}": golden.frames[f"{name}.{c}"] for c in case.cameras}
    joints = LerobotClient.joints(state.size)
    values: dict[str, LerobotValue] = {
        **dict(zip(joints, map(float, state), strict=True)),
        **images,
        "task": case.tasks[0],
        "noise": case.noise[0].ravel(),
    }

    actions = served(directory, values, images, state.size)

    checkpoint = open_checkpoint(directory / "checkpoint", CheckpointOptions())
    expected = case.tensors["action_robot"][0]
    assert actions.shape == expected.shape
    allowed = 2e-4 * checkpoint.pipeline.action.unit + 4 * np.spacing(np.abs(expected).max(0))
    assert (np.abs(actions - expected) <= allowed).all()


def served(
    directory: Path, values: dict[str, LerobotValue], images: dict[str, np.ndarray], joints: int
) -> np.ndarray:
    command = [sys.executable, "-m", "takt.cli.main", "serve", "--json", "--openpi", "0"]
    command += ["--lerobot", "0", "--alias", "fold=someone/fold-v2"]
    command += ["--model", f"fold={directory / 'checkpoint'}", "--deterministic"]
    command += ["--tokenizer", str(directory / "tokenizer"), "--slo-ms", "30000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        with LerobotClient(lerobot_port(process)) as robot:
            robot.set_up(encode_policy_setup_message(setup(images, joints)))
            robot.observe(0, joints=0, must_go=True, more=values)
            chunk = robot.chunk()
            assert chunk is not None
            return chunk.actions
    finally:
        process.terminate()
        process.communicate(timeout=20)


def setup(images: dict[str, np.ndarray], joints: int) -> bytes:
    names = tuple(LerobotClient.joints(joints))
    return encode_setup(
        LerobotSetup(
            policy_type="pi0",
            pretrained_name_or_path="someone/fold-v2",
            features={
                "observation.state": LerobotFeature(dtype="float32", shape=(joints,), names=names),
                **{
                    f"observation.images.{name}": LerobotFeature(dtype="image", shape=image.shape)
                    for name, image in images.items()
                },
            },
            actions_per_chunk=1000,
            rename_map={
                f"observation.images.{name}": f"observation.images.{name.removeprefix('my_')}"
                for name in images
            },
            spelling=Spelling.ASYNC_INFERENCE,
        )
    )


def lerobot_port(process: "subprocess.Popen[str]") -> int:
    port = 0
    assert process.stdout is not None
    is_ready = False
    for line in process.stdout:
        event = json.loads(line)
        assert event["event"] != "model_failed", event
        if event.get("door") == "lerobot":
            port = event["port"]
        is_ready |= event["event"] == "ready" and event["process"].startswith("gateway")
        if is_ready and port:
            break
    return port
