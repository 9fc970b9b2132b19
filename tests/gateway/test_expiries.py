"""Requests that have expired are answered, whoever should have done it."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tests.gateway.doubles import Bench, code_of, observe, session_of, settled

from takt.gateway.expiries import Expiries
from takt.gateway.gateway import Gateway
from takt.units import SECOND, ms


class Alarm:
    """A clock and one timer, both moved by hand."""

    def __init__(self) -> None:
        self.now = 0
        self.at: int | None = None
        self.ring: Callable[[], None] = lambda: None
        self.num_set = 0

    def call_later(self, delay: float, callback: Callable[[], None]) -> "Alarm":
        self.at, self.ring = self.now + round(delay * SECOND), callback
        self.num_set += 1
        return self

    def cancel(self) -> None:
        self.at = None

    def until(self, now: int) -> None:
        while self.at is not None and self.at <= now:
            self.now, self.at = self.at, None
            self.ring()
        self.now = now


class Peer:
    """A worker that is waited for until an instant."""

    name = "w"

    def __init__(self, instant: int) -> None:
        self.instant = instant

    def wait_until(self, _: object) -> int:
        return self.instant


def request(expires: int, *, peer: Peer | None = None, is_answered: bool = False) -> Any:  # noqa: ANN401
    return SimpleNamespace(
        timing=SimpleNamespace(expires=expires),
        answer=SimpleNamespace(done=lambda: is_answered),
        peer=peer,
        ref=None if peer is None else object(),
    )


def scene() -> tuple[Alarm, list[object], Expiries]:
    alarm, given_up = Alarm(), []
    return alarm, given_up, Expiries(alarm, lambda: alarm.now, given_up.append)


def test_each_request_is_given_up_when_it_expires_and_not_before() -> None:
    alarm, given_up, expiries = scene()
    late, early = request(200), request(100)
    expiries.add(late)
    expiries.add(early)

    alarm.until(99)
    assert given_up == []
    alarm.until(100)
    assert given_up == [early]
    alarm.until(500)
    assert given_up == [early, late]
    assert alarm.at is None


def test_an_answered_request_is_left_alone_and_sets_no_timer_again() -> None:
    alarm, given_up, expiries = scene()
    expiries.add(request(100, is_answered=True))

    alarm.until(1_000)

    assert given_up == []
    assert alarm.num_set == 1


def test_a_worker_that_is_expected_to_speak_is_waited_for() -> None:
    alarm, given_up, expiries = scene()
    expiries.add(running := request(100, peer=Peer(250)))

    alarm.until(249)
    assert given_up == []
    alarm.until(250)
    assert given_up == [running]


def test_answered_requests_do_not_pile_up_until_robots_say_so() -> None:
    _, _, expiries = scene()

    for _ in range(10_000):
        expiries.add(request(3_600 * SECOND, is_answered=True))

    assert len(expiries) <= 64


def test_nobody_is_given_up_after_the_end() -> None:
    alarm, given_up, expiries = scene()
    expiries.add(request(100))

    expiries.close()
    alarm.until(1_000)

    assert given_up == []


def test_a_request_at_a_silent_worker_is_answered_and_its_slot_comes_back_with_the_worker() -> None:
    bench = Bench(answers=False)

    async def main(gateway: Gateway) -> None:
        answer = session_of(gateway).infer("echo", observe(), arrival=bench.now)
        waiting = session_of(gateway).infer("echo", observe(), arrival=bench.now)
        await settled()

        bench.now += ms(450)
        await asyncio.wait([answer, waiting])
        await settled()

        assert (code_of(answer), code_of(waiting)) == ("expired", "expired")
        assert "worker w0 has not come to it" in str(answer.exception())
        assert gateway.statistics()["slots_free"] == 0
        bench.workers["w0"].release(bench.workers["w0"].cancels[0])
        await settled()
        assert gateway.statistics()["slots_free"] == 1

    bench.run(main, num_slots=1)
