"""Loads a model, warms it, and measures what its launches take on this device.

The measured profile is good enough to tell which requests are hopeless: solo times of each captured
shape, and no slowdown between lanes on disjoint cores. Its entries are keyed by the model's name,
because each model is measured by itself. A profile made by ``takt profile``, with slowdowns of
pairs, replaces it where one is given.

Start reading at :func:`load_model`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from takt.core.model import Model
from takt.core.profile import Profile, Work
from takt.core.request import Stage
from takt.errors import ConfigError
from takt.link.layout import SlotLayout
from takt.policies.catalog import open_policy
from takt.policies.interface import Decoder, Network, Placement
from takt.schema.row import Row, RowHeader
from takt.schema.serving import ServedModel
from takt.schema.spec import PolicySpec
from takt.units import Nanos, ms

__all__ = [
    "LaneCaller",
    "LoadedModel",
    "blank_row",
    "load_model",
    "measured_profile",
    "num_units",
]

_RUNS = 3
"""Runs of each captured shape; the median counts."""
_LONG = ms(250)
"""A launch that takes so long varies little in proportion: one run is enough."""
_TYPICAL_DIM = 32
"""State and action width at which a policy with maximum sizes is measured."""
_SHARED_CORES_SLOWDOWN = 2.0
"""Lanes on the same cores get half of them each."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadedModel:
    """A model that is warm: it may be scheduled, and its launches can run."""

    model: Model
    """How it may be scheduled."""
    spec: PolicySpec
    network: Network
    decoder: Decoder
    slot_layout: SlotLayout
    """Where the tensors of a row lie in a slot."""
    kv_slots: int
    """Slots of its key/value cache: requests that may be under way at once."""
    max_state_dim: int
    """Values of the largest tensor of a row; no state is wider."""
    solo: Mapping[Work, Nanos]
    """Measured time of each of its launches, alone on the whole device."""


LaneCaller: TypeAlias = Callable[[Stage, Callable[[], object]], object]
"""Runs a function where launches of a stage run; see :meth:`takt.runtime.launches.Lanes.call`."""


def load_model(
    served: ServedModel, placement: Placement, call: LaneCaller, clock: Callable[[], Nanos]
) -> LoadedModel:
    """Load, warm and measure a model.

    Args:
        served: Which one.
        placement: Where it runs.
        call: Runs a function in a lane, between launches of the models that serve already.
        clock: Monotonic, in nanoseconds.

    Raises:
        ConfigError: The policy cannot be opened or loaded here.
    """
    parts = open_policy(served.policy, name=served.name, options=served.options)
    _check_slots(parts.spec, placement)
    network = parts.network(placement)
    network.load()
    network.warm()
    for stage in Stage:
        call(stage, lambda stage=stage: network.enter_lane(stage))
    spec = network.spec
    return LoadedModel(
        model=_scheduled(served, spec),
        spec=spec,
        network=network,
        decoder=parts.decoder(),
        slot_layout=SlotLayout.of((t.name, t.shape, t.dtype) for t in spec.slot_tensors),
        kv_slots=placement.kv_slots,
        max_state_dim=max(math.prod(tensor.shape) for tensor in spec.slot_tensors),
        solo=_measure(served.name, network, num_units(placement), call, clock),
    )


def measured_profile(models: Iterable[LoadedModel], placement: Placement) -> Profile:
    """The profile of this device as far as it was measured while ``models`` were warmed."""
    solo = {work: time for loaded in models for work, time in loaded.solo.items()}
    units = num_units(placement)
    shared = set(placement.prefix_cores) & set(placement.denoise_cores)
    factor = _SHARED_CORES_SLOWDOWN if shared else 1.0
    slowdown = {
        (work, beside): factor
        for work, beside in product(solo, solo)
        if work.stage is not beside.stage
    }
    return Profile(units=units, shares=(units,), solo=solo, slowdown=slowdown)


def num_units(placement: Placement) -> int:
    """Units of the device: the cores of both lanes."""
    return max(1, len({*placement.prefix_cores, *placement.denoise_cores}))


def _check_slots(spec: PolicySpec, placement: Placement) -> None:
    most = max(*spec.prefix_sizes, *spec.denoise_sizes, 1)
    if placement.kv_slots < most:
        raise ConfigError(
            f"max_requests must be at least {most}, the largest batch of {spec.name!r},"
            f" got {placement.kv_slots}"
        )


def _scheduled(served: ServedModel, spec: PolicySpec) -> Model:
    return Model(
        name=served.name,
        architecture=served.name,
        slo=ms(served.slo_ms),
        prefix_sizes=spec.prefix_sizes,
        denoise_sizes=spec.denoise_sizes,
        holds=spec.holds,
    )


def _measure(
    name: str, network: Network, units: int, call: LaneCaller, clock: Callable[[], Nanos]
) -> dict[Work, Nanos]:
    spec = network.spec
    sizes = {Stage.PREFIX: spec.prefix_sizes, Stage.DENOISE: spec.denoise_sizes}
    works = [
        Work(name, stage, layout, size, units)
        for stage in Stage
        for layout in range(len(spec.layouts))
        for size in sizes[stage]
    ]
    return {work: _solo(network, work, call, clock) for work in works}


def _solo(network: Network, work: Work, call: LaneCaller, clock: Callable[[], Nanos]) -> Nanos:
    stage, layout, size = work.stage, work.layout, work.size
    rows = [blank_row(network.spec, layout)] * size
    run = network.prefix if stage is Stage.PREFIX else network.denoise
    times: list[Nanos] = []

    def launch() -> None:
        start = clock()
        run(rows, size=size, layout=layout, kv_slots=range(size))
        times.append(clock() - start)

    # One call per run: models that serve already get their turn between two of them.
    for _ in range(_RUNS):
        call(stage, launch)
        if times[-1] >= _LONG:
            break
    return max(1, network.launch_time(stage, size), round(statistics.median(times)))


def blank_row(spec: PolicySpec, layout: int) -> Row:
    """A row of zeros in the shapes of a layout, for measuring."""
    action = spec.action
    most = _TYPICAL_DIM if spec.sizes_are_maxima else action.action_dim
    header = RowHeader(
        layout=layout,
        state_dim=min(spec.observation.state_dim, most),
        horizon=action.execution_horizon if spec.sizes_are_maxima else action.horizon,
        action_dim=min(action.action_dim, most),
    )
    tensors: dict[str, NDArray[Any]] = {
        tensor.name: np.zeros(tensor.shape, tensor.dtype) for tensor in spec.slot_tensors
    }
    return Row(header, tensors)
