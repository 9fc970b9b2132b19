"""The supervisor with real child processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from takt.errors import ConfigError
from takt.server.children import Child, ChildSpec
from takt.server.supervisor import Supervisor
from takt.units import SECOND

pytestmark = pytest.mark.integration

PATIENCE_S = 60.0
UNHURRIED = 60 * SECOND
"""Where a slow computer is not the subject."""

CHILD = """
import json, os, signal, sys
config = json.loads(sys.stdin.readline())
def leave(why):
    with open(config["diary"], "a") as file:
        file.write(f"{config['name']} {why}\\n")
    os._exit(0)
if config.get("fails"):
    sys.exit(1)
is_later = os.path.exists(config["diary"] + "-lives")
open(config["diary"] + "-lives", "a").close()
if config.get("refuses") == "before" or (config.get("refuses") == "later" and is_later):
    print(json.dumps({"event": "failed", "reason": "no such core"}), flush=True)
    sys.exit(1)
handler = signal.SIG_IGN if config.get("is_deaf") else lambda *_: leave("asked")
signal.signal(signal.SIGTERM, handler)
print(json.dumps({"event": "listening", "config": config}), flush=True)
if config.get("refuses") == "after":
    print(json.dumps({"event": "failed", "reason": "no such core"}), flush=True)
    sys.exit(1)
try:
    for _ in sys.stdin:
        if not config.get("is_mute"):
            print(json.dumps({"event": "lives"}), flush=True)
except BrokenPipeError:
    pass
leave("orphaned")
"""
"""A child that says it is up and lives, and writes into a diary why it leaves."""

DOOR = """
import json, sys
asked = json.loads(sys.stdin.readline())["openpi"]["port"]
said = {"event": "listening", "door": "openpi", "asked": asked, "port": asked or 4711}
print(json.dumps(said), flush=True)
for _ in sys.stdin:
    print(json.dumps({"event": "lives"}), flush=True)
"""
"""A child that takes the port it is told, or one of its own."""


class Listener:
    """Collects events and lets a test wait for one."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Mapping[str, Any]]] = []
        self._changed = asyncio.Event()

    def hear(self, name: str, event: Mapping[str, Any]) -> None:
        self.events.append((name, event))
        self._changed.set()

    async def wait_for(self, kind: str, count: int = 1) -> Mapping[str, Any]:
        async with asyncio.timeout(PATIENCE_S):
            while len(found := [e for _, e in self.events if e["event"] == kind]) < count:
                self._changed.clear()
                await self._changed.wait()
        return found[count - 1]


def spec(tmp_path: Path, name: str = "worker-0", **config: object) -> ChildSpec:
    program = tmp_path / "child.py"
    program.write_text(CHILD)
    return ChildSpec(
        name=name,
        command=(sys.executable, str(program)),
        config={"name": name, "diary": str(tmp_path / "diary"), **config},
    )


def test_a_killed_child_is_started_again_and_told_the_same(tmp_path: Path) -> None:
    async def scenario() -> None:
        listener = Listener()
        supervisor = Supervisor(
            [spec(tmp_path, number=7)], [], listener.hear, worker_patience=UNHURRIED
        )
        life = asyncio.create_task(supervisor.run())
        first = await listener.wait_for("listening")

        os.kill(first["pid"], signal.SIGKILL)

        died = await listener.wait_for("died")
        second = await listener.wait_for("listening", 2)
        assert died["status"] == -signal.SIGKILL
        assert second["pid"] != first["pid"]
        assert second["config"] == first["config"]
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(life, PATIENCE_S)

    asyncio.run(scenario())


def test_a_child_that_cannot_start_ends_the_server_with_its_name(tmp_path: Path) -> None:
    supervisor_of = [spec(tmp_path, fails=True)]

    async def scenario() -> None:
        await Supervisor(supervisor_of, [], Listener().hear).run()

    with pytest.raises(ConfigError, match="worker-0 could not start"):
        asyncio.run(scenario())


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_child_that_says_that_it_cannot_serve_ends_the_server_with_its_reason(
    when: str, tmp_path: Path
) -> None:
    refusing = [spec(tmp_path, refuses=when)]  # before, or after, one of its doors listens

    async def scenario() -> None:
        await Supervisor(refusing, [], Listener().hear).run()

    with pytest.raises(ConfigError, match=r"^worker-0: no such core$"):
        asyncio.run(scenario())


