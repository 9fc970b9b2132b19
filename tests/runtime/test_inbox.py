"""Threads leave events; the loop is woken and finds them in order."""

import select
import threading

from takt.runtime.inbox import Inbox


def is_readable(inbox: Inbox[int], timeout_ms: int = 0) -> bool:
    poll = select.poll()
    poll.register(inbox.fileno(), select.POLLIN)
    return bool(poll.poll(timeout_ms))


def test_events_come_out_in_the_order_in_which_they_went_in() -> None:
    inbox: Inbox[int] = Inbox()
    for number in range(3):
        inbox.post(number)

    taken = inbox.take()

    assert taken == [0, 1, 2]
    assert inbox.take() == []
    inbox.close()


def test_a_post_of_the_thread_that_takes_wakes_nobody_and_can_be_seen() -> None:
    inbox: Inbox[int] = Inbox()
    before = inbox.is_empty

    inbox.post(1)

    assert (before, inbox.is_empty, is_readable(inbox)) == (True, False, False)
    assert inbox.take() == [1]
    assert inbox.is_empty
    inbox.close()


def test_the_descriptor_is_readable_until_the_post_is_acknowledged() -> None:
    inbox: Inbox[int] = Inbox()
    thread = threading.Thread(target=inbox.post, args=(7,))
    thread.start()
    thread.join()
    posted = is_readable(inbox)

    inbox.acknowledge()

    assert (posted, is_readable(inbox)) == (True, False)
    assert inbox.take() == [7]
    inbox.close()


def test_a_post_of_another_thread_wakes_who_waits() -> None:
    inbox: Inbox[int] = Inbox()
    thread = threading.Thread(target=inbox.post, args=(7,))

    thread.start()
    woken = is_readable(inbox, timeout_ms=20_000)
    thread.join()

    assert woken
    assert inbox.take() == [7]
    inbox.close()


def test_no_event_is_lost_between_many_threads() -> None:
    inbox: Inbox[int] = Inbox()
    threads = [
        threading.Thread(target=lambda n=n: [inbox.post(n * 1000 + i) for i in range(200)])
        for n in range(4)
    ]
    taken: list[int] = []

    for thread in threads:
        thread.start()
    while len(taken) < 800 and is_readable(inbox, timeout_ms=20_000):
        inbox.acknowledge()
        taken += inbox.take()
    for thread in threads:
        thread.join()

    assert sorted(taken) == [n * 1000 + i for n in range(4) for i in range(200)]
    inbox.close()
