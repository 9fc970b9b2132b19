"""A paced device: a GPU by name, the models that stand in for those it would run, and its times.

The scheduler is told the modelled profile of the device, as the simulator is. Without a seed the
lanes take exactly these times. With one the device is a stranger: its solo times and slowdowns
differ from the table by up to a fifth, and each launch by some per cent. The scheduler still
believes the table; what that costs, and whether a profiler finds the truth, can then be measured.

Start reading at :class:`PacedDevice`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from hashlib import blake2b
from random import Random
from typing import Any, cast

from takt.core.model import Model
from takt.core.profile import FULL_SPEED, Profile, Work
from takt.hardware import model_for, profile_for
from takt.hardware.devices import device_named
from takt.link.layout import SlotLayout
from takt.policies.catalog import open_policy
from takt.policies.interface import Placement
from takt.policies.stand_in import paced_architecture
from takt.runtime.deadline_timer import DeadlineTimer
from takt.runtime.launches import Completed
from takt.runtime.models import LoadedModel
from takt.runtime.paced_lanes import PacedLanes, Timer
from takt.schema.serving import ServedModel
from takt.units import Nanos

__all__ = ["JITTER", "SPREAD", "PacedDevice", "load_stand_in", "perturbed"]

SPREAD = 0.2
"""How far a stranger's times and slowdowns lie from the table, as a share."""
JITTER = 0.03
"""Standard deviation of a stranger's launches, as a share."""
_LEAST_FACTOR = 0.5


class PacedDevice:
    """The times of one device.

    Args:
        name: A device of :func:`takt.hardware.known_devices`.
        seed: Makes it a stranger; None: it keeps to the table.

    Raises:
        ConfigError: There is no such device, or the process has no descriptor left.
    """

    def __init__(self, name: str, seed: int | None = None) -> None:
        self._device = device_named(name)
        self.timer = DeadlineTimer()
        """What the loop watches; when it is readable, call :meth:`on_timer`."""
        self._seed = seed
        self._random = Random(seed)
        self._known: dict[Model, None] = {}
        self._lanes: PacedLanes | None = None

    def open_lanes(
        self,
        post: Callable[[Completed], None],
        *,
        clock: Callable[[], Nanos] = time.monotonic_ns,
        timer: Timer | None = None,
    ) -> PacedLanes:
        """Its lanes; see :class:`~takt.runtime.paced_lanes.PacedLanes`.

        Args:
            post: Receives completions.
            clock: In nanoseconds.
            timer: What is armed instead of :attr:`timer`, by whoever keeps the time himself.
        """
        self._lanes = PacedLanes(post, timer or self.timer, clock=clock, vary=self.vary)
        return self._lanes

    def on_timer(self, mask: int) -> None:
        """The timer fired: post what has ended."""
        del mask
        if self._lanes is not None:
            self._lanes.take_ended()

    def pace(self, models: Sequence[Model]) -> Profile:
        """Let the lanes run ``models``.

        Returns:
            What the scheduler is told: the table, whatever launches really take.

        Raises:
            ConfigError: A model is of no known architecture.
        """
        # A model that was unloaded may still have launches under way.
        self._known |= dict.fromkeys(models)
        table = profile = self._profile([*self._known])
        if len(models) < len(self._known):
            profile = self._profile(models)
        if self._lanes is not None:
            self._lanes.pace(table if self._seed is None else perturbed(table, self._seed))
        return profile

    def _profile(self, models: Sequence[Model]) -> Profile:
        device = self._device
        if not models:
            return Profile(units=device.units, shares=device.shares, solo={}, slowdown={})
        return profile_for(device.name, models)

    def close(self) -> None:
        """Give back the timer."""
        self.timer.close()

    def vary(self, time: Nanos) -> Nanos:
        """The time one launch takes; what the table says, but for a stranger."""
        if self._seed is None:
            return time
        return max(1, round(time * max(_LEAST_FACTOR, self._random.gauss(1.0, JITTER))))


def load_stand_in(served: ServedModel, placement: Placement) -> LoadedModel:
    """Load a stand-in: nothing is compiled or measured, its times are the device's.

    Raises:
        ConfigError: There is no such stand-in, or its options are impossible.
    """
    architecture = paced_architecture(served.policy) or served.policy
    parts = open_policy(served.policy, name=served.name, options=served.options)
    spec = parts.spec
    network = parts.network(placement)
    network.load()
    return LoadedModel(
        model=model_for(
            architecture, served.name, served.slo_ms, spec.prefix_sizes, spec.denoise_sizes
        ),
        spec=spec,
        network=network,
        decoder=parts.decoder(),
        slot_layout=SlotLayout.of((t.name, t.shape, t.dtype) for t in spec.slot_tensors),
        kv_slots=placement.kv_slots,
        max_state_dim=max(math.prod(tensor.shape) for tensor in spec.slot_tensors),
        solo={},
    )


def perturbed(profile: Profile, seed: int) -> Profile:
    """A device that is like ``profile``, but not the same.

    Every solo time and every slowdown gets a factor of its own, which depends on the seed and on
    what it belongs to alone: a table of more models says the same of those it shares.
    """
    data = profile.to_json()
    solo = [[*row] for row in _rows(data["solo"])]
    speed = [[*row] for row in _rows(data["speed"])]
    names = ["/".join(map(str, Work(*row[:5]))) for row in solo]
    for name, row in zip(names, solo, strict=True):
        row[5] = max(1, round(row[5] * _factor(seed, name)))
    for row in speed:
        # No co-runner makes a launch faster than it is alone.
        faster = row[2] / _factor(seed, f"{names[row[0]]} beside {names[row[1]]}")
        row[2] = min(max(round(faster), 1), FULL_SPEED)
    return Profile.from_json({**data, "solo": solo, "speed": speed})


def _rows(table: object) -> list[list[Any]]:
    return cast("list[list[Any]]", table)


def _factor(seed: int, name: str) -> float:
    """A number in 1 - SPREAD to 1 + SPREAD that seed and name determine."""
    digest = blake2b(f"{seed} {name}".encode(), digest_size=8).digest()
    return 1 - SPREAD + 2 * SPREAD * int.from_bytes(digest) / (1 << 64)
