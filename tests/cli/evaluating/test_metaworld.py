from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from takt.cli.evaluating import metaworld
from takt.cli.evaluating.metaworld import INSTRUCTIONS, MetaworldEnvironment, MetaworldTask
from takt.errors import ConfigError, UsageError
from takt.policies.mini.checkpoint import SHIPPED, read_card


class Scene:
    """Stands where Meta-World's task would."""

    def __init__(self, *, seed: int = 0) -> None:
        self.vector = np.arange(39.0) + seed
        self.index = -1

    def reset(self, index: int) -> None:
        self.index = index

    def state(self) -> Any:  # noqa: ANN401
        return self.vector[:4].astype(np.float32)

    def image(self) -> Any:  # noqa: ANN401
        return np.full((112, 112, 3), 90, np.uint8)

    def step(self, action: Any) -> bool:  # noqa: ANN401
        return bool(action[0] > 0)


def environment(**options: Any) -> MetaworldEnvironment:  # noqa: ANN401
    scene: Any = Scene()
    return MetaworldEnvironment(scene, instruction="open the drawer", **options)


def test_the_policy_sees_picture_gripper_and_instruction_and_nothing_else() -> None:
    seen = environment().observe()

    assert set(seen) == {"observation/image", "observation/state", "prompt"}
    np.testing.assert_array_equal(np.asarray(seen["observation/state"]), [0, 1, 2, 3])
    assert seen["prompt"] == "open the drawer"


def test_black_pictures_keep_their_shape() -> None:
    image = np.asarray(environment(black_images=True).observe()["observation/image"])

    assert image.shape == (112, 112, 3)
    assert image.max() == 0


def test_every_instruction_is_made_of_words_that_mini_knows() -> None:
    tokenizer = read_card(SHIPPED).tokenizer()

    for texts in INSTRUCTIONS.values():
        assert len(texts) >= 4
        for text in texts:
            assert 1 not in tokenizer.encode(text)  # the number of unknown words


def missing(name: str) -> ModuleType:
    raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def no_egl(name: str) -> ModuleType:
    raise OSError("libEGL.so.1: cannot open shared object file")


def test_without_the_simulator_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metaworld.importlib, "import_module", missing)

    with pytest.raises(ConfigError, match=r"-e '\.\[server,metaworld\]'"):
        MetaworldTask("drawer-open-v3", seed=1)


def test_without_opengl_the_debian_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metaworld.importlib, "import_module", no_egl)

    with pytest.raises(ConfigError, match="apt-get install libegl1"):
        MetaworldTask("drawer-open-v3", seed=1)


def test_an_unknown_task_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def benchmark(name: str, seed: int) -> None:
        raise ValueError(f"{name} is not a V3 environment")

    fake = SimpleNamespace(MT1=benchmark)
    monkeypatch.setattr(metaworld.importlib, "import_module", lambda name: fake)

    with pytest.raises(UsageError, match="no task 'fly-v3'"):
        MetaworldTask("fly-v3", seed=1)


@pytest.mark.slow
def test_a_start_is_the_same_each_time_and_its_picture_is_none_of_blackness() -> None:
    pytest.importorskip("metaworld", reason="the extra `metaworld` is not installed")
    task = MetaworldTask("drawer-open-v3", seed=1)

    task.reset(3)
    first, picture = task.vector.copy(), task.image()
    task.step(np.array([1.0, 0.0, 0.0, -1.0]))
    moved = task.image()
    task.reset(3)
    again = task.vector.copy()
    task.close()

    np.testing.assert_array_equal(first, again)
    assert picture.shape == (112, 112, 3)
    assert picture.mean() > 20
    assert np.abs(picture.astype(int) - moved).max() > 20
