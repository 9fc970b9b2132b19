"""Some devices run prefixes, one denoises for all; caches cross one link."""

import pytest
from tests.core.driving import Driver, model_of, profile_of, request_of

from takt.core.events import Moved
from takt.core.formations.disaggregated import Disaggregated
from takt.core.profile import Profile
from takt.core.trace import Setup, replay, trace_lines
from takt.errors import ConfigError

MODEL = model_of("pi0", slo=1_000, prefix=(1,), denoise=(1, 2))


def driven(count: int) -> tuple[Setup, Driver]:
    plain = profile_of(MODEL).to_json()
    setup = Setup(
        models=(MODEL,),
        profile=Profile.from_json({**plain, "transfer": [["pi0", 0, 3]]}),
        formation="disaggregated",
        options={"prefix_devices": 2},
    )
    driver = Driver(setup)
    driver.run([request_of(seq) for seq in range(count)])
    return setup, driver


def test_prefixes_run_on_all_their_devices_and_denoise_launches_on_the_last() -> None:
    _, driver = driven(2)

    assert [(run.start, run.end, run.stage, run.requests) for run in driver.schedule] == [
        (0, 10, "prefix", (0,)),
        (0, 10, "prefix", (1,)),
        (13, 33, "denoise", (0,)),
        (33, 53, "denoise", (1,)),
    ]


def test_a_move_is_an_event_and_moves_to_one_device_take_turns() -> None:
    _, driver = driven(2)

    moves = [event for event in driver.events if isinstance(event, Moved)]

    assert [(move.seq, move.source, move.home, move.until) for move in moves] == [
        (0, 0, 2, 13),
        (1, 1, 2, 16),
    ]


def test_a_trace_with_moves_replays() -> None:
    setup, driver = driven(5)
    lines = list(trace_lines(setup, driver.events))

    assert list(replay(lines)) == lines


def test_without_a_device_for_prefixes_it_is_refused() -> None:
    with pytest.raises(ConfigError, match="prefix_devices must be at least 1, got 0"):
        Disaggregated(0)


def test_a_profile_without_transfer_times_is_refused_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match="no transfer time for pi0 layout 0"):
        Setup(models=(MODEL,), profile=profile_of(MODEL), formation="disaggregated").scheduler()
