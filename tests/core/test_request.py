"""The table of phases allows what the life of a request allows, and nothing else."""

from itertools import product

import pytest
from tests.core.driving import request_of

from takt.core.request import ENDED, Phase
from takt.errors import InvariantError

LEGAL = [
    (Phase.QUEUED, Phase.PREFIXING),
    (Phase.QUEUED, Phase.EXPIRED),
    (Phase.QUEUED, Phase.SUPERSEDED),
    (Phase.QUEUED, Phase.CANCELLED),
    (Phase.PREFIXING, Phase.MOVING),
    (Phase.PREFIXING, Phase.READY),
    (Phase.PREFIXING, Phase.SERVED),
    (Phase.PREFIXING, Phase.FAILED),
    (Phase.PREFIXING, Phase.CANCELLED),
    (Phase.MOVING, Phase.READY),
    (Phase.MOVING, Phase.CANCELLED),
    (Phase.READY, Phase.DENOISING),
    (Phase.READY, Phase.EXPIRED),
    (Phase.READY, Phase.CANCELLED),
    (Phase.DENOISING, Phase.READY),
    (Phase.DENOISING, Phase.SERVED),
    (Phase.DENOISING, Phase.FAILED),
    (Phase.DENOISING, Phase.CANCELLED),
]
ILLEGAL = [move for move in product(Phase, Phase) if move not in LEGAL]


@pytest.mark.parametrize(("before", "after"), LEGAL)
def test_a_legal_move_is_made(before: Phase, after: Phase) -> None:
    request = request_of(7)
    request.phase = before

    request.move(after)

    assert request.phase is after


@pytest.mark.parametrize(("before", "after"), ILLEGAL)
def test_an_illegal_move_is_refused_and_changes_nothing(before: Phase, after: Phase) -> None:
    request = request_of(7)
    request.phase = before

    with pytest.raises(InvariantError, match=f"request 7: {before.name} -> {after.name} is no"):
        request.move(after)

    assert request.phase is before


def test_the_outcomes_are_the_phases_that_lead_nowhere() -> None:
    assert {
        Phase.SERVED,
        Phase.FAILED,
        Phase.EXPIRED,
        Phase.SUPERSEDED,
        Phase.CANCELLED,
    } == ENDED


def test_a_request_begins_in_the_queue() -> None:
    assert request_of(0).phase is Phase.QUEUED


@pytest.mark.parametrize(("due", "promise", "latest"), [(-5, 30, 30), (40, 30, 40), (30, 30, 30)])
def test_an_answer_is_on_time_by_the_kinder_of_two_measures(
    due: int, promise: int, latest: int
) -> None:
    assert request_of(0, due=due, promise=promise).latest == latest


def test_requests_with_equal_fields_are_two_requests() -> None:
    assert request_of(0) != request_of(0)
