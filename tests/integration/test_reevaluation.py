"""A server of real processes whose robots change: it is driven in another formation, unnoticed."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.integration.test_serve import TAKT, serving

from takt.client import connect
from takt.core.profile import FULL_SPEED, Profile
from takt.core.trace import replay
from takt.hardware import model_for, profile_for
from takt.hardware.measured import MeasuredProfile, ProfileHeader
from takt.policies.stand_in import STAND_INS
from takt.schema.serving import ServedModel
from takt.server.choosing import choose_aside
from takt.server.composition import Composition, DevicePlan, GatewayPlan, ServerPlan
from takt.server.formation_choice import Candidate, Choice, ChosenDevice, Load
from takt.server.reevaluation import Chooser, Reevaluation
from takt.server.supervisor import Supervisor
from takt.sim.fleet import RobotGroup
from takt.sim.network import ConstantNetwork
from takt.sim.shapes import Shape
from takt.units import SECOND, ms

pytestmark = pytest.mark.integration

TIMEOUT_S = 60.0
LOCKSTEP = Shape(formation="lockstep", prefix_limit=2, denoise_limit=4)
FLOWING = Shape(formation="flowing", prefix_limit=1, denoise_limit=2)
ECHO = model_for("pi0", "echo", prefix_sizes=(1, 2), denoise_sizes=(1, 4))
LOAD = Load(
    models=(ECHO,),
    profile=profile_for("rtx-pro-6000", [ECHO]),
    robots=(RobotGroup(model="echo", count=9, device="0", rate_hz=2.0),),
    network=ConstantNetwork(),
)


async def choose_flowing(load: Load, device: DevicePlan, present: Shape) -> Choice:
    """Stands in for the simulation, which would take a minute."""
    del load, device
    return Choice(
        shape=FLOWING,
        batches=(1, 2),
        candidates=(Candidate(FLOWING, 20, None),),
        declared=2,
        took=SECOND,
        is_complete=True,
        present=Candidate(present, 10, None),
    )


class Running:
    """A supervisor in a thread, and what it says."""

    def __init__(self, trace: Path, choose: Chooser = choose_flowing) -> None:
        device = DevicePlan(
            models=(ServedModel(name="echo", policy="echo", slo_ms=30_000.0),),
            prefix_limit=2,
            denoise_limit=4,
            trace_path=str(trace),
        )
        self.composition = Composition.of(
            ServerPlan(devices=(device,), gateways=(GatewayPlan(openpi_port=0),), hang_ms=30_000.0)
        )
        chosen = {"worker-0": ChosenDevice(device, LOAD, LOCKSTEP)}
        self.formations = Reevaluation(chosen, dwell=ms(2400), choose=choose)
        self.events: list[tuple[str, Mapping[str, Any]]] = []
        self._changed = threading.Condition()
        self._stop: Callable[[], object] = lambda: None
        self.supervisor: Supervisor | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        # Signals are the main thread's.
        loop.add_signal_handler = lambda *_: None  # type: ignore[method-assign]
        self.supervisor = supervisor = Supervisor(
            self.composition.workers,
            self.composition.gateways,
            self._hear,
            reevaluation=self.formations,
            gateway_patience=60 * SECOND,
        )
        self._stop = lambda: loop.call_soon_threadsafe(supervisor._stop.set)
        await supervisor.run()

    def _hear(self, name: str, event: Mapping[str, Any]) -> None:
        with self._changed:
            self.events.append((name, event))
            self._changed.notify_all()

    def wait_for(self, kind: str, process: str, count: int = 1) -> Mapping[str, Any]:
        def found() -> list[Mapping[str, Any]]:
            return [e for name, e in self.events if (name, e["event"]) == (process, kind)]

        with self._changed:
            assert self._changed.wait_for(lambda: len(found()) >= count, TIMEOUT_S), self.events
        return found()[count - 1]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.wait_for('listening', 'gateway-0')['port']}"

    def kill_worker(self) -> None:
        assert self.supervisor is not None
        self.supervisor.workers[0].kill()

    def close(self) -> None:
        if self._thread.is_alive():
            self._stop()
        self._thread.join(TIMEOUT_S)
        self.composition.close()


@contextmanager
def robots(address: str, number: int) -> Iterator[list[int]]:
    """So many robots that ask and pause; yields the number of answers of each so far."""
    served, stop = [0] * number, threading.Event()

    def ask_on(robot: int) -> None:
        with connect(address, robot=f"arm-{robot}") as connection:
            while not stop.wait(0.05):
                state = np.array([robot], np.float32)
                chunk = connection.infer({"observation/state": state})
                assert chunk.actions[0, 0] == robot
                served[robot] += 1

    asking = [threading.Thread(target=ask_on, args=(robot,)) for robot in range(number)]
    for thread in asking:
        thread.start()
    try:
        yield served
        alive = [thread.is_alive() for thread in asking]
    finally:
        stop.set()
        for thread in asking:
            thread.join(TIMEOUT_S)
    assert all(alive), "a robot had an error"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path / "run.jsonl")
    try:
        running.wait_for("ready", "gateway-0")
        yield running
    finally:
        running.close()


def test_the_population_changes_and_the_formation_with_it_while_robots_are_served(
    server: Running, tmp_path: Path
) -> None:
    with robots(server.address, 2) as served:
        reconsidered = server.wait_for("formation_reconsidered", "worker-0")
        switched = server.wait_for("formation_switched", "worker-0")
        before = [*served]
        while not all(now > then + 3 for now, then in zip(served, before, strict=True)):
            threading.Event().wait(0.02)
    assert server.supervisor is not None
    formations = [row["formation"] for row in server.supervisor.models.table()]
    server.close()

    assert reconsidered["because"] == "2 robots (echo 2) ask, chosen for 9 robots (echo 9)"
    assert switched["after"] == "flowing, batches up to 1 and 2"
    assert formations == ["flowing"]
    assert all(event["event"] != "robots" for _, event in server.events)
    trace = (tmp_path / "run.jsonl").read_text().splitlines()
    lines = [json.loads(line) for line in trace]
    [at] = [place for place, line in enumerate(lines) if line.get("event") == "switched"]
    assert lines[at]["setup"]["formation"] == "flowing"
    assert any(line.get("event") == "submit" for line in lines[at:])
    assert list(replay(trace)) == trace


def test_a_worker_that_is_killed_after_a_switch_comes_back_in_the_new_formation(
    server: Running, tmp_path: Path
) -> None:
    with robots(server.address, 2):
        server.wait_for("formation_switched", "worker-0")

    server.kill_worker()
    server.wait_for("worker_back", "gateway-0")
    with robots(server.address, 1) as served:
        while not served[0]:
            threading.Event().wait(0.02)
    server.close()

    text = (tmp_path / "run.jsonl").read_text()
    last = text[text.rindex('{"takt_trace"') :].splitlines()
    assert json.loads(last[0])["setup"]["formation"] == "flowing"
    assert list(replay(last)) == last


def test_a_simulation_that_is_cut_off_changes_nothing(tmp_path: Path) -> None:
    server = Running(tmp_path / "run.jsonl", partial(choose_aside, within=1))
    try:
        server.wait_for("ready", "gateway-0")
        with robots(server.address, 2):
            reconsidered = server.wait_for("formation_reconsidered", "worker-0")
    finally:
        server.close()

    assert reconsidered["switches"] is False
    assert reconsidered["verdict"] == "kept: the time was not enough"
    assert '"switched"' not in (tmp_path / "run.jsonl").read_text()


FLEET = """
profiles: {slow: slow.json}
models:
  pi0: {slo_ms: 2500, prefix_sizes: [1], denoise_sizes: [1, 4]}
  smolvla: {slo_ms: 2500, prefix_sizes: [1], denoise_sizes: [1, 4]}
