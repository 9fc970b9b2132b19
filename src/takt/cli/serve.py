"""``takt serve``: serve policies to robots."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

import tyro

from takt.cli.option_numbers import check_numbers
from takt.errors import ConfigError
from takt.policies.catalog import KNOWN_POLICIES, is_lerobot_checkpoint
from takt.schema.serving import ServedModel
from takt.server.composition import Composition, ServerPlan, split_cores
from takt.server.log_lines import LogLines, one_line
from takt.server.supervisor import Supervisor
from takt.units import seconds

__all__ = ["Serve"]

_OnEvent: TypeAlias = Callable[[str, Mapping[str, Any]], None]

_ECHO_OPTIONS = ("horizon", "latency_ms", "latency_per_row_ms", "prefix_share", "strict_spec")
_FUTURE_DOORS = ("lerobot", "groot", "http")
_MOST = {"slo_ms": 3_600_000.0, "drain_seconds": 3600.0}
"""Options that must lie above 0 and up to this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serve:
    """Serve policies to robots: a supervisor, a gateway with its doors, a worker with the device.

    Robots connect with openpi's own client or with takt.client. The server binds loopback unless
    told otherwise, and any other address needs a token.
    """

    model: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """NAME or NAME=POLICY; give it once per model. POLICY is a policy of the package (echo, mini)
    or the directory of a checkpoint. The first is the default for robots that name none."""
    openpi: int = 8000
    """Port of the openpi door; 0 takes a free one."""
    host: str = "127.0.0.1"
    """Address the doors bind."""
    token_file: Path | None = None
    """File with the token robots must present. The environment variable TAKT_TOKEN does the
    same."""
    token: str | None = None
    """The token itself; for tests, as others can read the command line."""
    slo_ms: float = 200.0
    """Promised time from a robot sending an observation to the answer being at the robot."""
    formation: str = "lockstep"
    """How the device's lanes are driven: lockstep, flowing or monolithic."""
    discipline: str = "earliest_deadline"
    """Which queue goes next: earliest_deadline, least_slack, round_robin or longest_queue."""
    prefix_cores: tuple[int, ...] = ()
    """CPU cores of the prefix lane; half of the process's cores when neither lane is given any."""
    denoise_cores: tuple[int, ...] = ()
    """CPU cores of the denoise lane."""
    network_allowance_ms: float = 0.0
    """What the network of a client that does not measure it takes, both ways."""
    horizon: int | None = None
    """echo: steps in a chunk."""
    latency_ms: float | None = None
    """echo: time of a prefix and a denoise launch together, spent waiting."""
    latency_per_row_ms: float | None = None
    """echo: added to it for each row of the batch."""
    prefix_share: float | None = None
    """echo: share of both that is the prefix stage, 0..1."""
    strict_spec: Path | None = None
    """echo: validate observations like the policy whose card (JSON) this is."""
    tokenizer: Path | None = None
    """LeRobot checkpoints: their tokenizer, a file or a directory, where they do not bring it and
    the local Hugging Face cache has none."""
    deterministic: bool = False
    """LeRobot checkpoints: run every row alone, so that a chunk is the same to the last bit
    whatever else is served. Slow."""
    trace: Path | None = None
    """Write everything the scheduler is told and decides to this file; see 'takt replay'."""
    drain_seconds: float = 10.0
    """Time that requests under way have after SIGTERM."""
    json: bool = False
    """Print one line of JSON per event instead of sentences."""
    verbose: bool = False
    """Log what the processes do."""
    lerobot: int | None = None
    """Refused: this version has no such door."""
    groot: int | None = None
    """Refused: this version has no such door."""
    http: int | None = None
    """Refused: this version has no such door."""

    def run(self) -> None:
        """Serve until SIGTERM or Ctrl-C."""
        for door in _FUTURE_DOORS:
            if getattr(self, door) is not None:
                raise ConfigError(f"--{door}: this version has no {door} door; it has: openpi")
        plan = self.plan()
        handler = logging.StreamHandler()
        handler.setFormatter(LogLines())
        logging.basicConfig(
            level=logging.INFO if self.verbose else logging.WARNING, handlers=[handler]
        )
        os.environ["TAKT_LOG_LEVEL"] = "INFO" if self.verbose else "WARNING"  # children inherit it
        composition = Composition.of(plan)
        say = _say_json if self.json else _Narrator().say
        try:
            asyncio.run(self._supervise(composition, say))
        finally:
            composition.close()

    def plan(self) -> ServerPlan:
        """The server these options ask for.

        Raises:
            ConfigError: An option is impossible.
        """
        check_numbers(self, _MOST)
        prefix, denoise = self.prefix_cores, self.denoise_cores
        if not prefix and not denoise:
            prefix, denoise = split_cores(sorted(os.sched_getaffinity(0)))
        return ServerPlan(
            models=tuple(self._model(given) for given in self.model),
            host=self.host,
            openpi_port=self.openpi,
            token=self._token(),
            formation=self.formation,
            discipline=self.discipline,
            prefix_cores=prefix,
            denoise_cores=denoise,
            network_allowance_ms=self.network_allowance_ms,
            trace_path=None if self.trace is None else str(self.trace.resolve()),
        )

    async def _supervise(self, composition: Composition, say: _OnEvent) -> None:
        supervisor = Supervisor(
            composition.workers, composition.gateways, say, drain=seconds(self.drain_seconds)
        )
        await supervisor.run()

    def _model(self, given: str) -> ServedModel:
        name, _, policy = given.partition("=")
        policy = policy or name
        options = self._echo_options() if policy == "echo" else {}
        if policy not in KNOWN_POLICIES:
            policy = str(Path(policy).resolve())
            options = self._checkpoint_options(Path(policy))
        return ServedModel(name=name, policy=policy, options=options, slo_ms=self.slo_ms)

    def _echo_options(self) -> dict[str, Any]:
        given = {name: getattr(self, name) for name in _ECHO_OPTIONS}
        return {
            name: str(value.resolve()) if isinstance(value, Path) else value
            for name, value in given.items()
            if value is not None
        }

    def _checkpoint_options(self, path: Path) -> dict[str, Any]:
        if not is_lerobot_checkpoint(path):
            return {}
        given: dict[str, Any] = {"deterministic": True} if self.deterministic else {}
        if self.tokenizer is not None:
            given["tokenizer"] = str(self.tokenizer.resolve())
        return given

    def _token(self) -> str | None:
        if self.token_file is not None:
            try:
                token = self.token_file.read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(f"--token-file {self.token_file}: {error}") from None
            if not token:
                raise ConfigError(f"--token-file {self.token_file}: the file is empty")
            return token
        return self.token or os.environ.get("TAKT_TOKEN") or None


