import numpy as np
import pytest
from tests.policies.lerobot.checkpoints import PI0, SMOLVLA, opened, seen

from takt.errors import ObservationError, RefusedError
from takt.policies.guidance import prefix_weights
from takt.policies.lerobot.checkpoint import FlowCheckpoint
from takt.policies.lerobot.rows import FlowDecoder, FlowPreprocessor
from takt.schema.observation import Observation
from takt.schema.row import Executing, Row, RowRequest


@pytest.fixture(scope="module", params=[PI0, SMOLVLA], ids=["pi0", "smolvla"])
def checkpoint(request: pytest.FixtureRequest) -> FlowCheckpoint:
    return opened(request.param)


def row(
    checkpoint: FlowCheckpoint, observation: Observation, wanted: RowRequest | None = None
) -> Row:
    spec = checkpoint.spec("arm")
    # A slot that was used before: whatever the row needs must be overwritten.
    slot = {t.name: np.full(t.shape, 3, t.dtype) for t in spec.slot_tensors}
    header = FlowPreprocessor(spec, checkpoint).write(observation, slot, wanted or RowRequest())
    return Row(header, slot)


def test_a_row_says_how_much_of_it_is_real(checkpoint: FlowCheckpoint) -> None:
    made = row(checkpoint, seen("fold the towel"))

    assert made.tensors["num_images"] == 2
    count = int(made.tensors["num_tokens"])
    assert 0 < count <= 48
    assert (made.tensors["tokens"][count:] == checkpoint.tokenizer.pad_id).all()
    assert not made.tensors["state"][7:].any()
    assert not made.tensors["previous_chunk"].any()


def test_the_cheapest_layout_that_fits_is_chosen(checkpoint: FlowCheckpoint) -> None:
    one = row(checkpoint, seen("fold", "wrist")).header.layout
    both = row(checkpoint, seen("fold")).header.layout
    long = row(checkpoint, seen("fold " * 200)).header.layout

    layouts = checkpoint.layouts
    assert layouts[one].images == 1
    assert layouts[both].images == 2
    assert layouts[one].tokens == layouts[both].tokens < layouts[long].tokens
    assert long == len(layouts) - 1


def test_present_cameras_take_the_first_places_in_their_order(checkpoint: FlowCheckpoint) -> None:
    both = row(checkpoint, seen("fold")).tensors["images"]
    other = seen("fold")
    wrist = Observation(
        state=other.state, images={"wrist": other.images["wrist"]}, prompt=other.prompt
    )

    alone = row(checkpoint, wrist).tensors["images"]

    np.testing.assert_array_equal(alone[0], both[1])


def test_a_newline_ends_the_instruction_exactly_once(checkpoint: FlowCheckpoint) -> None:
    bare, ended = (row(checkpoint, seen(text)).tensors["tokens"] for text in ("fold", "fold\n"))

    np.testing.assert_array_equal(bare, ended)


def test_text_that_spells_a_special_token_is_an_ordinary_instruction() -> None:
    for golden, text in ((PI0, "<eos><bos><pad>"), (SMOLVLA, "<image><|im_end|><global-img>")):
        checkpoint = opened(golden)
        made = row(checkpoint, seen(text))
        ids = made.tensors["tokens"][: int(made.tensors["num_tokens"])].tolist()
        special = {"<eos>", "<pad>", "<image>", "<|im_end|>", "<global-img>"}
        known = {
            checkpoint.tokenizer.id_of(token)
            for token in special
            if token in text and (token != "<bos>")
        }

        assert not known & set(ids)
        assert len(ids) > 6


def test_a_lone_surrogate_does_not_stop_a_robot(checkpoint: FlowCheckpoint) -> None:
    assert row(checkpoint, seen("fold \ud800")).tensors["num_tokens"] > 1


@pytest.mark.parametrize(
    ("cameras", "said"),
    [(("top",), "images of top"), (("front", "wirst"), "images of wirst")],
)
def test_a_misspelt_camera_does_not_pass_for_a_masked_one(
    checkpoint: FlowCheckpoint, cameras: tuple[str, ...], said: str
) -> None:
    with pytest.raises(ObservationError, match=said):
        row(checkpoint, seen("fold", *cameras))


def test_what_the_policy_needs_must_be_there(checkpoint: FlowCheckpoint) -> None:
    good = seen()
    for observation, key in (
        (Observation(state=good.state, prompt="x"), "images.front"),
        (Observation(images=good.images, prompt="x"), "state"),
        (Observation(state=good.state, images=good.images), "prompt"),
    ):
        with pytest.raises(ObservationError, match=key):
            row(checkpoint, observation)
    with pytest.raises(ObservationError, match="horizon"):
        row(checkpoint, good, RowRequest(horizon=1000))


