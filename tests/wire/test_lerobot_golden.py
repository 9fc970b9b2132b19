"""The captured LeRobot messages and the hostile ones, see ``tests/golden/README.md``."""

import hashlib
import json
import os
import pickletools
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from takt.errors import LimitError, RefusedError, WireError
from takt.wire.lerobot import (
    decode_actions,
    decode_observation,
    decode_setup,
    encode_actions,
    encode_observation,
    encode_setup,
)
from takt.wire.lerobot_messages import (
    ObservationAssembler,
    decode_observation_message,
    encode_observation_message,
)
from takt.wire.lerobot_objects import Spelling
from takt.wire.limits import Limits

GOLDEN = Path(__file__).parents[1] / "golden"
FOLDERS = [(GOLDEN / "lerobot", GOLDEN / "hostile")]
if "TAKT_FIXTURES" in os.environ:
    WIRE = Path(os.environ["TAKT_FIXTURES"]) / "wire"
    FOLDERS.append((WIRE / "lerobot_grpc", WIRE / "hostile"))
LIMITS = Limits()
CHUNK_LIMITS = Limits(max_values=65_536, max_arrays=1024)
DECODERS: dict[str, Callable[[bytes], object]] = {
    "policy_setup_pickle": lambda data: decode_setup(data, LIMITS),
    "observation_pickle": lambda data: decode_observation(data, LIMITS),
    "actions_pickle": lambda data: decode_actions(data, CHUNK_LIMITS),
}


class Case(NamedTuple):
    """One entry of an index, with its bytes."""

    facts: dict[str, Any]
    data: bytes


def cases_of(folder: Path) -> Iterator[Any]:
    for facts in json.loads((folder / "index.json").read_text())["cases"]:
        case = Case(facts, (folder / facts["file"]).read_bytes())
        yield pytest.param(case, id=f"{folder.parent.name}-{facts['case']}")


ALL = [case for lerobot, _ in FOLDERS for case in cases_of(lerobot)]
HOSTILE = [case for _, hostile in FOLDERS for case in cases_of(hostile)]
HOSTILE_PICKLES = [it for it in HOSTILE if it.values[0].facts["protocol"] == "lerobot_grpc"]


def of_kind(kind: str) -> list[Any]:
    return [case for case in ALL if case.values[0].facts["kind"] == kind]


SMALL = [
    case.values[0]
    for case in ALL[: len(list(cases_of(FOLDERS[0][0])))]
    if case.values[0].facts["kind"] in DECODERS and len(case.values[0].data) < 16_384
]


def plain(expected: Any) -> Any:  # noqa: ANN401 - JSON
    """What an index expects, in the terms of the decoders: numbers are floats."""
    if not isinstance(expected, dict):
        is_list = isinstance(expected, list)
        return [plain(inner) for inner in expected] if is_list else expected
    match expected.get("$"):
        case "npscalar" | "float":
            return float(expected["value"])
        case "tuple":
            return tuple(plain(expected["items"]))
        case "object":
            return plain(expected["state"])
    return {key: plain(inner) for key, inner in expected.items()}


def same(found: object, expected: Any) -> bool:  # noqa: ANN401 - JSON
    if isinstance(expected, dict):
        shape, dtype = tuple(expected["shape"]), expected["dtype"]
        array = np.asarray(found, dtype) if not shape else found
        assert isinstance(array, np.ndarray)
        digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
        return (array.shape, array.dtype.str, digest) == (shape, dtype, expected["sha256"])
    if isinstance(expected, str):
        return found == expected
    return isinstance(found, float) and np.array_equal(found, float(expected), equal_nan=True)


def check_observation(data: bytes | memoryview, expected: dict[str, Any]) -> None:
    observation = decode_observation(data, LIMITS)
    state = plain(expected)

    assert observation.timestamp == state["timestamp"]
    assert observation.timestep == state["timestep"]
    assert observation.must_go is state["must_go"]
    assert list(observation.values) == list(state["observation"])
    for key, value in state["observation"].items():
        assert same(observation.values[key], value), key


@pytest.mark.parametrize("case", ALL)
def test_no_golden_file_has_been_edited(case: Case) -> None:
    assert hashlib.sha256(case.data).hexdigest() == case.facts["sha256"]


@pytest.mark.parametrize("case", of_kind("observation_pickle"))
def test_a_captured_observation_decodes_to_what_its_index_says(case: Case) -> None:
    check_observation(case.data, case.facts["expect"])


@pytest.mark.parametrize("case", of_kind("policy_setup_pickle"))
def test_a_captured_setup_decodes_to_what_its_index_says(case: Case) -> None:
    setup = decode_setup(case.data, LIMITS)
    state = plain(case.facts["expect"])

    for field in ("policy_type", "pretrained_name_or_path", "actions_per_chunk", "device"):
        assert getattr(setup, field) == state[field]
    assert setup.rename_map == state.get("rename_map", {})
    assert list(setup.features) == list(state["lerobot_features"])
    for key, expected in state["lerobot_features"].items():
        feature = setup.features[key]
        assert feature.shape == expected["shape"]
        assert feature.is_image == (expected.get("dtype", expected.get("type")) in IMAGES)
        if "names" in expected:
            assert list(feature.names or ()) == expected["names"]
        if "info" in expected:
            assert feature.is_depth is expected["info"]["is_depth_map"]