def test_a_child_that_once_served_is_started_again_though_it_says_that_it_cannot_serve(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        listener = Listener()
        supervisor = Supervisor([spec(tmp_path, refuses="later")], [], listener.hear)
        life = asyncio.create_task(supervisor.run())
        await listener.wait_for("listening")

        supervisor.kill("worker-0")

        await listener.wait_for("failed", 2)  # a port that is taken may become free
        killed, refused = [await listener.wait_for("died", count) for count in (1, 2)]
        assert "reason" not in killed
        assert refused["reason"] == "no such core"
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(life, PATIENCE_S)

    asyncio.run(scenario())


def test_a_hung_worker_named_by_a_gateway_is_killed_and_started_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        listener = Listener()
        supervisor = Supervisor([spec(tmp_path)], [], listener.hear)
        life = asyncio.create_task(supervisor.run())
        first = await listener.wait_for("listening")

        supervisor.kill("worker-0")

        second = await listener.wait_for("listening", 2)
        assert second["pid"] != first["pid"]
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(life, PATIENCE_S)

    asyncio.run(scenario())


def test_a_child_that_ignores_sigterm_is_killed_when_its_time_is_over(tmp_path: Path) -> None:
    async def scenario() -> int:
        listener = Listener()
        supervisor = Supervisor(
            [spec(tmp_path, is_deaf=True)], [], listener.hear, drain=SECOND // 5
        )
        life = asyncio.create_task(supervisor.run())
        pid = (await listener.wait_for("listening"))["pid"]
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(life, PATIENCE_S)
        return pid

    pid = asyncio.run(scenario())

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_gateways_are_stopped_before_workers(tmp_path: Path) -> None:
    async def scenario() -> None:
        listener = Listener()
        supervisor = Supervisor(
            [spec(tmp_path, "worker-0")],
            [spec(tmp_path, "gateway-0")],
            listener.hear,
            drain=UNHURRIED,
            gateway_patience=UNHURRIED,
        )
        life = asyncio.create_task(supervisor.run())
        await listener.wait_for("listening", 2)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(life, PATIENCE_S)

    asyncio.run(scenario())

    assert (tmp_path / "diary").read_text() == "gateway-0 asked\nworker-0 asked\n"


def test_children_notice_that_the_supervisor_was_killed(tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    os.mkfifo(diary)  # reading it waits for the child
    program = (
        "import asyncio, sys\n"
        "from takt.server.children import ChildSpec\n"
        "from takt.server.supervisor import Supervisor\n"
        f"child = {spec(tmp_path)!r}\n"
        "say = lambda name, event: print(event['event'], flush=True)\n"
        "asyncio.run(Supervisor([child], [], say).run())\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as supervisor:
        assert supervisor.stdout is not None
        assert supervisor.stdout.readline() == b"listening\n"

        supervisor.kill()

        assert diary.read_text() == "worker-0 orphaned\n"


def test_a_child_that_is_being_started_when_all_are_told_to_stop_does_not_stay(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        listener = Listener()
        child = Child(spec(tmp_path), lambda _, event: listener.hear("c", event), lambda: 0)
        life = asyncio.create_task(child.keep_alive())
        await asyncio.sleep(0)  # it is on its way and has no process yet

        await child.stop(SECOND)

        await asyncio.wait_for(life, PATIENCE_S)
        assert child.pid is not None
        with pytest.raises(ProcessLookupError):
            os.kill(child.pid, 0)

    asyncio.run(scenario())


def test_a_program_that_is_not_there_ends_the_server_with_its_name() -> None:
    absent = ChildSpec(name="worker-0", command=("/nowhere/python",), config={})

    async def scenario() -> None:
        await Supervisor([absent], [], Listener().hear).run()

    with pytest.raises(ConfigError, match="worker-0 cannot be started: No such file"):
        asyncio.run(scenario())


def test_a_door_that_took_a_free_port_has_it_in_its_next_life(tmp_path: Path) -> None:
    program = tmp_path / "door.py"
    program.write_text(DOOR)
    door = ChildSpec(
        name="gateway-0", command=(sys.executable, str(program)), config={"openpi": {"port": 0}}
    )

    async def scenario() -> None:
        listener = Listener()
        supervisor = Supervisor([], [door], listener.hear, gateway_patience=UNHURRIED)
        life = asyncio.create_task(supervisor.run())
        first = await listener.wait_for("listening")

        supervisor.kill("gateway-0")

        second = await listener.wait_for("listening", 2)
        assert (first["asked"], second["asked"]) == (0, first["port"])
        assert door.config == {"openpi": {"port": 0}}
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(life, PATIENCE_S)

    asyncio.run(scenario())


def test_a_child_that_does_not_say_it_lives_is_killed_and_started_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        listener = Listener()
        mute = spec(tmp_path, "gateway-0", is_mute=True)
        supervisor = Supervisor([], [mute], listener.hear, gateway_patience=SECOND // 10)
        life = asyncio.create_task(supervisor.run())
        first = await listener.wait_for("listening")

        hung = await listener.wait_for("hung")
        died = await listener.wait_for("died")
        second = await listener.wait_for("listening", 2)

        assert (hung["pid"], hung["silence_ms"]) == (first["pid"], 100)
        assert died["status"] == -signal.SIGKILL
        assert second["pid"] != first["pid"]
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(life, PATIENCE_S)

    asyncio.run(scenario())


def test_a_listener_that_fails_ends_the_server_in_order(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def hear(name: str, event: Mapping[str, Any]) -> None:
        raise BrokenPipeError(f"nobody reads of {name}")

    async def scenario() -> None:
        await Supervisor([spec(tmp_path)], [], hear, drain=UNHURRIED).run()

    with pytest.raises(BrokenPipeError, match="nobody reads of worker-0"):
        asyncio.run(scenario())

    assert (tmp_path / "diary").read_text() == "worker-0 asked\n"
    assert caplog.records == []
