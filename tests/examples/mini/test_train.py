"""Training learns, goes on where it stopped, and makes a checkpoint that is served."""

import itertools
import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from tests.examples.mini.conftest import SCRIPTS, SIZES

from takt.policies.mini import structure
from takt.policies.mini.graphs import Weights
from takt.policies.mini.reference import NumpyOps
from takt.policies.mini.sizes import MiniSizes, tensor_shapes

STEPS = 200
WORDS = ["go", "left", "move", "now", "right"]


@pytest.fixture(scope="module")
def data(scripts: ModuleType, toy: Path) -> Any:  # noqa: ANN401
    return scripts.Demonstrations(toy, SIZES.num_words)


NewTrainer = Callable[[], Any]


@pytest.fixture
def new_trainer(scripts: ModuleType, data: Any) -> NewTrainer:  # noqa: ANN401
    recipe = scripts.Recipe(
        samples=16 * STEPS, batch=16, warm_up_steps=20, learning_rate=3e-3, log_every=10
    )
    return lambda: scripts.Trainer(data, SIZES, recipe)


@pytest.mark.slow
def test_a_few_hundred_steps_make_the_loss_fall(new_trainer: NewTrainer) -> None:
    trainer = new_trainer()
    before = trainer.held_out_loss()

    while not trainer.is_done:
        trainer.step()

    losses = [line["loss"] for line in trainer.progress.log]
    assert trainer.progress.step == STEPS
    assert np.mean(losses[-5:]) < 0.5 * np.mean(losses[:2])
    assert trainer.held_out_loss() < 0.5 * before
    assert trainer.progress.log[-1]["held_out_loss"] == trainer.held_out_loss()
    assert trainer.progress.log[-1]["pose_loss"] < 0.5 * trainer.progress.log[0]["pose_loss"]


@pytest.mark.slow
def test_an_interrupted_run_goes_on_as_if_nothing_had_been(
    new_trainer: NewTrainer, tmp_path: Path
) -> None:
    through = new_trainer()
    for _ in range(6):
        through.step()
    stopped = new_trainer()
    for _ in range(3):
        stopped.step()
    stopped.save(tmp_path / "state.pt")

    resumed = new_trainer()
    resumed.restore(tmp_path / "state.pt")
    for _ in range(3):
        resumed.step()

    assert resumed.progress.step == 6
    for name, tensor in through.average.items():
        np.testing.assert_allclose(resumed.average[name], tensor, atol=1e-6, err_msg=name)


def test_chunks_end_with_the_last_action_of_their_episode(data: Any) -> None:  # noqa: ANN401
    rng = np.random.default_rng(0)
    last_of_first_episode = 11

    batch = data.batch(np.array([last_of_first_episode]), 4, rng, augment=False)

    assert np.ptp(batch.actions.numpy()[0], axis=0).max() == 0
    assert batch.actions.numpy()[0, 0, 0] == data.actions[last_of_first_episode, 0]


def test_an_episode_of_each_lesson_is_held_out(data: Any) -> None:  # noqa: ANN401
    held, trained = set(data.held_out_steps), set(data.training_steps)

    assert len(held) == 2 * 12
    assert not held & trained
    assert len(held | trained) == len(data.actions)


def test_disturbed_pictures_are_shifted_by_two_pixels_at_most(
    data: Any,  # noqa: ANN401
) -> None:
    rng = np.random.default_rng(0)
    steps = np.arange(0, 48, 3)

    plain = data.batch(steps, 4, rng, augment=False).images.numpy().astype(float)
    disturbed = data.batch(steps, 4, rng, augment=True).images.numpy()

    assert disturbed.min() >= 0
    assert disturbed.max() <= 255
    rows = [np.argmax(images.mean((2, 3)) > 60, axis=1) for images in (plain, disturbed)]
    moved = np.abs(rows[0] - rows[1])
    assert 0 < moved.max() <= 3  # two, and one for the blur of JPEG


