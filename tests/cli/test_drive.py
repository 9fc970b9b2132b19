import json
import signal
from pathlib import Path
from typing import Any

import pytest
import tyro
from tests.client.fakes import ScriptedTransport

from takt.cli.drive import Drive
from takt.cli.driving.live_table import Onlooker
from takt.cli.main import main
from takt.client.connection import Connection
from takt.client.errors import ConnectionLostError
from takt.errors import ConfigError, UsageError
from takt.policies.catalog import open_policy
from takt.policies.echo import EchoOptions, echo_spec
from takt.schema.plain import to_plain
from takt.testing import ManualClock
from takt.units import SECOND, ms

ADDRESS = "server:8000"


class Server:
    """Opens connections that greet as Takt, or as somebody who says nothing of himself."""

    def __init__(self, *, is_takt: bool = True) -> None:
        self.is_takt = is_takt
        self.asked: list[dict[str, Any]] = []

    def connect(self, address: str, **options: Any) -> Connection:  # noqa: ANN401
        self.asked.append({"address": address, **options})
        model = options["model"] or "echo"
        spec = open_policy("mini").spec if model == "mini" else echo_spec(model, EchoOptions())
        card = {"model": model, "slo_ms": 80.0, "spec": to_plain(spec)}
        metadata = {"takt": card} if self.is_takt else {}
        lost = ConnectionLostError("cut", code="closed")
        return Connection(ScriptedTransport(lost), metadata, clock=ManualClock().now)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    found = Server()
    monkeypatch.setattr("takt.cli.drive.connect", found.connect)
    monkeypatch.delenv("TAKT_TOKEN", raising=False)
    return found


def test_eight_robots_ask_the_servers_default_model_twice_a_second(server: Server) -> None:
    plans = Drive(address=ADDRESS).plans()

    assert len(plans) == 8
    assert len({plan.name for plan in plans}) == 8
    assert plans[0].behaviour.model == "echo"
    assert plans[0].behaviour.rate_hz == 2.0
    assert [asked["model"] for asked in server.asked] == [None]


def test_the_server_says_what_it_promises_and_how_fast_its_model_controls(server: Server) -> None:
    (plan,) = Drive(address=ADDRESS, robots=("mini=1",)).plans()

    assert plan.behaviour.slo == ms(80)
    assert plan.behaviour.control_hz == 16.0


def test_options_win_over_the_servers_word(server: Server) -> None:
    drive = Drive(address=ADDRESS, robots=("mini=1",), slo_ms=30.0, control_hz=25.0, threshold=0.3)

    (plan,) = drive.plans()

    assert (plan.behaviour.slo, plan.behaviour.control_hz) == (ms(30), 25.0)
    assert (plan.behaviour.rate_hz, plan.behaviour.threshold) == (None, 0.3)


def test_a_server_that_says_nothing_of_itself_is_driven_by_assumptions(server: Server) -> None:
    server.is_takt = False

    (plan,) = Drive(address=ADDRESS, robots=("1",), model="pi0").plans()

    assert plan.behaviour.model == "pi0"
    assert (plan.behaviour.slo, plan.behaviour.control_hz) == (ms(200), 50.0)


def test_each_group_of_robots_asks_its_model(server: Server) -> None:
    plans = Drive(address=ADDRESS, robots=("mini=2", "1"), model="echo").plans()

    assert [plan.behaviour.model for plan in plans] == ["mini", "mini", "echo"]


def test_robots_of_a_model_are_numbered_as_in_a_simulation(server: Server) -> None:
    plans = Drive(address=ADDRESS, robots=("mini=2", "1", "mini=1"), model="echo").plans()

    assert [plan.stream for plan in plans] == ["mini-0", "mini-1", "echo-0", "mini-2"]


def test_each_robot_connects_under_a_name_that_no_other_run_uses(server: Server) -> None:
    plans = [*Drive(address=ADDRESS).plans(), *Drive(address=ADDRESS).plans()]
    server.asked.clear()

    for plan in plans:
        plan.connect()

    assert len({asked["robot"] for asked in server.asked}) == 16
    assert server.asked[0]["answer_timeout"] == 2 * SECOND


@pytest.mark.parametrize("robots", ["0", "-1", "x", "mini=", "=3", "mini=x", "", "\u0661"])
def test_a_number_of_robots_that_is_none_is_refused(server: Server, robots: str) -> None:
    with pytest.raises(UsageError, match="expected N or MODEL=N"):
        Drive(address=ADDRESS, robots=(robots,)).plans()


def test_more_robots_than_one_process_can_act_for_are_refused(server: Server) -> None:
    with pytest.raises(UsageError, match="at most 512 in all, got 600"):
        Drive(address=ADDRESS, robots=("mini=300", "300")).plans()


def test_a_rate_that_cannot_be_is_refused(server: Server) -> None:
    with pytest.raises(ConfigError, match="rate_hz"):
        Drive(address=ADDRESS, rate_hz=0.0).plans()


@pytest.mark.parametrize("length", [0.0, -1.0, float("inf"), float("nan")])
def test_a_length_that_cannot_be_is_refused(
    server: Server, capsys: pytest.CaptureFixture[str], length: float
) -> None:
    assert main(["drive", ADDRESS, "--seconds", str(length)]) == 1
    assert "takt: --seconds must lie above 0" in capsys.readouterr().err


def test_the_token_comes_from_a_file(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("sesame\n")

    Drive(address=ADDRESS, token_file=file).plans()

    assert server.asked[0]["token"] == "sesame"


def test_the_token_comes_from_the_environment(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAKT_TOKEN", "sesame")

    Drive(address=ADDRESS).plans()

    assert server.asked[0]["token"] == "sesame"


@pytest.mark.parametrize("content", [None, "", " \n", b"\xff"])
def test_a_token_file_without_a_token_is_refused(
    server: Server, tmp_path: Path, content: str | bytes | None
) -> None:
    file = tmp_path / "token"
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content is not None:
        file.write_text(content)

    with pytest.raises(ConfigError, match="token"):
        Drive(address=ADDRESS, token_file=file).plans()


def test_the_command_line_takes_robots_of_several_models() -> None:
    drive = tyro.cli(Drive, args=["server", "--robots", "mini=2", "--robots", "3", "--json"])

    assert (drive.address, drive.robots, drive.json) == ("server", ("mini=2", "3"), True)


def test_a_server_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drive", "http://server"]) == 1

    assert capsys.readouterr().err.startswith("takt: ADDRESS 'http://server': expected host:port")


def test_a_run_prints_figures_as_json_and_nothing_else(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(["drive", ADDRESS, "--robots", "1", "--seconds", "0.05", "--json"])

    out, err = capsys.readouterr()
    assert status == 1
    assert json.loads(out)["errors"] == {"closed": 1}
    assert json.loads(out)["server_away"]["for_good"] is True
    assert "for 1 of 1 robots and did not come back by the end" in err
    assert "takt: nothing was served: 1 closed" in err


@pytest.mark.slow
@pytest.mark.usefixtures("signals_are_heeded")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_run_with_its_figures(
    server: Server,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
) -> None:
    monkeypatch.setattr(Onlooker, "look", lambda _: signal.raise_signal(number))

    status = main(["drive", ADDRESS, "--robots", "1", "--seconds", "90", "--json"])

    figures = json.loads(capsys.readouterr().out)
    assert status == 128 + number
    assert figures["broken_off"]
    assert figures["seconds"] < 90
