"""What a worker owes, since when, and how long a robot is made to wait for it."""

import pytest

from takt.gateway.patience import Patience
from takt.link.messages import SlotRef
from takt.units import SECOND, ms

A, B = SlotRef(1, 0, 1), SlotRef(1, 1, 1)
HANG = SECOND
LAUNCH = ms(20)


def patience(*, is_timed: bool = True) -> Patience:
    made = Patience(HANG)
    if is_timed:
        made.timed(LAUNCH)
    return made


def test_who_owes_nothing_is_not_waited_for() -> None:
    made = patience()
    made.submitted(A, ms(400), 0)
    made.settled(A)

    assert made.left(10 * SECOND) is None
    assert not made.is_owed


def test_silence_counts_from_the_last_word() -> None:
    made = patience()
    made.submitted(A, ms(400), 0)
    made.heard(ms(300))

    assert made.left(ms(500)) == HANG - ms(200)


@pytest.mark.parametrize(
    ("launch", "limit"), [(None, 30 * SECOND), (ms(20), SECOND), (ms(400), 2 * SECOND)]
)
def test_the_limit_is_five_launches_and_at_least_what_was_configured(
    launch: int | None, limit: int
) -> None:
    made = patience(is_timed=False)
    if launch is not None:
        made.timed(launch)

    assert made.limit == limit


def test_a_worker_that_loads_a_model_may_be_silent_for_longer() -> None:
    made = patience()
    made.is_loading = True

    assert made.limit == 30 * SECOND


def test_a_launch_that_was_held_up_once_does_not_count_for_ever() -> None:
    made = patience()
    made.timed(10 * SECOND)
    for _ in range(64):
        made.timed(LAUNCH)

    assert made.limit == HANG


def test_a_request_that_runs_too_long_counts_however_much_is_said() -> None:
    made = patience()
    made.submitted(A, ms(400), 0)
    made.submitted(B, ms(400), 0)
    made.started([A], ms(10))
    made.heard(ms(1390))

    assert made.left(ms(1390)) == ms(10)  # a second after it expired
    made.settled(A)
    assert made.left(ms(1390)) == HANG


def test_a_robot_is_answered_when_its_request_expires_at_a_silent_worker() -> None:
    made = patience()
    made.submitted(A, ms(400), 0)

    assert made.wait_until(A) == ms(410)  # the worker's own word would come first


def test_a_worker_that_has_just_spoken_is_given_time_to_say_what_it_began() -> None:
    made = patience()
    made.submitted(A, ms(20), 0)

    assert made.wait_until(A) == ms(100)


def test_a_running_request_is_worth_two_launches_more() -> None:
    made = patience()
    made.submitted(A, ms(400), 0)
    made.started([A], ms(10))

    assert made.wait_until(A) == ms(440)


def test_a_first_launch_is_waited_for_until_its_worker_counts_as_hung() -> None:
    made = patience(is_timed=False)
    made.submitted(A, ms(400), 0)
    made.started([A], ms(10))

    assert made.wait_until(A) == ms(400) + 30 * SECOND


def test_what_is_no_longer_owed_does_not_run() -> None:
    made = patience()
    made.started([A], 0)
    made.submitted(B, ms(1), 0)
    made.forget()

    assert made.left(SECOND) is None


def test_a_pardon_begins_all_waiting_anew() -> None:
    made = patience()
    made.submitted(A, ms(1), 0)
    made.started([A], ms(1))

    made.pardon(5 * SECOND)

    assert made.left(5 * SECOND) == HANG
