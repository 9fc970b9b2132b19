"""``takt drive``: let simulated robots run against a server and say how they were served."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from takt.cli.driving.crew import Crew, Plan
from takt.cli.driving.episodes import Observing, episodes_of
from takt.cli.driving.figures import check_run, figures_of
from takt.cli.driving.live_table import LOOK_EVERY, Onlooker, print_figures, show_figures
from takt.cli.driving.outage import server_away_in
from takt.cli.driving.robot import Behaviour, Deadline
from takt.cli.interruption import Interruption
from takt.cli.option_numbers import check_numbers
from takt.cli.token_file import read_token
from takt.client.address import server_address
from takt.client.connection import Connection, connect
from takt.client.image_settings import ImageSettings, SendImages
from takt.errors import UsageError
from takt.policies.stand_in import PACED
from takt.units import SECOND, Nanos, ms, seconds

__all__ = ["Drive", "count_robots"]

_MAX_ROBOTS = 512
_MOST = {
    "seconds": 7 * 24 * 3600.0,
    "slo_ms": 3_600_000.0,
    "rate_hz": 10_000.0,
    "control_hz": 10_000.0,
}
"""Options that must lie above 0 and up to this."""
_CONNECT_TIMEOUT: Nanos = SECOND
_MIN_ANSWER_TIMEOUT: Nanos = 2 * SECOND
_SLO_MS = 200.0
_CONTROL_HZ = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Drive:
    """Let simulated robots run against a server, and say how they were served.

    Each robot has a connection of its own, sends recorded camera images and states, and executes
    the chunks that come from a queue. Any openpi server will do; Takt's own also says what its
    models take and where the time went.

    The exit status is 1 when nobody was served, a robot got a chunk of another one, or the server
    went away and served nobody any more.
    """

    address: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ADDRESS")]
    """The server: host:port, or a ws:// or wss:// URL."""
    robots: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """N, or MODEL=N; give it once per model. 8 of the default model when absent."""
    model: str | None = None
    """Model of the robots that name none; the server's default when absent."""
    rate_hz: float = 2.0
    """Observations per second and robot, whatever the answers do."""
    threshold: float | None = None
    """Ask when the queue has drained to this share of a chunk (0..1) instead of at a rate."""
    seconds: float = 20.0
    """How long the robots send."""
    slo_ms: float | None = None
    """Promised time from sending to the answer being at the robot; the server's own word when
    absent, or 200."""
    control_hz: float | None = None
    """Control ticks per second; what the model was made for when absent, or 50."""
    deadline: Deadline = "queue"
    """What Takt is told: when each robot's queue runs dry (queue), or nothing (slo)."""
    images: SendImages = "as_given"
    """How camera images are sent, if the server takes them so: as_given, png or jpeg. They have the
    model's size already, so there is nothing to gain from resized."""
    token_file: Path | None = None
    """File with the server's token. The environment variable TAKT_TOKEN does the same."""
    json: bool = False
    """Print the figures as JSON, and nothing else."""
    seed: int = 0
    """Seed of the robots' phases."""

    def run(self) -> None:
        """Run the robots and print what came out.

        Raises:
            TaktError: The server cannot be asked at all, served nobody, mixed up robots, or went
                away and did not come back.
            KeyboardInterrupt: A signal broke it off.
        """
        console = Console(stderr=self.json)
        with Interruption() as interruption:
            figures = self.drive(console)
            interruption.let_finish()
            print_figures(figures, console, as_json=self.json, show=show_figures)
            check_run(figures)
            interruption.raise_if_any()

    def drive(self, console: Console) -> dict[str, Any]:
        """Run the robots; the figures of :mod:`takt.cli.driving.figures`.

        Raises:
            UsageError: An option is impossible.
            ConfigError: A number is.
            ConnectionLostError: There is no server.
            RefusedError: The server knows a model or the token not.
        """
        self.check()
        plans, clock = self.plans(), time.monotonic_ns
        crew = Crew.assemble(plans, duration=seconds(self.seconds), seed=self.seed, clock=clock)
        onlooker = Onlooker(console, crew.robots, start=crew.start, end=crew.end, clock=clock)
        broken_off = False
        try:
            with onlooker.open():
                crew.run(onlooker.look, LOOK_EVERY)
        except KeyboardInterrupt:
            broken_off = True
        duration = min(clock(), crew.end) - crew.start
        return figures_of(
            crew.robots,
            duration=duration,
            seed=self.seed,
            broken_off=broken_off,
            server_away=server_away_in(crew.robots, start=crew.start),
        )

    def check(self, *, address: str = "ADDRESS") -> None:
        """Look at the options that can be judged without a server.

        Args:
            address: What the option with the server's address is called.

        Raises:
            UsageError: An option is impossible.
            ConfigError: A number is.
        """
        check_numbers(self, _MOST)
        server_address(self.address, called=address)
        if self.threshold is not None and not 0 <= self.threshold <= 1:
            raise UsageError(f"--threshold must lie in 0 to 1, got {self.threshold:g}")
        ImageSettings(send=self.images)
        self._counts()

    def plans(self) -> list[Plan]:
        """What each robot is to do.

        Raises:
            UsageError: An option is impossible.
            ConfigError: A value is, or the token cannot be read.
            ConnectionLostError: There is no server.
            RefusedError: The server does not know the model or the token.
        """
        token = read_token(self.token_file)
        run = secrets.token_hex(3)  # two runs against one server must not take over each other
        kinds: list[_Kind] = []
        for model, count in self._counts():
            kinds += [self._kind(model, token)] * count
        episodes = episodes_of([kind.observing for kind in kinds])
        return [
            Plan(
                name=f"robot-{number}",
                behaviour=kind.behaviour,
                episode=episode,
                connect=partial(self._connect, kind, f"drive-{run}-{number}", token),
                stream=f"{kind.behaviour.model}-{kinds[: number - 1].count(kind)}",
            )
            for number, (kind, episode) in enumerate(zip(kinds, episodes, strict=True), 1)
        ]

    def _counts(self) -> list[tuple[str | None, int]]:
        """How many robots ask which model; None is the server's default."""
        counts = [count_robots(given, self.model) for given in self.robots or ("8",)]
        total = sum(count for _, count in counts)
        if total > _MAX_ROBOTS:
            raise UsageError(f"--robots: at most {_MAX_ROBOTS} in all, got {total}")
        return counts

    def _kind(self, model: str | None, token: str | None) -> _Kind:
        """Ask the server about a model."""
        with connect(self.address, token=token, model=model) as connection:
            spec = connection.spec
            name = connection.model or model or "default"
            promised = connection.slo
        control_hz = None if spec is None else spec.action.control_hz
        slo = promised or ms(_SLO_MS)
        behaviour = Behaviour(
            model=name,
            slo=slo if self.slo_ms is None else ms(self.slo_ms),
            control_hz=self.control_hz or control_hz or _CONTROL_HZ,
            rate_hz=self.rate_hz if self.threshold is None else None,
            threshold=0.5 if self.threshold is None else self.threshold,
            deadline=self.deadline,
            is_paced=spec is not None and spec.architecture.startswith(PACED),
        )
        return _Kind(model=model, behaviour=behaviour, observing=Observing.of(spec))

    def _connect(self, kind: _Kind, robot: str, token: str | None) -> Connection:
        return connect(
            self.address,
            token=token,
            model=kind.model,
            robot=robot,
            connect_timeout=_CONNECT_TIMEOUT,
            answer_timeout=max(_MIN_ANSWER_TIMEOUT, 10 * kind.behaviour.slo),
            images=self.images,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """Robots that ask the same model."""

    model: str | None
    behaviour: Behaviour
    observing: Observing


def count_robots(given: str, default: str | None) -> tuple[str | None, int]:
    """The model and the number in ``N`` or ``MODEL=N``.

    Raises:
        UsageError: It is neither.
    """
    model, has_model, number = given.rpartition("=")
    if not number.isascii() or not number.isdigit() or int(number) < 1 or (has_model and not model):
        raise UsageError(f"--robots {given!r}: expected N or MODEL=N, such as 8 or mini=8")
    return model or default, int(number)
