import pickle  # noqa: TID251 - the reference that is compared with
import pickletools
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.errors import UsageError
from takt.wire.lerobot_pickle import Global, PickleReader, Record
from takt.wire.lerobot_writing import Instructions, float_bytes, integer_bytes, write_pickle
from takt.wire.limits import Account, Limits

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
    | st.binary(max_size=300),
    lambda inner: (
        st.lists(inner, max_size=8)
        | st.lists(inner, max_size=8).map(tuple)
        | st.dictionaries(st.text("abc", max_size=5), inner, max_size=8)
    ),
    max_leaves=30,
)


@pytest.mark.slow
@given(VALUES)
def test_plain_values_are_written_as_python_writes_them(value: object) -> None:
    assert write_pickle(value) == pickle.dumps(value, 4)


@pytest.mark.parametrize(
    "value",
    [
        bytes(70_000),
        [bytes(70_000), "x" * 70_000, bytes(3)],
        [float(number) for number in range(20_000)],
        {str(number): number for number in range(3000)},
        [[number] for number in range(300)] * 2,
    ],
    ids=["bytes", "in_frames", "floats", "dict", "memo"],
)
def test_large_values_are_read_by_python(value: object) -> None:
    assert pickle.loads(write_pickle(value)) == value  # noqa: S301 - our own bytes


def test_frames_end_where_their_content_does() -> None:
    data = write_pickle([bytes(70_000), ["x" * 1000 + str(number) for number in range(200)]])

    frames = [
        (length, position)
        for opcode, length, position in pickletools.genops(data)
        if opcode.name == "FRAME" and isinstance(length, int) and position is not None
    ]

    assert len(frames) > 2
    assert all(length >= 4 for length, _ in frames)
    assert frames[-1][1] + 9 + frames[-1][0] == len(data)


def test_objects_survive_the_wire() -> None:
    known = Global("module", "Class")
    shared = Record(known, (1,))
    written = [Record(known, state={"inner": shared}, is_new=True), shared]

    read, _ = PickleReader(Account(Limits())).read(memoryview(write_pickle(written)), {known})

    first, second = read  # type: ignore[misc]
    assert (first.function, first.is_new) == (known, True)
    assert first.state["inner"] is second
    assert second.arguments == (1,)


def test_instructions_stand_as_they_are() -> None:
    several = Instructions(integer_bytes(70_000) + float_bytes(0.5))

    assert pickle.loads(write_pickle([True, several])) == [True, 70_000, 0.5]  # noqa: S301


@pytest.mark.parametrize("power", [7, 8, 15, 16, 31, 32, 39, 40, 47, 55, 62])
def test_integers_at_the_edges_are_written_as_python_writes_them(power: int) -> None:
    edges = [sign * 2**power + step for sign in (1, -1) for step in (-1, 0, 1)]

    assert write_pickle([*edges, -(2**63), 2**63 - 1]) == pickle.dumps(
        [*edges, -(2**63), 2**63 - 1], 4
    )


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1])
def test_integers_beyond_64_bits_cannot_be_sent(value: int) -> None:
    with pytest.raises(UsageError, match="cannot send an integer of 65 bits"):
        write_pickle([value])


def test_other_values_cannot_be_sent() -> None:
    with pytest.raises(UsageError, match="cannot send a timedelta to LeRobot"):
        write_pickle({"a": timedelta()})
