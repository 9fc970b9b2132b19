"""Robots of the LeRobot door go on after a restart of the gateway, or are told why they cannot."""

import json
from pathlib import Path

import grpc
import numpy as np
import pytest
from tests.integration.lerobot_server import LerobotClient, LerobotServer

from takt.wire.lerobot_objects import Spelling

pytestmark = pytest.mark.integration


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "joints", "sentence"),
    [
        ("gone", 1, "model 'gone' is no longer served"),
        ("echo", 3000, "model 'echo' has changed: shape of observation.state"),
    ],
)
def test_a_robot_goes_on_only_with_a_model_that_it_still_fits(
    tmp_path: Path, model: str, joints: int, sentence: str
) -> None:
    record = {
        "address": "127.0.0.1",
        "model": model,
        "features": {"state_dim": joints},
        "actions_per_chunk": 5,
        "spelling": Spelling.ASYNC_INFERENCE.value,
    }
    (tmp_path / "lerobot-sessions.json").write_text(json.dumps({"a": record}))
    server = LerobotServer(state_dir=str(tmp_path))
    try:
        with LerobotClient(server.port) as client, pytest.raises(grpc.RpcError, match=sentence):
            client.observe(1, joints=0, more={"observation.state": np.zeros(joints, np.float32)})
    finally:
        server.close()


@pytest.mark.slow
def test_a_robot_goes_on_after_a_restart_with_what_was_kept(tmp_path: Path) -> None:
    server = LerobotServer(
        latencies_ms={"echo": 0.0, "other": 0.0}, state_dir=str(tmp_path / "state")
    )
    try:
        with LerobotClient(server.port) as client:
            client.shake_hands("other", joints=4, actions=6)
            client.observe(30, 1.0, joints=4, must_go=True)
            assert client.origin() == 1.0
            server.stop()
        server.start()

        with LerobotClient(server.port) as client:
            assert client.chunk() is None
            client.observe(30, 2.0, joints=4)
            chunk = client.chunk()
            assert chunk is not None
            assert chunk.actions.shape == (6, 4)
            assert chunk.actions[0, 0] == 2.0
        with LerobotClient(server.port) as stranger:
            with pytest.raises(grpc.RpcError) as caught:
                stranger.observe(0, joints=2)
            assert isinstance(caught.value, grpc.Call)
            assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
            with pytest.raises(grpc.RpcError, match="restart the robot client"):
                stranger.chunk()
        assert server.stop()["lerobot.resumed"] == 1
    finally:
        server.close()


def test_a_killed_gateway_is_started_again_on_its_port_and_its_only_model_serves() -> None:
    server = LerobotServer()
    try:
        server.kill()
        server.start()
        with LerobotClient(server.port) as client:
            client.observe(12, 5.0)
            chunk = client.chunk()
    finally:
        server.close()

    assert chunk is not None
    assert chunk.actions.shape == (50, 3)
    assert chunk.timesteps[0] == 12
