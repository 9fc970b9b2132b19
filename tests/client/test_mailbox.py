import threading

from tests.client.fakes import answer

from takt.client.mailbox import Mailbox, Posted
from takt.testing import ManualClock
from takt.units import ms


def posted(number: int, *, observed: int = 0, due: int = ms(100)) -> Posted:
    return Posted(
        observation={"number": number},
        chunk_id=number,
        first_timestep=0,
        observed=observed,
        due=due,
        expires=observed + ms(500),
    )


def test_an_observation_is_sent_with_the_time_that_is_left_when_it_is_sent() -> None:
    clock = ManualClock()
    mailbox = Mailbox(clock.now)
    mailbox.post(posted(1))
    clock.advance(ms(130))

    asked = mailbox.take_request()

    assert asked is not None
    assert (asked.observation, asked.due_in, asked.expires_in) == ({"number": 1}, -ms(30), ms(370))
    assert not mailbox.has_unsent


def test_a_newer_observation_takes_the_place_of_one_that_was_not_sent() -> None:
    mailbox = Mailbox(ManualClock().now)
    mailbox.post(posted(1))
    mailbox.renew(posted(2))

    asked = mailbox.take_request()

    assert asked is not None
    assert asked.posted.chunk_id == 2


def test_what_was_sent_meanwhile_is_not_renewed() -> None:
    mailbox = Mailbox(ManualClock().now)
    mailbox.post(posted(1))
    mailbox.take_request()

    mailbox.renew(posted(2))

    assert mailbox.take_request() is None


def test_outcomes_are_collected_once_in_order() -> None:
    clock = ManualClock()
    mailbox = Mailbox(clock.now)
    mailbox.post(posted(1))
    first = mailbox.take_request()
    assert first is not None
    clock.advance(ms(7))
    mailbox.answered(first, answer())
    mailbox.failed(first, "closed", "gone", send_again=True)

    collected = mailbox.collect()

    assert [(outcome.ended, outcome.code) for outcome in collected] == [
        (ms(7), ""),
        (ms(7), "closed"),
    ]
    assert collected[0].answer is not None
    assert mailbox.collect() == []


def test_an_observation_that_grew_too_old_is_not_sent_and_its_outcome_says_so() -> None:
    clock = ManualClock()
    mailbox = Mailbox(clock.now)
    mailbox.post(posted(1))
    clock.advance(ms(500))

    assert mailbox.take_request() is None
    assert [outcome.code for outcome in mailbox.collect()] == ["stale"]


def test_whoever_waits_gets_the_next_observation_and_none_after_the_end() -> None:
    mailbox = Mailbox(ManualClock().now)
    got: list[object] = []
    taken = threading.Event()

    def wait() -> None:
        while (asked := mailbox.wait_for_request()) is not None:
            got.append(asked.posted.chunk_id)
            taken.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    mailbox.post(posted(5))
    assert taken.wait(20)
    mailbox.close()
    waiting.join(20)

    assert got == [5]
    assert not waiting.is_alive()
    mailbox.post(posted(6))
    assert mailbox.take_request() is None