IMAGES = {"image", "VISUAL"}


@pytest.mark.parametrize("case", of_kind("actions_pickle"))
def test_a_captured_chunk_decodes_to_what_its_index_says(case: Case) -> None:
    chunk = decode_actions(case.data, CHUNK_LIMITS)
    states = plain(case.facts["expect"])

    assert chunk.timesteps == tuple(state["timestep"] for state in states)
    assert chunk.timestamps == tuple(state["timestamp"] for state in states)
    assert all(same(row, state["action"]) for row, state in zip(chunk.actions, states, strict=True))


@pytest.mark.parametrize("case", [*of_kind("observation_pickle"), *of_kind("policy_setup_pickle")])
def test_the_spelling_of_a_client_is_remembered(case: Case) -> None:
    decoded: Any = DECODERS[case.facts["kind"]](case.data)

    is_03 = case.facts["case"].endswith("_03x")
    assert decoded.spelling is (Spelling.SCRIPTS_SERVER if is_03 else Spelling.ASYNC_INFERENCE)


@pytest.mark.parametrize("case", of_kind("observation_pickle"))
def test_an_observation_survives_being_encoded_again(case: Case) -> None:
    once = decode_observation(case.data, LIMITS)

    again = decode_observation(encode_observation(once), LIMITS)

    assert list(again.values) == list(once.values)
    for key, value in once.values.items():
        np.testing.assert_array_equal(again.values[key], value)
    assert (again.timestep, again.timestamp) == (once.timestep, once.timestamp)


@pytest.mark.parametrize("case", of_kind("policy_setup_pickle"))
def test_a_setup_survives_being_encoded_again(case: Case) -> None:
    once = decode_setup(case.data, LIMITS)

    assert decode_setup(encode_setup(once), LIMITS) == once


def program(data: bytes) -> list[tuple[str, object]]:
    """The instructions of a pickle, without the content of byte strings and frames.

    Byte strings hold the address that a storage had, and a frame the length that follows from it.
    """
    return [
        (opcode.name, None if isinstance(argument, bytes) or opcode.name == "FRAME" else argument)
        for opcode, argument, _ in pickletools.genops(data)
    ]


@pytest.mark.parametrize("name", ["actions_compact_16x7", "actions_compact_50x6"])
def test_a_reply_is_the_program_that_was_proven_with_stock_clients(name: str) -> None:
    proven = (GOLDEN / "lerobot" / f"{name}.bin").read_bytes()
    chunk = decode_actions(proven, CHUNK_LIMITS)

    data = encode_actions(
        chunk.actions,
        first_timestep=chunk.timesteps[0],
        first_timestamp=chunk.timestamps[0],
        period_s=1 / 30,
        spelling=chunk.spelling,
    )

    found, expected = program(data), program(proven)
    floats = [value for _, value in found if isinstance(value, float)]
    assert floats == pytest.approx(chunk.timestamps)
    assert [it for it in found if not isinstance(it[1], float)] == [
        it for it in expected if not isinstance(it[1], float)
    ]


@pytest.mark.parametrize("case", of_kind("send_observations_stream"))
def test_a_captured_call_is_joined_or_refused_as_its_index_says(case: Case) -> None:
    outcomes = case.facts.get("allowed_outcomes", ["decoded"])

    try:
        joined = joined_call(case.data)
    except WireError:
        assert "refused" in outcomes
    else:
        assert "decoded" in outcomes
        check_observation(joined, case.facts["expect"])


def joined_call(stream: bytes) -> memoryview:
    """The observation of a call whose messages have their gRPC heads."""
    assembler = ObservationAssembler(2**24)
    joined = None
    while stream:
        end = 5 + int.from_bytes(stream[1:5], "big")
        message, stream = stream[5:end], stream[end:]
        state, fragment = decode_observation_message(message)
        assert encode_observation_message(state, fragment) == message
        joined = assembler.add(state, fragment) or joined
    assembler.finish()
    assert joined is not None
    return joined


@pytest.mark.parametrize("case", HOSTILE_PICKLES)
@pytest.mark.parametrize("kind", DECODERS)
def test_a_hostile_pickle_is_refused_whatever_it_is_sent_as(case: Case, kind: str) -> None:
    with pytest.raises(RefusedError, match=r"expected .*, got "):
        DECODERS[kind](case.data)


