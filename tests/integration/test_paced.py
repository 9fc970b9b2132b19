"""Paced fleets with real processes: rehearsed by one command, and many to many."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.integration.test_serve import TAKT, serving

from takt.client import connect
from takt.core.trace import replay
from takt.policies.stand_in import STAND_INS
from takt.runtime.trace_file import split_traces
from takt.units import seconds

pytestmark = pytest.mark.integration

FLEET = """
models:
  pi0: {slo_ms: 20000}  # a busy computer answers late, and the robots of this test wait
  smolvla: {slo_ms: 20000}
devices:
  left: {paced: rtx-pro-6000, models: [pi0, smolvla]}
  right: {paced: h100, paced_seed: 5, models: [smolvla, pi0]}
gateways:
  front: {openpi: 0}
  back: {openpi: 0, default_model: smolvla}
"""
NUM_REQUESTS = 12


def run(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TAKT, *options], capture_output=True, text=True, check=False, timeout=200
    )


def test_the_demo_rehearses_a_gpu_and_says_so() -> None:
    done = run(
        *("demo", "--paced", "rtx-pro-6000", "--seconds", "2", "--json"),
        *("--robots", "pi0=3", "--robots", "smolvla=2"),
    )

    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["paced"] is True
    assert figures["paced_device"] == "rtx-pro-6000"
    served = figures["outcomes"]["served"]
    assert figures["issued"] == 20
    assert 0 < figures["checked_chunks"] == served
    assert figures["foreign_chunks"] == 0
    assert figures["stages_ms"]["prefix"]["p50"] > 5, "launches took a GPU's time"
    assert {name: part["slo_ms"] for name, part in figures["models"].items()} == {
        "pi0": 156.0,
        "smolvla": 65.0,
    }
    assert "paced rtx-pro-6000" in done.stderr


def test_the_ready_line_of_a_paced_server_says_so() -> None:
    with subprocess.Popen(
        [*TAKT, "serve", "--paced", "h100", "--model", "pi0", "--openpi", "0"],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        try:
            said = [process.stderr.readline() for _ in range(2)]
        finally:
            process.terminate()
            process.stderr.read()

    assert all("(paced h100: launches wait, nothing is computed)" in line for line in said), said
    assert any(line.startswith("ready after") for line in said)


def test_robots_of_every_door_get_their_own_answers_from_every_device(tmp_path: Path) -> None:
    fleet, trace = tmp_path / "fleet.yaml", tmp_path / "run.jsonl"
    fleet.write_text(FLEET)
    with serving("--fleet", str(fleet), "--trace", str(trace), "--hang-ms", "30000") as server:
        ports = [server.wait_for("listening", f"gateway-{name}")["port"] for name in DOORS]
        for name in DOORS:
            ready = server.wait_for("ready", f"gateway-{name}")
            assert ready["paced"] == "rtx-pro-6000, h100"
        robots = [
            (number, port, model)
            for number, (port, model) in enumerate((p, m) for p in ports for m in MODELS * 2)
        ]
        with ThreadPoolExecutor(len(robots)) as threads:
            foreign = sum(threads.map(lambda robot: ask_again_and_again(*robot), robots))

    assert foreign == 0
    traces = {name: lines_of(tmp_path / f"run-{name}.jsonl") for name in ("left", "right")}
    served = {name: served_models(lines) for name, lines in traces.items()}
    assert all(set(models) == set(MODELS) for models in served.values()), served
    assert sum(sum(models.values()) for models in served.values()) == len(robots) * NUM_REQUESTS
    for lines in traces.values():
        setups = list(split_traces(lines))
        assert setups, "one for each time that models became ready"
        assert [list(replay(setup)) for setup in setups] == setups


DOORS = ("front", "back")
MODELS = ("pi0", "smolvla")


def ask_again_and_again(number: int, port: int, model: str) -> int:
    """How many answers were not those of the observation that was sent."""
    stand_in, foreign = STAND_INS[model], 0
    side = stand_in.image_side
    image = np.zeros((side, side, 3), np.uint8)
    images = {f"observation/{camera}": image for camera in stand_in.cameras}
    steps = np.arange(stand_in.horizon, dtype=np.float32)[:, None]
    patience = seconds(60)
    with connect(
        f"127.0.0.1:{port}", model=model, robot=f"robot-{number}", answer_timeout=patience
    ) as robot:
        for request in range(NUM_REQUESTS):
            state = np.zeros(stand_in.action_dim, np.float32)
            state[:2] = number, request
            seen: Mapping[str, Any] = {**images, "observation/state": state, "prompt": "pick"}
            actions = robot.infer(seen).actions
            foreign += not np.array_equal(actions, state + steps)
    return foreign


def lines_of(path: Path) -> Sequence[str]:
    return path.read_text().splitlines(keepends=True)


def served_models(lines: Sequence[str]) -> dict[str, int]:
    """Requests that were served, by model."""
    models: dict[int, str] = {}
    served: dict[str, int] = dict.fromkeys(MODELS, 0)
    for line in lines:
        event = json.loads(line)
        if event.get("event") == "submit":
            models[event["seq"]] = event["model"]
        elif event.get("event") == "ended" and event["phase"] == "served":
            served[models[event["seq"]]] += 1
    return served


# The page that tells how to rehearse

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "rehearse-a-gpu-fleet.md"


def fence_after(words: str) -> str:
    """The first fenced block after ``words``."""
    return PAGE.read_text(encoding="utf-8").split(words, 1)[1].split("```", 2)[1]


DEMOS = re.findall(r"^takt (demo .*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("typed", DEMOS)
def test_the_demos_of_the_page_run_as_shown(typed: str) -> None:
    done = run(*shlex.split(typed), "--seconds", "1", "--json")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["paced"] is True


def test_the_fleet_of_the_page_is_served(tmp_path: Path) -> None:
    fleet = tmp_path / "paced.yaml"
    content = fence_after("and its port:").removeprefix("yaml\n")
    fleet.write_text(re.sub(r"openpi: \d+", "openpi: 0", content))
    with serving("--fleet", str(fleet)) as server:
        front = server.wait_for("ready", "gateway-front")
        back = server.wait_for("ready", "gateway-back")

    assert (front["models"], back["models"]) == (["pi0", "smolvla"], ["pi0"])