devices:
  gpu: {paced: h100, profile: slow, models: [pi0, smolvla], formation: auto}
robots:
  - {model: pi0, count: 2, threshold: 0.5}
  - {model: smolvla, count: 0, threshold: 0.5}
gateways:
  front: {openpi: 0, default_model: smolvla}
"""


def slow_profile() -> MeasuredProfile:
    """Ten times as slow as the device, so that simulations are short. Launches of pi0 do not mind
    each other, those of smolvla do: the two want to be driven in different ways."""
    models = [model_for(name, name, 2500.0, (1,), (1, 4)) for name in ("pi0", "smolvla")]
    plain: dict[str, Any] = profile_for("h100", models).to_json()
    names = [row[0] for row in plain["solo"]]
    return MeasuredProfile(
        header=ProfileHeader(
            device="made up",
            engine="none",
            versions={},
            precision="none",
            relative_error=0.0,
            confidence=0.95,
        ),
        models=tuple(models),
        profile=Profile.from_json(
            {
                **plain,
                "solo": [[*row[:5], 10 * row[5]] for row in plain["solo"]],
                "speed": [
                    [one, two, FULL_SPEED if {names[one], names[two]} == {"pi0"} else 300_000]
                    for one, two, _ in plain["speed"]
                ],
            }
        ),
    )


@contextmanager
def asking(port: int, model: str, number: int) -> Iterator[None]:
    """So many robots that ask a stand-in again and again."""
    stand_in, stop = STAND_INS[model], threading.Event()
    image = np.zeros((stand_in.image_side, stand_in.image_side, 3), np.uint8)
    seen: dict[str, Any] = {f"observation/{camera}": image for camera in stand_in.cameras}

    def ask_on(robot: int) -> None:
        state = np.full(stand_in.action_dim, robot, np.float32)
        with connect(f"127.0.0.1:{port}", model=model, robot=f"arm-{robot}") as connection:
            while not stop.wait(0.05):
                chunk = connection.infer({**seen, "observation/state": state, "prompt": "pick"})
                assert chunk.actions[0, 0] == robot

    threads = [threading.Thread(target=ask_on, args=(robot,)) for robot in range(number)]
    for thread in threads:
        thread.start()
    try:
        yield
        alive = [thread.is_alive() for thread in threads]
    finally:
        stop.set()
        for thread in threads:
            thread.join(TIMEOUT_S)
    assert all(alive), "a robot had an error"


@pytest.mark.slow
def test_takt_serve_simulates_for_the_robots_that_ask_and_switches(tmp_path: Path) -> None:
    trace = tmp_path / "run.jsonl"
    slow_profile().write(tmp_path / "slow.json")
    (tmp_path / "fleet.yaml").write_text(FLEET)
    options = ("--fleet", str(tmp_path / "fleet.yaml"), "--trace", str(trace))
    with serving(*options, "--reevaluate-seconds", "2") as server:
        port = server.wait_for("listening", "gateway-front")["port"]
        server.wait_for("ready", "gateway-front")
        with asking(port, "smolvla", 2):
            reconsidered = server.wait_for("formation_reconsidered", "worker-gpu")
            switched = server.wait_for("formation_switched", "worker-gpu")

    assert reconsidered["because"] == ("2 robots (smolvla 2) ask, chosen for 2 robots (pi0 2)")
    assert reconsidered["switches"] is True, reconsidered
    assert (reconsidered["before"], reconsidered["after"]) == (
        switched["before"],
        switched["after"],
    )
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    [setup] = [line["setup"] for line in lines if line.get("event") == "switched"]
    assert switched["after"].startswith(setup["formation"])
    for command in ("replay", "trace"):
        done = subprocess.run(
            [*TAKT, command, str(trace)], capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr


LONG_CHOICE = """
import asyncio, dataclasses, multiprocessing
from takt.server.choosing import choose_aside
from tests.integration.test_reevaluation import LOAD, LOCKSTEP, DevicePlan, ServedModel, until

