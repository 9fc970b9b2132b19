"""Points of the experiment on asynchronous inference again, in real time and through sockets.

``takt serve`` serves `mini` in launches that last at least the declared time; the shipped
:class:`~takt.client.loop.ControlLoop` drives the simulated arm, ticked by the thread that owns the
renderer. ``environment_dt`` is at least three times what a step and a picture were measured to
take, so that this computer's speed decides as little as possible. Each point stands beside what
the virtual clock says of the same starts.

Start reading at :meth:`WallClock.run`.
"""

from __future__ import annotations

import json
import math
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.client.async_metaworld import Bench, TaskWorld
from benchmarks.client.async_plan import WALL_SETTINGS, Plan, State, WallCell
from benchmarks.client.async_robot import (
    ARMS,
    GRIPPER,
    Arm,
    Conditions,
    hold,
    jerk_of,
    run_episode,
    settings_of,
)
from numpy.typing import NDArray

from takt.cli.driving.server_process import ServerProcess, serving
from takt.client.answer import Answer
from takt.client.connection import Connection, connect
from takt.client.loop import ControlLoop
from takt.units import SECOND, Nanos, ms, to_ms

__all__ = ["LEAST_TIMES", "WallClock"]

LEAST_TIMES = 3.0
"""``environment_dt`` over step and picture, at the 90th percentile of those measured."""
MEASURED = 40
READY_TIMEOUT = 300 * SECOND
ANSWER_TIMEOUT = 60 * SECOND
STOCK = Path(__file__).resolve().with_name("stock_robot.py")
STOCK_TIMEOUT_S = 900.0
MOST_MINUTES = 14.0
"""Of all points; fewer starts are run where the period makes them longer."""
USUAL_TICKS = 135
"""Periods an episode takes, sequential and asynchronous ones together."""


