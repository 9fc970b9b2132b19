"""A lower class waits, but not for ever: the bound of ``Request.priority``."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.driving import Driver, model_of, profile_of, request_of, scheduler_of

from takt.core.scheduler import MOST_PRIORITY, Lateness
from takt.core.trace import Setup
from takt.errors import UsageError

SLO = 100
MODEL = model_of("pi0", slo=SLO, prefix=(1,), denoise=(1,))


def test_the_first_class_goes_first_among_requests_of_one_time() -> None:
    scheduler = scheduler_of(MODEL)
    scheduler.submit(request_of(0, due=90, priority=1), 0)
    scheduler.submit(request_of(1, due=95), 0)

    (launch,) = scheduler.decide(0).launches

    assert launch.requests == (1,)


@given(
    priority=st.integers(1, MOST_PRIORITY),
    sent=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 3)), max_size=25),
    at=st.integers(0, 100),
)
def test_a_request_is_overtaken_only_by_those_due_within_its_class_times_the_slo(
    priority: int, sent: list[tuple[int, int]], at: int
) -> None:
    """Under any load: here every request of the first class is feasible for ever."""
    lower = (at, priority)
    arrivals = sorted([*sent, lower])
    asked = [
        request_of(seq, at=when, due=when + SLO, expires=10**6, priority=its)
        for seq, (when, its) in enumerate(arrivals)
    ]
    seq = arrivals.index(lower)
    driver = Driver(
        Setup(
            models=(MODEL,),
            profile=profile_of(MODEL),
            formation="monolithic",
            lateness=Lateness.SERVE_LATE,
        )
    )

    driver.run(asked)

    starts = {run.requests[0]: run.start for run in driver.schedule if run.stage == "prefix"}
    bound = asked[seq].due + priority * SLO
    overtaking = [
        other
        for other in asked
        if asked[seq].arrival < other.arrival and starts[other.seq] < starts[seq]
    ]
    assert all(other.due <= bound for other in overtaking)


@pytest.mark.parametrize("priority", [-1, MOST_PRIORITY + 1])
def test_a_class_that_does_not_exist_is_refused(priority: int) -> None:
    scheduler = scheduler_of(MODEL)

    with pytest.raises(UsageError, match=f"priority must lie in 0 to 7, got {priority}"):
        scheduler.submit(request_of(0, priority=priority), 0)
