"""``takt profile``: what launches take on this device, measured."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar

from takt.cli.interruption import Interruption
from takt.cli.named_values import by_name
from takt.cli.option_numbers import naming_flags
from takt.cli.output_files import PROFILE, check_outputs
from takt.cli.picture_file import check_picture
from takt.cli.profile_plot import plot_profile
from takt.cli.profile_table import show_profile
from takt.cli.serve import Serve
from takt.errors import ConfigError
from takt.policies.interface import Placement, Precision
from takt.runtime.models import LoadedModel
from takt.runtime.profiling.cache import Cache, cache_folder, cache_path
from takt.runtime.profiling.grid import check_sent
from takt.runtime.profiling.machines import (
    CpuMachine,
    LoadingMachine,
    PacedMachine,
    shapes_digest,
    sleep_until,
)
from takt.runtime.profiling.median import Enough
from takt.runtime.profiling.profiler import Profiled, Profiler, Progress
from takt.schema.serving import ServedModel
from takt.server.composition import DevicePlan
from takt.units import Nanos, seconds, to_seconds

__all__ = ["Profile"]

_PAPER = (
    "Robion (arXiv 2609.12075) reports 3 min of profiling and 1 h of benchmarks of robot limits for"
    " 8 models on 4 GPUs; here the limits are simulated from the profile (takt plan)"
)
_SLOTS = 128
"""Of the key/value cache, as in a worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Measure what launches take on this device, alone and beside each other.

    Every time is a median, repeated until it is known to the relative error. What was measured
    before is taken from the cache, so a profile that was stopped goes on where it was.
    """

    model: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """NAME or NAME=POLICY, as for takt serve; give it once per model."""
    paced: str | None = None
    """Measure a paced GPU of 'takt hardware' instead of this computer's cores."""
    paced_seed: int | None = None
    """--paced: a stranger, whose times differ from the model's by up to a fifth."""
    without_waiting: bool = False
    """--paced: do not wait for the launches; only the device's own clock goes on."""
    relative_error: float = 0.03
    """Error of each median: half-width of its 95 % interval, over the median."""
    most_runs: int = 60
    """Runs after which an entry is cut off."""
    most_seconds: float = 3.0
    """Time after which an entry is cut off, in seconds."""
    every_pair: bool = False
    """Measure every pair of launches; otherwise those between grid points are interpolated."""
    layout: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """NAME=N: layout of the rows that robots of a model send, 0 is the cheapest; slowdowns are
    measured in it. When absent the one that holds every row. Give it once per model."""
    slo_ms: float | None = None
    """Promised time of each model, for those who read the profile; as for takt serve."""
    prefix_cores: tuple[int, ...] = ()
    """CPU cores of the prefix lane, as for takt serve."""
    denoise_cores: tuple[int, ...] = ()
    """CPU cores of the denoise lane."""
    precision: Precision = "auto"
    """Number format inside the networks."""
    out: Path | None = None
    """File for the profile; takt serve --profile, takt plan --profile and fleet files read it."""
    plot: Path | None = None
    """Also draw times and slowdowns into this PNG or SVG file."""
    refresh: bool = False
    """Forget what was measured of this device before."""
    json: bool = False
    """Print the profile instead of tables."""

    def run(self) -> None:
        """Measure and print.

        Raises:
            ConfigError: An option is impossible, or a network fails.
            KeyboardInterrupt: A signal broke it off.
        """
        enough = self._enough()
        device = self._device()
        with Interruption():
            self._run(device, enough)

    def _run(self, device: DevicePlan, enough: Enough) -> None:
        if self.paced is not None:
            _say(self._estimate(self.paced, device.models, enough))
        machine = self._machine(device)
        try:
            profiled = self._profile(machine, device.models, enough)
        finally:
            machine.close()
        if self.out is not None:
            profiled.profile.write(self.out)
            _say(f"wrote {self.out}")
        if self.plot is not None:
            plot_profile(profiled, self.plot)
            _say(f"wrote {self.plot}")
        if self.json:
            print(profiled.profile.to_json().decode(), end="")
        else:
            show_profile(profiled, Console())

    def _enough(self) -> Enough:
        if not self.model:
            raise ConfigError("nothing to measure: give at least one --model")
        if self.without_waiting and self.paced is None:
            raise ConfigError("--without-waiting is for --paced; cores take the time they take")
        if not 0 < self.most_seconds <= 3600:  # noqa: PLR2004 - seconds of an hour
            raise ConfigError(f"--most-seconds must lie in 0 to 3600, got {self.most_seconds:g}")
        check_picture("--plot", self.plot)
        check_outputs([("--out", self.out, PROFILE), ("--plot", self.plot)])
        self._sent()
        with naming_flags("relative_error", "most_runs"):
            return Enough(
                relative_error=self.relative_error,
                most_runs=self.most_runs,
                most_time=seconds(self.most_seconds),
            )

    def _sent(self) -> dict[str, int]:
        """Layouts that robots send, by model."""
        return by_name("--layout", map(_layout, self.layout))

    def _device(self) -> DevicePlan:
        """Models and cores as ``takt serve`` would have them."""
        served = Serve(
            model=self.model,
            paced=self.paced,
            paced_seed=self.paced_seed,
            slo_ms=self.slo_ms,
            prefix_cores=self.prefix_cores,
            denoise_cores=self.denoise_cores,
            precision=self.precision,
        )
        return served.plan().devices[0]

    def _machine(self, device: DevicePlan) -> LoadingMachine:
        if self.paced is not None:
            wait = None if self.without_waiting else sleep_until()
            return PacedMachine(self.paced, self.paced_seed, wait=wait)
        placement = Placement(
            kv_slots=_SLOTS,
            prefix_cores=device.prefix_cores,
            denoise_cores=device.denoise_cores,
            precision=self.precision,
        )
        return CpuMachine(placement)

    def _profile(
        self, machine: LoadingMachine, served: Sequence[ServedModel], enough: Enough
    ) -> Profiled:
        began = machine.now()
        with _bar() as (load, tell):
            load("loading models")
            loaded = machine.load(served)
            check_sent([one.model for one in loaded], self._sent())
            identity = machine.identity()
            digests = _digests(served, loaded)
            path = cache_path(cache_folder(os.environ), *identity[:2], identity[2:], self.precision)
            profiler = Profiler(
                machine,
                loaded,
                enough=enough,
                cache=Cache(path, digests, refresh=self.refresh),
                every_pair=self.every_pair,
                sent=self._sent(),
                progress=tell,
            )
            with self._saying_what_is_kept(path):
                profiled = profiler.run(identity)
        whose = " of the device's time" if self.paced is not None else ""
        _say(
            f"measured in {_duration(machine.now() - began)}{whose};"
            f" {profiled.num_from_cache} entries were in {path}"
        )
        return profiled

    @contextlib.contextmanager
    def _saying_what_is_kept(self, path: Path) -> Generator[None, None, None]:
        try:
            yield
        except KeyboardInterrupt:
            same = "the same command without --refresh" if self.refresh else "the same command"
            _say(f"broken off; what was measured is kept in {path}, and {same} goes on from there")
            raise

    def _estimate(self, paced: str, served: Sequence[ServedModel], enough: Enough) -> str:
        """What the same would take on the GPU, from the modelled table."""
        machine = PacedMachine(paced, self.paced_seed or 0)
        try:
            loaded = machine.load(served)
            check_sent([one.model for one in loaded], self._sent())
            profiler = Profiler(
                machine, loaded, enough=enough, every_pair=self.every_pair, sent=self._sent()
            )
            profiler.run(machine.identity())
            return f"on a {paced} this takes {_duration(machine.now())} (modelled); {_PAPER}"
        finally:
            machine.close()


