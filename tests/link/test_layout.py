"""Alignment, sizes, and bytes that never pass for another request's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.errors import ConfigError, ObservationError, UsageError, WireError
from takt.link.layout import ALIGNMENT_BYTES, SlotLayout, SlotView
from takt.link.messages import SlotRef

FIELDS = [("image", (8, 6, 3), "u1"), ("state", (7,), "<f4"), ("tokens", (5,), "<i8")]
REF = SlotRef(2**64 - 1, 3, 7)


def view_of(layout: SlotLayout) -> SlotView:
    return SlotView(memoryview(bytearray(layout.slot_bytes)), layout)


def test_both_sides_compute_the_same_layout() -> None:
    assert SlotLayout.of(FIELDS) == SlotLayout.of(FIELDS)


@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(1, 9), max_size=4).map(tuple),
            st.sampled_from(["|b1", "|u1", "<f2", "<f4", "<i8", "<f8"]),
        ),
        max_size=8,
    )
)
def test_tensors_are_aligned_and_never_overlap(shapes: list[tuple[tuple[int, ...], str]]) -> None:
    layout = SlotLayout.of((str(n), shape, dtype) for n, (shape, dtype) in enumerate(shapes))

    ends = [0]
    for field, offset in zip(layout.fields, layout.offsets, strict=True):
        assert offset % ALIGNMENT_BYTES == 0
        assert offset >= ends[-1]
        ends.append(offset + field.nbytes)
    assert layout.slot_bytes % ALIGNMENT_BYTES == 0
    assert layout.slot_bytes >= ends[-1]


def test_a_row_comes_back_as_it_was_put() -> None:
    view = view_of(SlotLayout.of(FIELDS))
    image = np.arange(144, dtype=np.uint8).reshape(8, 6, 3)
    state = np.linspace(0, 1, 7, dtype=np.float32)

    view.stamp(REF)
    view.put("image", image)
    view.put("state", state)
    row = view.read(REF)

    np.testing.assert_array_equal(row["image"], image)
    np.testing.assert_array_equal(row["state"], state)
    assert view.holds(REF)


def test_a_smaller_tensor_keeps_its_size_and_nothing_of_the_former_robot() -> None:
    view = view_of(SlotLayout.of(FIELDS))
    view.stamp(REF)
    view.put("image", np.full((8, 6, 3), 255, np.uint8))
    later = SlotRef(REF.epoch, REF.slot, REF.generation + 1)

    view.stamp(later)
    view.put("image", np.ones((4, 5, 3), np.uint8))

    assert view.read(later)["image"].shape == (4, 5, 3)
    assert int(view.full["image"].sum()) == 4 * 5 * 3


def test_a_stamp_forgets_the_sizes_of_the_row_before() -> None:
    view = view_of(SlotLayout.of(FIELDS))
    view.stamp(REF)
    view.put("state", np.zeros(2, np.float32))
    later = SlotRef(REF.epoch, REF.slot, REF.generation + 1)

    view.stamp(later)

    assert view.read(later)["state"].shape == (7,)


@pytest.mark.parametrize(
    "other",
    [SlotRef(REF.epoch, 3, 8), SlotRef(REF.epoch, 4, 7), SlotRef(1, 3, 7)],
    ids=["generation", "slot", "epoch"],
)
def test_the_bytes_of_another_request_are_not_read(other: SlotRef) -> None:
    view = view_of(SlotLayout.of(FIELDS))
    view.stamp(other)

    assert not view.holds(REF)
    with pytest.raises(WireError, match="slot 3"):
        view.read(REF)


def test_a_slot_never_written_holds_nothing() -> None:
    assert not view_of(SlotLayout.of(FIELDS)).holds(SlotRef(0, 0, 0))


def test_sides_that_disagree_on_the_layout_notice() -> None:
    ours, theirs = SlotLayout.of(FIELDS), SlotLayout.of([FIELDS[0], ("state", (6,), "<f4")])
    memory = memoryview(bytearray(ours.slot_bytes))
    SlotView(memory, theirs).stamp(REF)

    assert not SlotView(memory, ours).holds(REF)


def test_sizes_beyond_the_layout_are_refused_by_the_reader() -> None:
    layout = SlotLayout.of([("state", (7,), "<f4")])
    memory = bytearray(layout.slot_bytes)
    view = SlotView(memoryview(memory), layout)
    view.stamp(REF)
    memory[64:68] = (8).to_bytes(4, "little")

    with pytest.raises(WireError, match="state"):
        view.read(REF)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("wrist", np.zeros((8, 6, 3), np.uint8)),
        ("image", np.zeros((8, 6, 3), np.float32)),
        ("image", np.zeros((9, 6, 3), np.uint8)),
        ("image", np.zeros((8, 6), np.uint8)),
        ("state", np.zeros(7, ">f4")),
    ],
    ids=["name", "dtype", "size", "rank", "byte order"],
)
def test_a_tensor_the_layout_does_not_know_is_named(name: str, value: np.ndarray) -> None:
    view = view_of(SlotLayout.of(FIELDS))

    with pytest.raises(ObservationError) as refused:
        view.put(name, value)

    assert refused.value.key == name


@pytest.mark.parametrize(
    "fields",
    [
        [("a", (2,), "<f4"), ("a", (2,), "<f4")],
        [("a", (0,), "<f4")],
        [("a", (1,) * 7, "<f4")],
        [("a", (2,), "O")],
        [("a", (2,), ">f4")],
        [("a", (2,), "U3")],
        [(str(number), (1,), "u1") for number in range(65)],
    ],
    ids=["twice", "empty", "rank", "object", "big-endian", "text", "many"],
)
def test_an_impossible_layout_is_the_operators_mistake(
    fields: list[tuple[str, tuple[int, ...], str]],
) -> None:
    with pytest.raises(ConfigError):
        SlotLayout.of(fields)


def test_a_slot_too_small_for_a_layout_is_refused() -> None:
    layout = SlotLayout.of(FIELDS)

    with pytest.raises(UsageError, match="slot has 64"):
        SlotView(memoryview(bytearray(64)), layout)
