import dataclasses
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.full_disk import FULL, full_disk

from takt.doors.lerobot_records import SessionRecords, check_size
from takt.errors import ConfigError, LimitError
from takt.session.features import ImageFeature, RobotFeatures
from takt.session.resuming import SessionRecord
from takt.units import SECOND

RECORD = SessionRecord(
    address="10.0.0.7",
    model="fold",
    features=RobotFeatures(
        state_dim=1,
        state_names=("a.pos",),
        images=(ImageFeature(name="front", height=48, width=64, channels=3),),
        rename=(("observation.images.front", "observation.images.top"),),
    ),
    actions_per_chunk=50,
    spelling="lerobot.async_inference.helpers",
)


def test_only_sessions_that_have_ended_are_candidates() -> None:
    records = SessionRecords(None, 0)
    kept, ended = records.open(RECORD), records.open(RECORD)
    records.end(ended, 0)

    assert [*records.candidates(0)] == [ended]
    records.use(ended)
    records.end(kept, 0)
    assert [*records.candidates(0)] == [kept]


def test_a_session_is_forgotten_after_a_while() -> None:
    records = SessionRecords(None, 0)
    records.end(records.open(RECORD), 0)

    assert len(records.candidates(600 * SECOND)) == 1
    assert not records.candidates(601 * SECOND)
    assert len(records) == 0


def test_a_restarted_server_finds_what_was_in_use(tmp_path: Path) -> None:
    records = SessionRecords(tmp_path / "state", 0)
    key = records.open(RECORD)
    records.reached(key, 70)
    records.reached(key, 60)
    records.save()

    found = SessionRecords(tmp_path / "state", 5 * SECOND).candidates(605 * SECOND)

    assert [record.last_timestep for record in found.values()] == [70]
    assert found[key].features == RECORD.features
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["lerobot-sessions.json"]


def test_what_is_over_for_good_is_not_found(tmp_path: Path) -> None:
    records = SessionRecords(tmp_path, 0)
    records.forget(records.open(RECORD))
    records.save()

    assert not SessionRecords(tmp_path, 0).candidates(0)


def test_nothing_is_written_when_nothing_has_changed(tmp_path: Path) -> None:
    records = SessionRecords(tmp_path, 0)
    key = records.open(RECORD)
    records.save()
    (tmp_path / "lerobot-sessions.json").unlink()

    records.reached(key, 0)
    records.save()

    assert not [*tmp_path.iterdir()]


def test_a_file_that_cannot_be_written_stops_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    records = SessionRecords(tmp_path / "state", 0)
    records.open(RECORD)
    (tmp_path / "state").rmdir()

    records.save()

    assert "sessions not saved" in caplog.text


def test_a_full_disk_leaves_the_sessions_that_were_saved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    records = SessionRecords(tmp_path, 0)
    records.open(RECORD)
    records.save()

    records.open(RECORD)
    with full_disk():
        records.save()

    assert f"sessions not saved: reason={FULL}" in caplog.text
    assert len(SessionRecords(tmp_path, 0)) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["lerobot-sessions.json"]


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"k": {"address": 1}}', b"\xff"])
def test_a_file_of_something_else_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "lerobot-sessions.json").write_bytes(content)

    with pytest.raises(ConfigError, match="holds no sessions"):
        SessionRecords(tmp_path, 0)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"actions_per_chunk": 0}, "expected actions_per_chunk of 1 or more, got 0"),
        ({"spelling": "other.helpers"}, "expected spelling .*, got 'other.helpers'"),
    ],
)
def test_a_session_that_no_handshake_begins_is_refused(
    tmp_path: Path, change: dict[str, Any], fault: str
) -> None:
    records = SessionRecords(tmp_path, 0)
    records.open(dataclasses.replace(RECORD, **change))
    records.save()

    with pytest.raises(ConfigError, match=f"holds no sessions .*: {fault}"):
        SessionRecords(tmp_path, 0)


def test_a_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")

    with pytest.raises(ConfigError, match="--state-dir"):
        SessionRecords(tmp_path / "state", 0)


def test_the_oldest_ended_session_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("takt.doors.lerobot_records._MAX_RECORDS", 2)
    records = SessionRecords(None, 0)
    first, second = records.open(RECORD), records.open(RECORD)
    records.end(second, 0)
    records.end(first, 0)

    third = records.open(RECORD)
    records.end(third, 0)

    assert [*records.candidates(0)] == [first, third]


def test_two_threads_that_save_at_once_never_leave_a_mixture(tmp_path: Path) -> None:
    records = SessionRecords(tmp_path, 0)
    records.open(RECORD)
    short = records.content()
    for _ in range(500):
        records.open(RECORD)
    long = records.content()

    def save(content: bytes) -> None:
        for _ in range(20):
            records.write(content)

    threads = [threading.Thread(target=save, args=(content,)) for content in (short, long)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (tmp_path / "lerobot-sessions.json").read_bytes() in {short, long}


def test_two_threads_that_save_at_once_both_succeed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    records = SessionRecords(tmp_path, 0)
    content = records.content()
    threads = [
        threading.Thread(target=lambda: [records.write(content) for _ in range(50)])
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert "sessions not saved" not in caplog.text


def test_names_that_would_fill_the_file_are_refused_before_they_are_kept() -> None:
    many = RobotFeatures(state_dim=1, state_names=("j" * 17_000,))
    usual = RobotFeatures(state_dim=100, state_names=tuple(f"left_arm_{n}.pos" for n in range(100)))

    check_size(dataclasses.replace(RECORD, features=usual))
    with pytest.raises(LimitError, match="lerobot_features: expected names of at most 16384 bytes"):
        check_size(dataclasses.replace(RECORD, features=many))
