import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.core.request import Stage
from takt.errors import ConfigError, ObservationError, RefusedError
from takt.policies.catalog import open_policy
from takt.policies.echo import FAIL_STATE, EchoDecoder, EchoOptions
from takt.policies.interface import Network, Placement
from takt.schema.observation import Observation
from takt.schema.row import Row, RowRequest
from takt.units import MILLISECOND

FLOATS = st.floats(-(2.0**99), 2.0**99, width=32).filter(lambda value: value != FAIL_STATE)


def write(observation: Observation, *, horizon: int | None = None, **options: object) -> Row:
    parts = open_policy("echo", options=options)
    slot = {t.name: np.full(t.shape, 5, t.dtype) for t in parts.spec.slot_tensors}
    header = parts.preprocessor().write(observation, slot, RowRequest(horizon=horizon))
    return Row(header, slot)


def row_of(*state: float, horizon: int | None = None) -> Row:
    return write(Observation(state=np.array(state, np.float32)), horizon=horizon)


def loaded(**options: object) -> Network:
    network = open_policy("echo", options=options).network(Placement(kv_slots=8))
    network.load()
    network.warm()
    return network


def served(rows: list[Row], kv_slots: list[int]) -> list[np.ndarray]:
    network = loaded()
    network.prefix(rows, size=8, layout=0, kv_slots=kv_slots)
    chunks = network.denoise(rows, size=8, layout=0, kv_slots=kv_slots)
    return [EchoDecoder().decode(chunk, row) for chunk, row in zip(chunks, rows, strict=True)]


@given(st.lists(st.tuples(st.lists(FLOATS, min_size=1, max_size=9), st.integers(1, 9)), min_size=1))
def test_each_row_of_a_batch_counts_up_from_its_own_state(
    requests: list[tuple[list[float], int]],
) -> None:
    requests = requests[:8]
    rows = [row_of(*state, horizon=horizon) for state, horizon in requests]

    answers = served(rows, list(range(len(rows)))[::-1])

    for answer, (state, horizon) in zip(answers, requests, strict=True):
        steps = np.arange(horizon, dtype=np.float32)[:, None]
        np.testing.assert_array_equal(answer, np.array(state, np.float32) + steps)
        assert answer.dtype == np.float32


def test_a_denoise_launch_may_batch_other_rows_than_the_prefix_launches_did() -> None:
    network = loaded()
    rows = [row_of(10), row_of(20), row_of(30)]
    network.prefix(rows[:2], size=2, layout=0, kv_slots=[4, 1])
    network.prefix(rows[2:], size=1, layout=0, kv_slots=[6])

    chunks = network.denoise([rows[2], rows[0]], size=2, layout=0, kv_slots=[6, 4])

    assert chunks[:, 0, 0].tolist() == [30, 10]


def test_without_a_wish_the_horizon_is_the_option() -> None:
    assert write(Observation(state=np.zeros(1))).header.horizon == 50
    assert write(Observation(state=np.zeros(1)), horizon=None).header.horizon == 50


def test_nothing_of_a_slots_former_row_remains() -> None:
    assert not row_of(1, 2).tensors["state"][2:].any()


def test_a_state_on_demand_fails_its_own_row_only() -> None:
    rows = [row_of(1), row_of(float(FAIL_STATE), 4), row_of(3)]
    network = loaded()
    network.prefix(rows, size=4, layout=0, kv_slots=[0, 1, 2])
    chunks = network.denoise(rows, size=4, layout=0, kv_slots=[0, 1, 2])

    with pytest.raises(RefusedError, match="on demand") as caught:
        EchoDecoder().decode(chunks[1], rows[1])

    assert caught.value.code == "failed"
    assert [chunks[0][0, 0], chunks[2][0, 0]] == [1, 3]
    assert EchoDecoder().decode(chunks[2], rows[2])[0, 0] == 3


def test_a_state_that_is_not_finite_is_never_sent_back_as_actions() -> None:
    with pytest.raises(RefusedError, match="not finite"):
        served([row_of(np.nan)], [0])


