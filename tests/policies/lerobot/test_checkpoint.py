"""What is wrong with a checkpoint is said in one line before anything is loaded."""

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.policies.lerobot.checkpoints import PI0, SMOLVLA, copied, edit_json, edit_tensors, opened

from takt.errors import ConfigError
from takt.policies.catalog import open_policy
from takt.policies.interface import Placement
from takt.policies.lerobot.checkpoint import WEIGHTS_FILE
from takt.policies.lerobot.opening import CheckpointOptions
from takt.policies.lerobot.pipeline import POSTPROCESSOR_FILE, PREPROCESSOR_FILE

STATISTICS = "policy_preprocessor_step_6_normalizer_processor.safetensors"
QUERY = "model.paligemma_with_expert.paligemma.model.language_model.layers.1.self_attn.q_proj"
QUERY += ".weight"


def truncate(folder: Path) -> None:
    path = folder / WEIGHTS_FILE
    path.write_bytes(path.read_bytes()[:-100])


def huge_header(folder: Path) -> None:
    path = folder / WEIGHTS_FILE
    path.write_bytes(struct.pack("<Q", 1 << 63) + path.read_bytes()[8:])


def twice(folder: Path) -> None:
    path = folder / WEIGHTS_FILE
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = data[8 : 8 + length]
    name = header.split(b'"')[1]
    header = header.replace(b"{", b'{"' + name + b'":{},', 1)
    path.write_bytes(struct.pack("<Q", len(header)) + header + data[8 + length :])


def pickled(folder: Path) -> None:
    (folder / WEIGHTS_FILE).write_bytes(
        b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x01a\x94K\x01s."
    )


def bin_instead(folder: Path) -> None:
    (folder / WEIGHTS_FILE).rename(folder / "pytorch_model.bin")


def no_statistics(folder: Path) -> None:
    edit_tensors(folder / STATISTICS, lambda t: t.pop("observation.state.std"))


def nan_statistics(folder: Path) -> None:
    edit_tensors(folder / STATISTICS, lambda t: t["observation.state.mean"].__setitem__(2, np.nan))


def no_file_of_statistics(folder: Path) -> None:
    (folder / STATISTICS).unlink()


def unknown_step(folder: Path) -> None:
    edit_json(
        folder / PREPROCESSOR_FILE,
        lambda d: d["steps"].insert(0, {"registry_name": "run_shell_processor", "config": {}}),
    )


def class_step(folder: Path) -> None:
    edit_json(
        folder / PREPROCESSOR_FILE,
        lambda d: d["steps"].insert(0, {"class": "os.system", "config": {}}),
    )


def state_file_elsewhere(folder: Path) -> None:
    edit_json(
        folder / POSTPROCESSOR_FILE,
        lambda d: d["steps"][0].update(state_file="../../secret.safetensors"),
    )


def no_processors(folder: Path) -> None:
    (folder / PREPROCESSOR_FILE).unlink()


def swapped(folder: Path) -> None:
    def swap(tensors: dict[str, np.ndarray]) -> None:
        tensors[QUERY] = np.ascontiguousarray(tensors[QUERY].T)

    edit_tensors(folder / WEIGHTS_FILE, swap)


def wrong_dtype(folder: Path) -> None:
    name = "model.state_proj.bias"
    edit_tensors(folder / WEIGHTS_FILE, lambda t: t.update({name: t[name].astype(np.int64)}))


def missing(folder: Path) -> None:
    edit_tensors(folder / WEIGHTS_FILE, lambda t: t.pop("model.state_proj.bias"))


def unexpected(folder: Path) -> None:
    edit_tensors(
        folder / WEIGHTS_FILE, lambda t: t.update({"model.extra": np.zeros(3, np.float32)})
    )


def nan_weights(folder: Path) -> None:
    edit_tensors(folder / WEIGHTS_FILE, lambda t: t["model.state_proj.bias"].__setitem__(0, np.inf))


def no_sizes(folder: Path) -> None:
    (folder.parent / "dims.json").unlink()


Damage = Callable[[Path], None]

SEEN_WHEN_OPENED: list[tuple[Damage, str]] = [
    (truncate, "truncated"),
    (huge_header, "header of 9223372036854775808 bytes"),
    (twice, "there twice"),
    (pickled, "a pickle"),
    (bin_instead, r"pytorch_model.bin is a pickle and is never read"),
    (no_statistics, f"{STATISTICS}: the statistic observation.state.std is missing"),
    (nan_statistics, f"{STATISTICS}: observation.state.mean holds NaN"),
    (no_file_of_statistics, f"{STATISTICS}: no such file"),
    (unknown_step, "'run_shell_processor' is not known"),
    (class_step, "'os.system' is not known"),
    (state_file_elsewhere, "expected a file name"),
    (no_processors, "no such file; a checkpoint from before"),
    (no_sizes, r"put a dims.json into the checkpoint"),
]
SEEN_WHEN_LOADED: list[tuple[Damage, str]] = [
    (swapped, r"q_proj.weight has shape \[48, 64\], expected \[64, 48\]"),
    (wrong_dtype, "state_proj.bias has dtype I64"),
    (missing, "missing state_proj.bias"),
    (unexpected, "unexpected model.extra"),
    (nan_weights, "model.state_proj.bias holds NaN or infinity"),
]


