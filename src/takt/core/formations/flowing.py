"""Both lanes, each restarted as soon as it is idle; no launch waits for the other lane.

A prefix launch gets its share when it starts, given what is left of the denoise launch beside it,
and keeps it. With gathering a denoise launch waits for the prefix that runs or starts
(:mod:`takt.core.gathering`).
"""

from __future__ import annotations

from dataclasses import dataclass

from takt.core.batching import Batch, View, largest_work, next_batch, whole_batch
from takt.core.gathering import Gathering, Joining
from takt.core.group import Group
from takt.core.launch import Decision, Lane
from takt.core.model import Model
from takt.core.profile import Profile
from takt.core.request import Stage
from takt.units import Nanos

__all__ = ["Flowing"]

_PREFIX, _DENOISE = Lane(0, Stage.PREFIX), Lane(0, Stage.DENOISE)
_GROUP = Group(forecasts=True)


@dataclass(frozen=True, slots=True)
class Flowing:
    """Two independent lanes on one device.

    Attributes:
        gathering: Rows a denoise launch is held back for, while that makes nobody late; 0 for
            never.
    """

    gathering: int = 0

    def __post_init__(self) -> None:
        Gathering(self.gathering)

    @property
    def group(self) -> Group:
        """One device, whose launches are followed to know what is left of them."""
        return _GROUP

    def expected(self, profile: Profile, model: Model, layout: int) -> tuple[Nanos, Nanos]:
        """Largest batches of both stages beside each other."""
        prefix = largest_work(model, Stage.PREFIX, layout, profile.units)
        if model.single_pass:
            return profile.solo(prefix), 0
        denoise = largest_work(model, Stage.DENOISE, layout, profile.units)
        share = profile.best_share(prefix, denoise)
        return profile.pair_ends(prefix._replace(share=share), denoise)

    def decide(self, view: View, now: Nanos) -> Decision:
        """Start the next batch on each idle lane."""
        prefix = denoise = wake_at = None
        if _PREFIX not in view.running:
            prefix = next_batch(view, Stage.PREFIX)
        if _DENOISE not in view.running:
            denoise = self._denoise(view)
        if denoise is not None and self.gathering:
            wake_at = self._wait_until(view, denoise, prefix, now)
            if wake_at is not None:
                denoise = None
        launches = [] if prefix is None else [prefix.launch(_share(view, prefix, denoise, now))]
        if denoise is not None:
            launches.append(denoise.launch(view.profile.units))
        return Decision(tuple(launches), wake_at)

    def _denoise(self, view: View) -> Batch | None:
        # What was gathered must go in one launch: see takt.core.gathering.
        batch = whole_batch if self.gathering else next_batch
        return batch(view, Stage.DENOISE)

    def _wait_until(
        self, view: View, denoise: Batch, prefix: Batch | None, now: Nanos
    ) -> Nanos | None:
        """Instant until which the denoise launch waits for the prefix, None if it does not."""
        assert view.forecast is not None
        if prefix is not None:
            alone = view.profile.solo(prefix.work(view.profile.units))
            joining = Joining.of(prefix, now + alone)
        elif _PREFIX in view.running:
            joining = Joining.of(view.running[_PREFIX], view.forecast.end_of(_PREFIX))
        else:
            return None
        return Gathering(self.gathering, flows=True).latest_start(view, denoise, joining, now)


def _share(view: View, prefix: Batch, denoise: Batch | None, now: Nanos) -> int:
    """Share of a prefix that starts beside ``denoise``, or beside what runs."""
    profile = view.profile
    work = prefix.work(profile.units)
    if denoise is not None:
        return profile.best_share(work, denoise.work(profile.units))
    running = view.running.get(_DENOISE)
    if running is None:
        return profile.units
    assert view.forecast is not None
    beside = view.forecast.work_of(_DENOISE)
    return profile.best_share(work, beside, view.forecast.parts_left(_DENOISE, now))
