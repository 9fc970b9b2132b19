"""A configuration is read strictly: what is not known is refused."""

from dataclasses import dataclass

import pytest

from takt.errors import ConfigError
from takt.schema.json_document import read_json_document


@dataclass(frozen=True, kw_only=True)
class Arm:
    name: str
    joints: int = 6


def test_what_is_left_out_keeps_its_default() -> None:
    assert read_json_document(Arm, b'{"name": "left"}', "arm") == Arm(name="left")


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (b"{", "^arm: "),
        (b"[]", "^arm: "),
        (b"\xff", "^arm: "),
        (b'{"joints": 6}', "^arm: .*name"),
        (b'{"name": "left", "joints": "six"}', "^arm: .*joints"),
        (b'{"name": "left", "jonits": 6}', "^arm: unknown key 'jonits'; known: .*joints"),
    ],
)
def test_what_is_wrong_is_named(document: bytes, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read_json_document(Arm, document, "arm")
