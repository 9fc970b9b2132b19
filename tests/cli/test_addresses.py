"""Every command that takes an address refuses what is none, naming its option, before it starts."""

import socket

import pytest

from takt.cli.main import main

COMMANDS = {
    "drive": ("ADDRESS", ["drive"]),
    "bench": ("--server", ["bench", "--server"]),
    "robot": ("--server", ["robot", "--env", "metaworld:door-open-v3", "--server"]),
    "eval": ("--server", ["eval", "--env", "metaworld:door-open-v3", "--server"]),
}


@pytest.fixture(autouse=True)
def nobody_is_dialled(monkeypatch: pytest.MonkeyPatch) -> None:
    def dial(*_: object, **__: object) -> None:
        pytest.fail("an address that is none was dialled")

    monkeypatch.setattr(socket, "create_connection", dial)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("address", ["1", "host:port", "host:0", ":8000", "http://host:1", ""])
def test_what_is_no_address_is_one_line_that_names_the_option(
    command: str, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    option, arguments = COMMANDS[command]

    assert main([*arguments, address]) == 1

    assert capsys.readouterr().err == (
        f"takt: {option} {address!r}: expected host:port, such as 127.0.0.1:8000,"
        " or a ws:// or wss:// URL\n"
    )


@pytest.mark.parametrize("command", [["list"], ["load", "echo"], ["unload", "echo"]])
@pytest.mark.parametrize(
    ("server", "why"),
    [
        ("4999999", "--server 4999999: expected the process number of a running 'takt serve'"),
        ("-1", "--server -1: expected the process number of a running 'takt serve'"),
        ("host:8000", "--server: expected a whole number, got 'host:8000'; see: takt models"),
    ],
)
def test_a_process_that_is_no_server_is_one_line_that_names_the_option(
    command: list[str], server: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["models", *command, "--server", server]) == 1

    said = capsys.readouterr().err
    assert said.startswith(f"takt: {why}")
    assert "Errno" not in said
    assert said.count("\n") == 1
