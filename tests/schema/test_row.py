import numpy as np
import pytest

from takt.errors import ObservationError, UsageError, WireError
from takt.schema.row import Chunking, RowHeader, RowRequest

HEADER = RowHeader(layout=1, state_dim=7, horizon=50, action_dim=6)


def chunking(
    *, rows: int = 8, width: int = 4, weight: float = 0.5, value: float = 0.0, frozen: int = 0
) -> Chunking:
    return Chunking(
        previous_chunk=np.full((rows, width), value, np.float32),
        prefix_weights=np.full(rows, weight, np.float32),
        frozen_steps=frozen,
    )


def test_a_header_survives_the_way_through_a_message() -> None:
    assert RowHeader.from_plain(HEADER.to_plain()) == HEADER


@pytest.mark.parametrize(
    "change", [{"layout": -1}, {"horizon": "50"}, {"state_dim": True}, {"speed": 1}]
)
def test_a_header_with_a_wrong_entry_is_refused_by_name(change: dict[str, object]) -> None:
    with pytest.raises(WireError, match=next(iter(change))):
        RowHeader.from_plain(HEADER.to_plain() | change)


def test_a_header_with_a_missing_entry_is_refused_by_name() -> None:
    with pytest.raises(WireError, match="action_dim"):
        RowHeader.from_plain({"layout": 0, "state_dim": 1, "horizon": 1})


def test_a_chunking_that_fits_the_policy_passes() -> None:
    chunking(frozen=7).check(8, 4)


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        (chunking(rows=7), "previous_chunk"),
        (chunking(width=5), "previous_chunk"),
        (chunking(value=np.nan), "previous_chunk"),
        (chunking(weight=1.5), "prefix_weights"),
        (chunking(weight=-0.1), "prefix_weights"),
        (chunking(frozen=8), "frozen_steps"),
        (chunking(frozen=-1), "frozen_steps"),
    ],
)
def test_an_impossible_chunking_is_refused_by_key(wrong: Chunking, key: str) -> None:
    with pytest.raises(ObservationError) as caught:
        wrong.check(8, 4)

    assert caught.value.key == key


def test_a_request_asks_for_at_least_one_step() -> None:
    with pytest.raises(UsageError, match="horizon"):
        RowRequest(horizon=0)
