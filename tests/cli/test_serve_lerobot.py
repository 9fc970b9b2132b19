"""The options of ``takt serve`` that are about the LeRobot door."""

from __future__ import annotations

from pathlib import Path

import pytest

from takt.cli.serve import Serve
from takt.doors.lerobot_options import LerobotModelOptions, LerobotOptions
from takt.errors import ConfigError


def test_there_is_no_lerobot_door_unless_it_is_asked_for() -> None:
    assert Serve(model=("echo",)).plan().gateways[0].lerobot is None


def test_the_door_gets_its_port_networks_aliases_and_directory(tmp_path: Path) -> None:
    plan = Serve(
        model=("fold=echo", "echo"),
        lerobot=8080,
        host="0.0.0.0",
        token="s3cret",
        allow_from=("10.0.0.0/24", "lerobot=10.1.0.0/16"),
        alias=("fold=team/fold", "fold=team/fold-v2"),
        state_dir=tmp_path / "x" / ".." / "state",
    ).plan()

    assert plan.gateways[0].lerobot == LerobotOptions(
        host="0.0.0.0",
        port=8080,
        allow_from=("10.0.0.0/24", "10.1.0.0/16"),
        state_dir=str(tmp_path / "state"),
        models={"fold": LerobotModelOptions(aliases=("team/fold", "team/fold-v2"))},
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"alias": ("echo=x",)}, "--alias: needs --lerobot PORT"),
        ({"allow_from": ("10.0.0.0/8",)}, "--allow-from: needs --lerobot PORT"),
        ({"state_dir": Path("x")}, "--state-dir: needs --lerobot PORT"),
        ({"lerobot": 1, "alias": ("fold=x",)}, "expected MODEL=NAME with a model of echo"),
        ({"lerobot": 1, "alias": ("echo",)}, "expected MODEL=NAME"),
        ({"lerobot": 1, "allow_from": ("openpi=10.0.0.0/8",)}, "expected lerobot=NETWORK"),
        ({"lerobot": 8000}, r"gateways\.0\.lerobot: port 8000 is that of gateways\.0\.openpi"),
    ],
)
def test_an_option_that_means_nothing_is_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Serve(model=("echo",), **options).plan()  # type: ignore[arg-type]


def test_the_stock_resize_reaches_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")

    plan = Serve(model=(f"fold={tmp_path}",), stock_resize=True).plan()

    assert plan.devices[0].models[0].options == {"stock_resize": True}
