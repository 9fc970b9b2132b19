"""How an operator finds a server; its answers are in tests/integration/test_life_models.py."""

import asyncio
import os
import socket

import pytest

from takt.errors import UsageError
from takt.server.admin import Admin, admin_address, ask, running_servers
from takt.server.model_desk import ModelDesk


def test_servers_are_found_by_their_addresses() -> None:
    pid = 4_000_000 + os.getpid()  # beyond the numbers of processes
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(f"\0takt/{admin_address(pid)}")

        assert pid in running_servers()
    assert pid not in running_servers()


def test_a_server_that_is_not_there_is_said_in_one_line() -> None:
    with pytest.raises(
        UsageError, match=r"--server 4999999: expected the process number of a running"
    ):
        ask(4_999_999, {"command": "list"})


@pytest.mark.parametrize(
    ("running", "says"), [([], "no server runs here"), ([7, 8], r"several servers.*\[7, 8\]")]
)
def test_the_only_server_needs_no_number(
    running: list[int], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("takt.server.admin.running_servers", lambda: running)

    with pytest.raises(UsageError, match=says):
        ask(None, {"command": "list"})


def test_a_request_nested_too_deeply_is_refused_like_any_other() -> None:
    async def answered() -> object:
        admin = Admin(ModelDesk([], []), f"test-{admin_address(os.getpid())}")
        try:
            deep = b"[" * 5000 + b"]" * 5000
            options = b'{"name": "q", "policy": "echo", "options": {"a": ' + deep + b"}}"
            return await admin._answer(b'{"command": "load", "model": ' + options + b"}")
        finally:
            admin.close()

    answer = asyncio.run(answered())

    assert isinstance(answer, dict)
    assert "recursion" in answer["error"]
