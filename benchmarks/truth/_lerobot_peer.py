# pyright: basic, reportMissingImports=false
"""LeRobot's policy server with `mini`, and robots with its own client; runs in its environment.

    python _lerobot_peer.py serve PRECISION
    python _lerobot_peer.py drive

``serve`` prints its port when it is ready. ``drive`` reads a line of JSON per run (``server``,
``robots``, ``warm_up``, ``seconds``, ``scene``) and answers with a line: by robot how often it
wanted a chunk (``issued``), and of each answer the milliseconds since it began to want one, and
whether the chunk is its own; and the ``cores`` it used itself.

Server and client are LeRobot's, unmodified. The policy behind the server is a stub; two methods of
each client are watched, and each has a connection of its own, as robots on computers of their own
have. A reply bears the time stamp of the observation it was computed from, as
the robot's own clock gave it, and that shows whose it is.
"""

import json
import logging
import os
import socket
import sys
import threading
import time
from concurrent import futures
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

FPS = 16
HORIZON = 16
THRESHOLD = 0.5
PERIOD_S = HORIZON * THRESHOLD / FPS
"""Between two chunks, as long as they come at once."""
STARTING_S = 15.0


def serve(precision: str) -> None:
    import grpc
    import numpy as np
    import torch
    from _mini_policy import MiniPolicy
    from lerobot.async_inference import policy_server
    from lerobot.async_inference.configs import PolicyServerConfig
    from lerobot.transport import services_pb2_grpc

    logging.disable()
    torch.set_num_threads(1)
    mini = MiniPolicy(precision)  # pyright: ignore[reportArgumentType]

    class Stub:
        """What the server asks of a policy."""

        config = SimpleNamespace(
            image_features={"observation.images.image": SimpleNamespace(shape=(3, 112, 112))}
        )

        @classmethod
        def from_pretrained(cls, name: str) -> "Stub":
            del name
            return cls()

        def to(self, device: str) -> None:
            pass

        def predict_action_chunk(self, observation: dict) -> torch.Tensor:
            image = observation["observation.images.image"][0].permute(1, 2, 0) * 255
            chunk = mini.chunk(
                image.round().to(torch.uint8).numpy(),
                observation["observation.state"][0].numpy(),
                observation["task"],
                "lerobot",
            )
            return torch.from_numpy(np.ascontiguousarray(chunk))[None]

    policy_server.get_policy_class = lambda _: Stub
    policy_server.make_pre_post_processors = lambda *_, **__: (lambda it: it, lambda it: it)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # As its own serve() does, which parses the command line first.
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    services_pb2_grpc.add_AsyncInferenceServicer_to_server(
        policy_server.PolicyServer(PolicyServerConfig(host="127.0.0.1", port=port, fps=FPS)), server
    )
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    threading.Thread(target=end_with_parent, daemon=True).start()
    print(port, flush=True)
    server.wait_for_termination()


def end_with_parent() -> None:
    """Who started this process holds the other end of its input."""
    sys.stdin.read()
    os._exit(0)


class Robot:
    """LeRobot's client, watched."""

    def __init__(self, number: int, options: dict) -> None:
        from _lerobot_arm import MiniArmConfig
        from lerobot.async_inference.configs import RobotClientConfig
        from lerobot.async_inference.robot_client import RobotClient

        self._own: dict = {}
        """When each observation left, by its time stamp."""
        self._wanting: float | None = None
        self.wanted: list = []
        """When it began to want a chunk; when one came, and whether it was its own."""
        config = RobotClientConfig(
            policy_type="act",
            pretrained_name_or_path="mini",
            robot=MiniArmConfig(scene=options["scene"], number=number),
            actions_per_chunk=HORIZON,
            chunk_size_threshold=THRESHOLD,
            server_address=options["server"],
            task="open the drawer",
            fps=FPS,
            aggregate_fn_name="latest_only",
        )
        self.client = RobotClient(config)
        self.is_started = False
        self._send, self._take = self.client.send_observation, self.client._aggregate_action_queues
        self.client.send_observation = self._sending
        self.client._aggregate_action_queues = self._taking

    def _sending(self, obs):  # noqa: ANN001, ANN202
        now = time.perf_counter()
        self._own[obs.timestamp] = now
        if self._wanting is None:
            self._wanting = now
        return self._send(obs)

    def _taking(self, incoming, aggregate_fn=None):  # noqa: ANN001, ANN202
        now, began = time.perf_counter(), self._wanting
        is_own = incoming[0].timestamp in self._own
        if began is not None or not is_own:
            self.wanted.append((now if began is None else began, now, is_own))
            self._wanting = None
        return self._take(incoming, aggregate_fn)

    def start(self) -> None:
        self.is_started = self.client.start()

    def live(self, delay: float) -> None:
        threading.Event().wait(delay)
        threading.Thread(target=self.client.receive_actions, daemon=True).start()
        self.client.control_loop(task=self.client.config.task)

    def said(self, counted: float, end: float, slo_s: float) -> dict:
        """What counts of it, now that the run is over.

        Who waits on, misses another chunk with every period.
        """
        if not self.is_started:
            return {"issued": int((end - counted) / PERIOD_S), "answers": []}
        found = [entry for entry in [*self.wanted] if counted <= entry[1] < end]
        waits = [came - max(began, counted) for began, came, _ in found]
        if self._wanting is not None and end - max(self._wanting, counted) > slo_s:
            waits.append(end - max(self._wanting, counted))
        return {
            "issued": sum(1 + int(wait / PERIOD_S) for wait in waits),
            "answers": [[(came - began) * 1e3, is_own] for began, came, is_own in found],
        }


def drive(options: dict) -> dict:
    robots = [Robot(number, options) for number in range(options["robots"])]
    threads = [threading.Thread(target=robot.start, daemon=True) for robot in robots]
    give_up = time.perf_counter() + STARTING_S
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, give_up - time.perf_counter()))
    began, used = time.perf_counter(), time.process_time()
    counted, end = began + options["warm_up"], began + options["warm_up"] + options["seconds"]
    started = [robot for robot in robots if robot.is_started]
    for place, robot in enumerate(started):
        delay = place / len(started) * PERIOD_S
        threading.Thread(target=robot.live, args=(delay,), daemon=True).start()
    threading.Event().wait(end - began)
    cores = (time.process_time() - used) / (time.perf_counter() - began)
    slo_s = options["slo_ms"] / 1e3
    said = [robot.said(counted, end, slo_s) for robot in robots]
    for robot in robots:
        robot.client.shutdown_event.set()
        robot.client.channel.close()
    return {"robots": said, "started": len(started), "cores": cores}


def main() -> None:
    from lerobot.async_inference import robot_client

    logging.disable()
    options = robot_client.grpc_channel_options
    # Robots are computers of their own; within one process gRPC would share a connection.
    robot_client.grpc_channel_options = lambda **given: [
        *options(**given),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what LeRobot prints does not mix with the answers
    answers.write("ready\n")
    answers.flush()
    for line in sys.stdin:
        answers.write(json.dumps(drive(json.loads(line))) + "\n")
        answers.flush()
    os._exit(0)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        main()
