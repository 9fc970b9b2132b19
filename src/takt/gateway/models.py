"""A model as the gateway knows it: its card, its preprocessing, its place in a slot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from takt.errors import ConfigError
from takt.gateway.config import GatewayConfig
from takt.link.arena import ArenaGeometry
from takt.link.layout import SlotLayout
from takt.link.messages import ModelOffer
from takt.policies.catalog import open_policy
from takt.policies.interface import Preprocessor
from takt.schema.observation import Observation
from takt.schema.plain import to_plain
from takt.schema.serving import ServedModel
from takt.schema.spec import PolicySpec
from takt.units import Nanos, ms

__all__ = [
    "GatewayModel",
    "ModelState",
    "Readiness",
    "open_each",
    "open_model",
    "open_models",
    "slots_for",
    "why_unfit",
]

ModelState: TypeAlias = Literal["loading", "ready", "failed", "lost"]
"""``lost``: every worker that served it is gone, and expected back."""

_SLOT_UNIT = 64
"""A slot's bytes are a multiple of it."""
_WORKERS_OWN = frozenset({"prefix_sizes", "denoise_sizes", "holds"})
"""Parts of a card that change with the device and mean nothing to a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """Whether a model is served now."""

    state: ModelState
    """The best state of its replicas."""
    reason: str = ""
    """For a person: why it is not ready."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GatewayModel:
    """One model robots may ask for."""

    name: str
    """Name robots ask for."""
    spec: PolicySpec
    """Its card."""
    plain_spec: Mapping[str, Any]
    """The card as plain values, to compare with what a worker offers."""
    preprocessor: Preprocessor
    """Writes its rows."""
    layout: SlotLayout
    """Where the tensors of a row lie in a slot."""
    slo: Nanos
    """Promised time from the robot sending an observation to the answer being at the robot."""
    is_light: bool
    """Whether a row is written faster than another thread wakes up: no images to prepare."""
    takes_leftovers: bool
    """Whether a request may say what its robot is still executing."""

    def is_read_at_once(self, observation: Observation) -> bool:
        """Whether its row is written without a thread, so that whoever lent it has it back."""
        return self.is_light and not observation.encoded


def open_models(served: Iterable[ServedModel]) -> dict[str, GatewayModel]:
    """Open the gateway's part of each model, by name.

    Raises:
        ConfigError: A policy does not exist or its card cannot be read.
    """
    return {model.name: open_model(model) for model in served}


def open_each(served: Iterable[ServedModel]) -> tuple[dict[str, GatewayModel], dict[str, str]]:
    """Open the gateway's part of each model that can be opened, and say why others cannot.

    Raises:
        ConfigError: Not a single one can be opened.
    """
    opened: dict[str, GatewayModel] = {}
    failed: dict[str, ConfigError] = {}
    for model in served:
        found = _try(model)
        if isinstance(found, ConfigError):
            failed[model.name] = found
        else:
            opened[model.name] = found
    if failed and not opened:
        name, why = next(iter(failed.items()))
        raise ConfigError(f"model {name}: {why}") from why
    return opened, {name: str(error) for name, error in failed.items()}


def open_model(served: ServedModel) -> GatewayModel:
    """Open the gateway's part of a model.

    Raises:
        ConfigError: The policy does not exist or its card cannot be read.
    """
    parts = open_policy(served.policy, name=served.name, options=served.options)
    spec = parts.spec
    return GatewayModel(
        name=served.name,
        spec=spec,
        plain_spec=to_plain(spec),
        preprocessor=parts.preprocessor(),
        layout=SlotLayout.of((t.name, t.shape, t.dtype) for t in spec.slot_tensors),
        slo=ms(served.slo_ms),
        is_light=not spec.observation.cameras,
        takes_leftovers=parts.takes_leftovers,
    )


def slots_for(models: Iterable[GatewayModel], config: GatewayConfig) -> ArenaGeometry:
    """Slots that hold a row of any of ``models``, and of one that may be loaded later."""
    largest = max(model.layout.slot_bytes for model in models)
    reserved = -(-config.reserved_row_bytes // _SLOT_UNIT) * _SLOT_UNIT
    return ArenaGeometry(num_slots=config.num_slots, slot_bytes=max(largest, reserved))


def why_unfit(offer: ModelOffer, model: GatewayModel) -> str | None:
    """Why rows of ``model`` cannot be sent to a worker that makes this offer; None if they can."""
    differing = [
        key
        for key, value in model.plain_spec.items()
        if key not in _WORKERS_OWN and offer.spec.get(key) != value
    ]
    if not differing:
        return None
    return f"worker and gateway disagree about {', '.join(differing)}; restart both"


def _try(served: ServedModel) -> GatewayModel | ConfigError:
    try:
        return open_model(served)
    except ConfigError as error:
        return error
