"""LeRobot's unmodified RobotClient solves a task with `mini`, through ``takt serve``."""

import json
import subprocess
from pathlib import Path

import pytest
from tests.interop.ports import free_port

from takt.cli.driving.server_process import serving
from takt.units import seconds

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "client" / "stock_robot.py"
NO_RENDERER = "no OpenGL to render with"


def test_the_stock_client_solves_a_task_and_says_what_it_took(lerobot_python: str) -> None:
    port = str(free_port())
    with serving(["--model", "mini", "--openpi", "0", "--lerobot", port]) as server:
        server.wait_until_ready(seconds(120))
        address = f"127.0.0.1:{port}"
        command = [lerobot_python, str(SCRIPT), "--server", address, "--task", "coffee-button-v3"]
        done = subprocess.run(
            [*command, "--hz", "8", "--starts", "2"],
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
    if NO_RENDERER in done.stderr:
        pytest.skip(NO_RENDERER)
    assert done.returncode == 0, done.stderr
    episodes = [json.loads(line) for line in done.stdout.splitlines()]

    assert [episode["start"] for episode in episodes] == [0, 1]
    for episode in episodes:
        assert episode["solved"]
        own = episode["first_action_tick"] + episode["executed"] + episode["starved"]
        assert len(episode["tick_ms"]) == own - 1
        assert episode["ticks"] >= own, "missed periods count, too"
        assert len(episode["queue"]) == episode["executed"]
        assert 1 <= episode["inferences"] <= episode["observations"]
