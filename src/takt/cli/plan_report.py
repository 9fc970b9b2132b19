"""What ``takt plan`` found, as plain values and as sentences.

Start reading at :func:`figures`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from takt.core.events import Decide
from takt.core.model import Model
from takt.core.profile import Work
from takt.core.request import Stage
from takt.core.trace import Setup
from takt.sim.fleet import Fleet
from takt.sim.knee import Criterion, Knee, Measured
from takt.sim.loop import simulate
from takt.sim.shapes import Carried
from takt.units import SECOND, to_ms

__all__ = ["Answer", "figures", "show"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the simulator said to one question."""

    carried: Carried
    fleet: Fleet
    """The fleet, driven in the shape that carries most."""
    criterion: Criterion
    asked: Mapping[str, int]
    """Robots per model of a mix that was asked about; empty for none."""
    where: str | None
    """Name of the device or of the fleet file."""
    left_out: Mapping[str, str]
    """Formations that were not tried, and why."""


def figures(answer: Answer, hardware: str | None, rate_hz: float | None) -> dict[str, Any]:
    """The answer as JSON has it."""
    knee, fleet, criterion = answer.carried.knee, answer.fleet, answer.criterion
    setups = list(fleet.devices.values())
    num_devices = sum(setup.group.num_physical for setup in setups)
    return {
        "simulated": True,
        "hardware": hardware,
        "fleet": answer.where if hardware is None else None,
        "models": {m.name: _promise(setup, m) for setup in setups for m in setup.models},
        "network_allowance_ms": round(to_ms(fleet.network.allowance()), 3),
        "rate_hz": rate_hz,
        "target": criterion.target,
        "seeds": criterion.num_draws,
        "devices": num_devices,
        "robots_at_target": knee.robots,
        "robots_at_target_mean": knee.robots_by_mean,
        "robots_at_target_per_device": round(knee.robots / num_devices, 2),
        "interval": _interval(knee),
        "worst_robot": _worst_robot(knee),
        "formation": sorted({setup.formation for setup in setups}),
        "options": {name: dict(setup.options) for name, setup in fleet.devices.items()},
        "discipline": sorted({setup.discipline for setup in setups}),
        "prefix_sizes": {m.name: list(m.prefix_sizes) for s in setups for m in s.models},
        "denoise_sizes": {m.name: list(m.denoise_sizes) for s in setups for m in s.models},
        "attainment": [_population(measured, criterion) for measured in knee.measured],
        "left_out": dict(answer.left_out),
        **_launches(fleet, knee),
        **({"mix": _mix(answer)} if answer.asked else {}),
    }


def _promise(setup: Setup, model: Model) -> dict[str, float]:
    """A model's slo, and how long one row takes on an idle device."""
    alone = sum(
        setup.profile.solo(
            Work(
                model.architecture,
                stage,
                len(model.holds) - 1,
                model.sizes(stage)[0],
                setup.profile.units,
            )
        )
        for stage in Stage
        if model.sizes(stage)
    )
    return {"slo_ms": to_ms(model.slo), "alone_ms": round(to_ms(alone), 3)}


def _interval(knee: Knee) -> list[float] | None:
    at = knee.at(knee.robots)
    return None if at is None else [round(at.interval.low, 5), round(at.interval.high, 5)]


def _worst_robot(knee: Knee) -> float | None:
    at = knee.at(knee.robots)
    return None if at is None else round(at.worst_robot, 5)


def _population(measured: Measured, criterion: Criterion) -> dict[str, object]:
    return {
        "robots": measured.population,
        "attainment": round(measured.mean, 5),
        "bound": round(measured.bound, 5),
        "worst_robot": round(measured.worst_robot, 5),
        "draws": len(measured.draws),
        "decided_early": measured.is_early(criterion),
    }


def _launches(fleet: Fleet, knee: Knee) -> dict[str, object]:
    """Sizes and shares of the launches at the knee, as parts of all launches of a stage."""
    if not knee.robots:
        return {"launch_sizes": {}, "shares": {}}
    run = simulate(fleet.resized(knee.robots), duration=20 * SECOND, keep_events=True)
    sizes: dict[str, Counter[int]] = {"prefix": Counter(), "denoise": Counter()}
    shares: Counter[int] = Counter()
    for device in run.devices.values():
        for event in device.events:
            for launch in event.launches if isinstance(event, Decide) else ():
                stage = launch.lane.stage.name.lower()
                sizes[stage][len(launch.requests)] += 1
                if stage == "prefix":
                    shares[launch.share] += 1
    return {
        "launch_sizes": {stage: _parts(counts) for stage, counts in sizes.items()},
        "shares": _parts(shares),
    }


