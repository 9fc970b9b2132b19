"""A child process that says what a server would say, and comes to a bad end in various ways."""

import os
import select
import signal
import subprocess
import sys
import textwrap

import pytest

from takt.cli.driving.server_process import ServerFailedError, serving
from takt.units import SECOND

pytestmark = pytest.mark.integration

LISTENING = {"event": "listening", "door": "openpi", "host": "127.0.0.1", "port": 7}
READY = {"event": "ready", "models": ["echo"], "process": "gateway-0"}
WORKER_READY = {"event": "ready", "models": {"echo": "ready"}, "process": "worker-0"}


def server_that(*says: object, then: str = "signal.pause()") -> list[str]:
    """A command that prints each of ``says`` as a line of JSON."""
    program = f"""
        import json, signal, sys
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        for event in {list(says)!r}:
            print(event if isinstance(event, str) else json.dumps(event), flush=True)
        {then}
    """
    return [sys.executable, "-c", textwrap.dedent(program)]


@pytest.mark.parametrize(
    "says", [(WORKER_READY, READY, LISTENING), (LISTENING, "no JSON", 3, WORKER_READY, READY)]
)
def test_a_server_is_ready_when_its_gateway_is_and_its_door_listens(says: tuple[object]) -> None:
    with serving([], command=server_that(*says)) as server:
        assert server.wait_until_ready(20 * SECOND) == "127.0.0.1:7"

        assert server.events[-1] == says[-1]


LEROBOT = {"event": "listening", "door": "lerobot", "host": "127.0.0.1", "port": 9}


@pytest.mark.parametrize("says", [(LEROBOT, LISTENING, READY), (LISTENING, READY, LEROBOT)])
def test_a_door_may_listen_before_the_server_is_ready_or_after(says: tuple[object, ...]) -> None:
    with serving([], command=server_that(*says)) as server:
        assert server.wait_for_door("lerobot", 20 * SECOND) == "127.0.0.1:9"
        assert server.wait_until_ready(20 * SECOND) == "127.0.0.1:7"
        assert server.wait_for_door("lerobot", 20 * SECOND) == "127.0.0.1:9"


def test_a_door_that_a_server_has_not_is_waited_for_until_it_ends() -> None:
    with serving([], command=server_that(LISTENING, READY, then="sys.exit(1)")) as server:
        for _ in range(2):
            with pytest.raises(ServerFailedError, match="ended with status 1"):
                server.wait_for_door("lerobot", 20 * SECOND)


def test_a_server_that_ends_is_reported_with_its_last_words() -> None:
    command = server_that(LISTENING, then="sys.exit('takt: no such model')")

    with (
        serving([], command=command) as server,
        pytest.raises(ServerFailedError, match="status 1\n  takt: no such model"),
    ):
        server.wait_until_ready(20 * SECOND)


def test_a_model_that_does_not_load_ends_the_wait() -> None:
    failed = {"event": "model_failed", "model": "mini", "reason": "no weights"}

    with (
        serving([], command=server_that(LISTENING, failed)) as server,
        pytest.raises(ServerFailedError, match="model mini failed to load: no weights"),
    ):
        server.wait_until_ready(20 * SECOND)


def test_a_server_that_is_never_ready_is_given_up() -> None:
    with (
        serving([], command=server_that(WORKER_READY)) as server,
        pytest.raises(ServerFailedError, match="not ready in time"),
    ):
        server.wait_until_ready(SECOND // 20)


def test_leaving_the_context_stops_the_server() -> None:
    with serving([], command=server_that({"event": "pid"}, READY, LISTENING)) as server:
        server.wait_until_ready(20 * SECOND)
        process = server._process

    assert process.returncode == 0


def test_options_follow_the_command() -> None:
    program = "import json, sys; print(json.dumps({'event': 'options', 'all': sys.argv[1:]}))"

    with serving(["--model", "echo"], command=[sys.executable, "-c", program]) as server:
        with pytest.raises(ServerFailedError):
            server.wait_until_ready(20 * SECOND)

        assert server.events == [{"event": "options", "all": ["--model", "echo"]}]


def test_a_server_does_not_outlive_a_command_that_was_killed() -> None:
    program = f"""
        import sys
        from takt.cli.driving.server_process import serving
        from takt.units import SECOND
        with serving([], command={server_that(READY, LISTENING)!r}) as server:
            server.wait_until_ready(20 * SECOND)
            print(server._process.pid, flush=True)
            sys.stdin.read()
    """
    command = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with command:
        assert command.stdout is not None
        server = os.pidfd_open(int(command.stdout.readline()))

        command.send_signal(signal.SIGKILL)

        ended, _, _ = select.select([server], [], [], 20.0)
    os.close(server)
    assert ended
