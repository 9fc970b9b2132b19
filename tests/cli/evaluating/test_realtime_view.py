import io
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from rich.console import Console
from tests.cli.evaluating.realtime import episode, meter, status

from takt.cli.evaluating.realtime_view import RealtimeView
from takt.client.realtime import RealtimeMoment
from takt.client.rollout import Moment
from takt.units import ms


def moment(**changed: Any) -> RealtimeMoment:  # noqa: ANN401
    seen = {"observation/image": np.full((16, 16, 3), 80, np.uint8), "prompt": "open the door"}
    loop = SimpleNamespace(status=lambda: status(**changed))
    robot = SimpleNamespace(step_times=[ms(5)], observe_times=[ms(10), ms(30)])
    return RealtimeMoment(
        moment=Moment(index=0, step=7, observation=seen, action=np.array([0.5, 0.0])),
        loop=cast("Any", loop),
        robot=cast("Any", robot),
    )


def view_on(console: Console) -> RealtimeView:
    return RealtimeView(console, title="metaworld:door-open-v3", total=3, meter=meter(20, 40))


def shown(view: RealtimeView) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(view.panel())
    return cast("io.StringIO", console.file).getvalue()


def test_the_panel_tells_state_queue_starvation_and_times() -> None:
    view = view_on(Console(file=io.StringIO()))
    view.finished(episode())

    view.look(moment())

    said = shown(view)
    assert "episode 2 of 3, step 7" in said
    assert "told: open the door" in said
    assert "active, 4 actions queued" in said
    assert "30 executed, 10 ticks starved, 5 chunks, 1 late" in said
    assert "round trip 20.0 ms, p99 40.0 ms" in said
    assert "step 5.0 ms, p99 5.0 ms, observation 10.0 ms, p99 30.0 ms, 0 ticks left out" in said


def test_what_keeps_a_robot_waiting_is_shown() -> None:
    view = view_on(Console(file=io.StringIO()))

    view.look(moment(is_connected=False, last_failure="the server went away"))

    assert "active, not connected" in shown(view)
    assert "the server went away" in shown(view)


def test_before_the_first_step_it_says_that_it_waits() -> None:
    view = view_on(Console(file=io.StringIO()))

    view.look(RealtimeMoment(moment=None, loop=cast("Any", None), robot=cast("Any", None)))

    assert "waiting for the first step" in shown(view)


def test_a_file_gets_a_line_per_episode() -> None:
    console = Console(file=io.StringIO())
    view = view_on(console)

    with view.open():
        view.look(moment())
        view.finished(episode())

    said = cast("io.StringIO", console.file).getvalue()
    assert said == "episode 1 of 3: solved after 40 steps\n"


def test_a_terminal_gets_a_panel_that_lives() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    view = view_on(console)

    with view.open():
        view.look(moment())
        view.finished(episode())

    said = cast("io.StringIO", console.file).getvalue()
    assert "actions queued" in said
    assert "episode 1 of 3: solved" not in said
