"""Is the knee that ``takt plan`` predicts the knee that robots find? On perturbed paced devices.

A paced device with a seed is a stranger: every solo time and every slowdown differs from the
modelled GPU by up to a fifth, each launch by some per cent more. ``takt profile`` measures it from
outside, ``takt plan`` sees only that profile, and ``takt serve`` believes it, too; then ``takt
bench`` asks the live server over loopback, with as many robots as were predicted, and with fewer
and more until a population that holds stands beside one that does not.

Both knees follow the same rule, the published one: the largest population up to which the mean
attainment over five draws of the robots' phases reaches 98 %. And both have the same draws, since
``takt plan`` and ``takt bench`` draw the phases of a seed alike. What is left of luck are the times
of the launches; a plan looks at them for longer than a benchmark can, and
:func:`~benchmarks.truth.paced_section.knee_of` reads a knee off all populations that were measured.

The computer that plays the GPU has a part in every request that the GPU has not. It is measured by
model, in several rounds of which the medians count: a request's time outside the device (sockets,
decoding, the link) is the network of the model's robots in every plan, and what of it passes before
the server has read a request or after its last launch is the network allowance of every server, for
all models the longest; the hand-over from one launch to the next is added to every launch's time,
as a profile of this computer's own cores contains it. Launches vary, a profile has medians: how
much they do is measured along with it, and every plan lets them.

Start reading at :class:`PacedDevices`; ``paced_cells.py`` says what is measured and in which order,
``paced_running.py`` runs the commands, ``paced_section.py`` writes what came of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.truth._commands import takt
from benchmarks.truth.paced_cells import (
    FLEETS,
    OUTSIDE_ROBOTS,
    Contestant,
    PacedFleet,
    cells_of,
)
from benchmarks.truth.paced_running import (
    bench,
    fleet_file,
    launch_times,
    layout_of,
    served,
    with_handover,
)
from benchmarks.truth.paced_section import claims_of, measured_of, outside_by_model, section_of
from benchmarks.truth.part import Cell, Claim, Found

from takt.server.fleet_file import FleetFile

__all__ = ["PART", "PacedDevices", "measured_again", "outside_of", "seconds_told"]

_PLAN_PERIODS = 10
"""How much longer a draw of a plan is than an epoch."""
_EXACT = ("--relative-error=0.01", "--most-runs=400", "--most-seconds=30")
"""One robot of 25 is 4 % of a load: times known to the 3 % that a profile aims at when nothing is
said would leave a plan little room."""
_ROOT = Path(__file__).parents[2]
_TOOK = re.compile(r"measured in (?:(\d+) min )?([\d.]+) s")


class PacedDevices:
    """The part of the truth page about paced devices."""

    name = "paced"
    packages = ("numpy", "websockets", "uvloop")

    def cells(self, quick: bool, found: Found) -> Sequence[Cell]:
        """Profiles, plans, then populations in rounds; see :meth:`Part.cells`."""
        return cells_of(quick, found)

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
        model: str,
        seed: int,
        epochs: int,
        seconds: float,
        folder: Path,
        **_: Any,  # noqa: ANN401
    ) -> dict[str, Any]:
        trace = folder / f"outside-{model}.jsonl"
        options = ["--paced", FLEETS[model].gpu, "--paced-seed", str(seed), "--openpi", "0"]
        options += [f"--model={model}", "--formation", "monolithic", "--trace", str(trace)]
        with served(options) as address:
            counts = {model: OUTSIDE_ROBOTS}
            told = bench(address, counts, epochs=epochs, seconds=seconds, folder=folder)
        profile = json.loads(_profiled(model, seed, folder).read_text(encoding="utf-8"))
        with trace.open(encoding="utf-8") as lines:
            times = launch_times(lines, profile)
        trace.unlink()
        return {
            **outside_of(told),
            "handover_ms": round(times.handover_ms, 3),
            "spread": round(times.spread, 4),
            "robots": OUTSIDE_ROBOTS,
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
        draws = ["--json", f"--seeds={epochs}"]
        robots = [f"--robots={model}=1" for model in chosen.models]
        asked = [f"--model={chosen.models[0]}"] if len(robots) == 1 else robots
        said = takt(
            *("plan", f"--profile={profile}", *asked, f"--formation={formation}"),
            *(*draws, f"--seconds={seconds:g}"),
            folder=folder,
            log="plan",
        )
        outside = outside_by_model(found, chosen.models)
        text = fleet_file(
            json.loads(said),
            gpu=chosen.gpu,
            seed=seed,
            profile=profile.name,
            networks={
                model: {key: of[key] for key in ("up_ms", "down_ms")}
                for model, of in outside.items()
            },
            spread=fmean(of["spread"] for of in outside.values()),
        )
        path = folder / f"{fleet}-{seed}-{formation}.yaml"
        path.write_text(text, encoding="utf-8")
        # Phases repeat; what differs from period to period, the launches' times, evens out.
        longer = f"--seconds={_PLAN_PERIODS * seconds:g}"
        planned = json.loads(takt("plan", str(path), *draws, longer, folder=folder, log="plan"))
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
        counts = {group.model: group.count for group in groups}
        outside = outside_by_model(found, FLEETS[fleet].models)
        longest = max(of["allowance_ms"] for of in outside.values())
        allowance = f"--network-allowance-ms={longest:g}"

        def measure() -> dict[str, Any]:
            with served(["--fleet", str(path), allowance]) as address:
                told = bench(address, counts, epochs=epochs, seconds=seconds, folder=folder)
            return measured_of(told)

        return measured_again(measure)

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
    way. The server's clock of a request starts when it has read it: decoding and the link to the
    worker are no part of the network allowance, else they would be taken off the promise twice.
    """
    split = {part: values["p50"] for part, values in told["split_ms"].items()}
    stages = {stage: values["p50"] for stage, values in told["stages_ms"].items()}
    up = split["sender"] + split["network"] / 2 + split["decode"] + stages.get("link", 0.0)
    return {
        "up_ms": round(up, 3),
        "down_ms": round(split["network"] / 2 + split["reply"], 3),
        "allowance_ms": round(split["sender"] + split["network"] + split["reply"], 3),
        "p99_up_and_down_ms": round(
            sum(told["split_ms"][part]["p99"] for part in ("sender", "network", "decode", "reply")),
            3,
        ),
    }


def measured_again(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What is measured, once more if the robots themselves were late; never because of the answer.

    Robots have computers of their own: where ours was held up, the server was not measured.
    """
    first = measure()
    return {**measure(), "is_second": True} if first["is_client_the_limit"] else first


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
    outside = outside_by_model(found, FLEETS[fleet].models)
    here = with_handover(profile, fmean(of["handover_ms"] for of in outside.values()))
    path.write_text(json.dumps(here), encoding="utf-8")
    return path


def _profile_path(fleet: str, seed: int, folder: Path) -> Path:
    return folder / f"{fleet}-{seed}.json"


def _profile_of(fleet: PacedFleet, seed: int, path: Path, folder: Path) -> float:
    """Measure a stranger; how long that takes on its own clock, in seconds."""
    log = f"profile-{path.stem}"
    takt(
        *("profile", "--refresh", f"--paced={fleet.gpu}", f"--paced-seed={seed}"),
        *("--without-waiting", *_EXACT),
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
