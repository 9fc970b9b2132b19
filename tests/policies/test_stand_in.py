"""Stand-ins say what the real policies say, and answer like `echo`."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from takt.errors import ConfigError, ObservationError
from takt.hardware.architectures import ARCHITECTURES
from takt.policies.catalog import open_policy
from takt.policies.interface import Placement
from takt.policies.stand_in import (
    STAND_INS,
    StandIn,
    check_fits_device,
    paced_architecture,
    stand_in_named,
)
from takt.schema.observation import Observation
from takt.schema.row import Row, RowHeader, RowRequest

EVERY = pytest.mark.parametrize("stand_in", STAND_INS.values(), ids=STAND_INS)


def observation(stand_in: StandIn, cameras: int, prompt: str = "pick") -> Observation:
    side = stand_in.image_side
    image = np.full((side, side, 3), 7, np.uint8)
    return Observation(
        images=dict.fromkeys(stand_in.cameras[:cameras], image),
        state=np.arange(stand_in.action_dim, dtype=np.float32),
        prompt=prompt,
    )


def slot_of(stand_in: StandIn) -> dict[str, NDArray[Any]]:
    spec = open_policy(f"paced:{stand_in.architecture}").spec
    return {t.name: np.full(t.shape, 99, t.dtype) for t in spec.slot_tensors}


def write(
    stand_in: StandIn, seen: Observation, request: RowRequest | None = None
) -> tuple[RowHeader, dict[str, NDArray[Any]]]:
    parts, slot = open_policy(f"paced:{stand_in.architecture}"), slot_of(stand_in)
    return parts.preprocessor().write(seen, slot, request or RowRequest()), slot


@EVERY
def test_layouts_are_those_of_the_modelled_architecture(stand_in: StandIn) -> None:
    network = ARCHITECTURES[stand_in.architecture]
    spec = open_policy(f"paced:{stand_in.architecture}").spec

    rows = [(layout.cameras, layout.prompt_tokens) for layout in stand_in.layouts]
    assert rows == [(layout.cameras, layout.prompt_tokens) for layout in network.layouts]
    assert spec.holds == network.holds
    assert spec.action.horizon <= network.suffix_tokens


@EVERY
def test_a_card_says_that_it_is_paced(stand_in: StandIn) -> None:
    spec = open_policy(f"paced:{stand_in.architecture}", name="fold").spec

    assert (spec.name, spec.architecture) == ("fold", f"paced:{stand_in.architecture}")


@EVERY
def test_an_answer_shows_whose_it_is(stand_in: StandIn) -> None:
    parts = open_policy(f"paced:{stand_in.architecture}")
    seen = observation(stand_in, len(stand_in.cameras))
    header, slot = write(stand_in, seen)
    row, network = Row(header, slot), parts.network(Placement(kv_slots=1))
    network.load()

    network.prefix([row], size=1, layout=header.layout, kv_slots=[0])
    chunk = network.denoise([row], size=1, layout=header.layout, kv_slots=[0])[0]
    actions = parts.decoder().decode(chunk, row)

    steps = np.arange(stand_in.horizon, dtype=np.float32)[:, None]
    assert seen.state is not None
    np.testing.assert_array_equal(actions, seen.state + steps)


def test_images_of_any_size_are_written_as_the_policy_sees_them() -> None:
    pi0 = STAND_INS["pi0"]
    wide = np.full((100, 200, 3), 50, np.uint8)
    seen = Observation(
        images=dict.fromkeys(pi0.cameras, wide), state=np.zeros(14, np.float32), prompt="pick"
    )

    _, slot = write(pi0, seen)

    assert slot["images"].shape == (3, 224, 224, 3)
    assert slot["images"][0, 112].min() == 50
    assert slot["images"][0, 0].max() == 0, "padded above"


@pytest.mark.parametrize(
    ("cameras", "prompt", "layout"),
    [(2, "pick", 0), (2, "x" * 97, 1), (3, "pick", 2), (3, "x" * 97, 3), (3, "x" * 4000, 3)],
)
def test_a_row_goes_into_the_cheapest_layout_that_holds_it(
    cameras: int, prompt: str, layout: int
) -> None:
    header, _ = write(STAND_INS["pi0"], observation(STAND_INS["pi0"], cameras, prompt))

    assert header.layout == layout


def test_an_observation_with_too_few_cameras_is_refused() -> None:
    with pytest.raises(ObservationError, match="left_wrist_0_rgb"):
        write(STAND_INS["pi0"], observation(STAND_INS["pi0"], 1))


def test_a_horizon_beyond_the_chunk_is_refused() -> None:
    pi0 = STAND_INS["pi0"]

    with pytest.raises(ObservationError, match=r"1\.\.50 steps"):
        write(pi0, observation(pi0, 3), RowRequest(horizon=51))


def test_batch_sizes_are_an_option() -> None:
    options = {"prefix_sizes": [1], "denoise_sizes": [1, 3]}

    spec = open_policy("paced:pi0", options=options).spec

    assert (spec.prefix_sizes, spec.denoise_sizes) == ((1,), (1, 3))


def test_a_stand_in_without_a_denoise_stage_is_refused() -> None:
    with pytest.raises(ConfigError, match="denoise_sizes"):
        open_policy("paced:pi0", options={"denoise_sizes": []})


def test_an_unknown_stand_in_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"no stand-in for 'pi9'; there are: pi0, .*xr0"):
        stand_in_named("pi9")


def test_only_names_with_the_mark_are_stand_ins() -> None:
    assert paced_architecture("paced:pi0") == "pi0"
    assert paced_architecture("pi0") is None


@pytest.mark.parametrize(
    ("policy", "is_paced", "words"),
    [
        ("echo", True, "a paced device runs stand-ins, got policy 'echo'"),
        ("paced:pi0", False, "needs a paced device"),
        ("paced:pi9", True, "no stand-in for 'pi9'"),
    ],
)
def test_devices_that_compute_and_devices_that_do_not_take_each_their_own(
    policy: str, is_paced: bool, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        check_fits_device("fold", policy, is_paced=is_paced)
    check_fits_device("fold", "paced:pi0", is_paced=True)
    check_fits_device("fold", "echo", is_paced=False)
