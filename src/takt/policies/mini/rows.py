"""What happens to a `mini` row before and after the network: sizes, words, units, bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from takt.errors import ObservationError
from takt.policies.finite import check_finite
from takt.policies.flow import write_flow
from takt.policies.interface import FloatArray
from takt.policies.mini.checkpoint import MiniCard
from takt.schema.check import check_observation
from takt.schema.observation import PROMPT_KEY, Observation
from takt.schema.resizing import write_image
from takt.schema.row import Row, RowHeader, RowRequest
from takt.schema.spec import PolicySpec

__all__ = ["MiniDecoder", "MiniPreprocessor"]


class MiniPreprocessor:
    """Writes image, words, normalised state and flow inputs.

    Args:
        spec: From :func:`~takt.policies.mini.checkpoint.mini_spec`.
        card: The same checkpoint's card.
    """

    def __init__(self, spec: PolicySpec, card: MiniCard) -> None:
        self.spec = spec
        self._camera = card.camera
        self._tokenizer = card.tokenizer()
        self._mean = np.array(card.state_mean, np.float32)
        self._std = np.array(card.state_std, np.float32)

    def write(
        self, observation: Observation, slot: Mapping[str, NDArray[Any]], request: RowRequest
    ) -> RowHeader:
        """Write one row; see :meth:`takt.policies.interface.Preprocessor.write`."""
        check_observation(observation, self.spec.observation)
        horizon = self._horizon(request)
        prompt = observation.prompt or ""
        slot["words"][...] = self._tokenizer.encode(prompt, observation.spelling(PROMPT_KEY))
        write_image(observation.images[self._camera.name], self._camera, slot["image"])
        state = np.asarray(observation.state, np.float32)
        with np.errstate(over="ignore"):  # an absurd state fails its own row when it is decoded
            slot["state"][...] = (state - self._mean) / self._std
        write_flow(slot, request)
        return RowHeader(
            state_dim=state.size, horizon=horizon, action_dim=self.spec.action.action_dim
        )

    def _horizon(self, request: RowRequest) -> int:
        most = self.spec.action.horizon
        horizon = request.horizon or most
        if horizon > most:
            raise ObservationError(
                "horizon", expected=f"1..{most} steps", received=f"{horizon} steps"
            )
        return horizon


class MiniDecoder:
    """Scales a chunk to robot units and keeps it within the bounds of the axes.

    Args:
        spec: From :func:`~takt.policies.mini.checkpoint.mini_spec`.
        card: The same checkpoint's card.
    """

    def __init__(self, spec: PolicySpec, card: MiniCard) -> None:
        axes = spec.action.axes
        self._mean = np.array(card.action_mean, np.float32)
        self._std = np.array(card.action_std, np.float32)
        self._low = np.array([-np.inf if a.low is None else a.low for a in axes], np.float32)
        self._high = np.array([np.inf if a.high is None else a.high for a in axes], np.float32)

    def decode(self, chunk: FloatArray, row: Row) -> FloatArray:
        """See :meth:`takt.policies.interface.Decoder.decode`."""
        header = row.header
        actions = chunk[: header.horizon, : header.action_dim] * self._std + self._mean
        # Before the bounds: clipping would turn an infinity into a full-scale action.
        check_finite(actions)
        return np.clip(actions, self._low, self._high, out=actions)
