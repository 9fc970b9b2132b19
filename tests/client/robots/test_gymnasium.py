from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from takt.client.robots.described import Axis, RobotDescription, description_of
from takt.client.robots.gymnasium import RENDER, GymnasiumRobot
from takt.client.rollout import EpisodeRules, run_episode
from takt.errors import UsageError

KEYS = {"observation/state": "agent/place", "observation/image": RENDER}


class Line:
    """Walks along a line by an action; solved at 3, truncated after 5 steps."""

    def __init__(self, space: Any = None) -> None:  # noqa: ANN401
        if space is not False:
            self.action_space = space or SimpleNamespace(shape=(1,), dtype=np.dtype(np.float32))
        self.place = np.zeros(1, np.float32)
        self.steps = self.renders = 0
        self.seeds: list[int | None] = []
        self.got: list[np.ndarray] = []
        self.picture: Any = np.zeros((4, 4, 3), np.uint8)
        self.is_closed = False
        self.terminates = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        self.seeds.append(seed)
        self.place[:] = 0
        self.steps = 0
        return self.seen(), {}

    def step(self, action: Any, /) -> tuple[Any, float, bool, bool, dict[str, Any]]:  # noqa: ANN401
        self.got.append(action)
        self.place += action
        self.steps += 1
        info = {"is_success": bool(self.place[0] >= 3)}
        return self.seen(), 0.0, self.terminates, self.steps >= 5, info

    def seen(self) -> dict[str, Any]:
        return {"agent": {"place": self.place}}  # the same array every time

    def render(self) -> Any:  # noqa: ANN401
        self.renders += 1
        return self.picture

    def close(self) -> None:
        self.is_closed = True


def begun(env: Line, **options: Any) -> GymnasiumRobot:  # noqa: ANN401
    robot = GymnasiumRobot(env, keys=KEYS, **options)
    robot.reset(0)
    return robot


def one(value: float) -> np.ndarray:
    action = np.array([value])
    action.flags.writeable = False
    return action


def test_the_policys_keys_are_found_where_the_mapping_says() -> None:
    robot = begun(Line(), instruction="walk")

    robot.act(one(2.0))
    seen = robot.observe()

    assert list(seen) == ["observation/state", "observation/image", "prompt"]
    np.testing.assert_array_equal(np.asarray(seen["observation/state"]), [2.0])
    assert seen["prompt"] == "walk"


def test_an_observation_does_not_change_when_the_environment_goes_on() -> None:
    robot = begun(Line())
    before = robot.observe()["observation/state"]

    robot.act(one(1.0))

    assert float(np.asarray(before)[0]) == 0.0


def test_pictures_are_rendered_only_when_somebody_looks() -> None:
    env = Line()
    robot = begun(env)

    robot.act(one(1.0))
    assert env.renders == 0
    robot.observe()

    assert env.renders == 1


def test_an_action_reaches_the_environment_in_its_own_number_format_and_writable() -> None:
    env = Line()

    begun(env).act(one(1.0))

    assert env.got[0].dtype == np.float32
    assert env.got[0].flags.writeable


def test_an_action_that_its_number_format_cannot_hold_is_not_executed() -> None:
    env = Line()

    with pytest.raises(UsageError, match="no finite float32"):
        begun(env).act(one(1e300))

    assert env.got == []


def test_an_empty_key_is_the_whole_observation() -> None:
    env = Line()
    robot = GymnasiumRobot(env, keys={"all": ""})
    robot.reset(0)

    assert robot.observe()["all"] == {"agent": {"place": env.place}}


def test_an_ended_episode_is_stepped_no_more_until_it_is_reset() -> None:
    env = Line()
    robot = begun(env)

    for _ in range(7):
        robot.act(one(0.1))

    assert robot.is_over
    assert not robot.is_solved
    assert (env.steps, robot.dropped) == (5, 2)
    robot.reset(1)
    assert not robot.is_over
    robot.act(one(0.1))
    assert (env.steps, robot.dropped) == (1, 0)


