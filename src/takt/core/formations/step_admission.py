"""Requests join and leave the denoise loop at every step: the rule of stage-pipelined engines.

Each stage takes whoever waits, as soon as it is idle, on all of its device. A denoise launch is a
single step; before it the engine looks who is there and packs their inputs into one batch, after it
it takes the batch apart. That work is done at every step and is not hidden.

Source: the step scheduler of vLLM-Omni, as its documentation describes it, and the measurement of
its inspection cost in Robion (arXiv 2609.12075). This is the rule built into our scheduler, not
that engine.
"""

from __future__ import annotations

from dataclasses import dataclass

from takt.core.batching import View, largest_work, next_batch, whole_batch
from takt.core.group import Group, Stepping
from takt.core.launch import NOTHING, Decision, Lane
from takt.core.model import Model
from takt.core.profile import Profile
from takt.core.request import Stage
from takt.errors import ConfigError
from takt.units import Nanos, ms

__all__ = ["StepAdmission"]


@dataclass(frozen=True, slots=True)
class StepAdmission:
    """Two queues, two lanes, one denoise step per launch.

    Attributes:
        devices: 1 runs both stages on one device, in two streams; 2 gives each stage its own.
        single_stage: Upstream's other mode, on one device: one request at a time, all its denoise
            steps in one launch.
        inspection_ms: Time each denoise launch spends looking who is there.
        packing_ms: Time each denoise launch spends per row on packing and unpacking.
    """

    devices: int = 1
    single_stage: bool = False
    inspection_ms: float = 0.9
    packing_ms: float = 0.1

    def __post_init__(self) -> None:
        if self.devices not in (1, 2):
            raise ConfigError(f"devices must be 1 or 2, got {self.devices}")
        if self.single_stage and self.devices != 1:
            raise ConfigError("single_stage runs on one device, got devices=2")

    @property
    def group(self) -> Group:
        """One device, or one per stage."""
        stepping = Stepping(
            is_split=not self.single_stage,
            inspection=ms(self.inspection_ms),
            packing=ms(self.packing_ms),
        )
        if self.devices == 1:
            return Group(stepping=stepping)
        return Group(physical=(0, 1), home=(1, 1), stepping=stepping)

    def expected(self, profile: Profile, model: Model, layout: int) -> tuple[Nanos, Nanos]:
        """Largest batches of both stages, beside each other where they share a device."""
        prefix = largest_work(model, Stage.PREFIX, layout, profile.units)
        if model.single_pass:
            return profile.solo(prefix), 0
        denoise = largest_work(model, Stage.DENOISE, layout, profile.units)
        if self.single_stage:
            one = prefix._replace(size=model.prefix_sizes[0])
            return profile.solo(one), profile.solo(denoise._replace(size=model.denoise_sizes[0]))
        steps = model.steps
        if self.devices == 2:  # noqa: PLR2004 - one device per stage
            move = profile.transfer(model.architecture, layout)
            return profile.solo(prefix) + move, steps * profile.solo(denoise)
        ends = profile.pair_ends(prefix, denoise)
        return ends[0], steps * ends[1]

    def decide(self, view: View, now: Nanos) -> Decision:
        """Start whatever waits on an idle lane."""
        del now
        if self.single_stage:
            return _one_at_a_time(view)
        device = self.devices - 1
        denoise = prefix = None
        if Lane(device, Stage.DENOISE) not in view.running:
            denoise = whole_batch(view, Stage.DENOISE, device=device)
        if Lane(0, Stage.PREFIX) not in view.running:
            prefix = next_batch(view, Stage.PREFIX)
        units = view.profile.units
        launches = [] if prefix is None else [prefix.launch(units)]
        if denoise is not None:
            launches.append(denoise.launch(units, device=device))
        return Decision(tuple(launches))


def _one_at_a_time(view: View) -> Decision:
    if view.running:
        return NOTHING
    batch = next_batch(view, Stage.DENOISE) or next_batch(view, Stage.PREFIX)
    if batch is None:
        return NOTHING
    size = batch.model.sizes(batch.stage)[0]
    rows = batch._replace(requests=batch.requests[:size], size=size)
    return Decision((rows.launch(view.profile.units),))
