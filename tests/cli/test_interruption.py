"""Signals are raised in this process: what the first does, what later ones do, what is put back."""

import os
import pty
import signal
from collections.abc import Iterator

import pytest

from takt.cli.interruption import Interruption
from takt.testing import ManualClock
from takt.units import ms

pytestmark = pytest.mark.usefixtures("signals_are_heeded")

ENDING = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture(autouse=True)
def handlers_are_put_back() -> Iterator[None]:
    before = [signal.getsignal(number) for number in ENDING]
    yield
    assert [signal.getsignal(number) for number in ENDING] == before


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_raises_as_ctrl_c_does_and_says_which_it_was(number: signal.Signals) -> None:
    interruption = Interruption()

    with interruption, pytest.raises(KeyboardInterrupt) as raised:
        signal.raise_signal(number)

    assert raised.value.args == (number,)
    assert interruption.number == number


@pytest.mark.parametrize("number", ENDING)
def test_the_first_signal_does_what_was_asked_for_instead(number: signal.Signals) -> None:
    told: list[str] = []

    with Interruption() as interruption:
        interruption.at_first = lambda: told.append("stop")
        signal.raise_signal(number)
        with pytest.raises(KeyboardInterrupt):
            interruption.raise_if_any()

    assert told == ["stop"]


def test_only_a_further_ctrl_c_interrupts_what_follows_the_first_signal() -> None:
    told: list[str] = []
    clock = ManualClock()

    with Interruption(clock.now) as interruption:
        interruption.at_first = lambda: told.append("stop")
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGHUP):
            signal.raise_signal(number)
            clock.advance(ms(2000))
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    assert told == ["stop"]
    assert interruption.number == signal.SIGHUP


def test_a_ctrl_c_that_a_wrapper_passes_on_is_the_one_that_was_heard_already() -> None:
    told: list[str] = []
    clock = ManualClock()

    with Interruption(clock.now) as interruption:
        interruption.at_first = lambda: told.append("stop")
        for _ in range(3):
            signal.raise_signal(signal.SIGINT)
            clock.advance(ms(300))

    assert told == ["stop"]


@pytest.mark.parametrize("number", ENDING)
def test_what_takes_little_time_is_finished_before_a_signal_ends_anything(
    number: signal.Signals,
) -> None:
    finished: list[str] = []

    with Interruption() as interruption:
        interruption.let_finish()
        signal.raise_signal(number)
        finished.append("the figures")
        with pytest.raises(KeyboardInterrupt) as raised:
            interruption.raise_if_any()

    assert finished == ["the figures"]
    assert raised.value.args == (number,)


def test_a_context_is_ended_by_a_signal_and_what_is_behind_it_goes_on() -> None:
    with Interruption() as interruption:
        with interruption.heard():
            signal.raise_signal(signal.SIGTERM)
            pytest.fail("the signal did not end it")

        assert interruption.number == signal.SIGTERM


def test_an_interrupt_that_no_signal_raised_is_not_kept() -> None:
    with pytest.raises(KeyboardInterrupt), Interruption() as interruption, interruption.heard():
        raise KeyboardInterrupt


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interruption() as interruption:
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)

    assert interruption.number is None


def test_a_terminal_that_was_closed_is_printed_to_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    monkeypatch.setattr("takt.cli.interruption._STANDARD_STREAMS", (theirs,))
    with Interruption() as interruption:
        interruption.at_first = lambda: None
        os.close(ours)
        with pytest.raises(OSError, match="Input/output error"):
            os.write(theirs, b"x")

        signal.raise_signal(signal.SIGHUP)

    assert os.write(theirs, b"x") == 1
    os.close(theirs)


def test_a_terminal_that_is_there_is_still_printed_to(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    monkeypatch.setattr("takt.cli.interruption._STANDARD_STREAMS", (theirs,))
    with Interruption() as interruption:
        interruption.at_first = lambda: None
        signal.raise_signal(signal.SIGHUP)
    os.write(theirs, b"x")

    assert os.read(ours, 10) == b"x"
    os.close(theirs)
    os.close(ours)
