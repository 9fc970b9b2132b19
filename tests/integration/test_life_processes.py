"""Processes that are stopped, killed, stuck or orphaned, and what robots and operators see."""

import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.life import (
    PATIENT,
    TIMEOUT_S,
    Server,
    asked,
    codes_until,
    is_alive,
    refusal,
    serving,
    state,
)
from websockets.sync.client import ClientConnection

from takt.errors import ConfigError, TaktError
from takt.runtime.trace_file import begin_trace
from takt.wire.limits import Limits
from takt.wire.openpi import decode_reply

pytestmark = [pytest.mark.integration, pytest.mark.slow]

UNHURRIED = ("--model", "echo", "--latency-ms", "300", *PATIENT)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server as it is by default: it gives up soon on what hangs, and on what is late.

    On a slow computer it refuses now and then, so its robots ask until they are answered.
    """
    with serving("--model", "echo") as running:
        yield running


def is_answered(robot: ClientConnection) -> bool:
    """Whether a chunk comes, and not the word that none will."""
    return "actions" in decode_reply(robot.recv(TIMEOUT_S), Limits()).values


def test_a_stopped_gateway_is_noticed_by_the_supervisor_and_has_its_port_again(
    server: Server,
) -> None:
    worker = server.pid("worker-0")
    with server.robot() as robot:
        codes_until(robot, 1)
        server.send("gateway-0", signal.SIGSTOP)

        assert server.wait_for("hung", "gateway-0")["silence_ms"] == 2000
        with pytest.raises(TaktError):
            robot.infer(state(1))

    again = server.wait_for("listening", "gateway-0", 2)
    assert f"127.0.0.1:{again['port']}" == server.address
    server.wait_for("ready", "gateway-0", 2)
    with server.robot() as robot:
        codes_until(robot, 1)
    assert server.pid("worker-0") == worker  # its models are still loaded


def test_a_killed_gateway_takes_no_models_with_it(server: Server) -> None:
    lives, worker = server.count("ready", "gateway-0"), server.pid("worker-0")

    server.send("gateway-0", signal.SIGKILL)

    server.wait_for("ready", "gateway-0", lives + 1)
    with server.robot() as robot:
        codes_until(robot, 1)
    assert server.pid("worker-0") == worker


def test_a_stopped_worker_costs_typed_errors_in_time_and_is_replaced(server: Server) -> None:
    deaths, backs = server.count("died", "worker-0"), server.count("worker_back", "gateway-0")
    with server.robot() as robot:
        codes_until(robot, 1)
        first = server.pid("worker-0")

        server.send("worker-0", signal.SIGSTOP)

        # Whoever waits until the worker counts as hung hears that it is lost.
        assert refusal(lambda: robot.infer(state(1))) == "expired"
        assert server.wait_for("worker_hung", "gateway-0")["silence_ms"] >= 1000
        died = server.wait_for("died", "worker-0", deaths + 1)
        assert died["status"] == -signal.SIGKILL
        assert set(codes_until(robot, 1)) <= {"worker_lost", "busy", "expired"}
        server.wait_for("worker_back", "gateway-0", backs + 1)
        assert not is_alive(first)


def test_a_lane_that_is_stuck_costs_the_worker_its_life_and_others_are_served_again(
    server: Server,
) -> None:
    hung, backs = server.count("worker_hung", "gateway-0"), server.count("worker_back", "gateway-0")
    stuck = {"name": "stuck", "policy": "echo", "options": {"latency_ms": 3_600_000.0}}
    server.ask("load", model=stuck)
    with server.robot() as robot, server.robot(model="stuck") as other:
        codes_until(robot, 1)

        assert refusal(lambda: other.infer(state(1))) == "expired"
        while refusal(lambda: robot.infer(state(1))) == "expired":
            pass  # the worker lives and says so again and again

        server.wait_for("worker_hung", "gateway-0", hung + 1)
        codes_until(robot, 1)
    server.wait_for("worker_back", "gateway-0", backs + 1)
    server.ask("unload", name="stuck")


def test_a_crash_loop_backs_off_and_is_shown(server: Server) -> None:
    waits: dict[int, float] = {}  # by the number of deaths in a row, those of earlier tests too
    while not {1, 2, 3} <= waits.keys():
        deaths = server.count("died", "worker-0")
        server.wait_for("listening", "worker-0", deaths + 1)
        server.send("worker-0", signal.SIGKILL)
        server.wait_for("died", "worker-0", deaths + 1)
        seen = [e for e in server.events if (e["event"], e["process"]) == ("died", "worker-0")]
        waits = {event["deaths_in_a_row"]: event["restart_in_s"] for event in seen}

    assert [waits[deaths] for deaths in (1, 2, 3)] == [0.0, 0.5, 1.0]
    with server.robot() as robot:
        codes_until(robot, 1)


def test_children_of_a_dead_supervisor_answer_what_is_under_way_and_exit() -> None:
    with serving(*UNHURRIED) as server, asked(server, 1) as robot:
        children = [os.pidfd_open(server.pid(name)) for name in ("gateway-0", "worker-0")]

        server.process.kill()

        assert is_answered(robot)
        for child in children:
            assert select.select([child], [], [], TIMEOUT_S)[0]
            os.close(child)


def test_a_trace_is_its_workers_until_the_last_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with serving(*UNHURRIED, "--trace", str(path)) as server:
        pid = server.pid("worker-0")
        said = rf"another server( \(process {pid}\))? still writes it"
        worker = os.pidfd_open(pid)
        os.kill(pid, signal.SIGSTOP)
        try:
            server.process.kill()
            server.process.wait(TIMEOUT_S)

            with pytest.raises(ConfigError, match=said):
                begin_trace(str(path))
        finally:
            os.kill(pid, signal.SIGCONT)
        assert select.select([worker], [], [], TIMEOUT_S)[0]
        os.close(worker)

        os.close(begin_trace(str(path)))


def test_sigterm_answers_what_is_under_way_and_leaves_no_process() -> None:
    with serving(*UNHURRIED) as server, asked(server, 1) as robot:
        pids = {event["pid"] for event in server.events}

        assert server.stop() == 0

        assert is_answered(robot)
        assert [pid for pid in pids if is_alive(pid)] == []
