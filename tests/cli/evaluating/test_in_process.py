from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest

from takt.cli.evaluating.in_process import InProcessPolicy
from takt.errors import ObservationError
from takt.policies.mini.replay import load_recordings


def seen(step: int) -> dict[str, object]:
    recording = load_recordings()[0]
    observation = recording.observation(step)
    return {
        "observation/image": observation.images["image"],
        "observation/state": observation.state,
        "prompt": observation.prompt,
    }


@pytest.fixture(scope="module")
def mini() -> Iterator[InProcessPolicy]:
    with closing(InProcessPolicy("mini", precision="f32", seed=0)) as policy:
        yield policy


@pytest.mark.slow
def test_mini_answers_openpis_keys_with_bounded_actions(mini: InProcessPolicy) -> None:
    chunk = mini.ask(seen(0))
    again = mini.ask(seen(0))
    with pytest.raises(ObservationError):
        mini.ask({"prompt": "open the drawer"})

    assert chunk.shape == (16, 4)
    assert np.abs(chunk).max() <= 1
    assert not np.array_equal(chunk, again)  # another request has other noise


@pytest.mark.slow
def test_the_same_seed_gives_the_same_actions(mini: InProcessPolicy) -> None:
    mini.begin("robot")
    chunks = [mini.ask(seen(5))]
    for seed in (0, 1):
        with closing(InProcessPolicy("mini", precision="f32", seed=seed)) as policy:
            policy.begin("robot")
            chunks.append(policy.ask(seen(5)))

    np.testing.assert_array_equal(chunks[0], chunks[1])
    assert not np.array_equal(chunks[0], chunks[2])


@pytest.mark.slow
def test_the_same_session_begun_again_gives_the_same_actions(mini: InProcessPolicy) -> None:
    chunks: dict[str, list[np.ndarray]] = {"a": [], "b": []}
    for session in ("a", "b", "a"):
        mini.begin(session)
        chunks[session] += (mini.ask(seen(5)), mini.ask(seen(5)))

    np.testing.assert_array_equal(chunks["a"][:2], chunks["a"][2:])
    assert not np.array_equal(chunks["a"][0], chunks["b"][0])


def test_a_policy_without_a_network_answers_too() -> None:
    with closing(InProcessPolicy("echo")) as policy:
        chunk = policy.ask({"observation/state": np.arange(3, dtype=np.float32)})

    np.testing.assert_array_equal(chunk[0], [0, 1, 2])
