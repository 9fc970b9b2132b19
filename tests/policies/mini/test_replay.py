from pathlib import Path

import numpy as np
import pytest

from takt.errors import ConfigError, UsageError
from takt.policies.catalog import open_policy
from takt.policies.mini.checkpoint import SHIPPED, read_card
from takt.policies.mini.replay import CAMERA, SHIPPED_RECORDINGS, load_recordings
from takt.policies.mini.words import UNKNOWN
from takt.schema.check import check_observation


def test_the_recordings_are_small_and_of_several_tasks() -> None:
    recordings = load_recordings()

    assert SHIPPED_RECORDINGS.stat().st_size <= 2_000_000
    assert len({recording.task for recording in recordings}) >= 4
    assert len({recording.instruction for recording in recordings}) == len(recordings)


def test_every_recorded_step_is_an_observation_the_mini_policy_takes() -> None:
    spec = open_policy("mini").spec.observation

    for recording in load_recordings():
        for step in range(len(recording)):
            observation = recording.observation(step)
            check_observation(observation, spec)
            assert observation.images[CAMERA].shape == (112, 112, 3)
            assert observation.images[CAMERA].mean() > 10  # not black


def test_every_recorded_instruction_is_known_word_by_word() -> None:
    tokenizer = read_card(SHIPPED).tokenizer()

    for recording in load_recordings():
        assert UNKNOWN not in tokenizer.encode(recording.instruction)


def test_a_recording_starts_again_past_its_end() -> None:
    recording = load_recordings()[0]
    again = recording.observation(len(recording) + 1)

    np.testing.assert_array_equal(again.images[CAMERA], recording.observation(1).images[CAMERA])
    assert again.state is not None
    np.testing.assert_array_equal(again.state, recording.states[1])
    with pytest.raises(UsageError):
        recording.observation(-1)


@pytest.mark.parametrize("data", [None, b"", b"PK\x03\x04 not a zip", b"\x93NUMPY"])
def test_a_file_that_is_no_recording_is_refused(tmp_path: Path, data: bytes | None) -> None:
    file = tmp_path / "replay.npz"
    if data is not None:
        file.write_bytes(data)

    with pytest.raises(ConfigError, match="not a recording"):
        load_recordings(file)
