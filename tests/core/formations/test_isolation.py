"""One row that cannot be computed costs nobody else anything, however the lanes are driven."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.core.driving import Driver, Run, request_of
from tests.core.group_fleet import MODELS, PROFILE, SHAPES

from takt.core.events import Ended
from takt.core.formations import FORMATIONS
from takt.core.request import Phase, Request
from takt.core.trace import Setup

EVERY_SHAPE: list[tuple[str, dict[str, Any]]] = [("monolithic", {}), ("lockstep", {}), *SHAPES]

Ends = dict[int, tuple[int, Phase]]
"""When and how each request ended."""


def requests() -> Iterator[Request]:
    """A dozen over three models and all their layouts, with time to spare."""
    for seq in range(12):
        model = MODELS[seq % 3]
        layout = seq // 3 % len(model.holds)
        yield request_of(seq, model.name, at=seq // 6 * 3, due=5_000, expires=10_000, layout=layout)


def outcomes(shape: tuple[str, dict[str, Any]], failures: dict[int, int]) -> tuple[Driver, Ends]:
    formation, options = shape
    driver = Driver(Setup(models=MODELS, profile=PROFILE, formation=formation, options=options))
    driver.run(requests(), failures)
    ended = [event for event in driver.events if isinstance(event, Ended)]
    return driver, {event.seq: (event.at, event.phase) for event in ended}


def rows_of(schedule: list[Run]) -> Iterator[tuple[Run, int]]:
    return ((launch, seq) for launch in schedule for seq in launch.requests)


@pytest.mark.parametrize("shape", EVERY_SHAPE, ids=str)
def test_a_failed_row_fails_alone(shape: tuple[str, dict[str, Any]]) -> None:
    """Each row of each launch in turn, and what had ended by then ended as it would have."""
    sound, undisturbed = outcomes(shape, {})
    assert max(len(launch.requests) for launch in sound.schedule) > 1 or "single_stage" in shape[1]

    for launch, failing in rows_of(sound.schedule):
        _, ends = outcomes(shape, {launch.end: failing})

        assert ends[failing] == (launch.end, Phase.FAILED)
        others = {seq: end for seq, end in ends.items() if seq != failing}
        assert sorted(others) == [seq for seq in range(12) if seq != failing]
        assert {phase for _, phase in others.values()} == {Phase.SERVED}
        before = {seq: end for seq, end in others.items() if end[0] <= launch.end}
        assert before == {seq: undisturbed[seq] for seq in before}


def test_every_formation_is_looked_at() -> None:
    assert {formation for formation, _ in EVERY_SHAPE} == set(FORMATIONS)
