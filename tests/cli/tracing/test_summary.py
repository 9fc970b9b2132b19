import dataclasses
import io

import pytest
from rich.console import Console
from tests.cli.tracing.made import SERVED_AND_SUPERSEDED, setup, submit

from takt.cli.tracing.story import Window, stories_of
from takt.cli.tracing.summary import show_summary, summary_of
from takt.core.events import Switched
from takt.units import ms


def test_a_summary_counts_launches_requests_and_time() -> None:
    (story,) = stories_of([setup(), *SERVED_AND_SUPERSEDED, submit(4, 50)])

    found = summary_of(story)

    assert found["requests"] == {"served": 2, "superseded": 1, "unfinished": 1}
    assert found["lanes"]["device 0 prefix"]["busy"] == 0.4
    assert found["lanes"]["device 0 denoise"] == {
        "launches": 2,
        "mean_rows": 1.0,
        "busy": 0.8,
        "launch_ms": {"p50": 20.0, "p90": 20.0, "p99": 20.0, "max": 20.0},
    }
    model = found["models"]["pi0"]
    assert (model["requests"], model["served"]) == (4, 2)
    assert model["within_promise"] == pytest.approx(2 / 3, abs=1e-4)
    assert model["longest_queue"] == {"prefix": 1, "denoise": 1}
    assert [model[part]["max"] for part in ("queue", "prefix", "wait", "denoise", "total")] == [
        4.0,
        10.0,
        10.0,
        20.0,
        44.0,
    ]


def test_a_lane_is_busy_in_the_time_that_is_looked_at() -> None:
    (story,) = stories_of([setup(), *SERVED_AND_SUPERSEDED], Window(ms(20), ms(45)))

    found = summary_of(story)

    assert found["from_seconds"] == 0.02
    assert found["lanes"]["device 0 denoise"]["busy"] == 1.0


def test_a_person_sees_every_setup() -> None:
    stories = stories_of([setup(), *SERVED_AND_SUPERSEDED, setup("flowing"), submit(1, 60)])
    console = Console(file=io.StringIO(), width=80)

    show_summary([summary_of(story) for story in stories], console)

    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert "1: lockstep, earliest_deadline" in said
    assert "2: flowing, earliest_deadline" in said
    assert "2 served, 1 superseded" in said
    assert all(len(line) <= 80 for line in said.splitlines())


def test_a_switch_within_a_formation_shows() -> None:
    gathering = dataclasses.replace(setup(), options={"gathering": 4})
    stories = stories_of(
        [setup(), submit(1, 0), Switched(ms(1), gathering.to_json()), submit(2, 2)]
    )
    console = Console(file=io.StringIO(), width=80)

    show_summary([summary_of(story) for story in stories], console)

    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert "1: lockstep, earliest_deadline" in said
    assert "2: lockstep (gathering 4), earliest_deadline" in said
