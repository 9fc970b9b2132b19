"""A recorded run replays byte for byte, and a record that was tampered with does not."""

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.driving import DENOISE, PREFIX, Driver, model_of, profile_of, request_of
from tests.core.formations.dozen import OX, PI, dozen, profile

from takt.core.events import Cancel, Decide, Ended, Event, Finish, Submit, Switched
from takt.core.launch import Launch
from takt.core.request import Phase
from takt.core.scheduler import Lateness
from takt.core.trace import Setup, event_line, replay, trace_lines
from takt.errors import ConfigError, InvariantError, TaktError, UsageError

Fields = dict[str, object]


def setup_of(formation: str = "lockstep", discipline: str = "earliest_deadline") -> Setup:
    return Setup(models=(PI, OX), profile=profile(), formation=formation, discipline=discipline)


def recorded(failures: dict[int, int] | None = None) -> list[str]:
    """The trace of the dozen requests in lockstep."""
    driver = Driver(setup_of())
    driver.run(dozen(), failures)
    return list(trace_lines(setup_of(), driver.events))


def replays(lines: list[str]) -> bool:
    try:
        return list(replay(lines)) == lines
    except TaktError:
        return False


def fields_of(line: str) -> Fields:
    return json.loads(line)


def starts_something(line: str) -> bool:
    return bool(fields_of(line).get("launches"))


def is_outcome(line: str) -> bool:
    return fields_of(line).get("event") == "ended"


# Replay


@given(
    formation=st.sampled_from(["lockstep", "monolithic"]),
    discipline=st.sampled_from(["earliest_deadline", "round_robin", "longest_queue"]),
    rows=st.lists(
        st.tuples(
            st.sampled_from(["pi", "ox"]),
            st.integers(0, 200),  # arrival
            st.integers(-50, 150),  # time until due
            st.integers(0, 250),  # time until it expires
            st.integers(0, 4),  # session
        ),
        max_size=25,
    ),
    failures=st.dictionaries(st.integers(0, 300), st.integers(0, 24), max_size=20),
)
def test_a_random_run_replays_byte_for_byte(
    formation: str,
    discipline: str,
    rows: list[tuple[str, int, int, int, int]],
    failures: dict[int, int],
) -> None:
    setup = setup_of(formation, discipline)
    driver = Driver(setup)
    rows.sort(key=lambda row: row[1])
    driver.run(
        [
            request_of(
                seq, model, at=at, due=at + due, expires=at + life, session=f"session {session}"
            )
            for seq, (model, at, due, life, session) in enumerate(rows)
        ],
        failures,
    )
    lines = list(trace_lines(setup, driver.events))

    assert list(replay(lines)) == lines


def test_a_run_with_a_failed_and_an_expired_row_replays() -> None:
    lines = recorded({144: 10})

    phases = [fields_of(line)["phase"] for line in lines if is_outcome(line)]
    assert (phases.count("failed"), phases.count("expired")) == (1, 1)
    assert replays(lines)


def test_a_trace_without_any_outcome_shows_in_its_replay() -> None:
    lines = recorded()
    outcomes = [number for number, line in enumerate(lines) if is_outcome(line)]

    assert len(outcomes) == 12
    for number in outcomes:
        assert not replays(lines[:number] + lines[number + 1 :])


def test_a_trace_without_any_decision_that_started_something_shows_in_its_replay() -> None:
    lines = recorded()
    decisions = [number for number, line in enumerate(lines) if starts_something(line)]

    assert len(decisions) == 10
    for number in decisions:
        assert not replays(lines[:number] + lines[number + 1 :])


def test_an_event_moved_behind_the_decision_of_its_instant_shows_in_the_replay() -> None:
    lines = recorded()
    submit, decide = lines[3], lines[4]
    assert (fields_of(submit)["event"], fields_of(decide)["event"]) == ("submit", "decide")
    assert fields_of(submit)["at"] == fields_of(decide)["at"]

    assert not replays([*lines[:3], decide, submit, *lines[5:]])


def test_an_end_moved_behind_the_decision_it_brought_about_shows_in_the_replay() -> None:
    lines = recorded()
    ends = [number for number, line in enumerate(lines) if fields_of(line).get("event") == "finish"]

    num_moved = 0
    for number in ends:
        decide = next(place for place in range(number, len(lines)) if "decide" in lines[place])
        if starts_something(lines[decide]):
            between = lines[number + 1 : decide + 1]
            num_moved += 1
            assert not replays(lines[:number] + between + [lines[number]] + lines[decide + 1 :])
    assert num_moved > 5


