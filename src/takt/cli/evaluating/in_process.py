"""A policy without a server: preprocessor, network and decoder in the calling thread.

An observation goes through the same code as in the server, from the openpi door's keys to the
actions; what is left out is the scheduler, the batches and the processes.

Start reading at :meth:`InProcessPolicy.ask`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from takt.core.request import Stage
from takt.doors.openpi_keys import read_observation
from takt.policies.catalog import open_policy
from takt.policies.interface import FloatArray, Placement, Precision
from takt.schema.row import Row, RowRequest

__all__ = ["InProcessPolicy"]

_SESSION = "in process"


class InProcessPolicy:
    """One loaded policy, for one caller.

    Args:
        policy: Name of a policy, or the directory of a checkpoint.
        precision: Number format of the network.
        seed: Part of the key of every noise, beside the number of the request.

    Raises:
        ConfigError: There is no such policy, or it does not load.
    """

    def __init__(self, policy: str, *, precision: Precision = "auto", seed: int = 0) -> None:
        parts = open_policy(policy)
        self.spec = parts.spec
        """What it takes and gives."""
        self._preprocessor = parts.preprocessor()
        self._decoder = parts.decoder()
        self._network = parts.network(Placement(kv_slots=1, precision=precision))
        self._network.load()
        self._network.warm()
        for stage in (Stage.PREFIX, Stage.DENOISE):
            self._network.enter_lane(stage)
        self._slot = {
            tensor.name: np.zeros(tensor.shape, tensor.dtype) for tensor in self.spec.slot_tensors
        }
        self._seed = seed
        self.begin(_SESSION)

    def begin(self, session: str) -> None:
        """Begin again: noise depends on ``session``, on what was asked since, and on the seed."""
        self._session, self._sequence = session, 0

    def ask(self, values: Mapping[str, object]) -> FloatArray:
        """The chunk for an observation in openpi's keys, shape ``(horizon, action_dim)``.

        Raises:
            ObservationError: The policy cannot use the observation.
        """
        request = RowRequest(session=self._session, sequence=self._sequence, seed=self._seed)
        self._sequence += 1
        observation = read_observation(values, self.spec.observation)
        header = self._preprocessor.write(observation, self._slot, request)
        row = Row(header, self._slot)
        chunks = self._network.prefix([row], size=1, layout=header.layout, kv_slots=[0])
        if chunks is None:
            chunks = self._network.denoise([row], size=1, layout=header.layout, kv_slots=[0])
        return self._decoder.decode(chunks[0], row)

    def close(self) -> None:
        """Give the network's memory back."""
        self._network.close()
