# pyright: basic, reportMissingImports=false
"""LeRobot's unmodified RobotClient with a robot without hardware. Runs in LeRobot's environment.

Takes one JSON document as its argument, drives the robot for some seconds, says ``moving`` with
its first action, and prints what it executed as a last line of JSON. The client's own log goes to
standard error.
"""

import json
import sys
import threading
from contextlib import redirect_stdout
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from lerobot.async_inference.configs import RobotClientConfig
from lerobot.async_inference.robot_client import RobotClient
from mock_arm import MockArmConfig


def main() -> None:
    options = json.loads(sys.argv[1])
    with redirect_stdout(sys.stderr):
        said = run(options)
    sys.stdout.write(json.dumps(said) + "\n")


def run(options: dict) -> dict:
    config = RobotClientConfig(
        policy_type="act",
        pretrained_name_or_path=options.get("model", "echo"),
        robot=MockArmConfig(**options.get("arm", {})),
        actions_per_chunk=options.get("actions_per_chunk", 20),
        chunk_size_threshold=options.get("threshold", 0.5),
        server_address=options["server"],
        task="fold the towel",
        fps=30,
        # A blended action would come from two observations; here each shows the one it is from.
        aggregate_fn_name="latest_only",
    )
    client = RobotClient(config)
    if not client.start():
        return {"started": False}
    receiver = threading.Thread(target=client.receive_actions, daemon=True)
    receiver.start()
    threading.Timer(options["seconds"], client.shutdown_event.set).start()
    client.control_loop(task=config.task)
    client.stop()
    receiver.join(5)
    return {
        "started": True,
        "observations": client.robot.num_observations,
        "executed": [values for _, values in client.robot.executed],
        "instants": [instant for instant, _ in client.robot.executed],
        "queue": client.action_queue_size,
    }


if __name__ == "__main__":
    main()
