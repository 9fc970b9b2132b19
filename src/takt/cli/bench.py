"""``takt bench``: measure a running server, and say whether it holds its promise."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from takt.cli.benching.csv_file import write_csv
from takt.cli.benching.figures import EpochResult, bench_figures
from takt.cli.benching.picture import plot_bench
from takt.cli.benching.sender import Epoch, Progress
from takt.cli.benching.senders import Senders, processes_for, senders
from takt.cli.benching.verdict import is_clear
from takt.cli.benching.words import show_bench
from takt.cli.drive import Drive, count_robots
from takt.cli.driving.figures import check_run
from takt.cli.driving.live_table import print_figures
from takt.cli.driving.robot import Deadline
from takt.cli.driving.server_process import serving
from takt.cli.interruption import Interruption
from takt.cli.option_numbers import check_numbers
from takt.cli.output_files import CSV, check_outputs
from takt.cli.picture_file import check_picture
from takt.errors import UsageError
from takt.units import SECOND, Nanos, seconds

__all__ = ["Bench"]

_READY_TIMEOUT: Nanos = 600 * SECOND
_MOST_EPOCHS = 200
_MOST_PROCESSES = 64
_MOST = {"seconds": 24 * 3600.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Measure a running server with real clients, and say whether it holds its promise.

    Robots of several processes ask as 'takt drive' lets them, in epochs that differ by the robots'
    phases. Every request counts: a refusal, an error and silence are misses. It stops early when
    the verdict is clear, and after the epoch in which the server went away for good.

    The exit status is that of 'takt drive'; whether the target is held does not change it.
    """

    server: str | None = None
    """The server: host:port, or a ws:// or wss:// URL."""
    start: Annotated[str | None, tyro.conf.arg(metavar="OPTIONS")] = None
    """Start 'takt serve' with these options and measure that instead. In one word, which the equals
    sign makes it: --start="--model mini --slo-ms 150"."""
    robots: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """N, or MODEL=N; give it once per model. 8 of the default model when absent."""
    rate_hz: float = 2.0
    """Observations per second and robot, whatever the answers do."""
    closed_loop: bool = False
    """Robots ask when their queue has drained to --threshold instead of at a rate."""
    threshold: float = 0.5
    """--closed-loop: share of a chunk, 0..1."""
    epochs: int = 5
    """Most epochs; fewer when the verdict is clear after 3, 5 or 10 of them."""
    seconds: float = 20.0
    """Length of an epoch, what counts of it."""
    warm_up_seconds: float = 2.0
    """Traffic before that in every epoch, which does not count."""
    target: float = 0.98
    """Attainment the server is to hold."""
    slo_ms: float | None = None
    """Promised time from sending to the answer being at the robot; the server's own word when
    absent, or 200."""
    control_hz: float | None = None
    """Control ticks per second; what the model was made for when absent, or 50."""
    deadline: Deadline = "queue"
    """What Takt is told: when each robot's queue runs dry (queue), or nothing (slo)."""
    processes: int | None = None
    """Processes that share the robots; one for every 16 robots, and no more than cores, when
    absent."""
    token_file: Path | None = None
    """File with the server's token. The environment variable TAKT_TOKEN does the same."""
    seed: int = 0
    """Seed of the robots' phases in the first epoch; the others follow."""
    json: bool = False
    """Print the figures as JSON, and nothing else; takt/cli/benching/figures.py explains them."""
    csv: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write every request as a line."""
    plot: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Draw latencies and where the time went to this PNG or SVG file."""

    def run(self) -> None:
        """Measure, and print what came out.

        Raises:
            TaktError: The server cannot be asked at all, served nobody, mixed up robots, or went
                away and did not come back.
            KeyboardInterrupt: A signal broke it off.
        """
        self._check()
        console = Console(stderr=self.json)
        with Interruption() as interruption:
            with self._address(console) as address:
                epochs = self._measure(self._drive(address), console, interruption)
                broken_off = interruption.number is not None
                interruption.let_finish()
            if epochs:
                self._give_out(epochs, broken_off=broken_off, console=console)
            interruption.raise_if_any()

    def _check(self) -> None:
        """Refuse what would only fail after minutes of measuring."""
        if (self.server is None) == (self.start is None):
            raise UsageError("give either --server ADDRESS or --start OPTIONS")
        check_numbers(self, _MOST)
        if self.warm_up_seconds < 0:
            raise UsageError(f"--warm-up-seconds must be at least 0, got {self.warm_up_seconds:g}")
        if not 0 < self.target < 1:
            raise UsageError(f"--target must lie between 0 and 1, got {self.target:g}")
        if not 1 <= self.epochs <= _MOST_EPOCHS:
            raise UsageError(f"--epochs must lie in 1 to {_MOST_EPOCHS}, got {self.epochs}")
        if self.processes is not None and not 1 <= self.processes <= _MOST_PROCESSES:
            raise UsageError(
                f"--processes must lie in 1 to {_MOST_PROCESSES}, got {self.processes}"
            )
        check_picture("--plot", self.plot)
        check_outputs([("--csv", self.csv, CSV), ("--plot", self.plot)], self.token_file)
        address = "127.0.0.1" if self.server is None else self.server
        self._drive(address).check(address="--server")

    @contextmanager
    def _address(self, console: Console) -> Generator[str, None, None]:
        """The server to measure, started for it if that was asked for."""
        if self.server is not None or self.start is None:
            yield self.server or ""
            return
        options = shlex.split(self.start)
        console.print(f"starting takt serve {self.start}", highlight=False)
        with serving([*options, "--openpi", "0"]) as server:
            yield server.wait_until_ready(_READY_TIMEOUT)

    def _measure(
        self, drive: Drive, console: Console, interruption: Interruption
    ) -> list[EpochResult]:
        """The epochs that were run to their end; a signal breaks off."""
        population = sum(count for _, count in _counts(self.robots))
        processes = min(self.processes or processes_for(population), population)
        epochs: list[EpochResult] = []
        with interruption.heard(), senders(drive, processes) as sending:
            while len(epochs) < self.epochs:
                epochs.append(self._epoch(sending, len(epochs), console))
                self._say_epoch(epochs, console)  # what was said must not be lost by a signal
                if epochs[-1].is_server_gone or self._is_clear(epochs):
                    break
        return epochs

    def _epoch(self, sending: Senders, number: int, console: Console) -> EpochResult:
        seed = self.seed + number
        order = Epoch(seed, seconds(self.warm_up_seconds), seconds(self.seconds))
        text = self._title(number)
        with console.status(f"{text}: connecting") as status:
            return EpochResult(seed=seed, parts=sending.run(order, _teller(status.update, text)))

    def _title(self, number: int) -> str:
        return f"epoch {number + 1} of at most {self.epochs}"

    def _say_epoch(self, epochs: list[EpochResult], console: Console) -> None:
        draw = epochs[-1].draw
        away = "" if epochs[-1].server_away is None else "; the server went away"
        console.print(
            f"{self._title(len(epochs) - 1)}: {epochs[-1].issued} requests,"
            f" attainment {draw.attainment:.2%}, worst robot {draw.worst_robot:.2%}{away}",
            highlight=False,
        )

    def _is_clear(self, epochs: list[EpochResult]) -> bool:
        return is_clear([epoch.draw for epoch in epochs], self.target, len(epochs[0].runs))

    def _give_out(self, epochs: list[EpochResult], *, broken_off: bool, console: Console) -> None:
        figures = bench_figures(
            epochs,
            duration=seconds(self.seconds),
            seed=self.seed,
            target=self.target,
            planned=self.epochs,
            broken_off=broken_off,
        )
        if self.csv is not None:
            write_csv(epochs, self.csv)
        if self.plot is not None:
            plot_bench(epochs, figures, self.plot)
        print_figures(figures, console, as_json=self.json, show=show_bench)
        check_run(figures)

    def _drive(self, address: str) -> Drive:
        return Drive(
            address=address,
            robots=self.robots,
            rate_hz=self.rate_hz,
            threshold=self.threshold if self.closed_loop else None,
            seconds=self.seconds,
            slo_ms=self.slo_ms,
            control_hz=self.control_hz,
            deadline=self.deadline,
            token_file=self.token_file,
        )


def _counts(robots: tuple[str, ...]) -> list[tuple[str | None, int]]:
    return [count_robots(given, None) for given in robots or ("8",)]


def _teller(update: Callable[[str], None], text: str) -> Callable[[Progress], None]:
    def tell(now: Progress) -> None:
        share = f"{now.met / now.issued:.1%}" if now.issued else "-"
        update(f"{text}: {now.answered} of {now.issued} answered, {share} within the slo")

    return tell
