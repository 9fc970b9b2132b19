import pytest
from tests.cli.benching.made import run

from takt.cli.benching.verdict import NothingSentError, draw_of, is_clear, judged
from takt.core.attainment import lower_bound
from takt.sim.knee import Draw


def draws(*shares: float) -> list[Draw]:
    return [Draw(share, share, {"echo": share}) for share in shares]


def test_an_epoch_counts_as_the_model_and_the_robot_served_worst() -> None:
    draw = draw_of([run("a", 5, 5, 5, 5), run("b", 5, 5, 80, None, model="mini"), run("c", 5)])

    assert draw.by_model == {"echo": 1.0, "mini": 0.5}
    assert (draw.attainment, draw.worst_robot) == (0.5, 0.5)


def test_an_epoch_in_which_nothing_was_sent_says_nothing() -> None:
    with pytest.raises(NothingSentError, match="raise --seconds"):
        draw_of([run("a")])


def test_the_bound_is_that_of_the_simulated_knee() -> None:
    shares = [0.99, 0.97, 0.985]

    assert judged(draws(*shares), 8).bound == lower_bound(shares)


@pytest.mark.parametrize(
    ("shares", "robots", "clear"),
    [
        ((1.0, 1.0), 80, False),  # no look after two
        ((1.0, 1.0, 1.0), 50, True),
        ((1.0, 1.0, 1.0), 49, False),  # one robot in 50 that is always late may not be among them
        ((0.5, 0.6, 0.4), 8, True),
        ((0.99, 0.97, 0.98), 80, False),
        ((1.0, 1.0, 1.0, 1.0), 80, False),
        ((0.999, 0.998, 0.999, 0.998, 1.0), 80, True),
        ((0.999,) * 7, 80, False),
        ((0.999,) * 20, 8, True),
        ((), 0, False),
    ],
)
def test_it_stops_when_a_look_leaves_no_doubt(
    shares: tuple[float, ...], robots: int, clear: bool
) -> None:
    assert is_clear(draws(*shares), 0.98, robots) is clear
