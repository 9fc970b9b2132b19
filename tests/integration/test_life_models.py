"""Models that fail, come and go while the others serve."""

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.integration.life import PATIENT, TIMEOUT_S, Server, asked, refusal, serving, state

from takt.errors import UsageError
from takt.wire.limits import Limits
from takt.wire.openpi import decode_reply

pytestmark = [pytest.mark.integration, pytest.mark.slow]

UNHURRIED = {"policy": "echo", "slo_ms": 30_000.0}
"""The rest of a model that is loaded while the server runs."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    broken = tmp_path_factory.mktemp("broken")
    with serving("--model", "echo", "--model", f"broken={broken}", *PATIENT) as running:
        yield running


def readiness(server: Server) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{server.address}/readyz", timeout=TIMEOUT_S) as page:
            return page.status, page.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_model_that_fails_to_load_is_named_and_the_others_serve(server: Server) -> None:
    failed = server.wait_for("model_failed", "gateway-0")
    status, page = readiness(server)
    with server.robot() as robot:
        robot.infer(state(1))

    assert failed["model"] == "broken"
    assert server.wait_for("ready", "gateway-0")["models"] == ["echo"]
    assert (status, page.startswith("broken: failed ")) == (503, True)
    assert {row["model"]: row["state"][:6] for row in server.ask("list")} == {
        "echo": "ready",
        "broken": "failed",
    }


def test_models_come_and_go_while_another_is_served_without_a_break(server: Server) -> None:
    stop, refused, served = threading.Event(), list[object](), list[int]()

    def ask_on() -> None:
        with server.robot() as robot:
            while not stop.is_set():
                code = refusal(lambda: robot.infer(state(1)))
                refused.extend([] if code is None else [code])
                served.append(1)

    def is_asked_more() -> None:
        """Wait until more has been asked and answered."""
        goal, pause = len(served) + 4, threading.Event()
        while asking.is_alive() and len(served) < goal:
            pause.wait(0.001)

    asking = threading.Thread(target=ask_on)
    asking.start()
    for number in range(3):
        extra = {**UNHURRIED, "name": "extra", "options": {"horizon": 5 + number}}
        server.ask("load", model=extra)
        is_asked_more()
        with server.robot(model="extra") as robot:
            assert robot.infer(state(1)).actions.shape == (5 + number, 1)
            server.ask("unload", name="extra")
            assert refusal(lambda: robot.infer(state(1))) == "unknown_model"
        is_asked_more()
    assert asking.is_alive()
    stop.set()
    asking.join(TIMEOUT_S)

    assert refused == []
    assert all(row["model"] != "extra" for row in server.ask("list"))


def test_two_versions_of_a_model_are_served_side_by_side(server: Server) -> None:
    for name, horizon in (("arm@1", 4), ("arm@2", 6)):
        server.ask("load", model={**UNHURRIED, "name": name, "options": {"horizon": horizon}})

    with server.robot(model="arm@1") as old, server.robot(model="arm@2") as new:
        np.testing.assert_array_equal(old.infer(state(3)).actions[:, 0], np.arange(3, 7))
        np.testing.assert_array_equal(new.infer(state(3)).actions[:, 0], np.arange(3, 9))
        server.ask("unload", name="arm@1")
        assert refusal(lambda: old.infer(state(3))) == "unknown_model"
        np.testing.assert_array_equal(new.infer(state(3)).actions[:, 0], np.arange(3, 9))
    server.ask("unload", name="arm@2")


def test_what_is_under_way_is_answered_before_a_model_goes(server: Server) -> None:
    server.ask("load", model={**UNHURRIED, "name": "slow", "options": {"latency_ms": 400.0}})
    with asked(server, 1, path="/v1/models/slow") as robot:
        server.ask("unload", name="slow")

        assert "actions" in decode_reply(robot.recv(TIMEOUT_S), Limits()).values


def test_a_model_loaded_at_run_time_is_there_again_after_a_crash(server: Server) -> None:
    server.ask("load", model={**UNHURRIED, "name": "kept"})
    with server.robot() as robot:
        server.wait_for("ready", "worker-0")
        deaths = server.count("died", "worker-0")

        server.send("worker-0", 9)
        server.wait_for("died", "worker-0", deaths + 1)
        server.wait_for("worker_back", "gateway-0", deaths + 1)
        robot.infer(state(1))
    with server.robot(model="kept") as robot:
        robot.infer(state(1))
    server.ask("unload", name="kept")


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ({"command": "unload", "name": "echo"}, "robots get that name none"),
        ({"command": "unload", "name": "nobody"}, "no model 'nobody'"),
        ({"command": "load", "model": {"name": "echo", "policy": "echo"}}, "there is a model"),
        ({"command": "load", "model": {"name": "x", "policy": "/nowhere"}}, "no policy"),
        ({"command": "load", "model": {"name": "x", "policy": "mini"}}, "reserved_row_bytes"),
        ({"command": "load", "model": {"name": "x", "policy": "echo"}, "worker": "w"}, "no worker"),
        ({"command": "kill"}, "Invalid value"),
    ],
)
def test_what_an_operator_must_not_do_is_refused_with_the_reason(
    server: Server, command: dict[str, object], says: str
) -> None:
    name = str(command.pop("command"))

    with pytest.raises(UsageError, match=says):
        server.ask(name, **command)

    assert [row["model"] for row in server.ask("list")] == ["echo", "broken"]


def test_the_operators_door_has_no_file_and_no_port(server: Server) -> None:
    sockets = Path("/proc/net/unix").read_text(encoding="utf-8")

    assert f"@takt/admin-{server.process.pid}" in sockets


def test_a_model_loaded_at_run_time_is_held_to_the_model_roots(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "config.json").write_text("{}")
    (tmp_path / "models" / "link").symlink_to(secret)
    with serving("--model", "echo", *PATIENT, "--model-root", str(tmp_path / "models")) as server:
        for policy in ("../secret", str(secret), "link"):
            model = {"name": "x", "policy": policy, "options": {"root": "/"}}
            with pytest.raises(UsageError, match=r"without '\.\.'|must be relative|leads out"):
                server.ask("load", model=model, folder=str(tmp_path))

        assert [row["model"] for row in server.ask("list")] == ["echo"]
