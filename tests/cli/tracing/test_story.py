from collections.abc import Sequence

import pytest
from tests.cli.tracing.made import (
    DENOISE,
    PREFIX,
    SERVED_AND_SUPERSEDED,
    at,
    decide,
    ended,
    finish,
    launch,
    setup,
    submit,
)

from takt.cli.tracing.story import Story, Window, stories_of
from takt.core.events import Event, Moved, Switched
from takt.core.request import Phase, Stage
from takt.errors import UsageError
from takt.units import ms


def story_of(events: Sequence[Event], window: Window | None = None) -> Story:
    (story,) = stories_of([setup(), *events], window or Window(0, None))
    return story


def phases(story: Story, seq: int) -> list[tuple[Phase, int, int]]:
    (life,) = [life for life in story.lives if life.seq == seq]
    return [(span.phase, span.start, span.end) for span in life.spans]


def test_a_request_goes_from_phase_to_phase_without_a_gap() -> None:
    story = story_of(SERVED_AND_SUPERSEDED)

    assert phases(story, 3) == [
        (Phase.QUEUED, ms(6), ms(10)),
        (Phase.PREFIXING, ms(10), ms(20)),
        (Phase.READY, ms(20), ms(30)),
        (Phase.DENOISING, ms(30), ms(50)),
    ]


def test_what_took_no_time_is_no_span() -> None:
    story = story_of(SERVED_AND_SUPERSEDED)

    assert [phase for phase, _, _ in phases(story, 1)] == [Phase.PREFIXING, Phase.DENOISING]


def test_every_request_keeps_its_outcome() -> None:
    story = story_of(SERVED_AND_SUPERSEDED)

    outcomes = {life.seq: (life.phase, life.end) for life in story.lives}
    assert outcomes == {
        1: (Phase.SERVED, ms(30)),
        2: (Phase.SUPERSEDED, ms(6)),
        3: (Phase.SERVED, ms(50)),
    }


def test_every_launch_has_its_begin_and_its_end() -> None:
    story = story_of(SERVED_AND_SUPERSEDED)

    assert [(it.launch.lane, it.launch.requests, it.start, it.end) for it in story.launches] == [
        (PREFIX, (1,), 0, ms(10)),
        (PREFIX, (3,), ms(10), ms(20)),
        (DENOISE, (1,), ms(10), ms(30)),
        (DENOISE, (3,), ms(30), ms(50)),
    ]


def test_queue_lengths_change_once_an_instant_and_end_empty() -> None:
    story = story_of(SERVED_AND_SUPERSEDED)

    waiting = [(it.at, it.stage, it.requests) for it in story.waiting]
    assert waiting == [
        (ms(4), Stage.PREFIX, 1),
        (ms(10), Stage.PREFIX, 0),
        (ms(20), Stage.DENOISE, 1),
        (ms(30), Stage.DENOISE, 0),
    ]


def test_a_cache_that_moves_waits_once_it_has_arrived() -> None:
    story = story_of(
        [
            submit(1, 0),
            decide(0, launch(PREFIX, 1)),
            finish(10, PREFIX),
            Moved(at(10), 1, 0, 1, at(14)),
            decide(10),
            decide(20, launch(DENOISE, 1)),
        ]
    )

    assert phases(story, 1)[1:] == [
        (Phase.MOVING, ms(10), ms(14)),
        (Phase.READY, ms(14), ms(20)),
    ]
    assert (ms(14), Stage.DENOISE) in [(it.at, it.stage) for it in story.waiting]


def test_a_request_that_is_cancelled_while_its_row_runs_has_ended() -> None:
    story = story_of(
        [
            submit(1, 0),
            decide(0, launch(PREFIX, 1)),
            ended(5, 1, Phase.CANCELLED),
            finish(10, PREFIX),
        ]
    )

    assert phases(story, 1) == [(Phase.PREFIXING, 0, ms(5))]
    assert story.launches[0].end == ms(10)


def test_what_is_under_way_when_the_trace_ends_ends_with_it() -> None:
    story = story_of([submit(1, 0), decide(0, launch(PREFIX, 1)), submit(2, 7)])

    assert [(it.end, it.has_finished) for it in story.launches] == [(ms(7), False)]
    assert {(life.seq, life.phase) for life in story.lives} == {
        (1, Phase.PREFIXING),
        (2, Phase.QUEUED),
    }


def test_a_window_keeps_what_lies_in_it() -> None:
    story = story_of(SERVED_AND_SUPERSEDED, Window(ms(12), ms(45)))

    assert {life.seq for life in story.lives} == {1, 3}
    assert [it.start for it in story.launches] == [ms(10), ms(10), ms(30)]
    assert [it.at for it in story.waiting] == [ms(20), ms(30)]
    assert (story.launches[-1].end, story.launches[-1].has_finished) == (ms(45), False)
    assert story.shown_from == ms(12)


def test_setups_follow_each_other_on_one_time() -> None:
    later = [submit(1, 60), decide(60, launch(PREFIX, 1)), finish(70, PREFIX)]

    one, two = stories_of([setup(), *SERVED_AND_SUPERSEDED, setup("flowing"), *later])

    assert (one.start, one.end, two.start, two.end) == (0, ms(50), ms(60), ms(70))


def test_a_clock_that_began_anew_goes_on_where_the_last_one_ended() -> None:
    anew = [event._replace(at=event.at - at(0)) for event in [decide(0), decide(10)]]

    _, two = stories_of([setup(), *SERVED_AND_SUPERSEDED, setup(), *anew])

    assert (two.start, two.end) == (ms(50), ms(60))


def test_after_a_switch_a_story_of_its_own_goes_on_with_the_clock() -> None:
    flowing = setup("flowing")
    again = [submit(5, 310), decide(310, launch(PREFIX, 5)), finish(320, PREFIX)]

    one, two = stories_of(
        [setup(), *SERVED_AND_SUPERSEDED, Switched(at(300), flowing.to_json()), *again]
    )

    assert (one.setup.formation, two.setup.formation) == ("lockstep", "flowing")
    assert one.start is not None
    assert two.start is not None
    assert two.start > one.end


def test_a_setup_under_which_nothing_happened_is_no_story() -> None:
    assert len(stories_of([setup(), setup("flowing"), *SERVED_AND_SUPERSEDED])) == 1


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([finish(1, PREFIX)], "lane that is idle"),
        ([decide(1, launch(PREFIX, 9))], "no request 9"),
        ([ended(1, 9, Phase.SERVED)], "no request 9"),
        ([submit(1, 0), decide(0, launch(PREFIX, 1)), decide(1, launch(PREFIX))], "not idle"),
        ([decide(5), decide(4)], "an event before 5 ms"),
    ],
)
def test_events_that_do_not_fit_together_are_refused(events: list[Event], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        story_of([decide(0), *events])


def test_more_than_can_be_shown_at_once_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("takt.cli.tracing.story._MOST_PARTS", 5)

    with pytest.raises(UsageError, match="narrow it by --seconds"):
        story_of(SERVED_AND_SUPERSEDED)
