"""The `mini` network asked for one observation at a time, as servers without a scheduler do.

Every server of the comparison runs these lines, or the same graphs in Takt's worker, each launch
with one thread. Imports Takt's policy and nothing of a server, so that other interpreters can.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from takt.core.request import Stage
from takt.policies.catalog import open_policy
from takt.policies.interface import FloatArray, Placement, Precision
from takt.schema.observation import Observation
from takt.schema.row import Row, RowRequest

__all__ = ["MiniPolicy"]


class MiniPolicy:
    """`mini`, loaded and warm; for one caller at a time.

    Args:
        precision: Number format of the network.
    """

    def __init__(self, precision: Precision) -> None:
        parts = open_policy("mini")
        self._preprocessor, self._decoder = parts.preprocessor(), parts.decoder()
        self._network = parts.network(Placement(kv_slots=1, precision=precision))
        self._network.load()
        self._network.warm()
        for stage in (Stage.PREFIX, Stage.DENOISE):
            self._network.enter_lane(stage)
        self._slot = {
            tensor.name: np.zeros(tensor.shape, tensor.dtype) for tensor in parts.spec.slot_tensors
        }

    def chunk(self, image: Any, state: Any, prompt: str, session: str) -> FloatArray:  # noqa: ANN401
        """The chunk for an observation, its noise being that of ``session``'s first request."""
        observation = Observation(
            images={"image": np.asarray(image, np.uint8)},
            state=np.asarray(state, np.float32),
            prompt=prompt,
        )
        header = self._preprocessor.write(observation, self._slot, RowRequest(session=session))
        row = Row(header, self._slot)
        self._network.prefix([row], size=1, layout=header.layout, kv_slots=[0])
        made = self._network.denoise([row], size=1, layout=header.layout, kv_slots=[0])
        return self._decoder.decode(made[0], row)

    def infer(self, obs: Mapping[str, Any]) -> dict[str, Any]:
        """Answer an observation in openpi's keys, as openpi's server asks its policy."""
        session = obs["takt"]["session"]
        return {
            "actions": self.chunk(
                obs["observation/image"], obs["observation/state"], obs["prompt"], session
            )
        }
