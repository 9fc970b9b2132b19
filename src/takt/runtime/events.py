"""What may happen to a worker: the events its loop takes in.

Apart from :class:`~takt.runtime.launches.Completed`, which comes from the lanes, they come from
gateways and from the process around the loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from takt.core.trace import Setup
from takt.link.messages import SlotRef, Submit
from takt.runtime.admission import RowSource
from takt.runtime.launches import Completed
from takt.runtime.models import LoadedModel

__all__ = [
    "Arrived",
    "Cancelled",
    "DrainAsked",
    "DrivingOffered",
    "GatewayLost",
    "HappenedOutside",
    "LoopEvent",
    "SetupChanged",
]


class Arrived(NamedTuple):
    """A gateway submitted a request."""

    source: RowSource
    submit: Submit


class Cancelled(NamedTuple):
    """A gateway no longer wants an answer."""

    source: RowSource
    ref: SlotRef


class GatewayLost(NamedTuple):
    """A connection has ended; nobody waits for its answers."""

    source: RowSource


class DrainAsked(NamedTuple):
    """No new requests from ``source``, or from anybody."""

    source: RowSource | None = None


class SetupChanged(NamedTuple):
    """Other models serve from now on; arrivals wait until nothing is under way."""

    setup: Setup
    models: Mapping[str, LoadedModel]


class DrivingOffered(NamedTuple):
    """Another way to drive the same models, for a moment at which nothing is under way anyhow."""

    setup: Setup


HappenedOutside: TypeAlias = (
    Arrived | Cancelled | GatewayLost | DrainAsked | SetupChanged | DrivingOffered
)
"""Events of gateways and of the process."""

LoopEvent: TypeAlias = HappenedOutside | Completed
"""What may have happened in an instant."""