async def choose():
    device = DevicePlan(models=(ServedModel(name="pi0", policy="paced:pi0"),), paced="h100")
    choosing = asyncio.create_task(choose_aside(LOAD, device, LOCKSTEP))
    await until(multiprocessing.active_children)
    print(multiprocessing.active_children()[0].pid, flush=True)
    await choosing

asyncio.run(choose())
"""


def test_a_choice_aside_does_not_outlive_a_server_that_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LONG_CHOICE], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        child = os.pidfd_open(int(server.stdout.readline()))
        try:
            assert not select.select([child], [], [], 0)[0]
            server.send_signal(signal.SIGKILL)
            assert select.select([child], [], [], TIMEOUT_S)[0], "it goes on for nobody"
        finally:
            os.close(child)


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - nobody tells of another process's priority
        await asyncio.sleep(0.01)


def test_a_choice_aside_steps_back_and_ends_when_it_is_given_up() -> None:
    async def scenario() -> None:
        device = DevicePlan(models=(ServedModel(name="pi0", policy="paced:pi0"),), paced="h100")
        choosing = asyncio.create_task(choose_aside(LOAD, device, LOCKSTEP))
        async with asyncio.timeout(TIMEOUT_S):
            await until(multiprocessing.active_children)
            [child] = multiprocessing.active_children()
            await until(lambda: os.getpriority(os.PRIO_PROCESS, child.pid or 0) == 19)
            choosing.cancel()
            await asyncio.gather(choosing, return_exceptions=True)
        assert multiprocessing.active_children() == []

    asyncio.run(scenario())


def test_a_choice_aside_says_what_it_saw_in_the_time_it_had() -> None:
    device = DevicePlan(models=(ServedModel(name="pi0", policy="paced:pi0"),), paced="h100")

    choice = asyncio.run(choose_aside(LOAD, device, LOCKSTEP, within=1))

    assert not choice.is_complete
    assert not choice.is_better
    assert choice.present is not None
    assert choice.present.shape == LOCKSTEP
