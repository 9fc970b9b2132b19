"""A policy that computes next to nothing and fails when it is told to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from takt.core.model import Model
from takt.core.profile import Work
from takt.core.request import Stage
from takt.errors import RefusedError
from takt.link.layout import SlotLayout
from takt.policies.interface import FloatArray
from takt.runtime.models import LoadedModel
from takt.schema.row import Row
from takt.schema.spec import ActionSpec, LayoutSpec, ObservationSpec, PolicySpec, TensorSpec
from takt.units import Nanos

__all__ = ["FakeDecoder", "FakeNetwork", "fake_model"]

_STATE_DIM = 4
_HORIZON = 3
_ACTION_DIM = 2


class FakeNetwork:
    """Carries the first state value through the key/value cache into every action.

    Args:
        spec: The policy, with a tensor called ``state``.
    """

    def __init__(self, spec: PolicySpec) -> None:
        self.spec = spec
        self.faults: dict[Stage, Exception] = {}
        """What a stage raises instead of running."""
        self.entered: list[Stage] = []
        """Stages whose lanes were entered."""
        self.wait: Nanos = 0
        """Least time of a launch."""
        self.is_loaded = False
        self._kv: dict[int, float] = {}

    def load(self) -> None:
        """Nothing is read."""
        self.is_loaded = True

    def warm(self) -> None:
        """Nothing is compiled."""

    def enter_lane(self, stage: Stage) -> None:
        """Remember it."""
        self.entered.append(stage)

    def prefix(
        self, rows: Sequence[Row], *, size: int, layout: int, kv_slots: Sequence[int]
    ) -> FloatArray | None:
        """Put each state into the cache; the answer of a single-pass policy."""
        del size, layout
        self._raise(Stage.PREFIX)
        for row, kv_slot in zip(rows, kv_slots, strict=True):
            self._kv[kv_slot] = float(row.tensors["state"][0])
        return self._chunks(kv_slots) if self.spec.single_pass else None

    def denoise(
        self, rows: Sequence[Row], *, size: int, layout: int, kv_slots: Sequence[int]
    ) -> FloatArray:
        """Read each state from the cache."""
        del rows, size, layout
        self._raise(Stage.DENOISE)
        return self._chunks(kv_slots)

    def launch_time(self, stage: Stage, rows: int) -> Nanos:
        """As :attr:`wait` says."""
        del stage, rows
        return self.wait

    def close(self) -> None:
        """Nothing is kept."""
        self.is_loaded = False

    def _raise(self, stage: Stage) -> None:
        if stage in self.faults:
            raise self.faults[stage]

    def _chunks(self, kv_slots: Sequence[int]) -> FloatArray:
        action = self.spec.action
        chunks = np.empty((len(kv_slots), action.horizon, action.model_action_dim), np.float32)
        for chunk, kv_slot in zip(chunks, kv_slots, strict=True):
            chunk[...] = self._kv[kv_slot]
        return chunks


class FakeDecoder:
    """Cuts a chunk to its row's size."""

    def decode(self, chunk: FloatArray, row: Row) -> FloatArray:
        """See :meth:`takt.policies.interface.Decoder.decode`."""
        actions = chunk[: row.header.horizon, : row.header.action_dim].copy()
        if not np.isfinite(actions).all():
            raise RefusedError("the answer is not finite")
        return actions


def fake_model(
    model: Model, *, kv_slots: int = 64, solo: Mapping[Work, Nanos] | None = None
) -> LoadedModel:
    """A model that is ready to serve, with a :class:`FakeNetwork`.

    Args:
        model: How it may be scheduled.
        kv_slots: Requests that may be under way at once.
        solo: Times of its launches.
    """
    spec = _spec(model)
    return LoadedModel(
        model=model,
        spec=spec,
        network=FakeNetwork(spec),
        decoder=FakeDecoder(),
        slot_layout=SlotLayout.of((t.name, t.shape, t.dtype) for t in spec.slot_tensors),
        kv_slots=kv_slots,
        max_state_dim=_STATE_DIM,
        solo=dict(solo or {}),
    )


def _spec(model: Model) -> PolicySpec:
    return PolicySpec(
        name=model.name,
        architecture=model.architecture,
        observation=ObservationSpec(state_dim=_STATE_DIM),
        action=ActionSpec(
            action_dim=_ACTION_DIM,
            model_action_dim=_ACTION_DIM,
            horizon=_HORIZON,
            execution_horizon=_HORIZON,
        ),
        prefix_inputs=(TensorSpec(name="state", shape=(_STATE_DIM,)),),
        prefix_sizes=model.prefix_sizes,
        denoise_sizes=model.denoise_sizes,
        layouts=tuple(LayoutSpec(name=f"layout {i}") for i in range(len(model.holds))),
        holds=model.holds,
    )
