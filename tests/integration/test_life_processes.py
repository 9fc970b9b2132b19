"""Processes that are stopped, killed, stuck or orphaned, and what robots and operators see."""

import os
import select
import signal
import threading
from collections.abc import Iterator

import pytest
from tests.integration.life import (
    TIMEOUT_S,
    Server,
    codes_until,
    is_alive,
    refusal,
    serving,
    state,
)

from takt.client import Connection
from takt.errors import TaktError

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(90)]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


def asking(robot: Connection, answers: list[object]) -> threading.Thread:
    thread = threading.Thread(target=lambda: answers.append(robot.infer(state(1))))
    thread.start()
    return thread


def test_a_stopped_gateway_is_noticed_by_the_supervisor_and_has_its_port_again(
    server: Server,
) -> None:
    worker = server.pid("worker-0")
    with server.robot() as robot:
        robot.infer(state(1))
        server.send("gateway-0", signal.SIGSTOP)

        assert server.wait_for("hung", "gateway-0")["silence_ms"] == 2000
        with pytest.raises(TaktError):
            robot.infer(state(1))

    again = server.wait_for("listening", "gateway-0", 2)
    assert f"127.0.0.1:{again['port']}" == server.address
    server.wait_for("ready", "gateway-0", 2)
    with server.robot() as robot:
        robot.infer(state(1))
    assert server.pid("worker-0") == worker  # its models are still loaded


def test_a_killed_gateway_takes_no_models_with_it(server: Server) -> None:
    lives, worker = server.count("ready", "gateway-0"), server.pid("worker-0")

    server.send("gateway-0", signal.SIGKILL)

    server.wait_for("ready", "gateway-0", lives + 1)
    with server.robot() as robot:
        robot.infer(state(1))
    assert server.pid("worker-0") == worker


def test_a_stopped_worker_costs_typed_errors_in_time_and_is_replaced(server: Server) -> None:
    deaths, backs = server.count("died", "worker-0"), server.count("worker_back", "gateway-0")
    with server.robot() as robot:
        robot.infer(state(1))
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
        robot.infer(state(1))

        assert refusal(lambda: other.infer(state(1))) == "expired"
        while refusal(lambda: robot.infer(state(1))) == "expired":
            pass  # the worker lives and says so again and again

        server.wait_for("worker_hung", "gateway-0", hung + 1)
        codes_until(robot, 1)
    server.wait_for("worker_back", "gateway-0", backs + 1)
    server.ask("unload", name="stuck")


def test_a_crash_loop_backs_off_and_is_shown(server: Server) -> None:
    died: dict[str, object] = {"deaths_in_a_row": 0}
    while died["deaths_in_a_row"] != 3:
        deaths = server.count("died", "worker-0")
        server.wait_for("listening", "worker-0", deaths + 1)
        server.send("worker-0", signal.SIGKILL)
        died = dict(server.wait_for("died", "worker-0", deaths + 1))

    seen = [event for event in server.events if event["event"] == "died"]
    waits = {event["deaths_in_a_row"]: event["restart_in_s"] for event in seen}
    assert waits == {1: 0.0, 2: 0.5, 3: 1.0}
    with server.robot() as robot:
        codes_until(robot, 1)


def test_children_of_a_dead_supervisor_answer_what_is_under_way_and_exit() -> None:
    answers: list[object] = []
    with serving("--model", "echo", "--latency-ms", "300", "--slo-ms", "5000") as server:
        children = [os.pidfd_open(server.pid(name)) for name in ("gateway-0", "worker-0")]
        with server.robot() as robot:
            under_way = asking(robot, answers)
            threading.Event().wait(0.1)

            server.process.kill()
            under_way.join(TIMEOUT_S)

        for child in children:
            assert select.select([child], [], [], TIMEOUT_S)[0]
            os.close(child)
    assert len(answers) == 1


def test_sigterm_answers_what_is_under_way_and_leaves_no_process() -> None:
    answers: list[object] = []
    with serving("--model", "echo", "--latency-ms", "300", "--slo-ms", "5000") as server:
        pids = {event["pid"] for event in server.events}
        with server.robot() as robot:
            under_way = asking(robot, answers)
            threading.Event().wait(0.1)

            assert server.stop() == 0
            under_way.join(TIMEOUT_S)

    assert len(answers) == 1
    assert [pid for pid in pids if is_alive(pid)] == []
