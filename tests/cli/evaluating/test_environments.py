import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from takt.cli.evaluating.environments import chosen_environment
from takt.cli.evaluating.metaworld import MAX_STEPS, NUM_GOALS
from takt.client.robots.described import DescribedRobot, check_fit
from takt.client.robots.gymnasium import RENDER
from takt.errors import ConfigError, UsageError
from takt.policies.catalog import open_policy


class Task:
    """Stands where a Meta-World task would."""

    def __init__(self, task: str, *, seed: int) -> None:
        self.task, self.seed = task, seed
        self.is_closed = False
        OPENED.append(self)

    def close(self) -> None:
        self.is_closed = True


class Env:
    """Stands where a Gymnasium environment would."""

    action_space = SimpleNamespace(shape=(2,), dtype=np.dtype(np.float32))

    def __init__(self) -> None:
        self.seeds: list[int | None] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:  # noqa: ANN401
        self.seeds.append(seed)
        return np.zeros(3), {}

    def step(self, action: Any, /) -> Any:  # noqa: ANN401
        return np.ones(3), 0.0, False, False, {}


class NoSuchEnvError(Exception):
    pass


OPENED: list[Task] = []


@pytest.fixture
def metaworld(monkeypatch: pytest.MonkeyPatch) -> list[Task]:
    OPENED.clear()
    monkeypatch.setattr("takt.cli.evaluating.environments.MetaworldTask", Task)
    return OPENED


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """A Gymnasium that knows one environment, and what it was asked for."""
    asked: list[tuple[str, dict[str, Any]]] = []

    def make(name: str, **options: Any) -> Env:  # noqa: ANN401
        asked.append((name, options))
        if name != "Line-v0":
            raise NoSuchEnvError("no such id")
        return Env()

    module = SimpleNamespace(make=make, error=SimpleNamespace(Error=NoSuchEnvError))
    monkeypatch.setitem(sys.modules, "gymnasium", module)  # type: ignore[arg-type]
    return asked


def test_a_meta_world_robot_is_held_by_a_displacement_of_zero_and_keeps_its_grip(
    metaworld: list[Task],
) -> None:
    choice = chosen_environment("metaworld:door-open-v3")

    simulation = choice.open(seed=7)

    assert choice.instruction == "open the door"
    assert (metaworld[0].task, metaworld[0].seed) == ("door-open-v3", 7)
    assert (simulation.hold, simulation.kept) == ("velocity", (3,))
    np.testing.assert_array_equal(np.asarray(simulation.rest), np.zeros(4))
    simulation.close()
    assert metaworld[0].is_closed


@pytest.mark.usefixtures("metaworld")
def test_a_meta_world_robot_fits_the_card_of_mini() -> None:
    environment = chosen_environment("metaworld:door-open-v3").open(seed=1).environment

    assert isinstance(environment, DescribedRobot)
    check_fit(environment.describe(), open_policy("mini").spec)


def test_a_gymnasium_environment_takes_positions_unless_told_otherwise(
    made: list[tuple[str, dict[str, Any]]],
) -> None:
    held = chosen_environment("gymnasium:Line-v0").open(seed=40)
    moved = chosen_environment("gymnasium:Line-v0", hold="velocity").open(seed=40)

    assert (held.hold, held.rest) == ("position", None)
    np.testing.assert_array_equal(np.asarray(moved.rest), np.zeros(2))
    held.environment.reset(2)
    np.testing.assert_array_equal(
        np.asarray(held.environment.observe()["observation/state"]), np.zeros(3)
    )
    assert made == [("Line-v0", {})] * 2


def test_pictures_that_are_rendered_are_asked_for_when_it_is_made(
    made: list[tuple[str, dict[str, Any]]],
) -> None:
    keys = [f"observation/image={RENDER}", "observation/state="]

    choice = chosen_environment("gymnasium:Line-v0", keys=keys)
    choice.open(seed=0)

    assert choice.keys == (("observation/image", RENDER), ("observation/state", ""))
    assert made == [("Line-v0", {"render_mode": "rgb_array"})]


@pytest.mark.usefixtures("made")
def test_an_unknown_environment_is_named() -> None:
    with pytest.raises(UsageError, match="gymnasium:Maze-v0: no such id"):
        chosen_environment("gymnasium:Maze-v0").open(seed=0)


def test_what_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)  # type: ignore[arg-type]

    with pytest.raises(ConfigError, match="pip install gymnasium"):
        chosen_environment("gymnasium:Line-v0").open(seed=0)


@pytest.mark.usefixtures("made")
def test_black_pictures_are_meta_worlds() -> None:
    with pytest.raises(UsageError, match="--black-images"):
        chosen_environment("gymnasium:Line-v0").open(seed=0, black_images=True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"env": "door-open-v3"}, "metaworld:TASK or gymnasium:ID"),
        ({"env": "atari:pong"}, "metaworld:TASK or gymnasium:ID"),
        ({"env": "metaworld:"}, "metaworld:TASK or gymnasium:ID"),
        ({"env": "metaworld:hammer-v3"}, "give --instruction"),
        ({"env": "metaworld:nope"}, "no task 'nope' among those with usual words: drawer-open-v3"),
        ({"env": "metaworld:door-open-v3", "keys": ["a=b"]}, "for gymnasium:ID"),
        ({"env": "metaworld:door-open-v3", "hold": "position"}, "for gymnasium:ID"),
        ({"env": "gymnasium:Line-v0", "keys": ["state"]}, "expected POLICY_KEY=WHERE"),
        ({"env": "gymnasium:Line-v0", "keys": ["=state"]}, "expected POLICY_KEY=WHERE"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        chosen_environment(**options)


def test_there_are_as_many_starts_and_steps_as_the_family_has() -> None:
    door, line = chosen_environment("metaworld:door-open-v3"), chosen_environment("gymnasium:L")

    line.check(episodes=10 * NUM_GOALS, max_steps=10 * MAX_STEPS)
    door.check(episodes=NUM_GOALS, max_steps=MAX_STEPS)
    with pytest.raises(UsageError, match=r"1\.\.50, got 51"):
        door.check(episodes=NUM_GOALS + 1, max_steps=1)
    with pytest.raises(UsageError, match="ends after 500, got 501"):
        door.check(episodes=1, max_steps=MAX_STEPS + 1)
    with pytest.raises(UsageError, match="at least 1, got 0"):
        line.check(episodes=0, max_steps=1)