@pytest.mark.parametrize(
    ("is_chosen", "change"),
    [
        (is_outcome, lambda fields: fields | {"phase": "cancelled"}),
        (is_outcome, lambda fields: fields | {"at": fields["at"] + 1}),
        (starts_something, lambda fields: fields | {"wake_at": 1}),
        (starts_something, lambda fields: fields | {"launches": []}),
        (lambda line: '"model":"ox"' in line, lambda fields: fields | {"model": "pi"}),
        (lambda line: '"seq":4,' in line, lambda fields: fields | {"due": 999}),
        (lambda line: '"finish"' in line, lambda fields: fields | {"failed": [2]}),
        (lambda line: '"finish"' in line, lambda fields: fields | {"at": 7}),
    ],
)
def test_an_altered_event_shows_in_the_replay(
    is_chosen: Callable[[str], bool], change: Callable[[Fields], Fields]
) -> None:
    lines = recorded()
    number = next(place for place, line in enumerate(lines) if place and is_chosen(line))
    altered = json.dumps(change(fields_of(lines[number])), separators=(",", ":"))
    assert altered != lines[number]

    assert not replays([*lines[:number], altered, *lines[number + 1 :]])


# Lines


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (
            Submit(5, 7, "pi0", "arm", 3, 90, 80, 200, 1, supersede=False),
            '{"event":"submit","at":5,"seq":7,"model":"pi0","session":"arm","arrival":3,"due":90,'
            '"promise":80,"expires":200,"layout":1,"supersede":false,"priority":0}',
        ),
        (Cancel(5, 7), '{"event":"cancel","at":5,"seq":7}'),
        (Finish(5, DENOISE, (7,)), '{"event":"finish","at":5,"lane":[0,1],"failed":[7]}'),
        (
            Decide(5, (Launch(PREFIX, "pi0", (7, 8), 2, 0, 66),), None),
            '{"event":"decide","at":5,"launches":[[[0,0],"pi0",[7,8],2,0,66]],"wake_at":null}',
        ),
        (Ended(5, 7, Phase.SERVED), '{"event":"ended","at":5,"seq":7,"phase":"served"}'),
    ],
)
def test_an_event_is_one_line_of_json(event: Event, line: str) -> None:
    assert event_line(event) == line


def test_a_trace_begins_with_its_version_and_setup() -> None:
    header = fields_of(recorded()[0])

    assert list(header) == ["takt_trace", "setup"]
    assert header["takt_trace"] == 1


# Setups


@pytest.mark.parametrize("lateness", list(Lateness))
def test_a_setup_survives_the_way_through_json(lateness: Lateness) -> None:
    models = model_of("a", holds=(0b11, 0b10)), model_of("b", denoise=())
    setup = Setup(
        models=models,
        profile=profile_of(*models),
        formation="monolithic",
        discipline="round_robin",
        lateness=lateness,
    )

    read = Setup.from_json(json.loads(json.dumps(setup.to_json())))

    assert read.models == models
    assert (read.formation, read.discipline) == ("monolithic", "round_robin")
    assert read.lateness is lateness
    assert read.to_json() == setup.to_json()


def test_an_unknown_formation_or_discipline_is_refused_with_those_that_exist() -> None:
    with pytest.raises(ConfigError, match=r"no formation 'waltz'; known: .*lockstep, monolithic"):
        setup_of(formation="waltz")
    with pytest.raises(ConfigError, match="no discipline 'lifo'; known: earliest_deadline, "):
        setup_of(discipline="lifo")


def test_an_option_that_a_formation_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"formation 'lockstep': .*tempo"):
        Setup(models=(PI,), profile=profile(), options={"tempo": 3})