def _parts(counts: Counter[int]) -> dict[str, float]:
    return {str(key): round(counts[key] / counts.total(), 3) for key in sorted(counts)}


def _mix(answer: Answer) -> dict[str, object]:
    """Whether a mix fits on one device, what of it does, and what it would take if not."""
    wanted, carried = sum(answer.asked.values()), answer.carried.knee.robots
    fitting = answer.fleet.resized(min(wanted, carried)).robots
    return {
        "robots": dict(answer.asked),
        "fits": wanted <= carried,
        "part_that_fits": round(min(carried / wanted, 1.0), 3),
        "robots_that_fit": {group.model: group.count for group in fitting},
        "devices_needed": math.ceil(wanted / carried) if carried else None,
    }


# As sentences


def show(found: Mapping[str, Any]) -> None:
    """Print figures for a person."""
    console = Console(highlight=False)
    for sentence in _answers(found):
        console.print(sentence)
    console.print(_table(found))
    for sentence in _details(found):
        console.print(sentence, markup=False)


def _answers(found: Mapping[str, Any]) -> Iterator[str]:
    if "mix" in found:
        yield _mix_sentence(found)
    yield _robots_sentence(found)
    if found["devices"] > 1:
        yield f"on {found['devices']} devices, {found['robots_at_target_per_device']} on each"
    if not found["robots_at_target"]:
        yield _nobody_sentence(found)
    if found["worst_robot"] is not None:
        yield (
            f"the worst of them gets {found['worst_robot']:.2%} of its answers in time, in the"
            " mean over the draws"
        )
    yield f"formation: {_driven(found)}"


def _details(found: Mapping[str, Any]) -> Iterator[str]:
    if any(row["decided_early"] for row in found["attainment"]):
        yield f"early: fewer than {found['seeds']} draws left no doubt at 99 %"
    for stage, parts in found["launch_sizes"].items():
        yield f"rows per {stage} launch: {_listed(parts)}"
    if found["shares"]:
        yield f"units a prefix launch is held to: {_listed(found['shares'])}"
    for shape, reason in found["left_out"].items():
        yield f"not tried: {shape}: {reason}"


def _robots_sentence(found: Mapping[str, Any]) -> str:
    names = ", ".join(f"{name} within {m['slo_ms']:g} ms" for name, m in found["models"].items())
    return (
        f"[bold]{found['robots_at_target']} robots[/bold] hold {found['target'] * 100:g}% on"
        f" {found['hardware'] or found['fleet']} [bold](simulated)[/bold]: {names};"
        f" {found['robots_at_target_mean']} by the mean of five draws"
    )


def _nobody_sentence(found: Mapping[str, Any]) -> str:
    """Why not even one robot is carried."""
    network = found["network_allowance_ms"]
    for name, model in found["models"].items():
        if model["alone_ms"] + network > model["slo_ms"]:
            return (
                f"{name} cannot be on time: {model['slo_ms']:g} ms are promised, and a chunk takes"
                f" {model['alone_ms']:.1f} ms on an idle device, the network up to {network:.1f} ms"
            )
    return "a single robot would be on time, but not surely beside others: relax slo or rate"


def _driven(found: Mapping[str, Any]) -> str:
    options = next(iter(found["options"].values()))
    said = [f"{name} {value}" for name, value in options.items()]
    return ", ".join([*found["formation"], *said, *found["discipline"]])


def _table(found: Mapping[str, Any]) -> Table:
    table = Table("robots", "attainment", "bound", "worst robot", "draws")
    for row in found["attainment"]:
        # A bound over few draws that differ much lies below zero, which says no more than zero.
        shares = (f"{max(row[key], 0):.2%}" for key in ("attainment", "bound", "worst_robot"))
        early = ", early" if row["decided_early"] else ""
        table.add_row(str(row["robots"]), *shares, f"{row['draws']}{early}")
    return table


def _listed(parts: Mapping[str, float]) -> str:
    return ", ".join(f"{key} in {part:.0%}" for key, part in parts.items()) or "none"


def _mix_sentence(found: Mapping[str, Any]) -> str:
    mix = found["mix"]
    named = _counted(mix["robots"])
    if mix["fits"]:
        return f"{named}: [bold]fits[/bold]"
    if mix["devices_needed"] is None:
        return f"{named}: [bold]does not fit[/bold], not even one robot of it"
    slack = "; --discipline least_slack may carry more"
    more = slack if len(mix["robots"]) > 1 and "least_slack" not in found["discipline"] else ""
    return (
        f"{named}: [bold]does not fit[/bold]; {_counted(mix['robots_that_fit'])}"
        f" ({mix['part_that_fits']:.0%}) do, so it takes {mix['devices_needed']} such devices{more}"
    )


def _counted(robots: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in robots.items() if count)
