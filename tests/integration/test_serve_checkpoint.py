"""A LeRobot checkpoint served by ``takt serve`` gives LeRobot's actions through both doors."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import msgpack
import numpy as np
import pytest
from tests.client.live import until
from tests.integration.lerobot_server import LerobotClient
from websockets.sync.client import connect as websocket

from takt.client import Connection, ControlLoop, EpisodeLog, Leftover, LoopSettings, connect
from takt.client.episode import read_episode
from takt.policies.lerobot.golden import GoldenCase, GoldenSet, read_golden
from takt.policies.lerobot.opening import CheckpointOptions, open_checkpoint
from takt.robot.contract_rules import ContractRules
from takt.schema.row import Executing
from takt.units import seconds
from takt.wire.lerobot import LerobotSetup, LerobotValue, encode_setup
from takt.wire.lerobot_features import LerobotFeature
from takt.wire.lerobot_messages import encode_policy_setup_message
from takt.wire.lerobot_objects import Spelling
from takt.wire.limits import Limits
from takt.wire.openpi import decode_reply, encode_observation
from takt.wire.openpi_options import RequestOptions

Ports: TypeAlias = dict[str, int]
"""By the name of the door."""

TIMEOUT_S = 60.0
PATIENT = ("--slo-ms", "30000", "--hang-ms", "30000")
GOLDEN = Path(__file__).parents[1] / "golden" / "policies"

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture(scope="module", params=["pi0_relative", "smolvla"])
def fold(request: pytest.FixtureRequest) -> Iterator[tuple[Path, Ports]]:
    """A golden run, and the ports that serve its checkpoint."""
    pytest.importorskip("torch", reason="the networks need torch")
    directory = GOLDEN / request.param
    with serving(directory, "--lerobot", "0", "--alias", "fold=someone/fold-v2") as ports:
        yield directory, ports


def test_a_served_checkpoint_gives_the_golden_actions(fold: tuple[Path, Ports]) -> None:
    directory, ports = fold
    check_first_case(directory, ports)


def test_a_served_checkpoint_gives_the_golden_actions_at_the_lerobot_door(
    fold: tuple[Path, Ports],
) -> None:
    directory, ports = fold
    golden = read_golden(directory)
    case = first_case(golden)
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

    with LerobotClient(ports["lerobot"]) as robot:
        robot.set_up(encode_policy_setup_message(lerobot_setup(images, state.size)))
        robot.observe(0, joints=0, must_go=True, more=values)
        chunk = robot.chunk()

    assert chunk is not None
    check_actions(directory, case, chunk.actions)


def test_absolute_actions_of_the_collection_are_the_golden_ones(fixtures: Path) -> None:
    pytest.importorskip("torch", reason="the networks need torch")
    directory = fixtures / "policies" / "pi0"
    with serving(directory) as ports:
        check_first_case(directory, ports)


@pytest.mark.parametrize("family", ["pi0_relative", "smolvla"])
def test_the_exported_checkpoint_gives_the_golden_actions(family: str, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="exports are made with torch")
    directory = GOLDEN / family
    with serving(directory, "--engine", "openvino", "--engine-cache", str(tmp_path)) as ports:
        check_first_case(directory, ports)


def check_first_case(directory: Path, ports: Ports) -> None:
    case = first_case(read_golden(directory))
    observation = first_observation(directory)

    with robot_at(ports) as robot:
        actions = robot.infer(observation).actions

    check_actions(directory, case, actions)


def check_actions(directory: Path, case: GoldenCase, actions: np.ndarray) -> None:
    checkpoint = open_checkpoint(directory / "checkpoint", CheckpointOptions())
    unit = checkpoint.pipeline.action.unit
    expected = case.tensors["action_robot"][0]
    assert actions.shape == expected.shape
    allowed = 2e-4 * unit + 4 * np.spacing(np.abs(expected).max(0))
    assert (np.abs(actions - expected) <= allowed).all()


def test_a_robot_that_sends_what_it_executes_gets_a_chunk_that_continues_it(
    fold: tuple[Path, Ports],
) -> None:
    directory, ports = fold
    observation = first_observation(directory)
    with websocket(f"ws://127.0.0.1:{ports['openpi']}", max_size=None) as robot:
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
        with robot_at(ports) as ours:
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


class StandingRobot:
    """Sees the same all the time, and moves by nothing."""

    def __init__(self, seen: Mapping[str, object]) -> None:
        self._seen = seen

    def observe(self) -> Mapping[str, object]:
        return self._seen

    def act(self, action: np.ndarray) -> None:
        assert np.isfinite(action).all()


def test_the_chunks_of_a_control_loop_join(fold: tuple[Path, Ports], tmp_path: Path) -> None:
    directory, ports = fold
    observation = first_observation(directory)
    del observation["noise"]  # every chunk has its own
    patient = ContractRules(max_action_age=seconds(60), t_hold=seconds(60), t_stop=None)
    settings = LoopSettings(control_hz=20.0, contract=patient)
    path = tmp_path / "run.jsonl"
    with (
        EpisodeLog(path) as log,
        ControlLoop(
            StandingRobot(observation), partial(robot_at, ports), settings, log=log
        ) as loop,
    ):
        loop.start()
        until(lambda: loop.status().guided >= 3)
        status = loop.status()

    assert not status.failures
    splices = [chunk for chunk in read_episode(path).of("chunk") if "splice" in chunk]
    free, *guided = [chunk["splice"]["shift"] for chunk in splices if "shift" in chunk["splice"]]
    assert [chunk.get("chunking") for chunk in splices[-3:]] == ["guided"] * 3
    # A computer that was busy elsewhere may be late for one of them.
    assert np.median(guided) < 0.3 * free


def first_case(golden: GoldenSet) -> GoldenCase:
    return next(case for case in golden.cases if case.name == "A")


def first_observation(directory: Path) -> dict[str, Any]:
    golden = read_golden(directory)
    case = first_case(golden)
    name = case.observations[0]
    return {
        "observation/state": golden.frames[f"{name}.state"],
        **{f"observation/images/{c}": golden.frames[f"{name}.{c}"] for c in case.cameras},
        "prompt": case.tasks[0],
        "noise": case.noise[0].ravel(),
    }


def lerobot_setup(images: dict[str, np.ndarray], joints: int) -> bytes:
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


def robot_at(ports: Ports) -> Connection:
    patience = seconds(TIMEOUT_S)
    return connect(
        f"127.0.0.1:{ports['openpi']}", connect_timeout=patience, answer_timeout=patience
    )


@contextmanager
def serving(directory: Path, *options: str) -> Iterator[Ports]:
    """Ports of the doors of a server that is ready."""
    command = [sys.executable, "-m", "takt.cli.main", "serve", "--json", "--openpi", "0"]
    command += ["--model", f"fold={directory / 'checkpoint'}", "--deterministic"]
    command += ["--tokenizer", str(directory / "tokenizer"), *PATIENT, *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield ports_when_ready(process, 1 + ("--lerobot" in options))
    finally:
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)


def ports_when_ready(process: subprocess.Popen[str], num_doors: int) -> Ports:
    ports: Ports = {}
    is_ready = False
    assert process.stdout is not None
    while not is_ready or len(ports) < num_doors:
        event = json.loads(process.stdout.readline())
        assert event["event"] != "model_failed", event
        if event["event"] == "listening" and "door" in event:
            ports[event["door"]] = event["port"]
        is_ready |= event["event"] == "ready" and event["process"].startswith("gateway")
    return ports