def test_a_terminated_episode_is_over() -> None:
    env = Line()
    env.terminates = True
    robot = begun(env)

    robot.act(one(0.1))

    assert robot.is_over


def test_solved_is_what_the_environment_says_and_stays_so() -> None:
    robot = begun(Line())

    assert not robot.step(one(1.0))
    assert robot.step(one(2.0))
    assert robot.step(one(-3.0))

    assert robot.is_solved


def test_each_start_has_a_seed_of_its_own() -> None:
    env = Line()
    robot = GymnasiumRobot(env, keys=KEYS, seed=40)

    robot.reset(2)
    robot.reset(3)

    assert env.seeds == [42, 43]


def test_it_is_an_environment_of_the_episode_runner_and_ends_there_too() -> None:
    env = Line()
    robot = GymnasiumRobot(env, keys=KEYS)

    lazy = run_episode(robot, lambda seen: np.full((3, 1), 0.1), EpisodeRules(), index=0)
    quick = run_episode(robot, lambda seen: np.full((4, 1), 1.0), EpisodeRules(), index=0)

    assert (lazy.is_solved, lazy.steps, lazy.chunks) == (False, 5, 2)
    assert (quick.is_solved, quick.steps, quick.chunks) == (True, 3, 1)


def test_it_tells_what_it_was_told() -> None:
    told = RobotDescription(action=(Axis("move", "m"),))

    assert description_of(GymnasiumRobot(Line(), keys={}, description=told)) == told
    assert description_of(GymnasiumRobot(Line(), keys={})) == RobotDescription()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("agent/speed", "no key 'speed'; it has: place"),
        ("goal", "no key 'goal'; it has: agent"),
        ("agent/place/x", "has no keys there, but ndarray"),
    ],
)
def test_a_key_that_is_not_there_is_named(path: str, said: str) -> None:
    robot = GymnasiumRobot(Line(), keys={"observation/state": path})
    robot.reset(0)

    with pytest.raises(UsageError, match=said):
        robot.observe()


def test_an_environment_that_does_not_render_says_how_it_would() -> None:
    env = Line()
    env.picture = None

    with pytest.raises(UsageError, match="render_mode='rgb_array'"):
        begun(env).observe()


def test_it_cannot_be_seen_before_it_is_reset() -> None:
    with pytest.raises(UsageError, match="reset"):
        GymnasiumRobot(Line(), keys=KEYS).observe()


def test_an_action_of_another_size_is_refused() -> None:
    with pytest.raises(UsageError, match=r"expected shape \(1,\), got \(2,\)"):
        begun(Line()).act(np.zeros(2))


@pytest.mark.parametrize(
    "space",
    [
        SimpleNamespace(shape=(), dtype=np.dtype(np.int64)),  # gymnasium.spaces.Discrete
        SimpleNamespace(shape=(2,), dtype=np.dtype(np.int64)),
        SimpleNamespace(shape=(2, 2), dtype=np.dtype(np.float32)),
        SimpleNamespace(shape=None, dtype=None),  # Dict
    ],
)
def test_actions_that_are_no_vectors_of_numbers_are_refused(space: SimpleNamespace) -> None:
    with pytest.raises(UsageError, match="vectors of numbers"):
        GymnasiumRobot(Line(space), keys=KEYS)


def test_an_environment_that_tells_no_action_space_is_taken_at_its_word() -> None:
    env = Line(False)
    robot = begun(env)

    robot.act(one(1.0))

    assert robot.action_dim is None
    assert env.steps == 1


def test_a_vector_of_environments_is_refused() -> None:
    env = Line()
    env.num_envs = 4  # type: ignore[attr-defined]

    with pytest.raises(UsageError, match="got a vector of them"):
        GymnasiumRobot(env, keys=KEYS)


def test_closing_closes_the_environment() -> None:
    env = Line()

    GymnasiumRobot(env, keys=KEYS).close()

    assert env.is_closed
