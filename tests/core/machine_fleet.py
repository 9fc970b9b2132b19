"""The models, the device and the robots of the scheduler's state machine.

Beside them stands, in its plainest form, what the scheduler must reckon: how long a request is
expected to take, and which share suits a pair.
"""

from dataclasses import dataclass
from typing import NamedTuple

from hypothesis import strategies as st
from tests.core.driving import SHARES, UNITS, model_of, works_of

from takt.core.model import Model
from takt.core.profile import Profile, Work
from takt.core.request import Phase, Stage

MODELS = (
    model_of("pi0", slo=20, prefix=(1, 2, 4), denoise=(1, 4), holds=(0b11, 0b10)),
    # Layouts 0 and 1 hold only themselves: together they need the third.
    model_of("wide", slo=30, prefix=(2, 3), denoise=(1, 2, 8), holds=(0b101, 0b110, 0b100)),
    model_of("act", slo=12, prefix=(1, 3), denoise=()),
)
# The machine knows what these must do; another one comes in together with its checks.
FORMATIONS = ("lockstep", "monolithic")
DISCIPLINES = ("earliest_deadline", "longest_queue", "round_robin")
SLOS = sorted(model.slo for model in MODELS)
BY_NAME = {model.name: model for model in MODELS}
WAITS_FOR = {Phase.QUEUED: Stage.PREFIX, Phase.READY: Stage.DENOISE}


def solo(work: Work) -> int:
    """Round numbers in which every part of the shape counts, and a small share is slower."""
    base = 3 if work.stage is Stage.PREFIX else 5
    return base + work.layout + work.size + (2 if work.share < UNITS else 0)


def device() -> Profile:
    """A device on which prefix launches slow denoise launches down, the more the larger."""
    works = [work for model in MODELS for work in works_of(model)]
    return Profile(
        units=UNITS,
        shares=SHARES,
        solo={work: solo(work) for work in works},
        slowdown={
            (work, beside): 1.25 if SHARES[0] in (work.share, beside.share) else 1.5
            for work in works
            for beside in works
            if work.stage is not beside.stage
        },
    )


PROFILE = device()


class Observation(NamedTuple):
    """What a robot sends; instants count from the moment it does."""

    model: Model
    session: int
    layout: int
    due: int
    promise: int
    life: int


OBSERVATIONS = st.builds(
    Observation,
    model=st.sampled_from(MODELS),
    session=st.integers(0, 15),
    layout=st.integers(0, 2),
    due=st.integers(-20, 90),
    promise=st.integers(-5, 90),
    life=st.sampled_from([0, 1, 20, 60, 150, 150, 300, 300]),
)


@dataclass(slots=True, kw_only=True)
class Account:
    """What the machine knows of one request that has no outcome yet."""

    seq: int
    model: Model
    session: str
    due: int
    latest: int
    expires: int
    layout: int
    phase: Phase = Phase.QUEUED
    since: int
    """Instant from which it waits for the next stage."""

    @property
    def place(self) -> tuple[int, int]:
        return self.due, self.seq


def expected_service(formation: str, model: Model, layout: int) -> tuple[int, int]:
    """Time of each stage when there is much to do, as ``formation`` must reckon it."""
    prefix = Work(model.name, Stage.PREFIX, layout, max(model.prefix_sizes), UNITS)
    if model.single_pass:
        return solo(prefix), 0
    if formation == "monolithic":
        holding = [size for size in model.denoise_sizes if size >= prefix.size]
        size = min(holding, default=max(model.denoise_sizes))
        return solo(prefix), solo(prefix._replace(stage=Stage.DENOISE, size=size))
    denoise = prefix._replace(stage=Stage.DENOISE, size=max(model.denoise_sizes))
    ends = PROFILE.pair_ends(prefix._replace(share=best_share(prefix, denoise)), denoise)
    return max(ends), ends[1]


def best_share(prefix: Work, denoise: Work) -> int:
    """The largest of the shares with which the two, started together, are over soonest."""
    time = {share: PROFILE.pair_time(prefix._replace(share=share), denoise) for share in SHARES}
    return max(share for share in SHARES if time[share] == min(time.values()))
