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


@pytest.mark.slow
def test_mini_answers_openpis_keys_with_bounded_actions() -> None:
    with closing(InProcessPolicy("mini", precision="f32")) as policy:
        chunk = policy.ask(seen(0))
        again = policy.ask(seen(0))
        with pytest.raises(ObservationError):
            policy.ask({"prompt": "open the drawer"})

    assert chunk.shape == (16, 4)
    assert np.abs(chunk).max() <= 1
    assert not np.array_equal(chunk, again)  # another request has other noise


@pytest.mark.slow
def test_the_same_seed_gives_the_same_actions() -> None:
    chunks = []
    for seed in (0, 0, 1):
        with closing(InProcessPolicy("mini", precision="f32", seed=seed)) as policy:
            chunks.append(policy.ask(seen(5)))

    np.testing.assert_array_equal(chunks[0], chunks[1])
    assert not np.array_equal(chunks[0], chunks[2])


@pytest.mark.slow
def test_the_same_session_begun_again_gives_the_same_actions() -> None:
    chunks: dict[str, list[np.ndarray]] = {"a": [], "b": []}
    with closing(InProcessPolicy("mini", precision="f32")) as policy:
        for session in ("a", "b", "a"):
            policy.begin(session)
            chunks[session] += (policy.ask(seen(5)), policy.ask(seen(5)))

    np.testing.assert_array_equal(chunks["a"][:2], chunks["a"][2:])
    assert not np.array_equal(chunks["a"][0], chunks["b"][0])


def test_a_policy_without_a_network_answers_too() -> None:
    with closing(InProcessPolicy("echo")) as policy:
        chunk = policy.ask({"observation/state": np.arange(3, dtype=np.float32)})

    np.testing.assert_array_equal(chunk[0], [0, 1, 2])
