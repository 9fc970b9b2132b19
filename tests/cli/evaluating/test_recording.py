import json
from pathlib import Path

import cv2
import numpy as np
import pytest
from tests.full_disk import FULL, full_disk

from takt.cli.evaluating.recording import PICTURES, Recorder
from takt.client.rollout import EpisodeResult, Moment
from takt.errors import ConfigError


def play(recorder: Recorder, index: int, *, is_solved: bool, chunks: int = 12) -> None:
    for chunk in range(chunks):
        observation = {
            "observation/image": np.full((16, 16, 3), 10 * chunk, np.uint8),
            "observation/state": np.array([0.1, 0.2, 0.3, 1.0], np.float32),
            "prompt": "open the drawer",
        }
        for step in (2 * chunk, 2 * chunk + 1):
            action = np.array([0.5, 0.0, -1.0, 1.0])
            recorder.look(Moment(index=index, step=step, observation=observation, action=action))
    recorder.finished(
        EpisodeResult(index=index, is_solved=is_solved, steps=2 * chunks, chunks=chunks)
    )


def test_a_trace_has_a_line_per_action_and_one_per_episode(tmp_path: Path) -> None:
    with Recorder(trace=tmp_path / "trace.jsonl", strip=None) as recorder:
        play(recorder, 0, is_solved=True, chunks=2)

    lines = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    assert [line.get("step") for line in lines] == [0, 1, 2, 3, None]
    assert lines[0]["state_at_chunk"] == [0.1, 0.2, 0.3, 1.0]
    assert lines[0]["action"] == [0.5, 0.0, -1.0, 1.0]
    assert lines[0]["told"] == "open the drawer"
    assert lines[-1] == {"episode": 0, "solved": True}


def test_a_strip_shows_the_first_solved_episode_alone(tmp_path: Path) -> None:
    path = tmp_path / "strip.png"
    with Recorder(trace=None, strip=path) as recorder:
        play(recorder, 0, is_solved=False)
        assert not path.exists()
        play(recorder, 1, is_solved=True)
        written = path.read_bytes()
        play(recorder, 2, is_solved=True, chunks=3)

    strip = cv2.imread(str(path))
    assert strip is not None
    assert strip.shape == (32, 32 * PICTURES + 4 * (PICTURES - 1), 3)
    assert strip[0, 0, 0] < strip[0, -1, 0]
    assert path.read_bytes() == written


def test_a_file_that_cannot_be_written_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="missing"):
        Recorder(trace=tmp_path / "missing" / "trace.jsonl", strip=None)
    for name in ("strip.unknown", "strip"):
        with pytest.raises(
            ConfigError, match=rf"{name}: expected a name that ends in .jpg or .png"
        ):
            Recorder(trace=tmp_path / "trace.jsonl", strip=tmp_path / name)
    assert not [*tmp_path.iterdir()]


def test_a_full_disk_ends_the_trace_and_no_episode(caplog: pytest.LogCaptureFixture) -> None:
    with Recorder(trace=Path("/dev/full"), strip=None) as recorder:
        play(recorder, 0, is_solved=True)
        play(recorder, 1, is_solved=True)

    assert [record.getMessage() for record in caplog.records] == [
        "trace is incomplete: file=full reason=No space left on device"
    ]


def test_a_disk_that_fills_up_leaves_the_lines_that_it_took(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "trace.jsonl"
    with full_disk(500), Recorder(trace=path, strip=None) as recorder:
        play(recorder, 0, is_solved=True)
    *lines, cut = path.read_text().split("\n")

    assert [json.loads(line)["step"] for line in lines] == [0, 1, 2]
    assert cut
    assert len(caplog.records) == 1


def test_a_full_disk_costs_the_strip_and_no_episode(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "strip.png"
    path.write_bytes(b"the last good one")
    with full_disk(), Recorder(trace=None, strip=path) as recorder:
        play(recorder, 0, is_solved=True)

    assert path.read_bytes() == b"the last good one"
    assert [record.getMessage() for record in caplog.records] == [
        f"the strip was not written: file=strip.png reason={FULL}"
    ]


def test_a_strip_without_pictures_costs_no_episode(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Recorder(trace=None, strip=tmp_path / "strip.png") as recorder:
        play(recorder, 0, is_solved=True, chunks=0)

    assert "reason=nothing was seen" in caplog.text
