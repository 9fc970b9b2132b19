"""``takt models``: load and unload models of a running server."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
import tyro

from takt.cli.named_values import by_name
from takt.cli.option_numbers import check_numbers
from takt.errors import ConfigError, UsageError
from takt.schema.serving import ServedModel
from takt.server.admin import ask

__all__ = ["List", "Load", "Models", "Unload"]

_MOST_SLO_MS = 3_600_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class List:
    """Say what a server serves."""

    server: int | None = None
    """Process number of 'takt serve'; needed where several run on this computer."""
    json: bool = False
    """Print one JSON object per model."""

    def run(self) -> None:
        """Print one line per model and worker."""
        _show(ask(self.server, {"command": "list"}), as_json=self.json)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Load one more model and wait until it is warm. The others serve meanwhile.

    Two versions of a model are served side by side under two names.
    """

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME[=POLICY]")]
    """POLICY is a policy of the package (echo, mini) or the directory of a checkpoint, for a server
    with model roots a path inside one of them; on a paced device paced:ARCHITECTURE."""
    server: int | None = None
    """Process number of 'takt serve'; needed where several run on this computer."""
    worker: str | None = None
    """Worker that loads it; needed where the server has several."""
    slo_ms: float = 200.0
    """Promised time from a robot sending an observation to the answer being at the robot."""
    option: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """KEY=VALUE of the policy, as latency_ms=5 of echo; give it once per option."""
    json: bool = False
    """Print one JSON object per model."""

    def run(self) -> None:
        """Load, and print what is served then.

        Raises:
            UsageError: The server cannot be reached, or it cannot serve the model.
        """
        model = msgspec.to_builtins(self.served())
        request = {
            "command": "load",
            "model": model,
            "worker": self.worker,
            "folder": str(Path.cwd()),
        }
        _show(ask(self.server, request), as_json=self.json)

    def served(self) -> ServedModel:
        """The model that is asked for.

        Raises:
            ConfigError: An option is impossible.
        """
        check_numbers(self, {"slo_ms": _MOST_SLO_MS})
        name, _, policy = self.model.partition("=")
        options = by_name("--option", map(_option, self.option))
        return ServedModel(name=name, policy=policy or name, options=options, slo_ms=self.slo_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unload:
    """Unload a model once what is under way is answered. The others serve meanwhile."""

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
    """Name of the model."""
    server: int | None = None
    """Process number of 'takt serve'; needed where several run on this computer."""
    json: bool = False
    """Print one JSON object per model."""

    def run(self) -> None:
        """Unload, and print what is served then.

        Raises:
            UsageError: The server cannot be reached, or it must not be unloaded.
        """
        _show(ask(self.server, {"command": "unload", "name": self.name}), as_json=self.json)


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """List, load and unload models of a server that runs on this computer.

    The server takes such commands from its own user alone, and from no network.
    """

    command: Annotated[
        Annotated[List, tyro.conf.subcommand("list")]
        | Annotated[Load, tyro.conf.subcommand("load")]
        | Annotated[Unload, tyro.conf.subcommand("unload")],
        tyro.conf.arg(name=""),
    ]
    """What to do."""

    def run(self) -> None:
        """Do it."""
        self.command.run()


def _option(given: str) -> tuple[str, Any]:
    """A key and its value: JSON where it is some, else text."""
    key, equals, value = given.partition("=")
    if not key or not equals:
        raise ConfigError(f"--option {given}: expected KEY=VALUE")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _show(models: list[dict[str, Any]], *, as_json: bool) -> None:
    if not models:
        raise UsageError("the server serves nothing")
    for model in models:
        line = "{model:<20} {worker:<12} {formation:<11} {state}".format_map(model)
        print(json.dumps(model) if as_json else line)
