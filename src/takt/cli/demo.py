"""``takt demo``: a small fleet served on this computer, from a bare installation."""

from __future__ import annotations

import importlib.util
import time
from dataclasses import dataclass
from typing import Any, Literal

import tyro
from rich.console import Console

from takt.cli.drive import Drive, count_robots
from takt.cli.driving.figures import check_run
from takt.cli.driving.live_table import print_figures, show_figures
from takt.cli.driving.server_process import ServerProcess, serving
from takt.cli.interruption import Interruption
from takt.errors import ConfigError
from takt.policies.catalog import KNOWN_POLICIES
from takt.units import SECOND, Nanos

__all__ = ["Demo"]

_ROBOTS = "8"
_PACED_MODEL = "pi0"
_READY_TIMEOUT: Nanos = 120 * SECOND
_TROUBLE = {
    "died": "a process of the server died with status {status} and was started again",
    "worker_lost": "the server lost {worker}",
}
"""What the server may say during the run that a person should know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """Serve a policy on this computer, let a few robots use it, and say how it went.

    Starts 'takt serve' and drives it as 'takt drive' does: each robot sends recorded camera images
    and states over a real socket, twice a second, and executes the chunks that come back. No GPU;
    --paced rehearses one.
    """

    robots: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """N, or MODEL=N; give it once per model. 8 when absent."""
    seconds: float = 15.0
    """How long they send."""
    model: Literal["mini", "echo"] = "mini"
    """Of robots that name none. mini: a small two-stage network on the CPU, by OpenVINO, trained
    on simulated tasks. echo: no network; each answer shows which robot it belongs to, and that is
    checked."""
    paced: str | None = None
    """A GPU of 'takt hardware' to rehearse: launches take its modelled times by waiting, nothing is
    computed, and models are architectures: pi0 when robots name none."""
    paced_seed: int | None = None
    """--paced: a stranger, whose times differ from the model's by up to a fifth."""
    json: bool = False
    """Print the figures as JSON, and nothing else."""
    seed: int = 0
    """Seed of the robots' phases."""

    def run(self) -> None:
        """Serve, drive, say how it went, and stop the server.

        Raises:
            TaktError: The server did not start, served nobody, mixed up robots, or went away
                and did not come back.
            KeyboardInterrupt: A signal broke it off.
        """
        models = self._models()
        if self.paced is None and "mini" in models and importlib.util.find_spec("openvino") is None:
            raise ConfigError(
                "model mini needs OpenVINO, which comes with: pip install 'takt-serve[server]';"
                " --model echo needs no network"
            )
        self._drive("127.0.0.1").check()
        console = Console(stderr=self.json)
        options = self._serve_options(models)
        with Interruption() as interruption:
            with serving([*options, "--openpi", "0"]) as server:
                figures = self._serve_robots(server, options, console)
                interruption.let_finish()
            self._tell(figures, server, console)
            interruption.raise_if_any()

    def _tell(self, figures: dict[str, Any], server: ServerProcess, console: Console) -> None:
        if self.paced is not None:
            figures = {**figures, "paced_device": self.paced, "paced_seed": self.paced_seed}
        print_figures(figures, console, as_json=self.json, show=show_figures)
        for event in server.events:
            if event.get("event") in _TROUBLE:
                console.print(_TROUBLE[event["event"]].format_map(event), highlight=False)
        check_run(figures)

    def _models(self) -> list[str]:
        """The models robots ask for, each once."""
        default = self.model if self.paced is None else _PACED_MODEL
        asked = [count_robots(given, default)[0] for given in self.robots or (_ROBOTS,)]
        models = [*dict.fromkeys(model for model in asked if model is not None)]
        for model in models:
            if self.paced is None and model not in KNOWN_POLICIES:
                known = ", ".join(KNOWN_POLICIES)
                raise ConfigError(
                    f"--robots: no model {model!r}; there are: {known};"
                    " --paced GPU has stand-ins for more"
                )
        return models

    def _serve_options(self, models: list[str]) -> list[str]:
        options = [option for model in models for option in ("--model", model)]
        if self.paced is not None:
            options = ["--paced", self.paced, *options]
        if self.paced_seed is not None:
            options += ["--paced-seed", str(self.paced_seed)]
        return options

    def _serve_robots(
        self, server: ServerProcess, options: list[str], console: Console
    ) -> dict[str, Any]:
        began = time.monotonic()
        console.print(f"starting takt serve {' '.join(options)}", highlight=False)
        address = server.wait_until_ready(_READY_TIMEOUT)
        took = time.monotonic() - began
        console.print(
            f"ready after {took:.1f} s at ws://{address}{self._mark}; robots connect",
            highlight=False,
        )
        return self._drive(address).drive(console)

    @property
    def _mark(self) -> str:
        return "" if self.paced is None else f", paced {self.paced}"

    def _drive(self, address: str) -> Drive:
        return Drive(
            address=address,
            robots=self.robots or (_ROBOTS,),
            seconds=self.seconds,
            seed=self.seed,
        )
