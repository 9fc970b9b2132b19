"""Reconsiders the formations that were chosen, when the robots that really ask have changed.

Gateways say which robots have asked lately; :mod:`takt.server.population` says when that calls for
another choice; it is made aside (:mod:`takt.server.choosing`), and if another shape carries enough
more, the device's worker is told. The worker switches at a moment at which nothing is under way; a
device that is never idle keeps its formation, and that is said too.

Formations that an operator named are none of this module's business.

Start reading at :meth:`Reevaluation.look`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeAlias

from takt.errors import TaktError
from takt.server.children import Child
from takt.server.choosing import choose_aside
from takt.server.commands import count_line, drive_line
from takt.server.composition import DevicePlan
from takt.server.formation_choice import Choice, ChosenDevice, Load
from takt.server.measured_load import Asking, asking_of, declared_population, load_for
from takt.server.population import Population, PopulationWatch, Verdict
from takt.sim.shapes import Shape
from takt.units import Nanos, to_seconds

__all__ = ["Chooser", "Reevaluation", "Say"]

log = logging.getLogger(__name__)

_LOOKS_PER_DWELL = 12
_LATELY_PER_DWELL = 2
"""A robot counts for half of the dwell after its last request."""


Say: TypeAlias = Callable[[str, Mapping[str, Any]], None]
"""Told what happens to a worker, by its name, for the operator."""
Chooser: TypeAlias = Callable[[Load, DevicePlan, Shape], Awaitable[Choice]]
"""Chooses for a load and against a shape; see :func:`~takt.server.choosing.choose_aside`."""


class Reevaluation:
    """Looks after the chosen formations of a running server.

    Args:
        devices: What was chosen at the start, by the name of the device's worker.
        dwell: How long a change of the population must last; of the same order is how long a device
            may not be idle before that is said.
        choose: Makes the choice.
        clock: Monotonic, in nanoseconds.
    """

    def __init__(
        self,
        devices: Mapping[str, ChosenDevice],
        *,
        dwell: Nanos,
        choose: Chooser = choose_aside,
        clock: Callable[[], Nanos] = time.monotonic_ns,
    ) -> None:
        self._dwell = dwell
        self._choose = choose
        self._clock = clock
        self._devices = {name: _Device(chosen, dwell) for name, chosen in devices.items()}
        self._workers: dict[str, Child] = {}
        self._gateways: Sequence[Child] = ()
        self._counted: dict[str, Mapping[str, Asking]] = {}
        self._say: Say = _nobody

    def attend(self, workers: Sequence[Child], gateways: Sequence[Child], say: Say) -> None:
        """Look after these processes."""
        self._workers = {worker.spec.name: worker for worker in workers}
        self._gateways = gateways
        self._say = say

    async def run(self) -> None:
        """Look again and again, until cancelled; then no choice is being made any more."""
        try:
            while True:
                self.look(self._clock())
                await asyncio.sleep(to_seconds(self._dwell // _LOOKS_PER_DWELL))
        finally:
            choosing = [device.give_up() for device in self._devices.values()]
            await asyncio.gather(*filter(None, choosing), return_exceptions=True)

    def look(self, now: Nanos) -> None:
        """Judge by what the gateways said last, and ask them again."""
        for name, device in self._devices.items():
            asking = self._asking(name, device)
            if asking is not None:
                self._judge(name, device, asking, now)
            self._say_if_busy(name, device, now)
        for gateway in self._gateways:
            gateway.tell(count_line(self._dwell // _LATELY_PER_DWELL))

    def heard(self, child: Child, event: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """A child said something; returns what the operator is to hear of it."""
        name, kind = child.spec.name, event.get("event")
        if kind == "robots":
            self._counted[name] = asking_of(event)
            return None
        device = self._devices.get(name)
        if kind == "died":
            self._counted.pop(name, None)
            if device is not None and device.offered is not None:
                # Nothing is under way in its next life.
                self._switched(name, device, device.offered)
        elif kind == "formation_switched" and device is not None:
            self._switched(name, device, _shape(event))
            return None
        elif kind == "formation_refused" and device is not None:
            device.offered = None
        return event

    # The population

    def _asking(self, worker: str, device: _Device) -> Mapping[str, Asking] | None:
        """Who asks for the models of a device; None while a gateway has not said."""
        asking: dict[str, Asking] = {}
        for gateway in self._gateways:
            served_by = self._served_by(gateway)
            if not any(worker in names for names in served_by.values()):
                continue
            counted = self._counted.get(gateway.spec.name)
            if counted is None:
                return None
            for model in device.models:
                # The gateway sends to whoever has least to do: each replica gets its part.
                if model in counted and worker in served_by.get(model, ()):
                    part = counted[model] / len(served_by[model])
                    asking[model] = asking.get(model, Asking(0.0, 0.0, 0.0)) + part
        return asking

    def _served_by(self, gateway: Child) -> dict[str, list[str]]:
        """Names of the workers that ``gateway`` sends to, by model."""
        served_by: dict[str, list[str]] = {}
        for address in gateway.config["gateway"]["workers"]:
            worker = self._workers.get(address["name"])
            models: list[dict[str, Any]] = [] if worker is None else worker.config["models"]
            for model in models:
                served_by.setdefault(model["name"], []).append(address["name"])
        return served_by

    def _judge(self, name: str, device: _Device, asking: Mapping[str, Asking], now: Nanos) -> None:
        population = Population(
            {model: round(asking[model].robots) for model in device.models if model in asking}
        )
        match device.watch.see(population, now):
            case Verdict.CANCEL:
                device.give_up()
            case Verdict.CHOOSE:
                rates = {model: it.rate_hz for model, it in asking.items() if it.rate_hz}
                device.choosing = asyncio.create_task(
                    self._reconsider(name, device, population, rates), name=f"choose {name}"
                )
            case Verdict.KEEP:
                pass

    # The choice

    async def _reconsider(
        self,
        name: str,
        device: _Device,
        population: Population,
        rates: Mapping[str, float],
    ) -> None:
        because = f"{population} ask, chosen for {device.watch.chosen_for}"
        log.info("formation reconsidered: worker=%s because=%s", name, because)
        said = {"event": "formation_reconsidered", "because": because}
        load, present = load_for(device.load, population, rates), device.driven
        try:
            choice = await self._choose(load, device.plan, present)
        except (TaktError, OSError) as error:
            device.watch.has_chosen()
            self._say(name, {**said, "switches": False, "verdict": f"kept: {error}"})
            return
        device.watch.has_chosen()
        self._say(name, {**said, **_verdict(choice)})
        if choice.is_better:
            self._offer(name, device, choice.shape)
        elif choice.is_complete and (device.offered is not None or device.driven != present):
            # What waits, or came into force meanwhile, was for other robots.
            self._offer(name, device, present)

    def _offer(self, name: str, device: _Device, shape: Shape) -> None:
        device.offered, device.offered_at, device.has_said_busy = shape, self._clock(), False
        if not self._workers[name].tell(drive_line(asdict(shape))):
            self._switched(name, device, shape)  # it is not running: its next life begins so

    def _switched(self, name: str, device: _Device, shape: Shape) -> None:
        before, device.driven = device.driven, shape
        if device.offered == shape:
            device.offered = None
        fields = asdict(shape)
        fields["formation_options"] = fields.pop("options")
        self._workers[name].config.update(fields)
        if shape != before:
            log.info("formation switched: worker=%s before=%s after=%s", name, before, shape)
            said = {"event": "formation_switched", "before": _named(before), "after": _named(shape)}
            self._say(name, said)

    def _say_if_busy(self, name: str, device: _Device, now: Nanos) -> None:
        waited = now - device.offered_at
        if device.offered in (None, device.driven) or waited < self._dwell:
            return
        if device.has_said_busy:
            return
        device.has_said_busy = True
        said = {"before": _named(device.driven), "after": _named(device.offered)}
        log.warning("device is never idle: worker=%s waited_s=%.0f", name, to_seconds(waited))
        self._say(name, {"event": "formation_waits", **said, "waited_s": to_seconds(waited)})


class _Device:
    """A device whose formation the server chose."""

    def __init__(self, chosen: ChosenDevice, dwell: Nanos) -> None:
        self.plan = chosen.plan
        self.load = chosen.load
        """As it was declared."""
        self.models = [model.name for model in chosen.load.models]
        """Models with times; robots of others do not count."""
        self.driven = chosen.shape
        self.offered: Shape | None = None
        """What its worker was told to drive it in, and has not said to do."""
        self.offered_at: Nanos = 0
        self.has_said_busy = False
        self.watch = PopulationWatch(declared_population(chosen.load.robots), dwell)
        self.choosing: asyncio.Task[None] | None = None

    def give_up(self) -> asyncio.Task[None] | None:
        """End the choice that is being made, if any."""
        choosing, self.choosing = self.choosing, None
        if choosing is not None:
            choosing.cancel()
        return choosing


def _verdict(choice: Choice) -> dict[str, Any]:
    """What came of a choice, for the operator."""
    assert choice.present is not None
    if choice.is_better:
        verdict = "switches when the device is idle"
    elif not choice.is_complete:
        verdict = "kept: the time was not enough"
    else:
        verdict = f"kept: {choice.present.robots} robots predicted"
    fields = {"before": _named(choice.present.shape), "after": _named(choice.shape)}
    return {**fields, "switches": choice.is_better, "verdict": verdict, "reason": choice.reason}


def _shape(event: Mapping[str, Any]) -> Shape:
    return Shape(
        formation=event["formation"],
        options=event["options"],
        prefix_limit=event["prefix_limit"],
        denoise_limit=event["denoise_limit"],
    )


def _named(shape: Shape) -> str:
    return f"{shape}, batches up to {shape.prefix_limit} and {shape.denoise_limit}"


def _nobody(_: str, __: Mapping[str, Any]) -> None:
    """Nobody listens."""
