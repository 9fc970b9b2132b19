import importlib.util

import pytest
import tyro

from takt.cli.demo import Demo
from takt.cli.main import main


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
