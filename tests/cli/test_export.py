import json
import shutil
from pathlib import Path

import pytest
from tests.policies.lerobot.checkpoints import SMOLVLA

from takt.cli.main import main

CHECKPOINT = SMOLVLA / "checkpoint"


@pytest.mark.slow
def test_an_export_says_where_it_lies_and_how_exact_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch", reason="exports are made with torch")
    given = [str(CHECKPOINT), "--cache", str(tmp_path), "--precision", "f32"]

    assert main(["export", *given, "--batch-sizes", "2", "1", "--json"]) == 0

    said = json.loads(capsys.readouterr().out)
    assert Path(said["export"]).parent == tmp_path
    (difference,) = said["differences"]
    assert difference["precision"] == "f32"
    assert 0 < difference["share"] < difference["allowed"]


@pytest.mark.parametrize("sizes", [["0", "1"], ["1", "65"]])
def test_impossible_batch_sizes_are_refused(
    sizes: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(CHECKPOINT), "--batch-sizes", *sizes]) == 1

    assert "--batch-sizes: expected 1..64" in capsys.readouterr().err


def test_what_is_no_checkpoint_is_one_line_and_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copyfile(CHECKPOINT / "config.json", tmp_path / "config.json")

    assert main(["export", str(tmp_path)]) == 1

    assert capsys.readouterr().err.count("\n") == 1
