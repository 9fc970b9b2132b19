import json
import struct
from pathlib import Path

import numpy as np
import pytest

from takt.errors import ConfigError
from takt.policies.lerobot.tensor_file import TensorFile, read_arrays, sha256_of

GOOD = {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}


def written(path: Path, header: object, data: bytes = bytes(8)) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def test_tensors_come_back_as_they_were_written(tmp_path: Path) -> None:
    header = GOOD | {"b": {"dtype": "I64", "shape": [], "data_offsets": [8, 16]}}
    data = np.array([1, 2], np.float32).tobytes() + np.array(7).tobytes()

    arrays = read_arrays(written(tmp_path / "t", header | {"__metadata__": {"k": "v"}}, data))

    assert arrays["a"].tolist() == [1, 2]
    assert arrays["b"] == 7


@pytest.mark.parametrize(
    ("header", "data", "said"),
    [
        (GOOD, bytes(7), "truncated"),
        (GOOD, bytes(9), "truncated or followed"),
        (b'{"a": 1, "a": 2}', b"", "twice"),
        ({"a": 3}, b"", "unknown dtype"),
        ({"a": GOOD["a"] | {"dtype": "F7"}}, bytes(8), "unknown dtype 'F7'"),
        ({"a": GOOD["a"] | {"shape": [3]}}, bytes(8), "does not fit its shape"),
        ({"a": GOOD["a"] | {"shape": [-2]}}, bytes(8), "not understood"),
        ({"a": GOOD["a"] | {"shape": [1] * 9}}, bytes(8), "not understood"),
        ({"a": GOOD["a"] | {"data_offsets": [0]}}, bytes(8), "not understood"),
        ({"a": GOOD["a"], "b": GOOD["a"]}, bytes(8), "overlap"),
        ({"a": GOOD["a"] | {"data_offsets": [4, 12]}}, bytes(12), "gap"),
        (b"{", b"", "not JSON"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(
    tmp_path: Path, header: object, data: bytes, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        TensorFile(written(tmp_path / "t", header, data))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"abc", "truncated"),
        (struct.pack("<Q", 1 << 63) + bytes(100), "header of 9223372036854775808 bytes"),
        (b"\x80\x04\x95" + bytes(20), "a pickle"),
        (b"PK\x03\x04" + bytes(20), "zip archive"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
    ],
)
def test_what_is_no_safetensors_file_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)

    with pytest.raises(ConfigError, match=said):
        TensorFile(path)


def test_a_dtype_without_a_numpy_form_is_refused_where_arrays_are_asked_for(tmp_path: Path) -> None:
    header = {"a": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}}
    path = written(tmp_path / "t", header)

    with pytest.raises(ConfigError, match="BF16"):
        read_arrays(path)
    with TensorFile(path) as file:
        assert file.raw("a") == bytes(8)


def test_the_digest_tells_contents_and_names_apart(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_bytes(b"1")
    second.write_bytes(b"1")

    assert sha256_of([first]) == sha256_of([first])
    assert sha256_of([first]) != sha256_of([second])