def _say_json(name: str, event: Mapping[str, Any]) -> None:
    print(json.dumps({**event, "process": name}), flush=True)


class _Narrator:
    """Says in sentences what happens to the server's processes."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    def say(self, name: str, event: Mapping[str, Any]) -> None:
        """Say one event, if a person would want to know."""
        sentence = self._sentence(name, event)
        if sentence is not None:
            print(one_line(sentence), file=sys.stderr, flush=True)

    def _sentence(self, name: str, event: Mapping[str, Any]) -> str | None:
        if event.get("event") in ("listening", "ready") and not name.startswith("gateway"):
            return None  # robots see the gateway; it is ready when all its workers are
        template = _SENTENCES.get(str(event.get("event")))
        if template is None:
            return None
        models = cast("list[str]", event.get("models", []))
        told = {"name": name, "took": time.monotonic() - self._since, "ready": ", ".join(models)}
        return template.format_map({**event, **told})


_SENTENCES = {
    "listening": "{door} door at ws://{host}:{port}",
    "ready": "ready after {took:.1f} s: {ready}",
    "model_failed": "model {model} failed to load: {reason}",
    "worker_lost": "lost {worker}; its robots are told, and it is started again",
    "worker_back": "{worker} is back",
    "died": "{name} died with status {status}; starting it again",
}
