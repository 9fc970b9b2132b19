"""Is the knee that ``takt plan`` predicts the knee that robots find? On perturbed paced devices.

A paced device with a seed is a stranger: every solo time and every slowdown differs from the
modelled GPU by up to a fifth, each launch by some per cent more. ``takt profile`` measures it from
outside, ``takt plan`` sees only that profile, and ``takt serve`` believes it, too; then ``takt
bench`` asks the live server over loopback, with as many robots as were predicted, one more, one
less, and further outward until a population that holds stands beside one that does not.

Both knees follow the same rule, the published one: the largest population up to which the mean
attainment over five draws of the robots' phases reaches 98 %. And both have the same draws, since
``takt plan`` and ``takt bench`` draw the phases of a seed alike: what is left between them is the
device and the computer, not luck.

The computer that plays the GPU has a part in every request that the GPU has not. It is measured
once per fleet, with a few robots: a request's time outside the device (sockets, decoding, the link)
is the network of every plan; the hand-over from one launch to the next is added to every launch's
time, as a profile of this computer's own cores contains it. Launches vary, a profile has medians:
how much they do is measured along with it, and every plan lets them.

Start reading at :class:`PacedDevices`; what runs the commands is ``paced_running.py``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.truth.paced_running import (
    bench,
    fleet_file,
    launch_times,
    layout_of,
    served,
    takt,
    with_handover,
)
from benchmarks.truth.paced_section import (
    claims_of,
    knee_of,
    measured_of,
    section_of,
)
from benchmarks.truth.part import Cell, Claim, Found

from takt.server.fleet_file import FleetFile

__all__ = ["FLEETS", "PART", "Contestant", "PacedDevices", "populations"]

TARGET = 0.98
MOST_STEPS = 4
"""Populations looked at on either side of the predicted knee."""
CPU_MODELS = (
    "mini",
    "echo",
    "pi0=tests/golden/policies/pi0_relative/checkpoint",
    "smolvla=tests/golden/policies/smolvla/checkpoint",
)
_ROOT = Path(__file__).parents[2]
_TOOK = re.compile(r"measured in (?:(\d+) min )?([\d.]+) s")


@dataclass(frozen=True, slots=True, kw_only=True)
class PacedFleet:
    """Robots, and the GPU that is played for them."""

    gpu: str
    models: tuple[str, ...]
    """As many robots of each."""


FLEETS = {
    "pi0": PacedFleet(gpu="rtx-pro-6000", models=("pi0",)),
    # On the larger GPU 130 robots would send 400 MB/s, and the computer were the limit.
    "smolvla": PacedFleet(gpu="a6000", models=("smolvla",)),
    "mix": PacedFleet(gpu="rtx-pro-6000", models=("pi0", "smolvla")),
}


class Contestant(NamedTuple):
    """One knee that is predicted and measured."""

    fleet: str
    seed: int
    formation: str
    """``auto`` is the best by prediction."""

    def __str__(self) -> str:
        return f"{self.fleet}, stranger {self.seed}, {self.formation}"


class Extent(NamedTuple):
    """How much is measured."""

    fleets: tuple[str, ...]
    ranked: tuple[int, ...]
    """Strangers on which every formation is measured."""
    others: tuple[int, ...]
    """Strangers on which the best one is."""
    formations: tuple[str, ...]
    epochs: int
    seconds: float
    """Length of an epoch: the robots' phases repeat twice a second, so it need not be long."""

    def contestants(self) -> list[Contestant]:
        """All of them: those that are compared stand together."""
        ranked = [
            Contestant(fleet, seed, formation)
            for seed in self.ranked
            for fleet in self.fleets
            for formation in self.formations
        ]
        return ranked + [
            Contestant(fleet, seed, "auto") for seed in self.others for fleet in self.fleets
        ]


FULL = Extent(
    fleets=("pi0", "smolvla", "mix"),
    ranked=(1,),
    others=(2, 3),
    formations=("lockstep", "flowing", "monolithic"),
    epochs=5,
    seconds=2.0,
)
QUICK = Extent(
    fleets=("mix",),
    ranked=(1,),
    others=(),
    formations=("lockstep", "monolithic"),
    epochs=2,
    seconds=1.0,
)


