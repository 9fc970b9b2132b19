"""A file is read whole or refused with one line that names the file, the place and the reason."""

import re
from pathlib import Path
from typing import Annotated

import pytest
from msgspec import Meta, Struct

from takt.errors import ConfigError
from takt.server.yaml_file import read_yaml


class Leaf(Struct, forbid_unknown_fields=True, frozen=True):
    size: Annotated[int, Meta(ge=1)]
    times: dict[Annotated[int, Meta(ge=1)], Annotated[float, Meta(gt=0)]] = {}


class Branch(Struct, forbid_unknown_fields=True, frozen=True):
    leaves: dict[str, Leaf] = {}
    row: tuple[Leaf, ...] = ()


class Tree(Struct, forbid_unknown_fields=True, frozen=True):
    branches: dict[str, Branch | str] = {}
    name: str = ""


def read(tmp_path: Path, text: str) -> Tree:
    path = tmp_path / "tree.yaml"
    path.write_text(text, encoding="utf-8")
    return read_yaml(path, Tree)


def refusal(tmp_path: Path, text: str) -> str:
    """The message, after the file's name."""
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    message = str(caught.value)
    assert "\n" not in message
    start = f"{tmp_path / 'tree.yaml'}: "
    assert message.startswith(start)
    return message.removeprefix(start)


def test_a_file_becomes_what_it_describes(tmp_path: Path) -> None:
    text = "name: oak\nbranches: {low: {leaves: {a: {size: 2, times: {1: 3}}}}, high: elsewhere}"

    tree = read(tmp_path, text)

    low = Branch(leaves={"a": Leaf(size=2, times={1: 3.0})})
    assert tree == Tree(name="oak", branches={"low": low, "high": "elsewhere"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nam: oak", "nam: unknown key"),
        ("branches: {low: {leafs: {}}}", "branches.low.leafs: unknown key"),
        (
            "branches: {high: {}, low: {leaves: {a: {size: 1}, b: {size: 1, colour: red}}}}",
            "branches.low.leaves.b.colour: unknown key",
        ),
        (
            "branches: {low: {row: [{size: 1}, {size: 1, colour: red}]}}",
            "branches.low.row[1].colour: unknown key",
        ),
    ],
)
def test_an_unknown_key_is_refused_with_its_whole_path(
    tmp_path: Path, text: str, message: str
) -> None:
    assert refusal(tmp_path, text) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: 3", "name: expected `str`, got `int`"),
        ("branches: 3", "branches: expected `mapping`, got `int`"),
        ("branches: [a]", "branches: expected `mapping`, got `list`"),
        ("branches: {low: 3}", "branches.low: expected `str | mapping`, got `int`"),
        ("branches: {low: {row: {}}}", "branches.low.row: expected `list`, got `mapping`"),
        (
            "branches: {low: {leaves: {a: {size: 0}}}}",
            "branches.low.leaves.a.size: expected `int` >= 1",
        ),
        (
            "branches: {low: {leaves: {a: {size: 1, times: {2: 1.0, 4: -1.0}}}}}",
            "branches.low.leaves.a.times[4]: expected `float` > 0.0",
        ),
        (
            "branches: {low: {leaves: {a: {size: 1, times: {2: 1.0, 0: 1.0}}}}}",
            "the key branches.low.leaves.a.times[0]: expected `int` >= 1",
        ),
        ("branches: {low: {leaves: {a: {times: {}}}}}", "branches.low.leaves.a.size: missing"),
        ("3: oak", "the key [3]: expected `str`"),
        ("", "the file is empty"),
        ("# nothing\n", "the file is empty"),
        ("- a\n- b", "the file: expected `mapping`, got `list`"),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    assert refusal(tmp_path, text) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: oak\nname: elm", "line 2: key 'name' is given twice"),
        ("branches:\n  low: {}\n  low: {}", "line 3: key 'low' is given twice"),
        (
            "branches: {low: {leaves: {a: {size: 1, size: 2}}}}",
            "line 1: key 'size' is given twice",
        ),
        ("branches: {low: {leaves: {a: {times: {1: 1, 1: 2}}}}}", "line 1: key '1' is given twice"),
    ],
)
def test_a_key_given_twice_is_refused(tmp_path: Path, text: str, message: str) -> None:
    assert refusal(tmp_path, text) == message


def test_a_key_may_override_one_it_is_merged_with(tmp_path: Path) -> None:
    text = "branches: {low: {leaves: {a: &a {size: 1, times: {1: 1.0}}, b: {<<: *a, size: 2}}}}"

    low = read(tmp_path, text).branches["low"]

    assert isinstance(low, Branch)
    assert low.leaves["b"] == Leaf(size=2, times={1: 1.0})


@pytest.mark.parametrize(
    "text",
    [
        "name: [oak",
        "name: oak\n  elm: 1",
        "name: *nobody",
        "name: !!python/object/apply:os.system [ls]",
        "name: \x07",
        "[" * 5_000,
    ],
)
def test_what_is_not_plain_yaml_is_refused_on_one_line(tmp_path: Path, text: str) -> None:
    assert refusal(tmp_path, text)


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    assert re.match("line 2: ", refusal(tmp_path, "name: oak\n  elm: 1"))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tree.yaml"

    with pytest.raises(ConfigError, match=re.escape(f"{path}: no such file")):
        read_yaml(path, Tree)


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"{tmp_path}: cannot be read: ")):
        read_yaml(tmp_path, Tree)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "tree.yaml"
    path.write_bytes(b"name: \xff\xfe")

    with pytest.raises(ConfigError, match="not a text file in UTF-8"):
        read_yaml(path, Tree)
