import errno
import json
import logging
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from takt.client.episode_log import FORMAT, EpisodeLog
from takt.errors import ConfigError
from takt.testing import ManualClock
from takt.units import ms


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_file_begins_with_its_format_and_what_it_is_about(tmp_path: Path) -> None:
    with EpisodeLog(tmp_path / "e.jsonl", head={"robot": "arm-1"}) as log:
        pass

    (head,) = lines_of(tmp_path / "e.jsonl")
    assert log.dropped == 0
    assert (head["event"], head["format"], head["robot"]) == ("episode", FORMAT, "arm-1")
    assert head["started"].endswith("+00:00")


def test_records_stand_in_the_order_they_came_with_the_time_since_the_log_was_opened(
    tmp_path: Path,
) -> None:
    clock = ManualClock(ms(1000))
    with EpisodeLog(tmp_path / "e.jsonl", clock=clock.now) as log:
        clock.advance(ms(20))
        log.note("action", {"timestep": 1})
        log.note("action", {"timestep": 2}, at=ms(1030.5))

    assert lines_of(tmp_path / "e.jsonl")[1:] == [
        {"event": "action", "at_ms": 20.0, "timestep": 1},
        {"event": "action", "at_ms": 30.5, "timestep": 2},
    ]


def test_arrays_and_numbers_of_numpy_are_written_as_lists_and_numbers(tmp_path: Path) -> None:
    with EpisodeLog(tmp_path / "e.jsonl") as log:
        log.note("action", {"values": np.arange(2, dtype=np.float32), "step": np.int64(3)})

    assert lines_of(tmp_path / "e.jsonl")[1]["values"] == [0.0, 1.0]
    assert lines_of(tmp_path / "e.jsonl")[1]["step"] == 3


def test_what_a_slow_disk_cannot_take_is_dropped_and_the_file_says_how_much(
    tmp_path: Path,
) -> None:
    pipe = tmp_path / "slow"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # nobody reads until the end
    log = EpisodeLog(pipe, capacity=2)
    for timestep in range(50):
        log.note("action", {"timestep": timestep, "padding": "x" * 100_000})

    os.set_blocking(reader, True)
    with os.fdopen(reader, encoding="utf-8") as file:
        closing = threading.Thread(target=log.close)
        closing.start()
        lines = [json.loads(line) for line in file]
    closing.join()

    kept = [line["timestep"] for line in lines if line["event"] == "action"]
    dropped = sum(line["records"] for line in lines if line["event"] == "dropped")
    assert kept == sorted(kept)
    assert dropped == log.dropped > 0
    assert len(kept) + dropped == 50


def test_a_record_that_json_cannot_say_is_left_out_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), EpisodeLog(tmp_path / "e.jsonl") as log:
        log.note("action", {"values": float("nan")})
        log.note("action", {"values": object()})
        log.note("action", {"values": 1.0})

    lines = lines_of(tmp_path / "e.jsonl")
    assert [line["values"] for line in lines if line["event"] == "action"] == [1.0]
    assert sum(line["records"] for line in lines if line["event"] == "dropped") == 2
    assert log.dropped == 2
    assert "episode record left out" in caplog.text


def test_a_full_disk_is_counted_and_the_loop_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    device = Path("/dev/full")
    if not device.exists():
        pytest.skip("this system has no /dev/full")

    with caplog.at_level(logging.ERROR), EpisodeLog(device) as log:
        log.note("action", {"timestep": 1})

    assert log.dropped >= 1
    assert "episode log is incomplete" in caplog.text


def test_an_outage_of_the_disk_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = threading.Semaphore(0)

    def full(file: object, data: bytes) -> None:
        del file, data
        tried.release()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("takt.client.episode_log._write_all", full)
    with caplog.at_level(logging.ERROR), EpisodeLog(tmp_path / "run.jsonl") as log:
        for number in range(3):
            log.note("action", {"timestep": number})
            assert tried.acquire(timeout=20)

    assert caplog.text.count("episode log is incomplete") == 1


def test_a_record_after_the_end_is_counted_and_not_an_error(tmp_path: Path) -> None:
    log = EpisodeLog(tmp_path / "e.jsonl")
    log.close()

    log.note("action", {})
    log.close()

    assert log.dropped == 1


def test_a_file_that_cannot_be_opened_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"e\.jsonl"):
        EpisodeLog(tmp_path / "missing" / "e.jsonl")


def test_a_queue_holds_at_least_one_record(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="capacity"):
        EpisodeLog(tmp_path / "e.jsonl", capacity=0)
