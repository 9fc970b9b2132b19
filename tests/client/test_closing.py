import pytest

from takt.client.background import BackgroundClient
from takt.client.closing import Closing
from takt.client.connection import Connection
from takt.client.episode_log import EpisodeLog
from takt.client.lerobot import LerobotConnection
from takt.client.loop import ControlLoop


class Door(Closing):
    """Counts how often it was closed."""

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def test_a_block_gets_the_thing_itself_and_closes_it_at_its_end() -> None:
    door = Door()

    with door as inside:
        before = door.closed

    assert inside is door
    assert (before, door.closed) == (0, 1)


def test_an_error_in_a_block_closes_and_is_passed_on() -> None:
    door = Door()

    with pytest.raises(ZeroDivisionError), door:
        raise ZeroDivisionError

    assert door.closed == 1


@pytest.mark.parametrize(
    "kind", [BackgroundClient, Connection, ControlLoop, EpisodeLog, LerobotConnection]
)
def test_whatever_a_client_opens_is_closed_by_the_same_rule(kind: type[Closing]) -> None:
    assert kind.__exit__ is Closing.__exit__
