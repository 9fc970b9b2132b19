"""``takt serve`` as its user runs it: real processes, sockets and kills."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest

from takt.client import Connection, connect
from takt.errors import RefusedError
from takt.units import seconds

pytestmark = pytest.mark.integration

TAKT = (sys.executable, "-m", "takt.cli.main")
TIMEOUT_S = 60.0
PATIENT = ("--slo-ms", "30000", "--hang-ms", "30000", "--drain-seconds", "30")
"""How slow this computer is, is not the subject."""
ECHO = ("--model", "echo", "--openpi", "0", *PATIENT)


class Server:
    """A running ``takt serve --json``."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.events: list[Mapping[str, Any]] = []

    def wait_for(self, kind: str, process: str) -> Mapping[str, Any]:
        """The first event of that kind from that process; the test's own timeout ends the wait."""
        assert self.process.stdout is not None
        while True:
            for event in self.events:
                if event["event"] == kind and event["process"] == process:
                    return event
            line = self.process.stdout.readline()
            assert line, f"the server ended without {kind} of {process}: {self.events}"
            self.events.append(json.loads(line))


@contextmanager
def serving(*options: str, by: Sequence[str] = ()) -> Iterator[Server]:
    process = subprocess.Popen(
        [*by, *TAKT, "serve", "--json", *options], stdout=subprocess.PIPE, text=True
    )
    try:
        yield Server(process)
    finally:
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)


def started(stdout: int | IO[str]) -> subprocess.Popen[str]:
    """A server whose log and last words are read."""
    command = [*TAKT, "serve", "--json", *ECHO]
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, text=True)


def robot_at(port: int) -> Connection:
    patience = seconds(TIMEOUT_S)
    return connect(f"127.0.0.1:{port}", connect_timeout=patience, answer_timeout=patience)


def state(*values: float) -> dict[str, object]:
    return {"observation/state": np.array(values, np.float32)}


def test_service_resumes_by_itself_after_the_worker_is_killed() -> None:
    with serving(*ECHO) as server:
        port = server.wait_for("listening", "gateway-0")["port"]
        server.wait_for("ready", "gateway-0")
        worker = next(e["pid"] for e in server.events if e["process"] == "worker-0")
        with robot_at(port) as robot:
            before = robot.infer(state(1, 2)).actions

            os.kill(worker, signal.SIGKILL)

            codes = _codes_until_served(robot)
            after = robot.infer(state(1, 2)).actions
    np.testing.assert_array_equal(before, after)
    assert codes <= {"worker_lost", "busy"}


def _codes_until_served(robot: Connection) -> set[str]:
    """Ask until an answer comes; the codes of the refusals before it."""
    codes: set[str] = set()
    while (code := _refusal(robot)) is not None:
        codes.add(code)
    return codes


def _refusal(robot: Connection) -> str | None:
    try:
        robot.infer(state(3))
    except RefusedError as error:
        return error.code
    return None


def test_the_same_port_can_be_served_again_at_once() -> None:
    with serving(*ECHO) as server:
        port = server.wait_for("listening", "gateway-0")["port"]
        gateway = os.pidfd_open(server.wait_for("ready", "gateway-0")["pid"])
        with robot_at(port) as robot:
            robot.infer(state(1))
            server.process.kill()
            assert select.select([gateway], [], [], TIMEOUT_S)[0]
        os.close(gateway)
        with serving("--model", "echo", "--openpi", str(port), *PATIENT) as again:
            assert again.wait_for("listening", "gateway-0")["port"] == port


def test_a_port_in_use_is_one_clear_message_and_status_1() -> None:
    with serving(*ECHO) as server:
        port = server.wait_for("listening", "gateway-0")["port"]

        second = subprocess.run(
            [*TAKT, "serve", "--model", "echo", "--openpi", str(port)],
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )

    assert second.returncode == 1
    assert str(port) in second.stderr
    assert "Traceback" not in second.stderr


def test_sigterm_drains_and_leaves_no_process() -> None:
    with serving(*ECHO) as server:
        server.wait_for("ready", "gateway-0")
        server.wait_for("ready", "worker-0")
        pids = {event["pid"] for event in server.events}

        server.process.terminate()
        server.process.communicate(timeout=TIMEOUT_S)

        assert server.process.returncode == 0
        assert [pid for pid in pids if _is_alive(pid)] == []


@pytest.mark.usefixtures("signals_are_heeded")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_person_is_told_that_a_server_drains_and_has_stopped(number: signal.Signals) -> None:
    command = [*TAKT, "serve", *ECHO]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        next(line for line in lines if line.startswith("ready after"))

        process.send_signal(number)

        rest = [*lines]
    assert rest[-2:] == ["gateway-0 is draining: the server is being stopped\n", "stopped\n"]
    assert process.returncode == 0


def test_children_of_a_dead_supervisor_say_once_what_they_do() -> None:
    with started(subprocess.PIPE) as process:
        server = Server(process)
        server.wait_for("ready", "gateway-0")
        server.wait_for("ready", "worker-0")

        process.kill()

        assert process.stderr is not None
        said = process.stderr.read()  # ends when all have
    assert said.count("the supervisor is gone: draining\n") == 1
    assert "event=" not in said  # what they would have told it
    assert "Traceback" not in said


def test_a_server_whose_reader_has_gone_ends_as_other_commands_do() -> None:
    with started(subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()

        assert process.stderr.read() == ""
    assert process.returncode == 141


def test_a_server_whose_events_go_to_a_full_disk_serves_on() -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full, started(full) as process:
        assert process.stderr is not None
        for line in process.stderr:
            assert "not written: event=" in line
            assert "No space left on device" in line
            if '"ready", "models": ["echo"]' in line:
                break
        process.terminate()
        assert "Traceback" not in process.stderr.read()
    assert process.returncode == 0


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_an_open_address_without_a_token_is_refused() -> None:
    result = subprocess.run(
        [*TAKT, "serve", "--model", "echo", "--host", "0.0.0.0", "--openpi", "0"],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
        env={k: v for k, v in os.environ.items() if k != "TAKT_TOKEN"},
    )

    assert result.returncode == 1
    assert "token" in result.stderr


def test_a_trace_that_cannot_be_written_costs_no_robot_anything() -> None:
    with serving(*ECHO, "--trace", "/dev/full") as server:
        port = server.wait_for("listening", "gateway-0")["port"]
        server.wait_for("ready", "gateway-0")
        with robot_at(port) as robot:
            for _ in range(3):
                robot.infer(state(1, 2))


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- 2>&-"])
def test_standard_streams_that_are_closed_are_no_trap(closed: str) -> None:
    shell = ("sh", "-c", f'exec "$@" {closed}', "sh")
    with serving(*ECHO, by=shell) as server:
        port = server.wait_for("listening", "gateway-0")["port"]
        server.wait_for("ready", "gateway-0")
        with robot_at(port) as robot:
            robot.infer(state(1, 2))

    assert server.process.returncode == 0