def test_latency_is_spent_as_waiting_split_between_the_stages() -> None:
    network = loaded(latency_ms=100, latency_per_row_ms=10, prefix_share=0.25)

    assert network.launch_time(Stage.PREFIX, 2) == 30 * MILLISECOND
    assert network.launch_time(Stage.DENOISE, 2) == 90 * MILLISECOND


@pytest.mark.parametrize(
    ("observation", "key"),
    [
        (Observation(spelled={"state": "proprio"}), "proprio"),
        (Observation(state=np.zeros(0)), "state"),
        (Observation(state=np.zeros(2049)), "state"),
        (Observation(state=np.array(["a"])), "state"),
        (Observation(state=np.zeros(1, complex)), "state"),
        (Observation(state=np.zeros(1), images={"a": np.zeros((2, 2), object)}), "images.a"),
        (Observation(state=np.zeros(1), images={"a": np.zeros(4, np.uint8)}), "images.a"),
        (Observation(state=np.zeros(1), images={"a": np.zeros((0, 2, 3))}), "images.a"),
        (
            Observation(state=np.zeros(1), images={str(i): np.zeros((2, 2)) for i in range(17)}),
            "images",
        ),
        (Observation(state=np.zeros(1), prompt=3), "prompt"),  # type: ignore[arg-type]
    ],
)
def test_what_can_not_be_echoed_is_refused_by_key(observation: Observation, key: str) -> None:
    with pytest.raises(ObservationError) as caught:
        write(observation)

    assert caught.value.key == key


@pytest.mark.parametrize(("width", "horizon"), [(1, 1001), (2048, 65)])
def test_an_answer_larger_than_a_reply_is_refused(width: int, horizon: int) -> None:
    with pytest.raises(ObservationError, match="horizon"):
        write(Observation(state=np.zeros(width)), horizon=horizon)


def test_images_and_prompts_do_not_change_the_values() -> None:
    images = {"wrist": np.zeros((3, 8, 8), np.uint8), "depth": np.zeros((8, 8, 1), np.uint16)}
    row = write(Observation(state=np.ones(2), images=images, prompt="wave"), horizon=2)

    assert served([row], [0])[0].tolist() == [[1, 1], [2, 2]]


def test_a_strict_spec_makes_it_check_like_a_real_policy(tmp_path: Path) -> None:
    file = tmp_path / "spec.json"
    camera = {"name": "base", "height": 4, "width": 4}
    file.write_text(json.dumps({"cameras": [camera], "state_dim": 2}))
    good = Observation(state=np.zeros(2), images={"base": np.zeros((4, 4, 3), np.uint8)})

    write(good, strict_spec=file)

    for bad in (
        replace(good, images={}),
        replace(good, images={"base": np.zeros((5, 4, 3), np.uint8)}),
        replace(good, state=np.array([0, np.nan])),
        replace(good, state=np.zeros(3)),
    ):
        with pytest.raises(ObservationError):
            write(bad, strict_spec=str(file))


@pytest.mark.parametrize(
    "text",
    ["", "{", '{"state_dim": "2"}', '{"state": 2}', '{"state_dim": 5000}', "[]", "[" * 100_000],
    ids=lambda text: text[:20],
)
def test_a_strict_spec_that_says_nothing_sensible_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "spec.json"
    file.write_text(text)

    with pytest.raises(ConfigError, match=f"^{file}: "):
        open_policy("echo", options={"strict_spec": file})


def test_a_strict_spec_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="strict spec"):
        open_policy("echo", options={"strict_spec": tmp_path / "none.json"})


@pytest.mark.parametrize(
    "options",
    [
        {"horizon": 0},
        {"horizon": 1001},
        {"latency_ms": -1.0},
        {"latency_ms": float("nan")},
        {"latency_per_row_ms": float("inf")},
        {"prefix_share": 1.1},
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        EchoOptions(**options)
