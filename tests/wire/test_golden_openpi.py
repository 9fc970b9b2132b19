"""The captured openpi messages and the hostile ones, see ``tests/golden/README.md``."""

import contextlib
import hashlib
import json
import os
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from takt.errors import RefusedError
from takt.wire.limits import Limits
from takt.wire.msgpack_arrays import Dialect, spell_array
from takt.wire.msgpack_encoding import encode_values
from takt.wire.openpi import decode_observation, decode_reply, encode_reply

GOLDEN = Path(__file__).parent.parent / "golden"
FOLDERS = [GOLDEN]
if "TAKT_FIXTURES" in os.environ:
    FOLDERS.append(Path(os.environ["TAKT_FIXTURES"]) / "wire")
LIMITS = Limits()
MESSAGES = {"observation_frame", "reply_frame", "server_metadata"}
DIALECTS = {
    "openpi bytes keys": Dialect.OPENPI,
    "str_keys": Dialect.OPENPI_STR_KEYS,
    "msgpack_numpy": Dialect.MSGPACK_NUMPY,
    "msgpack_numpy_str_keys": Dialect.MSGPACK_NUMPY_STR_KEYS,
    "vllm_legacy": Dialect.VLLM_LEGACY,
}


class Case(NamedTuple):
    """One entry of an index, with its bytes."""

    facts: dict[str, Any]
    data: bytes


def cases_of(protocol: str) -> list[Any]:
    found: list[Any] = []
    for folder in FOLDERS:
        index = json.loads((folder / protocol / "index.json").read_text())
        for facts in index["cases"]:
            data = (folder / protocol / facts["file"]).read_bytes()
            found.append(pytest.param(Case(facts, data), id=f"{folder.name}-{facts['case']}"))
    return found


def only(cases: list[Any], keep: Callable[[Case], bool]) -> list[Any]:
    return [case for case in cases if keep(case.values[0])]


OPENPI = cases_of("openpi")
HOSTILE = cases_of("hostile")
MESSAGE_CASES = only(OPENPI, lambda case: case.facts["kind"] in MESSAGES)
OBSERVATIONS = only(OPENPI, lambda case: case.facts["kind"] == "observation_frame")
SMALL = [case.values[0].data for case in MESSAGE_CASES if len(case.values[0].data) < 16_384]


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that a payload creates if anything ever runs it."""
    path = tmp_path / "canary"
    monkeypatch.setenv("TAKT_CANARY", str(path))
    return path


@pytest.mark.parametrize("case", OPENPI + HOSTILE)
def test_no_golden_file_has_been_edited(case: Case) -> None:
    assert hashlib.sha256(case.data).hexdigest() == case.facts["sha256"]


@pytest.mark.parametrize("case", MESSAGE_CASES)
def test_a_captured_message_decodes_to_what_its_index_says(
    case: Case, describe: Callable[[object], Any]
) -> None:
    assert describe(decode_observation(case.data, LIMITS).values) == case.facts["expect"]


@pytest.mark.parametrize("case", MESSAGE_CASES)
def test_a_captured_message_keeps_the_order_of_its_keys(case: Case) -> None:
    assert list(decode_observation(case.data, LIMITS).values) == list(case.facts["expect"])


@pytest.mark.parametrize("case", OBSERVATIONS)
def test_a_reply_spells_arrays_as_the_observation_did(case: Case) -> None:
    observation = decode_observation(case.data, LIMITS)
    actions = np.zeros((16, 7), np.float32)

    reply = decode_reply(encode_reply({"actions": actions}, observation.dialect), LIMITS)

    assert observation.dialect is DIALECTS[case.facts.get("dialect", "openpi bytes keys")]
    assert reply.dialect is observation.dialect


@pytest.mark.parametrize("case", MESSAGE_CASES)
def test_a_captured_message_comes_out_byte_for_byte_when_encoded_again(case: Case) -> None:
    message = decode_observation(case.data, LIMITS)

    again = encode_values(message.values, partial(spell_array, dialect=message.dialect))

    assert again == case.data


@pytest.mark.parametrize(
    "case", only(HOSTILE, lambda case: case.facts["case"].startswith("msgpack_"))
)
def test_a_hostile_message_is_refused_and_nothing_of_it_runs(case: Case, canary: Path) -> None:
    with pytest.raises(RefusedError, match=r"expected .*, got "):
        decode_observation(case.data, LIMITS)

    assert not canary.exists()


@pytest.mark.parametrize(
    "case", only(HOSTILE, lambda case: not case.facts["case"].startswith("msgpack_"))
)
def test_a_hostile_message_of_another_protocol_does_not_run_either(
    case: Case, canary: Path
) -> None:
    with contextlib.suppress(RefusedError):
        decode_observation(case.data, LIMITS)

    assert not canary.exists()


@pytest.mark.parametrize(
    "text", only(OPENPI, lambda case: case.facts["kind"] == "error_text_frame")
)
def test_the_text_of_a_stock_server_becomes_an_error_with_all_of_it(text: Case) -> None:
    with pytest.raises(RefusedError) as caught:
        decode_reply(text.data.decode(), LIMITS)

    assert all(part in str(caught.value) for part in text.facts["expect"]["contains"])


# Heads that declare much: 2**31 elements, entries and bytes, extension types, plain integers.
HEADS = [bytes([head]) + b"\x7f\xff\xff\xff" for head in range(0xC4, 0xE0)]
DAMAGES = st.tuples(
    st.sampled_from(["set", "insert", "delete", "cut"]),
    st.integers(-200, 200),
    st.binary(min_size=1, max_size=6) | st.sampled_from(HEADS),
)


def damaged(data: bytes, kind: str, place: int, content: bytes) -> bytes:
    """``data`` with one damage near its start or end: in the middle lies image content."""
    place = min(len(data), place) if place >= 0 else max(0, len(data) + place)
    if kind == "cut":
        return data[:place]
    taken = 0 if kind == "insert" else len(content)
    return data[:place] + (b"" if kind == "delete" else content) + data[place + taken :]


def bytes_taken_by(act: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        act()
    except RefusedError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


@pytest.mark.slow
@settings(max_examples=400)
@given(st.sampled_from(SMALL), st.lists(DAMAGES, min_size=1, max_size=4))
def test_a_damaged_message_is_refused_or_decoded_and_takes_no_more_than_it_brought(
    data: bytes, damages: list[tuple[str, int, bytes]]
) -> None:
    for damage in damages:
        data = damaged(data, *damage)

    peak = bytes_taken_by(lambda: decode_observation(data, LIMITS))

    # An empty map is one byte on the wire and the costliest byte there is in memory.
    assert peak < 64 * 2**10 + 300 * len(data)


@given(st.binary(max_size=200))
def test_noise_is_refused_or_decoded_and_takes_no_more_than_it_brought(noise: bytes) -> None:
    peak = bytes_taken_by(lambda: decode_observation(noise, LIMITS))

    assert peak < 64 * 2**10 + 300 * len(noise)
