"""``takt demo``: a small fleet served on this computer, from a bare installation."""

from __future__ import annotations

import importlib.util
import json
import time
from dataclasses import dataclass
from typing import Any, Literal

from rich.console import Console

from takt.cli.drive import Drive
from takt.cli.driving.figures import check_run
from takt.cli.driving.live_table import show_figures
from takt.cli.driving.server_process import ServerProcess, serving
from takt.errors import ConfigError
from takt.units import SECOND, Nanos

__all__ = ["Demo"]

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
    and states over a real socket, twice a second, and executes the chunks that come back. No GPU.
    """

    robots: int = 8
    """Robots."""
    seconds: float = 15.0
    """How long they send."""
    model: Literal["mini", "echo"] = "mini"
    """mini: a small two-stage network on the CPU, by OpenVINO, with random weights. echo: no
    network; each answer shows which robot it belongs to, and that is checked."""
    json: bool = False
    """Print the figures as JSON, and nothing else."""
    seed: int = 0
    """Seed of the robots' phases."""

    def run(self) -> None:
        """Serve, drive, say how it went, and stop the server.

        Raises:
            TaktError: The server did not start, served nobody, or mixed up robots.
        """
        if self.model == "mini" and importlib.util.find_spec("openvino") is None:
            raise ConfigError(
                "model mini needs OpenVINO, which comes with: pip install 'takt-serve[server]';"
                " --model echo needs no network"
            )
        self._drive("127.0.0.1").check()
        console = Console(stderr=self.json)
        with serving(["--model", self.model, "--openpi", "0"]) as server:
            figures = self._serve_robots(server, console)
        if self.json:
            print(json.dumps(figures, indent=2))
        else:
            show_figures(figures, console)
        for event in server.events:
            if event.get("event") in _TROUBLE:
                console.print(_TROUBLE[event["event"]].format_map(event), highlight=False)
        check_run(figures)
        if figures["broken_off"]:
            raise KeyboardInterrupt

    def _serve_robots(self, server: ServerProcess, console: Console) -> dict[str, Any]:
        began = time.monotonic()
        console.print(f"starting takt serve --model {self.model}", highlight=False)
        address = server.wait_until_ready(_READY_TIMEOUT)
        took = time.monotonic() - began
        console.print(
            f"ready after {took:.1f} s at ws://{address}; {self.robots} robots connect",
            highlight=False,
        )
        return self._drive(address).drive(console)

    def _drive(self, address: str) -> Drive:
        return Drive(
            address=address, robots=(str(self.robots),), seconds=self.seconds, seed=self.seed
        )