@pytest.mark.parametrize("case", HOSTILE_PICKLES)
def test_a_hostile_pickle_is_refused_for_what_makes_it_hostile(case: Case) -> None:
    is_setup = case.facts["vector"] == "grpc_setup"
    decode = decode_setup if is_setup else decode_observation
    reasons = {
        "pickle_os_system": r"got 'posix\.system'",
        "pickle_eval_inside_observation": r"got 'builtins\.eval'",
        "pickle_getattr_chain_in_setup": r"got 'builtins\.getattr'",
        "pickle_nested_load_from_bytes": r"got _load_from_bytes",
        "pickle_object_dtype_array": r"cam: expected a dtype .* got 'O8'",
        "pickle_allowed_module_dotted_name": r"got 'lerobot.*os\.system'",
        "pickle_huge_memo": r"memo places, got 2147483632",
    }

    with pytest.raises(RefusedError, match=reasons[case.facts["case"]]):
        decode(case.data, LIMITS)


CANARY_SCRIPT = """
import os, resource, sys
from pathlib import Path
from takt.errors import RefusedError
from takt.wire.lerobot import decode_actions, decode_observation, decode_setup
from takt.wire.limits import Limits

inputs = [Path(name).read_bytes() for name in sys.argv[1:]]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
modules, acts = set(sys.modules), []
# Everything that could act goes through an audit hook: imports, files, processes, code.
sys.addaudithook(lambda event, _: acts.append(event))
for data in inputs:
    for decode in (decode_setup, decode_observation, decode_actions):
        try:
            decode(data, Limits())
        except RefusedError:
            pass
seen = sorted({act for act in acts if not act.startswith(("object.", "cpython.", "gc."))})
growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(sorted(set(sys.modules) - modules), seen, growth, "pickle" in modules, "torch" in modules)
"""


@pytest.mark.slow
@pytest.mark.integration
def test_refusing_runs_imports_and_opens_nothing_and_takes_little_memory(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    folder = GOLDEN / "hostile"
    names = [str(folder / case.values[0].facts["file"]) for case in HOSTILE]

    done = subprocess.run(
        [sys.executable, "-c", CANARY_SCRIPT, *names],
        env={**os.environ, "TAKT_CANARY": str(canary)},
        capture_output=True,
        text=True,
        check=True,
    )

    modules, acts, rest = done.stdout.split("] ")
    growth_kib, *_ = rest.split()
    assert (modules, acts) == ("[", "[")
    assert int(growth_kib) < 16 * 1024
    assert not canary.exists()


# Instructions that declare much, name things or reach into the memo, beside noise.
INSTRUCTIONS = [
    b"r\xf0\xff\xff\x7f",
    b"j\xff\xff\xff\x7f",
    b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"\x96\xff\xff\xff\x7f\x00\x00\x00\x00",
    b"X\xff\xff\xff\xff",
    b"\x95\xff\xff\xff\xff\xff\xff\xff\xff",
    b"cos\nsystem\n",
    b"cnumpy\nload\n",
    b"R",
    b"b",
    b"\x81",
    b"}",
    b"]",
    b"(",
    b"t",
    b"\x94",
    b"h\x00",
    b"h\x05",
    b"J\xff\xff\xff\xff",
    b"J\xff\xff\xff\x7f",
    b"0",
    b"2",
    b"\x97",
    b"\x82\x01",
]
DAMAGES = st.tuples(
    st.sampled_from(["set", "insert", "delete", "cut", "flip"]),
    st.integers(0, 2**16),
    st.binary(min_size=1, max_size=6) | st.sampled_from(INSTRUCTIONS),
)


def damaged(data: bytes, kind: str, place: int, content: bytes) -> bytes:
    place %= len(data) + 1
    if kind == "cut":
        return data[:place]
    if kind == "flip":
        return (
            data[:place]
            + bytes(byte ^ content[0] for byte in data[place : place + 1])
            + (data[place + 1 :])
        )
    taken = 0 if kind == "insert" else len(content)
    return data[:place] + (b"" if kind == "delete" else content) + data[place + taken :]


def memory_taken_by(act: Callable[[], object]) -> int:
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
@settings(max_examples=300)
@given(st.sampled_from(SMALL), st.lists(DAMAGES, min_size=1, max_size=4))
def test_a_damaged_pickle_is_refused_or_decoded_and_takes_no_more_than_it_brought(
    case: Case, damages: list[tuple[str, int, bytes]]
) -> None:
    data = case.data
    for damage in damages:
        data = damaged(data, *damage)

    peak = memory_taken_by(lambda: DECODERS[case.facts["kind"]](data))

    # A record or a dict is one byte on the wire and the costliest byte there is in memory.
    assert peak < 256 * 2**10 + 400 * len(data)


@given(st.binary(max_size=200), st.sampled_from([*DECODERS]))
def test_noise_is_refused(noise: bytes, kind: str) -> None:
    with pytest.raises(WireError):
        DECODERS[kind](b"\x80\x04" + noise)


def test_a_message_beyond_the_limit_is_refused_before_it_is_looked_at() -> None:
    with pytest.raises(LimitError, match="at most 10 bytes in the message, got 11"):
        decode_observation(bytes(11), Limits(max_message_bytes=10))
