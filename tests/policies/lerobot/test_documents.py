from collections.abc import Callable
from pathlib import Path

import pytest

from takt.errors import ConfigError
from takt.policies.lerobot.documents import _MAX_DOCUMENT_BYTES, Section, read_document


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1, "a": 2}', "'a' is there twice"),
        ('{"a": NaN}', "NaN is no number"),
        ("[]", "expected an object"),
        ("{", "not JSON"),
        ('{"a":' * 100_000, "not JSON"),
        ("\xff", "not JSON"),
    ],
)
def test_what_is_no_strict_object_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(text.encode("latin-1"))

    with pytest.raises(ConfigError, match=said):
        read_document(path)


def test_a_document_has_a_largest_size(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b" " * (_MAX_DOCUMENT_BYTES + 1))

    with pytest.raises(ConfigError, match="at most"):
        read_document(path)
    with pytest.raises(ConfigError, match="No such file"):
        read_document(tmp_path / "none")


VALUES = {"n": 3, "x": 0.5, "yes": True, "t": "a", "l": ["a"], "i": [1, 2], "o": {}, "s": [{}]}


def test_values_of_the_expected_kind_are_taken() -> None:
    section = Section(VALUES, "c")

    assert section.take_int("n", 1, 3) == 3
    assert section.take_int("none", 1, 3, 2) == 2
    assert section.take_float("x") == 0.5
    assert section.take_bool("yes") is True
    assert section.take_text("t") == "a"
    assert section.take_texts("l") == ("a",)
    assert section.take_texts("none") is None
    assert section.take_ints("i", 2) == (1, 2)
    assert section.take_section("o").where == "c.o"
    assert section.take_section("none").values == {}
    assert [item.where for item in section.take_sections("s")] == ["c.s[0]"]


@pytest.mark.parametrize(
    "take",
    [
        lambda s: s.take_int("n", 4, 9),
        lambda s: s.take_int("yes", 0, 9),
        lambda s: s.take_int("none", 0, 9),
        lambda s: s.take_float("t"),
        lambda s: s.take_float("yes"),
        lambda s: s.take_bool("n"),
        lambda s: s.take_text("n"),
        lambda s: s.take_texts("i"),
        lambda s: s.take_ints("i", 3),
        lambda s: s.take_ints("l", 1),
        lambda s: s.take_section("n"),
        lambda s: s.take_sections("i"),
    ],
)
def test_another_kind_is_refused_with_its_key(take: Callable[[Section], object]) -> None:
    with pytest.raises(ConfigError, match=r"^c\.\w+: expected"):
        take(Section(VALUES, "c"))
