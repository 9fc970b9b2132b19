import io
import json
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
from rich.console import Console

from takt.cli.eval import Eval
from takt.cli.main import main
from takt.client.answer import Answer
from takt.client.errors import ConnectionLostError
from takt.errors import ConfigError, RefusedError, UsageError

ENV = "metaworld:drawer-open-v3"


class Drawer:
    """Solved by the policy's first action in even starts, never in odd ones."""

    opened: ClassVar[list[tuple[str, int]]] = []

    def __init__(self, task: str, *, seed: int) -> None:
        self.opened.append((task, seed))
        self._index = 0

    def reset(self, index: int) -> None:
        self._index = index

    def state(self) -> Any:  # noqa: ANN401
        return np.zeros(4, np.float32)

    def image(self) -> Any:  # noqa: ANN401
        return np.full((112, 112, 3), 90, np.uint8)

    def step(self, action: Any) -> bool:  # noqa: ANN401
        return self._index % 2 == 0

    def close(self) -> None:
        pass


class Asked:
    """A policy that counts and remembers what it was told."""

    def __init__(self, policy: str, **options: Any) -> None:  # noqa: ANN401
        from takt.policies.catalog import open_policy

        self.spec = open_policy(policy).spec
        self.seen: list[Mapping[str, object]] = []
        ASKED.append(self)

    def ask(self, values: Mapping[str, object]) -> Any:  # noqa: ANN401
        self.seen.append(values)
        return np.zeros((16, 4))

    def close(self) -> None:
        pass


ASKED: list[Asked] = []


@pytest.fixture(autouse=True)
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    ASKED.clear()
    Drawer.opened.clear()
    monkeypatch.setattr("takt.cli.evaluating.environments.MetaworldTask", Drawer)
    monkeypatch.setattr("takt.cli.eval.InProcessPolicy", Asked)


def test_figures_tell_what_was_run_and_how_often_it_was_solved() -> None:
    asked = Eval(env=ENV, in_process=True, episodes=4, seed=9, max_steps=20)

    figures = asked.evaluate(Console(file=io.StringIO()))

    assert Drawer.opened == [("drawer-open-v3", 9)]
    assert (figures["episodes"], figures["solved"], figures["unsolved"]) == (4, 2, [1, 3])
    assert figures["instruction"] == "open the drawer"
    assert figures["through"] == "in process"
    assert figures["execute"] == 8  # the policy's own word
    assert figures["chunks"] == 2 * 1 + 2 * 3
    assert figures["model_digest"].startswith("sha256:")


def test_another_instruction_and_black_pictures_reach_the_policy() -> None:
    Eval(
        env=ENV, in_process=True, episodes=1, instruction="close the drawer", black_images=True
    ).evaluate(Console(file=io.StringIO()))

    (seen,) = ASKED[0].seen
    assert seen["prompt"] == "close the drawer"
    assert np.asarray(seen["observation/image"]).max() == 0


def test_json_is_all_that_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "--env", ENV, "--in-process", "--episodes", "2", "--json"]) == 0

    assert json.loads(capsys.readouterr().out)["solved"] == 1


def test_people_get_one_sentence_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "--env", ENV, "--in-process", "--episodes", "2"]) == 0

    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(f"{ENV}: solved 1 of 2: 50%")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"env": "drawer-open-v3", "in_process": True}, "metaworld:TASK"),
        ({"env": "atari:pong", "in_process": True}, "metaworld:TASK"),
        ({"env": ENV}, "either --server ADDRESS or --in-process"),
        ({"env": ENV, "in_process": True, "server": "x"}, "either"),
        ({"env": ENV, "in_process": True, "episodes": 0}, "--episodes"),
        ({"env": ENV, "in_process": True, "episodes": 51}, "--episodes"),
        ({"env": "metaworld:hammer-v3", "in_process": True}, "give --instruction"),
    ],
)
def test_impossible_options_are_refused_before_anything_is_opened(
    options: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        Eval(**options).evaluate(Console(file=io.StringIO()))

    assert not Drawer.opened


def test_a_task_without_usual_words_takes_an_instruction() -> None:
    asked = Eval(env="metaworld:hammer-v3", in_process=True, instruction="hit the nail")

    choice = asked.check()
    assert (choice.name, choice.instruction) == ("hammer-v3", "hit the nail")


def test_numbers_that_execute_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match="--max-steps"):
        Eval(env=ENV, in_process=True, max_steps=0).check()


class Served:
    """A connection that answers so often, and then raises."""

    spec = None

    def __init__(self, answers: int, ending: Exception) -> None:
        self._answers = [Answer(actions=np.zeros((16, 4)), round_trip=1)] * answers
        self._ending = ending

    def __enter__(self) -> "Served":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def infer(self, observation: Mapping[str, object]) -> Answer:
        if not self._answers:
            raise self._ending
        return self._answers.pop()


GONE = ConnectionLostError("here:1 ended the connection", code="closed")
BUSY = RefusedError("no more today", code="busy")


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        (GONE, "the server went away in episode 3 of 4: here:1 ended the connection"),
        (BUSY, "no chunk came in episode 3 of 4: no more today"),
    ],
)
def test_a_server_that_goes_away_costs_no_episode_that_came_to_its_end(
    ending: Exception,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # The first episode takes one chunk; the second, never solved, all its 20 steps of them.
    monkeypatch.setattr("takt.cli.eval.connect", lambda *_, **__: Served(3, ending))
    options = ["--server", "here:1", "--episodes", "4", "--max-steps", "20", "--json"]

    assert main(["eval", "--env", ENV, *options]) == 1

    out, err = capsys.readouterr()
    told = json.loads(out)
    assert (told["episodes"], told["solved"], told["unsolved"]) == (2, 1, [1])
    assert told["ended_by"] == said
    assert err.endswith(f"takt: {said}\n")


def test_a_server_that_goes_away_in_the_first_episode_leaves_nothing_to_tell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("takt.cli.eval.connect", lambda *_, **__: Served(0, GONE))

    assert main(["eval", "--env", ENV, "--server", "here:1", "--json"]) == 1

    assert capsys.readouterr() == ("", f"takt: {GONE}\n")