def _digests(served: Sequence[ServedModel], loaded: Sequence[LoadedModel]) -> dict[str, str]:
    """For each architecture, what else its times depend on."""
    return {
        model.model.architecture: shapes_digest(one, model)
        for one, model in zip(served, loaded, strict=True)
    }


def _layout(given: str) -> tuple[str, int]:
    name, _, layout = given.partition("=")
    if not name or not layout.isdecimal():
        raise ConfigError(f"--layout {given!r}: expected NAME=N, such as pi0=2")
    return name, int(layout)


class _bar:  # noqa: N801 - reads as a function at its only place
    """A bar with the time left, on a terminal only."""

    def __init__(self) -> None:
        self._bar = ProgressBar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not sys.stderr.isatty(),
            transient=True,
        )
        self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> tuple[Callable[[str], None], Callable[[Progress], None]]:
        self._bar.start()
        return self._load, self._tell

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def _load(self, text: str) -> None:
        self._bar.update(self._task, description=text)

    def _tell(self, progress: Progress) -> None:
        self._bar.update(
            self._task, completed=progress.done, total=progress.known, description=progress.doing
        )


def _duration(time: Nanos) -> str:
    minutes, rest = divmod(round(to_seconds(time)), 60)
    return f"{minutes} min {rest} s" if minutes else f"{to_seconds(time):.1f} s"


def _say(text: str) -> None:
    print(text, file=sys.stderr)