class WallClock:
    """Runs cells, the servers they need, and the prediction of each.

    Args:
        plan: What is run.
        state: Keeps the period, which is measured once.
        folder: For fleet files.
        lerobot: Python of an environment with LeRobot.
    """

    def __init__(self, plan: Plan, state: State, folder: Path, lerobot: Path | None) -> None:
        self._plan = plan
        self._folder = folder
        self._lerobot = lerobot
        self._bench = Bench(seed=plan.seed)
        if WALL_SETTINGS not in state.done:
            state.add(WALL_SETTINGS, _measured_settings(self._bench.world(plan.wall_task), plan))
        settings = state.done[WALL_SETTINGS]
        self._period: Nanos = ms(settings["period_ms"])
        self._starts: int = settings["starts"]
        print(_in_words(settings), flush=True)

    def run(self, cell: WallCell) -> dict[str, Any]:
        """Every start of a cell, measured and predicted."""
        began = time.monotonic()
        answer = round(cell.answer_ticks * self._period)
        with self._server(answer) as server:
            if cell.arm == "stock":
                measured = self._stock(cell, server)
            else:
                measured = self._ours(cell, server)
        return {
            "period_ms": to_ms(self._period),
            "answer_ms": round(to_ms(answer), 1),
            "episodes": measured,
            "predicted": self._predicted(cell, answer),
            "took_s": round(time.monotonic() - began, 1),
        }

    def close(self) -> None:
        """Give the renderer back."""
        self._bench.close()

    @contextmanager
    def _server(self, answer: Nanos) -> Iterator[ServerProcess]:
        fleet = {
            "models": {"mini": {"slo_ms": 60_000, "options": {"at_least_ms": to_ms(answer)}}},
            "devices": {"cpu0": {"cpu": {}, "models": ["mini"], "formation": "flowing"}},
            "gateways": {"gateway": {"openpi": 0, "lerobot": 0}},
        }
        path = self._folder / "fleet.yaml"
        path.write_text(json.dumps(fleet), encoding="utf-8")  # JSON is YAML
        with serving(["--fleet", str(path)]) as server:
            server.wait_until_ready(READY_TIMEOUT)
            yield server

    def _ours(self, cell: WallCell, server: ServerProcess) -> list[dict[str, Any]]:
        address = server.wait_for_door("openpi", READY_TIMEOUT)
        world = self._bench.world(cell.task)
        found: list[dict[str, Any]] = []
        for start in range(self._starts):
            with connect(address, answer_timeout=ANSWER_TIMEOUT) as connection:
                world.reset(start)
                connection.infer(world.observe())  # the first answer of a server is a slow one
                episode = _Episode(world, connection, ARMS[cell.arm], self._period)
                found.append(
                    {"task": cell.task, "start": start, **episode.run(self._plan.most_ticks)}
                )
        return found

    def _stock(self, cell: WallCell, server: ServerProcess) -> list[dict[str, Any]]:
        """Episodes that LeRobot's own client drove."""
        done = subprocess.run(
            [
                str(self._lerobot),
                str(STOCK),
                *("--server", server.wait_for_door("lerobot", READY_TIMEOUT)),
                *("--task", cell.task),
                *("--starts", str(self._starts)),
                *("--seed", str(self._plan.seed)),
                *("--hz", str(SECOND / self._period)),
                *("--ticks", str(self._plan.most_ticks)),
                *("--threshold", "0.7"),
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=STOCK_TIMEOUT_S,
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode or not lines:
            raise RuntimeError(f"{STOCK.name} ended with {done.returncode}: {done.stderr[-2000:]}")
        return [_stock_episode(cell.task, json.loads(line)) for line in lines]

    def _predicted(self, cell: WallCell, answer: Nanos) -> list[dict[str, Any]]:
        name = "g0.7 blended" if cell.arm == "stock" else cell.arm
        conditions = Conditions(
            period=self._period, answer=answer, network=0, most_ticks=self._plan.most_ticks
        )
        world, policy = self._bench.world(cell.task), self._bench.policy
        found: list[dict[str, Any]] = []
        for start in range(self._starts):
            world.reset(start)
            policy.begin(f"{cell.task} {start}")
            episode = run_episode(world, policy.ask, ARMS[name], conditions)
            found.append({"task": cell.task, "start": start, **episode, "queue": ""})
        return found


class _Episode:
    """One episode in real time."""

    def __init__(self, world: TaskWorld, connection: Connection, arm: Arm, period: Nanos) -> None:
        self._world = world
        self._period = period
        self._command: NDArray[Any] | None = None
        self._loop = ControlLoop(
            self, lambda: _Cut(connection, arm.executed), settings_of(arm, period)
        )
        self._gripper = 0.0

    # What the loop drives.

    def observe(self) -> Mapping[str, object]:
        return self._world.observe()

    def act(self, command: NDArray[Any]) -> None:
        self._command = command

    def run(self, most_ticks: int) -> dict[str, Any]:
        """As :func:`benchmarks.client.async_robot.run_episode`, as far as a loop tells."""
        self._loop.start()
        self._loop.open(control_thread=False)
        try:
            return self._ticked(most_ticks)
        finally:
            self._loop.close()

    def _ticked(self, most_ticks: int) -> dict[str, Any]:
        positions: list[NDArray[np.float64]] = []
        first: int | None = None
        is_solved, ticks, starved = False, 0, 0
        began = time.monotonic_ns()
        while not is_solved and ticks < most_ticks:
            executed = self._loop.status().executed
            self._command = None
            self._loop.tick()
            if self._loop.status().executed > executed:
                first = ticks if first is None else first
            else:
                starved += first is not None
            is_solved = self._move()
            if first is not None:
                positions.append(self._world.position().copy())
            ticks += 1
        took = time.monotonic_ns() - began
        status = self._loop.status()
        return {
            "is_solved": is_solved,
            "ticks": max(ticks + status.skipped_ticks, round(took / self._period)),
            "first_action_tick": first,
            "executed": status.executed,
            "inferences": status.answered,
            "starved": starved,
            "splice_steps": [],
            "splice_shifts": [],
            "jerk_m_s3": jerk_of(positions, self._period),
            "ages": [],
            "skipped_ticks": status.skipped_ticks,
            "failures": dict(status.failures),
            "round_trip_ms": None
            if status.round_trip is None
            else round(to_ms(status.round_trip), 1),
        }

    def _move(self) -> bool:
        """Carry out the tick's command at once; the period that follows is waited for."""
        command = self._command
        if command is None:
            command = hold(GRIPPER + 1, self._gripper)
        else:
            self._gripper = float(command[GRIPPER])
        return self._world.step(command)


class _Cut:
    """A connection whose chunks are cut to what the arm executes of them."""

    def __init__(self, connection: Connection, executed: int | None) -> None:
        self._connection = connection
        self._executed = executed

    def infer(
        self,
        observation: Mapping[str, object],
        *,
        due_in: Nanos | None = None,
        expires_in: Nanos | None = None,
    ) -> Answer:
        """Ask the server. The arm waits for ever, so the server is told no end."""
        del expires_in
        answer = self._connection.infer(observation, due_in=due_in)
        return replace(answer, actions=answer.actions[: self._executed])

    def close(self) -> None:
        """Whoever opened the connection closes it."""


def _measured_settings(world: TaskWorld, plan: Plan) -> dict[str, Any]:
    """How long a step and a picture take, and the period that follows from it."""
    world.reset(0)
    took: list[Nanos] = []
    for _ in range(MEASURED):
        began = time.monotonic_ns()
        world.step(hold(GRIPPER + 1, 0.0))
        world.observe()
        took.append(time.monotonic_ns() - began)
    slow_ms = float(np.percentile(took, 90)) / 1e6
    period_ms = max(plan.wall_period_ms, 10.0 * math.ceil(LEAST_TIMES * slow_ms / 10.0))
    minutes = len(plan.wall_cells()) * USUAL_TICKS * period_ms / 60e3
    starts = max(1, min(plan.wall_starts, int(MOST_MINUTES / minutes)))
    return {"step_and_picture_p90_ms": round(slow_ms, 2), "period_ms": period_ms, "starts": starts}


def _in_words(period: Mapping[str, Any]) -> str:
    return (
        f"a step and a picture take {period['step_and_picture_p90_ms']:.1f} ms (p90);"
        f" environment_dt is {period['period_ms']:g} ms; {period['starts']} starts a point"
    )


def _stock_episode(task: str, said: Mapping[str, Any]) -> dict[str, Any]:
    """What the stock client's script says, in our names."""
    return {
        "task": task,
        "start": said["start"],
        "is_solved": said["solved"],
        "ticks": said["ticks"],
        "first_action_tick": said.get("first_action_tick", 0),
        "executed": said["executed"],
        "inferences": said["inferences"],
        "starved": said.get("starved", 0),
        "splice_steps": [],
        "splice_shifts": [],
        "jerk_m_s3": said.get("jerk_m_s3", 0.0),
        "ages": [],
    }
