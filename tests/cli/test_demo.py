import importlib.util
from collections.abc import Generator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import tyro
from tests.cli.driving.fakes import answer, robot

from takt.cli.demo import Demo
from takt.cli.drive import Drive
from takt.cli.driving.figures import figures_of
from takt.cli.driving.outage import server_away_in
from takt.cli.main import main
from takt.units import ms


def test_the_demo_needs_no_options() -> None:
    demo = tyro.cli(Demo, args=[])

    assert (demo.robots, demo.seconds, demo.model) == ((), 15.0, "mini")


def test_without_openvino_the_demo_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "openvino" else find_spec(name)
    )

    assert main(["demo"]) == 1

    assert "pip install 'takt-serve[server]'" in capsys.readouterr().err


def test_a_paced_demo_says_what_to_do_about_a_model_without_a_stand_in(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["demo", "--paced", "h100", "--robots", "mini=2"]) == 1

    assert "no stand-in for 'mini'; there are: pi0" in capsys.readouterr().err


def test_an_architecture_without_a_paced_device_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["demo", "--robots", "pi0=2"]) == 1

    assert "no model 'pi0'; there are: echo, mini; --paced GPU" in capsys.readouterr().err


def test_a_demo_whose_server_goes_away_says_so_beside_its_figures_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asker = robot(end=ms(200))
    asker.answered(asker.ask(0), answer(), ms(5), is_own=None)
    asker.failed(asker.ask(ms(100)), "closed", "closed", ms(101), is_lost=True)
    asker.finish(ms(200))
    away = server_away_in([asker], start=0)
    figures = figures_of([asker], duration=ms(200), seed=0, server_away=away)

    @contextmanager
    def serving(options: list[str]) -> Generator[SimpleNamespace, None, None]:
        yield SimpleNamespace(wait_until_ready=lambda timeout: "somewhere:1", events=[])

    monkeypatch.setattr("takt.cli.demo.serving", serving)
    monkeypatch.setattr(Drive, "drive", lambda self, console: figures)

    assert main(["demo", "--model", "echo"]) == 1

    out, err = capsys.readouterr()
    assert "the server went away 0.1 s into the run for 1 of 1 robots and did not come back" in out
    assert err == "takt: the server was gone when the run ended\n"
