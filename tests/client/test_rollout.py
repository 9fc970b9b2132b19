from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from takt.client.rollout import Ask, EpisodeRules, Moment, is_over, run_episode
from takt.errors import ConfigError, UsageError


class Corridor:
    """Solved at 3 or beyond; an action is how far to walk."""

    def __init__(self) -> None:
        self.place = 0.0
        self.seen: list[float] = []

    def reset(self, index: int) -> None:
        self.place = float(index)

    def observe(self) -> Mapping[str, object]:
        self.seen.append(self.place)
        return {"observation/state": self.place}

    def step(self, action: NDArray[Any]) -> bool:
        self.place += float(action[0])
        return self.place >= 3


class ShortCorridor(Corridor):
    """One whose episodes end behind 2."""

    @property
    def is_over(self) -> bool:
        return self.place > 2


def walking(*steps: float) -> Ask:
    return lambda observation: np.array(steps)[:, None]


def test_an_episode_ends_with_the_action_that_solves_the_task() -> None:
    corridor = Corridor()

    result = run_episode(corridor, walking(1, 1, 1, 1), EpisodeRules(), index=0)

    assert result.is_solved
    assert (result.steps, result.chunks, corridor.place) == (3, 1, 3.0)


def test_only_the_first_actions_of_a_chunk_are_executed_before_it_looks_again() -> None:
    corridor = Corridor()

    result = run_episode(corridor, walking(1, 1, -9), EpisodeRules(execute=2), index=0)

    assert corridor.seen == [0.0, 2.0]
    assert (result.is_solved, result.steps, result.chunks) == (True, 3, 2)


def test_an_unsolved_episode_executes_exactly_the_steps_it_may() -> None:
    corridor = Corridor()

    result = run_episode(corridor, walking(0.1, 0.1), EpisodeRules(max_steps=5), index=0)

    assert (result.is_solved, result.steps, result.chunks) == (False, 5, 3)
    assert corridor.place == pytest.approx(0.5)


def test_an_episode_that_ends_by_itself_is_stepped_no_more() -> None:
    corridor = ShortCorridor()

    result = run_episode(corridor, walking(0.5, 2, -1), EpisodeRules(), index=0)

    assert (result.is_solved, result.steps, corridor.place) == (False, 2, 2.5)


def test_only_an_environment_that_knows_of_it_is_over() -> None:
    short, plain = ShortCorridor(), Corridor()
    short.place = plain.place = 2.5

    assert is_over(short)
    assert not is_over(plain)


def test_the_index_chooses_the_start_and_is_in_the_result() -> None:
    result = run_episode(Corridor(), walking(1), EpisodeRules(), index=2)

    assert (result.index, result.steps) == (2, 1)


def test_an_onlooker_sees_every_action_before_it_is_executed() -> None:
    corridor, seen = Corridor(), []

    def look(moment: Moment) -> None:
        seen.append((moment.step, moment.observation["observation/state"], corridor.place))

    run_episode(corridor, walking(1, 2), EpisodeRules(), index=0, look=look)

    assert seen == [(0, 0.0, 0.0), (1, 0.0, 1.0)]


@pytest.mark.parametrize(
    "chunk", [np.zeros((0, 1)), np.zeros(3), np.array([[np.nan]]), np.array([[1.0], [np.inf]])]
)
def test_nothing_of_a_chunk_that_is_none_is_executed(chunk: NDArray[Any]) -> None:
    corridor = Corridor()

    with pytest.raises(UsageError, match="finite actions"):
        run_episode(corridor, lambda _: chunk, EpisodeRules(), index=1)

    assert corridor.place == 1.0


@pytest.mark.parametrize("rules", [{"max_steps": 0}, {"execute": 0}])
def test_rules_that_execute_nothing_are_refused(rules: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(rules))):
        EpisodeRules(**rules)
