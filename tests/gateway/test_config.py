"""What a gateway is told is checked when it is read."""

import pytest

from takt.errors import ConfigError
from takt.gateway.config import GatewayConfig, WorkerAddress
from takt.schema.serving import ServedModel

CONFIG = GatewayConfig(
    name="g",
    workers=(WorkerAddress(name="w", address="a"),),
    models=(ServedModel(name="echo", policy="echo", options={"horizon": 5}),),
)


def test_a_configuration_survives_json() -> None:
    assert GatewayConfig.from_json(CONFIG.to_json()) == CONFIG


def test_the_first_model_is_the_default() -> None:
    assert CONFIG.default == "echo"


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (b'{"name": "g", "workers": [], "models": []}', "at least one model"),
        (
            b'{"name": "g", "workers": [], "models": [{"name":"e","policy":"echo"}], "typo": 1}',
            "typo",
        ),
        (b"[]", "gateway configuration"),
        (b"{", "gateway configuration"),
        (b'{"name": 5}', "name"),
    ],
)
def test_a_document_that_is_none_is_refused_with_the_key(document: bytes, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        GatewayConfig.from_json(document)


@pytest.mark.parametrize(
    "change",
    [{"num_slots": 0}, {"hang_ms": 0.0}, {"default_model": "pi9"}, {"name": ""}, {"models": ()}],
)
def test_impossible_values_are_refused(change: dict[str, object]) -> None:
    fields = {name: getattr(CONFIG, name) for name in ("name", "workers", "models")}
    with pytest.raises(ConfigError):
        GatewayConfig(**{**fields, **change})  # type: ignore[arg-type]


def test_two_models_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="'echo' is given twice"):
        GatewayConfig(name="g", workers=(), models=CONFIG.models * 2)