@pytest.mark.parametrize("batch", [1, 3])
def test_torchs_operations_equal_the_reference(scripts: ModuleType, batch: int) -> None:
    import torch

    rng = np.random.default_rng(7)
    weights: Weights = {
        name: (rng.standard_normal(shape) * 0.3).astype(np.float32)
        for name, shape in tensor_shapes(SIZES).items()
    }
    ops = scripts.TorchOps({name: torch.from_numpy(value) for name, value in weights.items()})

    wanted = both_stages(NumpyOps(weights), SIZES, batch, lambda value: value)
    found = both_stages(ops, SIZES, batch, torch.from_numpy)

    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs, atol=2e-4)


def both_stages(ops: Any, sizes: MiniSizes, batch: int, made: Callable[..., Any]) -> list[Any]:  # noqa: ANN401
    rng = np.random.default_rng(3)
    image = rng.integers(0, 256, (batch, 32, 32, 3), np.uint8)
    words = rng.integers(0, sizes.vocabulary_size, (batch, sizes.num_words), np.int32)
    chunk = (batch, sizes.horizon, sizes.action_dim)
    kv = structure.prefix(ops, sizes, made(image), made(words))
    actions = structure.denoise(
        ops,
        sizes,
        3,
        kv=kv,
        state=made(rng.standard_normal((batch, sizes.state_dim), np.float32)),
        noise=made(rng.standard_normal(chunk, np.float32)),
        previous=made(rng.standard_normal(chunk, np.float32)),
        hold=made(rng.random((batch, sizes.horizon, 1), np.float32)),
    )
    return [kv, actions]


@pytest.fixture(scope="module")
def real_size(tmp_path_factory: pytest.TempPathFactory, toy: Path) -> Path:
    """The toy's demonstrations at the size that the scripts train."""
    import cv2

    folder = tmp_path_factory.mktemp("real-size")
    (folder / "index.json").write_bytes((toy / "index.json").read_bytes())
    for path in toy.glob("*.npz"):
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files}
        jpeg, offset = arrays["jpeg"], arrays["jpeg_offset"]
        images = [
            cv2.imdecode(jpeg[start:stop], cv2.IMREAD_COLOR)
            for start, stop in itertools.pairwise(offset)
        ]
        larger = [cv2.resize(np.asarray(image), (112, 112)) for image in images]
        frames = [cv2.imencode(".jpg", image)[1].tobytes() for image in larger]
        arrays["jpeg"] = np.frombuffer(b"".join(frames), np.uint8)
        arrays["jpeg_offset"] = np.cumsum([0, *map(len, frames)], dtype=np.int64)
        np.savez(folder / path.name, **arrays)
    return folder


@pytest.mark.slow
def test_the_commands_of_the_readme_make_a_checkpoint_that_answers(
    scripts: ModuleType,
    real_size: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from takt.cli.evaluating.in_process import InProcessPolicy

    def run_script(name: str, *options: object) -> None:
        monkeypatch.setattr(sys, "argv", [name, *map(str, options)])
        runpy.run_path(str(SCRIPTS / name), run_name="__main__")

    run, out = tmp_path / "run", tmp_path / "checkpoint"
    for samples in (32, 64):  # the second one goes on where the first stopped
        options = ("--data", real_size, "--out", run, "--samples", samples, "--threads", 1)
        run_script("train.py", *options)
    run_script("export.py", "--run", run, "--data", real_size, "--out", out)

    assert "parameters" in capsys.readouterr().out
    assert json.loads((out / "policy.json").read_text())["vocabulary"] == WORDS
    policy = InProcessPolicy(str(out), precision="f32")
    seen = {
        "observation/image": np.zeros((112, 112, 3), np.uint8),
        "observation/state": np.zeros(4, np.float32),
        "prompt": "go left",
    }
    assert policy.ask(seen).shape == (16, 4)
    policy.close()
