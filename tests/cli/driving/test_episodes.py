import numpy as np
import pytest

from takt.cli.driving.episodes import LIBERO, Episode, Observing, episodes_of
from takt.policies.catalog import open_policy
from takt.policies.echo import EchoOptions, echo_spec
from takt.policies.mini.replay import load_recordings
from takt.schema.check import check_observation
from takt.schema.observation import Observation
from takt.schema.spec import CameraSpec, ObservationSpec

ECHO = Observing.of(echo_spec("echo", EchoOptions()))


def test_the_mini_policy_gets_what_it_takes() -> None:
    spec = open_policy("mini").spec
    (episode,) = episodes_of([Observing.of(spec)])

    sent = episode.observation(3)

    assert set(sent) == {"observation/image", "observation/state", "prompt"}
    check_observation(
        Observation(
            state=sent["observation/state"],
            images={"image": sent["observation/image"]},
            prompt=sent["prompt"],
        ),
        spec.observation,
    )


def test_a_server_that_describes_nothing_gets_openpis_libero_example() -> None:
    (episode,) = episodes_of([Observing.of(None)])

    sent = episode.observation(0)

    assert sent["observation/image"].shape == sent["observation/wrist_image"].shape == (224, 224, 3)
    assert sent["observation/image"].dtype == np.uint8
    assert sent["observation/state"].shape == (LIBERO.state_dim,)
    assert isinstance(sent["prompt"], str)


def test_a_policy_that_reads_several_instants_gets_several() -> None:
    spec = ObservationSpec(
        cameras=(CameraSpec(name="top", height=48, width=64),), state_dim=3, history=2
    )
    (episode,) = episodes_of([Observing(spec=spec)])

    sent = episode.observation(0)

    assert sent["observation/top"].shape == (2, 48, 64, 3)
    assert sent["observation/state"].shape == (2, 3)


def test_no_two_observations_of_echo_are_alike() -> None:
    episodes = episodes_of([ECHO] * 30)

    origins = {
        episode.observation(number)["observation/state"].tobytes()
        for episode in episodes
        for number in range(100)
    }

    assert len(origins) == 30 * 100


def test_an_episode_moves_and_begins_again() -> None:
    recording = load_recordings()[0]
    episode = Episode(recording, 0, Observing.of(None))

    first, second, again = (
        episode.observation(number)["observation/image"] for number in (0, 1, len(recording))
    )

    assert not np.array_equal(first, second)
    assert np.array_equal(first, again)


def test_a_chunk_of_echo_shows_whose_it_is() -> None:
    mine, other = episodes_of([ECHO, ECHO])
    sent = mine.observation(5)
    steps = np.arange(50, dtype=np.float32)[:, None]

    assert mine.is_own(sent, sent["observation/state"] + steps) is True
    assert mine.is_own(sent, other.observation(5)["observation/state"] + steps) is False
    assert mine.is_own(sent, mine.observation(4)["observation/state"] + steps) is False
    assert mine.is_own(sent, np.zeros((50, 2), np.float32)) is False


@pytest.mark.parametrize("number", [0, 1, 2**23, 2**24 + 1])
def test_states_of_echo_are_exact_in_float32(number: int) -> None:
    (episode,) = episodes_of([ECHO])

    assert episode.observation(number)["observation/state"][1] == number % 2**24


def test_other_models_chunks_show_nothing() -> None:
    (episode,) = episodes_of([Observing.of(None)])

    assert episode.is_own(episode.observation(0), np.zeros((5, 7))) is None


def test_a_strict_echo_is_sent_what_it_asks_for() -> None:
    spec = echo_spec("echo", EchoOptions())
    strict = ObservationSpec(cameras=(CameraSpec(name="top", height=8, width=8),), state_dim=3)

    observing = Observing.of(
        type(spec)(
            name="echo",
            architecture="echo",
            observation=strict,
            action=spec.action,
            prefix_inputs=spec.prefix_inputs,
        )
    )

    assert observing.is_echo
    assert [camera.name for camera in observing.spec.cameras] == ["top"]
    assert observing.spec.state_dim == 3


def test_a_stand_in_is_sent_what_its_policy_takes_and_its_chunks_are_checked() -> None:
    observing = Observing.of(open_policy("paced:smolvla").spec)
    mine, other = episodes_of([observing, observing])
    sent = mine.observation(3)
    steps = np.arange(50, dtype=np.float32)[:, None]

    assert sent["observation/camera2"].shape == (512, 512, 3)
    assert mine.is_own(sent, sent["observation/state"] + steps) is True
    assert mine.is_own(sent, other.observation(3)["observation/state"] + steps) is False
