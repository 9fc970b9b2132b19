import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.policies.lerobot.checkpoints import PI0, SMOLVLA, copied, edit_json, edit_tensors

from takt.cli.main import main


def test_show_prints_the_card_robots_get(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "show", str(PI0 / "checkpoint")]) == 0

    said = capsys.readouterr().out
    for part in ("sha256:", "front: 56x56", "gripper.pos", "20 steps", "rate", "layouts"):
        assert part in said


def test_show_prints_json_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "show", "mini", "--json"]) == 0

    assert json.loads(capsys.readouterr().out)["architecture"] == "mini"


def test_show_of_no_policy_is_one_line_and_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["policy", "show", str(tmp_path / "none")]) == 1

    assert capsys.readouterr().err.count("\n") == 1


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    pytest.importorskip("torch", reason="verifying needs torch")
    folder = tmp_path / "golden"
    shutil.copytree(PI0, folder)
    return folder


@pytest.mark.slow
def test_verify_names_every_tensor_and_ends_well(
    golden: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["policy", "verify", str(golden)]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["case", "tensor", "max", "error", "verdict"]
    assert lines[-1].endswith("tensors, 0 off")
    assert any(line.split()[:2] == ["B", "action_robot"] for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize(
    "tensor",
    ["A.x_final", "A.prefix.key.2", "A.pre.tokens", "B.prefix.position_ids", "A.action_robot"],
)
def test_verify_ends_with_status_1_when_a_tensor_is_off(
    golden: Path, tensor: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def spoil(tensors: dict[str, np.ndarray]) -> None:
        tensors[tensor].flat[0] += 1

    edit_tensors(golden / "golden.safetensors", spoil)

    with pytest.raises(SystemExit) as raised:
        main(["policy", "verify", str(golden), "--json"])

    assert raised.value.code == 1
    document = json.loads(capsys.readouterr().out)
    off = [f for f in document["findings"] if f["verdict"] == "off"]
    assert not document["ok"]
    assert {f"{f['case']}.{f['tensor']}".split(" ")[0] for f in off} == {tensor}


@pytest.mark.slow
@pytest.mark.parametrize("option", [{"num_steps": 5}, {"add_image_special_tokens": True}])
def test_verify_says_so_when_the_checkpoint_has_other_options_than_the_golden_run(
    tmp_path: Path, option: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch", reason="verifying needs torch")
    folder = tmp_path / "golden"
    shutil.copytree(SMOLVLA, folder)
    edit_json(folder / "checkpoint" / "config.json", lambda document: document.update(option))

    with pytest.raises(SystemExit) as raised:
        main(["policy", "verify", str(folder)])

    assert raised.value.code == 1
    assert "off" in capsys.readouterr().out


@pytest.mark.slow
def test_verify_holds_the_tolerances_it_is_given(golden: Path) -> None:
    for option in ("--tolerance", "--chunk-tolerance"):
        with pytest.raises(SystemExit) as raised:
            main(["policy", "verify", str(golden), option, "1e-9"])
        assert raised.value.code == 1
    assert main(["policy", "verify", str(golden), "--tolerance", "0"]) == 1


def test_verify_names_a_family_it_does_not_know_with_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copied(PI0, tmp_path)
    edit_json(folder / "config.json", lambda document: document.update(type="tdmpc"))

    with pytest.raises(SystemExit) as raised:
        main(["policy", "verify", str(tmp_path)])

    assert raised.value.code == 2
    assert "family 'tdmpc' is not served; served: pi0, smolvla" in capsys.readouterr().err


def test_verify_of_a_damaged_checkpoint_is_one_line_and_status_1(
    golden: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (golden / "checkpoint" / "model.safetensors").write_bytes(b"\x80\x04junk" * 9)

    assert main(["policy", "verify", str(golden)]) == 1

    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "a pickle" in said


def test_verify_needs_the_directory_to_hold_cases(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["policy", "verify", str(tmp_path)]) == 1
    assert "no checkpoint directory" in capsys.readouterr().err
