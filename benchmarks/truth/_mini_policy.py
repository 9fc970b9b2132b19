"""The `mini` network asked for one observation at a time, as servers without a scheduler do.

Every server of the comparison runs these lines, or the same graphs in Takt's worker, each launch
with one thread. Imports no more of Takt than a policy needs, so that other interpreters can.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from takt.cli.evaluating.in_process import InProcessPolicy
from takt.policies.interface import FloatArray, Precision

__all__ = ["MiniPolicy"]


class MiniPolicy:
    """`mini`, loaded and warm; for one caller at a time.

    Args:
        precision: Number format of the network.
    """

    def __init__(self, precision: Precision) -> None:
        self._policy = InProcessPolicy("mini", precision=precision)

    def chunk(self, image: Any, state: Any, prompt: str, session: str) -> FloatArray:  # noqa: ANN401
        """The chunk for an observation, its noise being that of ``session``'s first request."""
        seen = {"observation/image": image, "observation/state": state, "prompt": prompt}
        return self.infer({**seen, "takt": {"session": session}})["actions"]

    def infer(self, obs: Mapping[str, Any]) -> dict[str, FloatArray]:
        """Answer an observation in openpi's keys, as openpi's server asks its policy."""
        self._policy.begin(obs["takt"]["session"])
        return {"actions": self._policy.ask(obs)}
