from pathlib import Path

import pytest
from tests.client.episodes import write_episode

from takt.client.episode import moment, read_episode, summary
from takt.errors import UsageError


def test_a_summary_says_what_the_robot_did_and_how_long_everything_took(tmp_path: Path) -> None:
    rig = write_episode(tmp_path / "e.jsonl")

    figures = summary(read_episode(tmp_path / "e.jsonl"))

    assert figures["is_complete"]
    assert figures["head"]["robot"] == "arm-1"
    assert figures["settings"]["t_hold_ms"] == 500
    assert figures["executed"] == rig.motion.executed
    assert figures["commands"] == len(rig.executed)
    assert (figures["ticks"], figures["overruns"], figures["starved_ticks"]) == (200, 1, 25)
    assert figures["round_trip_ms"] == {"p50": 60, "p90": 60, "p99": 60, "max": 60}
    assert figures["parts_ms"]["network"]["p50"] == 30
    assert figures["parts_ms"]["server"]["p50"] == 30
    assert figures["splices"]["count"] == rig.motion.splices.count
    assert figures["failures"]["closed"] > 10
    assert figures["blended_commands"] > 0


def test_times_in_states_add_up_and_changes_carry_their_causes(tmp_path: Path) -> None:
    write_episode(tmp_path / "e.jsonl")

    figures = summary(read_episode(tmp_path / "e.jsonl"))

    assert sum(figures["states_ms"].values()) == pytest.approx(figures["duration_ms"])
    assert set(figures["states_ms"]) == {"idle", "active", "degraded", "hold"}
    causes = [(change["after"], change["cause"]) for change in figures["changes"]]
    assert causes[0] == ("active", "start")
    assert ("hold", "no_action") in causes
    assert causes[-1] == ("active", "resume")


def test_what_moved_the_robot_at_an_instant_is_found_with_its_chunk(tmp_path: Path) -> None:
    write_episode(tmp_path / "e.jsonl")
    episode = read_episode(tmp_path / "e.jsonl")

    found = moment(episode, 500.0)

    assert found["state"] == "active"
    assert found["command"]["event"] == "action"
    assert found["command"]["at_ms"] <= 500.0
    assert found["chunk"]["chunk"] == found["command"]["chunk"]
    assert moment(episode, 0.0) == {"at_ms": 0.0, "state": "idle", "command": None, "chunk": None}


def test_in_a_hold_no_chunk_moved_the_robot(tmp_path: Path) -> None:
    write_episode(tmp_path / "e.jsonl")
    episode = read_episode(tmp_path / "e.jsonl")
    (held,) = [change for change in episode.of("state") if change["after"] == "hold"]

    found = moment(episode, held["at_ms"])

    assert (found["state"], found["command"]["event"], found["chunk"]) == ("hold", "hold", None)


def test_a_log_of_a_loop_that_was_killed_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    write_episode(path, closes=False)
    text = path.read_text()
    path.write_text(text[:-20] + '\n{"event": "action", "at_ms": 1}\nnull\n')

    episode = read_episode(path)

    assert episode.damaged_lines == 3
    assert not episode.is_complete
    assert summary(episode)["ticks"] is None


def test_dropped_records_make_a_log_incomplete(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    write_episode(path)
    path.write_text(path.read_text() + '{"event": "dropped", "at_ms": 1.0, "records": 4}\n')

    figures = summary(read_episode(path))

    assert (figures["dropped_records"], figures["is_complete"]) == (4, False)


def test_a_log_without_a_single_action_has_a_summary(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    path.write_text('{"event": "episode", "at_ms": 0, "format": 1}\n')

    figures = summary(read_episode(path))

    assert (figures["executed"], figures["round_trip_ms"], figures["states_ms"]) == (
        0,
        None,
        {"idle": 0.0},
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no episode log"),
        ("PK\x03\x04", "no episode log"),
        ('{"event": "action", "at_ms": 0}\n', "no episode log"),
        ('{"event": "episode", "at_ms": 0, "format": 99}\n', "expected format 1, got 99"),
    ],
)
def test_what_is_no_episode_log_is_refused_by_name(
    tmp_path: Path, text: str, complaint: str
) -> None:
    (tmp_path / "e.jsonl").write_text(text)

    with pytest.raises(UsageError, match=f"e.jsonl: {complaint}"):
        read_episode(tmp_path / "e.jsonl")


def test_a_missing_log_and_a_folder_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such episode log"):
        read_episode(tmp_path / "none.jsonl")
    with pytest.raises(UsageError, match="cannot be read"):
        read_episode(tmp_path)