@pytest.mark.parametrize(("damage", "said"), SEEN_WHEN_OPENED)
def test_a_damaged_checkpoint_does_not_open(tmp_path: Path, damage: Damage, said: str) -> None:
    folder = copied(PI0, tmp_path)
    damage(folder)

    with pytest.raises(ConfigError, match=said) as raised:
        open_policy(str(folder))

    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("damage", "said"), SEEN_WHEN_LOADED)
def test_weights_that_do_not_fill_the_network_do_not_load(
    tmp_path: Path, damage: Damage, said: str
) -> None:
    pytest.importorskip("torch", reason="loading weights needs torch")
    folder = copied(PI0, tmp_path)
    damage(folder)

    with pytest.raises(ConfigError, match=said) as raised:
        open_policy(str(folder)).network(Placement(kv_slots=4)).load()

    assert "\n" not in str(raised.value)


CONFIGS: list[tuple[dict[str, object], str]] = [
    ({"chunk_size": 0}, "chunk_size: expected a whole number"),
    ({"n_action_steps": 51}, "n_action_steps: expected a whole number in 1..20"),
    ({"num_inference_steps": True}, "num_inference_steps"),
    ({"max_action_dim": 3}, "max_action_dim"),
    ({"min_period": -1.0}, "min_period: expected a positive number"),
    ({"image_resolution": [56]}, "image_resolution: expected 2 positive"),
    ({"image_resolution": [57, 57]}, "do not fit a tower of 4 patches of 14"),
    ({"input_features": {}}, "input_features"),
    ({"use_peft": True}, "use_peft: expected false"),
    ({"n_obs_steps": 2}, "n_obs_steps"),
    ({"action_feature_names": ["a"]}, "7 different names"),
    ({"tokenizer_max_length": 40}, "max_length"),
    ({"use_relative_actions": False}, "disagree about relative actions"),
    ({"empty_cameras": -1}, "empty_cameras"),
    ({"type": "x"}, "family 'x' is not served; served: pi0, smolvla"),
]


@pytest.mark.parametrize(("change", "said"), CONFIGS)
def test_an_impossible_configuration_is_refused_with_its_key(
    tmp_path: Path, change: dict[str, object], said: str
) -> None:
    folder = copied(PI0, tmp_path)
    edit_json(folder / "config.json", lambda document: document.update(change))

    with pytest.raises(ConfigError, match=said):
        open_policy(str(folder))


def test_the_card_says_what_a_robot_must_know() -> None:
    spec = opened(PI0).spec("arm")

    assert [camera.name for camera in spec.observation.cameras] == ["front", "wrist"]
    assert spec.observation.cameras[0].resize == "pad_center"
    assert not spec.observation.cameras[0].robot_may_resize  # floats, which 8 bits cannot carry
    assert (spec.action.horizon, spec.action.action_dim, spec.action.model_action_dim) == (
        20,
        7,
        32,
    )
    assert [axis.relative for axis in spec.action.axes] == [True] * 6 + [False]
    assert spec.is_flow
    assert spec.digest.startswith("sha256:")
    assert {tensor.name for tensor in spec.denoise_inputs} >= {"state", "raw_state"}


def test_smolvla_reads_the_state_in_its_prefix() -> None:
    spec = opened(SMOLVLA).spec("arm")

    assert "state" in {tensor.name for tensor in spec.prefix_inputs}
    assert "state" not in {tensor.name for tensor in spec.denoise_inputs}
    assert spec.observation.cameras[0].resize == "pad_left_top"


def test_a_camera_the_checkpoint_renames_has_the_robots_name(tmp_path: Path) -> None:
    folder = copied(SMOLVLA, tmp_path)
    rename = {"observation.images.top": "observation.images.front"}
    edit_json(
        folder / PREPROCESSOR_FILE, lambda d: d["steps"][0]["config"].update(rename_map=rename)
    )

    spec = open_policy(str(folder)).spec

    assert [camera.name for camera in spec.observation.cameras] == ["top", "wrist"]


def test_another_checkpoint_has_another_digest(tmp_path: Path) -> None:
    folder = copied(PI0, tmp_path)
    edit_tensors(folder / STATISTICS, lambda t: t["observation.state.mean"].__setitem__(0, 0))

    assert open_policy(str(folder)).spec.digest != opened(PI0).digest


def test_deterministic_serving_runs_every_row_alone() -> None:
    checkpoint = opened(PI0, CheckpointOptions(deterministic=True))

    assert checkpoint.prefix_sizes == checkpoint.denoise_sizes == (1,)