class PacedDevices:
    """The part of the truth page about paced devices."""

    name = "paced"
    packages = ("numpy", "websockets", "uvloop")

    def cells(self, quick: bool, found: Found) -> Sequence[Cell]:
        """Profiles, plans, then populations in rounds; see :meth:`Part.cells`."""
        extent = QUICK if quick else FULL
        contestants = extent.contestants()
        strangers = list(dict.fromkeys((it.fleet, it.seed) for it in contestants))
        return [
            *(_profile_cell(fleet, seed) for fleet, seed in strangers),
            *(_outside_cell(fleet, extent) for fleet in extent.fleets),
            *(_plan_cell(contestant, extent) for contestant in contestants),
            _cores_cell(quick),
            *_population_cells(contestants, extent, found),
        ]

    def measure(self, cell: Cell, found: Found, folder: Path) -> Mapping[str, Any]:
        """Measure one cell; see :meth:`Part.measure`."""
        step = {
            "profile": self._profile,
            "outside": self._outside,
            "plan": self._plan,
            "population": self._population,
            "cpu": self._cpu,
        }[cell.settings["step"]]
        return step(found=found, folder=folder, **{**cell.settings, "step": None})

    def claims(self, found: Found) -> Sequence[Claim]:
        """Knees within one robot, and the rank of formations."""
        return claims_of(found)

    def section(self, found: Found) -> str:
        """What was found."""
        return section_of(found)

    def _profile(self, *, fleet: str, seed: int, folder: Path, **_: Any) -> dict[str, Any]:  # noqa: ANN401
        path = _profile_path(fleet, seed, folder)
        took = _profile_of(FLEETS[fleet], seed, path, folder)
        header = json.loads(path.read_text(encoding="utf-8"))
        return {"device_s": took, "device": header.get("device"), "bytes": path.stat().st_size}

    def _outside(
        self,
        *,
        fleet: str,
        seed: int,
        robots: int,
        epochs: int,
        seconds: float,
        folder: Path,
        **_: Any,  # noqa: ANN401
    ) -> dict[str, Any]:
        models, trace = FLEETS[fleet].models, folder / f"outside-{fleet}.jsonl"
        options = ["--paced", FLEETS[fleet].gpu, "--paced-seed", str(seed), "--openpi", "0"]
        options += [f"--model={model}" for model in models]
        options += ["--formation", "monolithic", "--trace", str(trace)]
        with served(options) as address:
            counts = {model: robots // len(models) for model in models}
            told = bench(address, counts, epochs=epochs, seconds=seconds, folder=folder)
        profile = json.loads(_profiled(fleet, seed, folder).read_text(encoding="utf-8"))
        with trace.open(encoding="utf-8") as lines:
            times = launch_times(lines, profile)
        trace.unlink()
        return {
            **outside_of(told),
            "handover_ms": round(times.handover_ms, 3),
            "spread": round(times.spread, 4),
            "robots": robots,
            "paced": True,
        }

    def _plan(
        self,
        *,
        fleet: str,
        seed: int,
        formation: str,
        epochs: int,
        seconds: float,
        found: Found,
        folder: Path,
        **_: Any,  # noqa: ANN401
    ) -> dict[str, Any]:
        chosen = FLEETS[fleet]
        profile = _here(fleet, seed, found, folder)
        draws = ["--json", f"--seeds={epochs}", f"--seconds={seconds:g}"]
        robots = [f"--robots={model}=1" for model in chosen.models]
        asked = [f"--model={chosen.models[0]}"] if len(robots) == 1 else robots
        said = takt(
            *("plan", f"--profile={profile}", *asked, f"--formation={formation}", *draws),
            folder=folder,
            log="plan",
        )
        outside = found[f"outside {fleet}"]
        network = {key: outside[key] for key in ("up_ms", "down_ms")}
        text = fleet_file(
            json.loads(said),
            gpu=chosen.gpu,
            seed=seed,
            profile=profile.name,
            network=network,
            spread=outside["spread"],
        )
        path = folder / f"{fleet}-{seed}-{formation}.yaml"
        path.write_text(text, encoding="utf-8")
        planned = json.loads(takt("plan", str(path), *draws, folder=folder, log="plan"))
        return {
            "fleet_file": text,
            "gpu": chosen.gpu,
            "formation": planned["formation"][0],
            "options": planned["options"]["gpu"],
            "prefix_sizes": planned["prefix_sizes"],
            "denoise_sizes": planned["denoise_sizes"],
            "predicted": planned["robots_at_target_mean"],
            "predicted_by_bound": planned["robots_at_target"],
            "attainment": planned["attainment"],
            "simulated": True,
        }

    def _population(
        self,
        *,
        fleet: str,
        seed: int,
        formation: str,
        robots: int,
        epochs: int,
        seconds: float,
        found: Found,
        folder: Path,
        **_: Any,  # noqa: ANN401
    ) -> dict[str, Any]:
        planned = found[f"plan {Contestant(fleet, seed, formation)}"]
        _here(fleet, seed, found, folder)
        path = folder / f"{fleet}-{seed}-{formation}.yaml"
        path.write_text(planned["fleet_file"], encoding="utf-8")
        groups = FleetFile.read(path).fleet().resized(robots).robots
        outside = found[f"outside {fleet}"]
        allowance = f"--network-allowance-ms={outside['up_ms'] + outside['down_ms']:g}"
        with served(["--fleet", str(path), allowance]) as address:
            told = bench(
                address,
                {group.model: group.count for group in groups},
                epochs=epochs,
                seconds=seconds,
                folder=folder,
            )
        return measured_of(told, TARGET)

    def _cpu(
        self,
        *,
        models: Sequence[str],
        options: Sequence[str],
        folder: Path,
        **_: Any,  # noqa: ANN401
    ) -> dict[str, Any]:
        named = [model.replace("tests/", f"{_ROOT}/tests/") for model in models]
        given = [f"--model={model}" for model in named]
        (folder / "cores.json").unlink(missing_ok=True)
        takt(
            *("profile", "--refresh", *given, *options, f"--out={folder / 'cores.json'}"),
            folder=folder,
            log="cores",
        )
        return {
            "seconds": seconds_told((folder / "cores.log").read_text(encoding="utf-8")),
            "models": [model.partition("=")[0] for model in models],
        }


def outside_of(told: Mapping[str, Any]) -> dict[str, float]:
    """Time of a request outside the device, on its way in and on its way out, in ms.

    Only the round trip is known, see ``takt.cli.driving.time_split``: half of it counts for either
    way.
    """
    split = {part: values["p50"] for part, values in told["split_ms"].items()}
    stages = {stage: values["p50"] for stage, values in told["stages_ms"].items()}
    up = split["sender"] + split["network"] / 2 + split["decode"] + stages.get("link", 0.0)
    return {
        "up_ms": round(up, 3),
        "down_ms": round(split["network"] / 2 + split["reply"], 3),
        "p99_up_and_down_ms": round(
            sum(told["split_ms"][part]["p99"] for part in ("sender", "network", "decode", "reply")),
            3,
        ),
    }


def populations(predicted: int, holds: Mapping[int, bool]) -> list[int]:
    """Populations to measure, in order: the knee and its neighbours, then outward.

    Args:
        predicted: The knee.
        holds: What was measured so far.
    """
    around = [it for it in (predicted, predicted + 1, predicted - 1) if it > 0]
    wanted = [*around, *(it for it in sorted(holds) if it not in around)]
    if any(it not in holds for it in around):
        return wanted
    knee = knee_of(holds)
    following = min(holds) - 1 if knee.robots is None else knee.robots + 1
    if not knee.is_bracketed and following > 0 and abs(following - predicted) <= MOST_STEPS:
        wanted.append(following)
    return wanted


def _population_cells(
    contestants: Sequence[Contestant], extent: Extent, found: Found
) -> list[Cell]:
    """A round of every contestant at its own predicted knee, then the next round."""
    wanted: list[list[Cell]] = []
    for contestant in contestants:
        planned = found.get(f"plan {contestant}")
        if planned is None:
            continue
        sizes = populations(planned["predicted"], holds_of(contestant, found))
        best = _best_knee(contestant, contestants, found)
        if best is not None and best not in sizes:
            sizes.append(best)
        wanted.append([_population_cell(contestant, size, extent) for size in sizes])
    return [cell for row in zip_longest(*wanted) for cell in row if cell is not None]


def holds_of(contestant: Contestant, found: Found) -> dict[int, bool]:
    """Populations that were measured close to the knee, and whether they hold."""
    start = f"measure {contestant} at "
    measured = {
        int(key.removeprefix(start)): result["holds"]
        for key, result in found.items()
        if key.startswith(start)
    }
    predicted = found[f"plan {contestant}"]["predicted"]
    return {it: met for it, met in measured.items() if abs(it - predicted) <= MOST_STEPS}


def _best_knee(
    contestant: Contestant, contestants: Sequence[Contestant], found: Found
) -> int | None:
    """Where the best formation on the same stranger is predicted to have its knee."""
    rivals = [it for it in contestants if it[:2] == contestant[:2]]
    knees = [found[f"plan {it}"]["predicted"] for it in rivals if f"plan {it}" in found]
    return max(knees) if len(rivals) > 1 and len(knees) == len(rivals) else None


def _profile_cell(fleet: str, seed: int) -> Cell:
    settings = {"step": "profile", "fleet": fleet, "seed": seed}
    return Cell(key=f"profile {fleet}, stranger {seed}", seconds=5, settings=settings)


def _outside_cell(fleet: str, extent: Extent) -> Cell:
    settings = {
        "step": "outside",
        "fleet": fleet,
        "seed": extent.ranked[0],
        "robots": 8,
        **_draws(extent),
    }
    return Cell(key=f"outside {fleet}", seconds=_bench_seconds(extent), settings=settings)


def _plan_cell(contestant: Contestant, extent: Extent) -> Cell:
    settings = {"step": "plan", **contestant._asdict(), **_draws(extent)}
    return Cell(key=f"plan {contestant}", seconds=12, settings=settings)


def _population_cell(contestant: Contestant, robots: int, extent: Extent) -> Cell:
    settings = {
        "step": "population",
        **contestant._asdict(),
        "robots": robots,
        **_draws(extent),
    }
    key = f"measure {contestant} at {robots}"
    return Cell(key=key, seconds=_bench_seconds(extent), settings=settings)


def _draws(extent: Extent) -> dict[str, Any]:
    return {"epochs": extent.epochs, "seconds": extent.seconds}


def _bench_seconds(extent: Extent) -> float:
    return 6 + extent.epochs * (extent.seconds + 1.5)


def _cores_cell(quick: bool) -> Cell:
    """How long it takes to profile this computer's own cores."""
    models = ("echo",) if quick else CPU_MODELS
    options = ("--most-seconds=0.2",) if quick else ()
    settings = {"step": "cpu", "models": models, "options": options}
    return Cell(key="profile of cores", seconds=60 * len(models), settings=settings)


def _profiled(fleet: str, seed: int, folder: Path) -> Path:
    """The profile of a stranger; measured again where the file is gone."""
    path = _profile_path(fleet, seed, folder)
    if not path.exists():
        _profile_of(FLEETS[fleet], seed, path, folder)
    return path


def _here(fleet: str, seed: int, found: Found, folder: Path) -> Path:
    """The profile of a stranger that this computer plays: with the hand-over between launches."""
    path = folder / f"{fleet}-{seed}-here.json"
    profile = json.loads(_profiled(fleet, seed, folder).read_text(encoding="utf-8"))
    here = with_handover(profile, found[f"outside {fleet}"]["handover_ms"])
    path.write_text(json.dumps(here), encoding="utf-8")
    return path


def _profile_path(fleet: str, seed: int, folder: Path) -> Path:
    return folder / f"{fleet}-{seed}.json"


def _profile_of(fleet: PacedFleet, seed: int, path: Path, folder: Path) -> float:
    """Measure a stranger; how long that takes on its own clock, in seconds."""
    log = f"profile-{path.stem}"
    takt(
        *("profile", "--refresh", f"--paced={fleet.gpu}", f"--paced-seed={seed}"),
        "--without-waiting",
        *(f"--model={model}" for model in fleet.models),
        *(f"--layout={model}={layout_of(model)}" for model in fleet.models),
        f"--out={path}",
        folder=folder,
        log=log,
    )
    return seconds_told((folder / f"{log}.log").read_text(encoding="utf-8"))


def seconds_told(log: str) -> float:
    """How long ``takt profile`` says it took.

    Raises:
        ValueError: It does not say.
    """
    said = _TOOK.search(log)
    if said is None:
        raise ValueError(f"takt profile did not say how long it took: {log}")
    return 60 * int(said[1] or 0) + float(said[2])


PART = PacedDevices()