# Refusals


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "line 1 of the trace is not JSON"),
        ("[]", "line 1 of the trace is not an object"),
        ("{}", "line 1: expected the setup of a trace of version 1"),
        ('{"takt_trace":2}', "line 1: expected the setup of a trace of version 1"),
    ],
)
def test_what_does_not_begin_like_a_trace_is_refused(line: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        list(replay([line]))


def test_an_empty_file_is_no_trace() -> None:
    with pytest.raises(UsageError, match="line 1 of the trace is not JSON"):
        list(replay([]))


@pytest.mark.parametrize("missing", ["models", "profile", "formation", "options", "lateness"])
def test_a_setup_that_lacks_something_is_refused(missing: str) -> None:
    data = setup_of().to_json()
    del data[missing]

    with pytest.raises(ConfigError, match=f"not a setup: KeyError\\('{missing}'\\)"):
        Setup.from_json(data)


@pytest.mark.parametrize(
    "line",
    [
        '{"at":0}',
        '{"event":"cancel","seq":3}',
        '{"event":"dance","at":0}',
        '{"event":"submit","at":0,"seq":0}',
        '{"event":"cancel","at":0}',
        '{"event":"cancel","at":"soon","seq":0}',
        '{"event":"finish","at":0,"lane":[0,9],"failed":[]}',
        '{"event":"finish","at":0,"lane":[0],"failed":[]}',
    ],
)
def test_a_line_that_is_no_event_is_refused_by_its_number(line: str) -> None:
    first, second, *_ = recorded()

    with pytest.raises(UsageError, match="line 3 of the trace is not an event"):
        list(replay([first, second, line]))


def test_errors_count_the_lines_of_the_file_that_a_trace_is_part_of() -> None:
    setup, *_ = recorded()

    with pytest.raises(
        UsageError, match=r"^line 42 of the trace is not an event: no event 'foo'; kn"
    ):
        list(replay([setup, '{"event":"foo"}'], first=41))
    with pytest.raises(UsageError, match=r"^line 41: expected the setup"):
        list(replay(["{}"], first=41))
    with pytest.raises(ConfigError, match=r"^line 41: not a setup"):
        list(replay(['{"takt_trace":1}'], first=41))


def test_a_call_that_the_scheduler_refuses_is_named_by_its_line() -> None:
    setup, *_ = recorded()
    finish = '{"event":"finish","at":1,"lane":[0,0],"failed":[]}'

    with pytest.raises(InvariantError, match=r"^line 2 of the trace: a launch ended on"):
        list(replay([setup, finish]))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"event":"cancel","seq":3}', "expected a key 'at'"),
        ('{"event":"cancel","at":0}', "expected a key 'seq'"),
        ('{"event":"cancel","at":"soon","seq":0}', "at: expected whole nanoseconds, got 'soon'"),
        (
            '{"event":"dance","at":0}',
            "known: submit, cancel, finish, decide, moved, switched, ended",
        ),
    ],
)
def test_what_was_expected_of_an_event_is_said(line: str, why: str) -> None:
    setup, *_ = recorded()

    with pytest.raises(UsageError, match=why):
        list(replay([setup, line]))


# Switches


def switched_run() -> list[str]:
    """Two requests in lockstep; the device is idle and switched; two more in monolithic order."""
    first, second = setup_of(), setup_of("monolithic")
    driver = Driver(first)
    driver.run([request_of(0, "pi"), request_of(1, "pi")], None)
    events = [*driver.events]
    now = events[-1].at + 5
    driver.scheduler = second.successor(driver.scheduler, now)
    driver.events.clear()
    driver.run([request_of(2, "pi", at=now + 1), request_of(3, "pi", at=now + 3)], None)
    return list(trace_lines(first, [*events, *driver.events]))


def test_a_run_with_a_switch_replays_and_goes_on_in_the_new_setup() -> None:
    lines = switched_run()
    [switched] = [fields_of(line) for line in lines if '"switched"' in line]

    assert Setup.from_json(switched["setup"]).formation == "monolithic"  # type: ignore[arg-type]
    assert [fields_of(line)["phase"] for line in lines if is_outcome(line)] == ["served"] * 4
    assert replays(lines)


def test_a_switch_that_is_missing_moved_or_changed_shows_in_the_replay() -> None:
    lines = switched_run()
    [place] = [number for number, line in enumerate(lines) if '"switched"' in line]
    without = lines[:place] + lines[place + 1 :]
    other = lines[place].replace('"monolithic"', '"flowing"')

    assert not replays(without)
    assert not replays([*without[: place - 1], lines[place], *without[place - 1 :]])
    assert not replays([*without[: place + 2], lines[place], *without[place + 2 :]])
    assert not replays([*lines[:place], other, *lines[place + 1 :]])


def test_requests_and_time_go_on_where_the_older_scheduler_ended() -> None:
    older = setup_of().scheduler()
    older.submit(request_of(7, "pi", at=10, expires=20), 10)
    older.decide(10)
    older.cancel(7, 12)
    with pytest.raises(InvariantError, match="nothing under way"):  # its row is still computed
        setup_of("flowing").successor(older, 12)
    older.finish(PREFIX, 15)

    scheduler = setup_of("flowing").successor(older, 20)

    assert isinstance(scheduler.take_events()[-1], Switched)
    with pytest.raises(UsageError, match="request numbers must rise"):
        scheduler.submit(request_of(7, "pi", at=20), 20)
    with pytest.raises(InvariantError, match="time went back"):
        scheduler.decide(19)
    with pytest.raises(InvariantError, match="only first"):
        scheduler.take_over(older, Switched(21, {}))
