import io

import numpy as np
from rich.console import Console

from takt.cli.evaluating.view import EpisodeView, blocks
from takt.client.rollout import EpisodeResult, Moment
from takt.testing import ManualClock
from takt.units import SECOND


def moment(step: int = 3) -> Moment:
    observation = {
        "observation/image": np.full((112, 112, 3), 80, np.uint8),
        "prompt": "open the drawer",
    }
    action = np.array([1.0, -0.5, 0.0, 0.25])
    return Moment(index=0, step=step, observation=observation, action=action)


def shown(view: EpisodeView) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(view.panel(moment()))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def solved(index: int, *, is_solved: bool = True) -> EpisodeResult:
    return EpisodeResult(index=index, is_solved=is_solved, steps=40, chunks=5)


def test_a_picture_becomes_half_as_many_lines_as_columns() -> None:
    text = blocks(np.zeros((112, 112, 3), np.uint8), 38)

    lines = text.plain.splitlines()
    assert len(lines) == 19
    assert {len(line) for line in lines} == {38}


def test_the_panel_tells_instruction_step_action_and_what_was_solved() -> None:
    view = EpisodeView(Console(file=io.StringIO()), title="metaworld:x", total=25)
    view.finished(solved(0))
    view.finished(solved(1, is_solved=False))

    text = shown(view)

    assert "episode 3 of 25, step 3" in text
    assert "told: open the drawer" in text
    assert "action 0         |████████ +1.00" in text
    assert "action 1     ████|         -0.50" in text
    assert "●○" in text
    assert "solved 1 of 2" in text


def test_a_file_gets_a_line_per_episode() -> None:
    file = io.StringIO()
    view = EpisodeView(Console(file=file), title="x", total=2)

    with view.open():
        view.look(moment())
        view.finished(solved(0))

    assert file.getvalue() == "episode 1 of 2: solved after 40 steps\n"


def test_a_terminal_is_drawn_at_most_ten_times_a_second() -> None:
    file, clock = io.StringIO(), ManualClock()
    view = EpisodeView(
        Console(file=file, force_terminal=True, width=100, height=50),
        title="x",
        total=1,
        clock=clock.now,
    )

    with view.open():
        clock.advance(SECOND)
        view.look(moment(7))
        first = file.getvalue()
        view.look(moment(8))
        second = file.getvalue()

    assert "step 7" in first
    assert second == first
