"""How the lanes of a device are driven: one file, one pure decider each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from takt.core.batching import View
from takt.core.formations.disaggregated import Disaggregated
from takt.core.formations.flowing import Flowing
from takt.core.formations.lockstep import Lockstep
from takt.core.formations.monolithic import Monolithic
from takt.core.formations.step_admission import StepAdmission
from takt.core.group import Group
from takt.core.launch import Decision
from takt.core.model import Model
from takt.core.profile import Profile
from takt.units import Nanos

__all__ = ["FORMATIONS", "Formation"]


class Formation(Protocol):
    """Looks at the device and proposes what to start."""

    @property
    def group(self) -> Group:
        """The devices it drives."""
        ...

    def expected(self, profile: Profile, model: Model, layout: int) -> tuple[Nanos, Nanos]:
        """Time each stage of a request is expected to take once it starts.

        The figure says which requests yield when there is too much to do. Then batches are at
        their largest and lanes have partners, so it reckons with both; a request that could only
        just make it alone would miss.

        Returns:
            The prefix stage until a denoise launch can follow, and the denoise stage, 0 for a
            single-pass model.
        """
        ...

    def decide(self, view: View, now: Nanos) -> Decision:
        """Propose launches for idle lanes, and when to look again without an event."""
        ...


FORMATIONS: Mapping[str, type[Formation]] = {
    "monolithic": Monolithic,
    "lockstep": Lockstep,
    "flowing": Flowing,
    "step_admission": StepAdmission,
    "disaggregated": Disaggregated,
}
"""Every formation by the name a fleet file gives it."""
