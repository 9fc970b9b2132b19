"""The models, the devices and the shapes of formations of the group's state machine."""

from itertools import product
from typing import Any

from tests.core.driving import SHARES, UNITS, model_of, works_of
from tests.core.machine_fleet import solo

from takt.core.profile import Profile

MODELS = (
    model_of("pi0", slo=40, prefix=(1, 2, 4), denoise=(1, 4, 8), holds=(0b11, 0b10), steps=3),
    model_of("wide", slo=60, prefix=(2, 3), denoise=(1, 2, 8), holds=(0b101, 0b110, 0b100)),
    model_of("act", slo=12, prefix=(1, 3), denoise=()),
)
BY_NAME = {model.name: model for model in MODELS}
FREE = {"inspection_ms": 2e-6, "packing_ms": 1e-6}
"""2 ns and 1 ns: as round as the times of this machine."""

SHAPES: list[tuple[str, dict[str, Any]]] = [
    ("monolithic", {"replicas": 2}),
    ("lockstep", {"gathering": 4}),
    ("lockstep", {"static_share": SHARES[0]}),
    ("flowing", {}),
    ("flowing", {"gathering": 3}),
    ("step_admission", FREE),
    ("step_admission", {"devices": 2, **FREE}),
    ("step_admission", {"single_stage": True, **FREE}),
    ("disaggregated", {"prefix_devices": 2}),
]


def device() -> Profile:
    """Launches slow each other down: side by side, and as replicas on halves."""
    works = [work for model in MODELS for work in works_of(model)]
    return Profile(
        units=UNITS,
        shares=SHARES,
        solo={work: solo(work) for work in works},
        slowdown={
            (work, beside): 1.25 if SHARES[0] in (work.share, beside.share) else 1.5
            for work, beside in product(works, works)
            if work.stage is not beside.stage or work.share == beside.share == SHARES[0]
        },
        transfer={
            (model.name, layout): 2 + layout
            for model in MODELS
            for layout in range(len(model.holds))
        },
    )


PROFILE = device()