def test_relative_actions_are_added_to_the_state_of_their_own_observation() -> None:
    checkpoint = opened(PI0)
    made = row(checkpoint, seen(), RowRequest(horizon=3))
    chunk = np.zeros((20, 32), np.float32)
    plain = checkpoint.pipeline.action.backward(chunk[:3, :7])

    actions = FlowDecoder(checkpoint).decode(chunk, made)

    state = np.linspace(-1, 1, 7, dtype=np.float32)
    np.testing.assert_allclose(actions[:, :6], plain[:, :6] + state[:6], atol=1e-6)
    np.testing.assert_array_equal(actions[:, 6], plain[:, 6])  # the gripper is absolute


def executing(checkpoint: FlowCheckpoint, actions: np.ndarray, **changed: object) -> RowRequest:
    given = {"digest": checkpoint.digest, "delay": 2, "execution_horizon": 5, **changed}
    return RowRequest(executing=Executing(actions=actions, **given))  # pyright: ignore[reportArgumentType]


def test_what_a_robot_executes_is_seen_from_its_new_state_and_decodes_to_itself(
    checkpoint: FlowCheckpoint,
) -> None:
    actions = np.random.default_rng(2).standard_normal((9, 7)).astype(np.float32)

    made = row(checkpoint, seen(), executing(checkpoint, actions))

    horizon = checkpoint.config.horizon
    again = FlowDecoder(checkpoint).decode(made.tensors["previous_chunk"], made)
    np.testing.assert_allclose(again[:9], actions, atol=1e-5)
    assert not made.tensors["previous_chunk"][9:].any()
    np.testing.assert_array_equal(made.tensors["prefix_weights"], prefix_weights(2, 5, horizon))
    assert made.tensors["frozen_steps"] == 2


def test_what_another_model_made_is_left_alone(checkpoint: FlowCheckpoint) -> None:
    actions = np.zeros((9, 7), np.float32)

    made = row(checkpoint, seen(), executing(checkpoint, actions, digest="sha256:other"))

    assert not made.tensors["prefix_weights"].any()


@pytest.mark.parametrize(
    ("shape", "changed", "key"),
    [
        ((9, 6), {}, r"leftover\.actions"),
        ((9, 7), {"delay": 10}, "inference_delay"),
        ((9, 7), {"schedule": "SOON"}, "schedule"),
    ],
)
def test_an_impossible_leftover_is_refused_by_its_key(
    checkpoint: FlowCheckpoint, shape: tuple[int, int], changed: dict[str, object], key: str
) -> None:
    with pytest.raises(ObservationError, match=key):
        row(checkpoint, seen(), executing(checkpoint, np.zeros(shape, np.float32), **changed))


def test_a_leftover_that_is_not_finite_is_refused(checkpoint: FlowCheckpoint) -> None:
    actions = np.full((9, 7), np.nan, np.float32)

    with pytest.raises(ObservationError, match=r"previous_chunk.*finite"):
        row(checkpoint, seen(), executing(checkpoint, actions))


def test_a_chunk_that_is_not_finite_is_refused(checkpoint: FlowCheckpoint) -> None:
    made = row(checkpoint, seen())
    config = checkpoint.config
    chunk = np.zeros((config.horizon, config.max_action_dim), np.float32)
    chunk[1, 2] = np.nan

    with pytest.raises(RefusedError, match=r"action\[1, 2\] is nan"):
        FlowDecoder(checkpoint).decode(chunk, made)


def test_noise_depends_on_who_asked_alone(checkpoint: FlowCheckpoint) -> None:
    first, again, other = (
        row(checkpoint, seen(), RowRequest(seed=1, session="s", sequence=number)).tensors["noise"]
        for number in (4, 4, 5)
    )

    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_a_client_may_send_its_noise(checkpoint: FlowCheckpoint) -> None:
    plain = seen()
    shape = (checkpoint.config.horizon, checkpoint.config.max_action_dim)
    noise = np.random.default_rng(5).standard_normal(shape).astype(np.float32)

    def sending(value: object) -> Observation:
        return Observation(
            state=plain.state, images=plain.images, prompt=plain.prompt, extra={"noise": value}
        )

    for sent in (noise, noise.ravel(), noise.ravel().tolist()):
        np.testing.assert_array_equal(row(checkpoint, sending(sent)).tensors["noise"], noise)
    for wrong in (noise[1:], np.full(shape, np.nan), "x", None):
        with pytest.raises(ObservationError, match="noise"):
            row(checkpoint, sending(wrong))
