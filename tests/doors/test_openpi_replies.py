"""The fast encoder writes what the careful one writes."""

import numpy as np
import pytest

from takt.doors.openpi_replies import encode_chunk_reply
from takt.units import MILLISECOND
from takt.wire.msgpack_arrays import Dialect
from takt.wire.openpi import ReplyTiming, chunk_reply, encode_reply
from takt.wire.openpi_options import RequestOptions


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("dtype", ["<f4", "<f8", ">f4", "<f2"])
@pytest.mark.parametrize("shape", [(1, 1), (50, 8), (1000, 32)])
def test_a_reply_has_the_same_bytes_as_from_the_careful_encoder(
    dialect: Dialect, dtype: str, shape: tuple[int, int]
) -> None:
    actions = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    timing = ReplyTiming(
        policy=3 * MILLISECOND,
        server=5 * MILLISECOND + 1,
        previous_total=7,
        stages={"decode": 1, "prefix": 2 * MILLISECOND},
    )
    options = RequestOptions(sequence=2**40, wants_timing=True)
    values = chunk_reply(actions, timing=timing, options=options)

    assert encode_chunk_reply(values, dialect) == encode_reply(values, dialect)


def test_a_chunk_whose_columns_were_cut_off_is_sent_whole() -> None:
    actions = np.arange(24, dtype=np.float32).reshape(4, 6)[:, :2]
    values = chunk_reply(actions, timing=ReplyTiming(policy=0, server=0), options=RequestOptions())

    encoded = encode_chunk_reply(values, Dialect.OPENPI)

    assert encoded == encode_reply(values, Dialect.OPENPI)
