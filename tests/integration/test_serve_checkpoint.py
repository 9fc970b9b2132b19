"""A LeRobot checkpoint served by ``takt serve`` gives LeRobot's actions through the openpi door."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from websockets.sync.client import connect as websocket

from takt.client import Leftover, connect
from takt.policies.lerobot.golden import read_golden
from takt.policies.lerobot.opening import CheckpointOptions, open_checkpoint
from takt.schema.row import Executing
from takt.wire.limits import Limits
from takt.wire.openpi import decode_reply, encode_observation
from takt.wire.openpi_options import RequestOptions

GOLDEN = Path(__file__).parents[1] / "golden" / "policies"

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture(scope="module", params=["pi0_relative", "smolvla"])
def fold(request: pytest.FixtureRequest) -> Iterator[tuple[Path, int]]:
    """A golden run, and the port that serves its checkpoint."""
    pytest.importorskip("torch", reason="the networks need torch")
    directory = GOLDEN / request.param
    with serving(directory) as port:
        yield directory, port


@pytest.mark.timeout(120)
def test_a_served_checkpoint_gives_the_golden_actions(fold: tuple[Path, int]) -> None:
    directory, port = fold
    check_first_case(directory, port)


@pytest.mark.timeout(120)
def test_absolute_actions_of_the_collection_are_the_golden_ones(fixtures: Path) -> None:
    pytest.importorskip("torch", reason="the networks need torch")
    directory = fixtures / "policies" / "pi0"
    with serving(directory) as port:
        check_first_case(directory, port)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("family", ["pi0_relative", "smolvla"])
def test_the_exported_checkpoint_gives_the_golden_actions(family: str, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="exports are made with torch")
    directory = GOLDEN / family
    with serving(directory, "--engine", "openvino", "--engine-cache", str(tmp_path)) as port:
        check_first_case(directory, port)


def check_first_case(directory: Path, port: int) -> None:
    golden = read_golden(directory)
    case = next(case for case in golden.cases if case.name == "A")
    observation = first_observation(directory)

    with connect(f"127.0.0.1:{port}") as robot:
        actions = robot.infer(observation).actions

    checkpoint = open_checkpoint(directory / "checkpoint", CheckpointOptions())
    unit = checkpoint.pipeline.action.unit
    expected = case.tensors["action_robot"][0]
    assert actions.shape == expected.shape
    allowed = 2e-4 * unit + 4 * np.spacing(np.abs(expected).max(0))
    assert (np.abs(actions - expected) <= allowed).all()


@pytest.mark.timeout(120)
def test_a_robot_that_sends_what_it_executes_gets_a_chunk_that_continues_it(
    fold: tuple[Path, int],
) -> None:
    directory, port = fold
    observation = first_observation(directory)
    with websocket(f"ws://127.0.0.1:{port}", max_size=None) as robot:
        digest = msgpack.unpackb(robot.recv())["takt"]["spec"]["digest"]

        def send(leftover: Executing | None) -> str | bytes:
            robot.send(encode_observation(observation, RequestOptions(leftover=leftover)))
            return robot.recv()

        def ask(leftover: Executing | None = None) -> tuple[np.ndarray, Any]:
            reply = decode_reply(send(leftover), Limits()).values
            return np.array(reply["actions"]), reply.get("takt")

        observation["noise"] = np.zeros_like(observation["noise"])
        executed, said_of_none = ask()
        observation["noise"] = np.ones_like(observation["noise"])
        free, _ = ask()
        left = Executing(actions=executed[:9], digest=digest, delay=5, execution_horizon=9)
        guided, said = ask(left)
        other, refused = ask(replace(left, digest="sha256:other"))
        error = send(replace(left, delay=10))
        with connect(f"127.0.0.1:{port}") as ours:
            first = replace(ours.infer(observation), actions=executed[:9])
            rest = Leftover.of(first, executed=0, inference_delay=5, execution_horizon=9)
            asked_by_client = ours.infer(observation, leftover=rest)

    np.testing.assert_array_equal(asked_by_client.actions, guided)
    assert (first.chunking, asked_by_client.chunking) == (None, "guided")
    assert said_of_none is None
    assert said == {"model_digest": digest, "chunking": "guided"}
    assert refused["model_digest"] == digest
    assert "is of model sha256:other" in str(refused["chunking"])
    np.testing.assert_array_equal(other, free)
    distance = np.abs(guided[:5] - executed[:5]).mean()
    assert distance < 0.1 * np.abs(free[:5] - executed[:5]).mean()
    assert isinstance(error, str)
    assert "takt.leftover.inference_delay: expected whole steps from 0 to 9, got 10" in error


def first_observation(directory: Path) -> dict[str, Any]:
    golden = read_golden(directory)
    case = next(case for case in golden.cases if case.name == "A")
    name = case.observations[0]
    return {
        "observation/state": golden.frames[f"{name}.state"],
        **{f"observation/images/{c}": golden.frames[f"{name}.{c}"] for c in case.cameras},
        "prompt": case.tasks[0],
        "noise": case.noise[0].ravel(),
    }


@contextmanager
def serving(directory: Path, *options: str) -> Iterator[int]:
    """Port of the openpi door of a server that is ready."""
    command = [sys.executable, "-m", "takt.cli.main", "serve", "--json", "--openpi", "0"]
    command += ["--model", f"fold={directory / 'checkpoint'}", "--deterministic"]
    command += ["--tokenizer", str(directory / "tokenizer"), "--slo-ms", "30000", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        port = 0
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            assert event["event"] != "model_failed", event
            port = event.get("port", port)
            if event["event"] == "ready" and event["process"].startswith("gateway"):
                break
        yield port
    finally:
        process.terminate()
        process.communicate(timeout=20)
