"""Robots take turns by what they have had, so that costly rows delay their own robot."""

from hypothesis import given
from hypothesis import strategies as st

from takt.gateway.turns import Turns

COSTLY, CHEAP = 100, 1


def test_rows_of_one_robot_keep_their_order_one_at_a_time() -> None:
    turns: Turns[str] = Turns()
    for row in ("first", "second"):
        turns.add(1, CHEAP, row)

    assert turns.take() == "first"
    assert turns.take() is None
    turns.done(1)
    assert turns.take() == "second"


def test_a_robot_with_costly_rows_does_not_delay_another() -> None:
    turns: Turns[str] = Turns()
    for _ in range(3):
        turns.add(1, COSTLY, "costly")
    assert turns.take() == "costly"

    turns.add(2, CHEAP, "cheap")
    turns.done(1)

    assert turns.take() == "cheap"


def test_cheap_rows_without_end_do_not_starve_a_costly_one() -> None:
    turns: Turns[str] = Turns()
    turns.add(1, COSTLY, "costly")
    taken: list[str] = []
    while "costly" not in taken and len(taken) < 10 * COSTLY:
        turns.add(2, CHEAP, "cheap")
        taken.append(turns.take() or "")
        if taken[-1] == "cheap":
            turns.done(2)

    assert taken[-1] == "costly"


def test_a_robot_that_was_quiet_has_saved_nothing() -> None:
    turns: Turns[int] = Turns()
    for number in range(2 * COSTLY):
        turns.add(1, CHEAP, number)
        assert turns.take() == number
        turns.done(1)

    for robot in (2, 1):
        for _ in range(4):
            turns.add(robot, CHEAP, robot)
    taken: list[int] = []
    for _ in range(8):
        robot = turns.take()
        assert robot is not None
        taken.append(robot)
        turns.done(robot)

    assert taken == [2, 1] * 4


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 50)), max_size=40))
def test_every_row_has_its_turn_once(rows: list[tuple[int, int]]) -> None:
    turns: Turns[tuple[int, int]] = Turns()
    for number, (robot, cost) in enumerate(rows):
        turns.add(robot, cost, (robot, number))

    taken: list[tuple[int, int]] = []
    while (row := turns.take()) is not None:
        taken.append(row)
        turns.done(row[0])

    assert sorted(number for _, number in taken) == list(range(len(rows)))
