from pathlib import Path
from typing import Any, cast

import pytest
from tests.gateway.doubles import ECHO, Bench

from takt.doors.openpi_websocket import OpenpiDoor
from takt.errors import RefusedError
from takt.gateway.gateway import Gateway
from takt.schema.plain import spec_from_plain
from takt.schema.serving import ServedModel
from takt.wire.limits import Limits
from takt.wire.openpi import decode_metadata

GOLDEN = Path(__file__).parents[1] / "golden" / "policies"
FOLD = ServedModel(name="fold", policy=str(GOLDEN / "smolvla" / "checkpoint"))
MINI = ServedModel(name="mini", policy="mini")


def card_of(door: OpenpiDoor, model: str) -> dict[str, Any]:
    metadata = decode_metadata(door.greeting(model), Limits())
    assert metadata.keys() == {"takt"}
    return cast("dict[str, Any]", metadata["takt"])


def test_the_greeting_says_of_each_model_whether_it_takes_leftovers() -> None:
    async def main(gateway: Gateway) -> None:
        door = OpenpiDoor(gateway)
        said = {name: card_of(door, name)["takes_leftovers"] for name in gateway.models}
        assert said == {"echo": False, "fold": True, "mini": False}

    Bench().run(main, models=(ECHO, FOLD, MINI))


def test_the_word_stands_beside_the_card_which_older_clients_can_read() -> None:
    async def main(gateway: Gateway) -> None:
        card = card_of(OpenpiDoor(gateway), "fold")
        # Reading a card refuses every key that it does not know.
        assert spec_from_plain(card["spec"]) == gateway.spec("fold")
        assert "takes_leftovers" not in card["spec"]

    Bench().run(main, models=(FOLD, ECHO))


def test_nobody_is_greeted_for_a_model_that_is_not_here() -> None:
    async def main(gateway: Gateway) -> None:
        with pytest.raises(RefusedError, match="no model 'fold'"):
            OpenpiDoor(gateway).greeting("fold")

    Bench().run(main)
