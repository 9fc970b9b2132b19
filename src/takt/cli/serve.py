"""``takt serve``: serve policies to robots."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import tyro

from takt.cli.input_files import named_by
from takt.cli.named_values import by_name
from takt.cli.option_numbers import check_numbers, flag_of, naming_flags
from takt.cli.serve_checks import (
    check_cores,
    check_formation,
    check_installed,
    check_paths,
    check_policies,
    check_profile,
    check_traces,
)
from takt.cli.serve_words import Narrator, say_choice, say_choosing, say_json, say_stopped
from takt.cli.token_file import read_token
from takt.doors.lerobot_options import LerobotModelOptions, LerobotOptions
from takt.errors import ConfigError
from takt.hardware.architectures import architecture_named
from takt.policies.catalog import KNOWN_POLICIES, is_lerobot_checkpoint
from takt.policies.echo import EchoOptions, echo_spec
from takt.policies.interface import Precision
from takt.policies.lerobot.opening import Engine
from takt.policies.stand_in import PACED, stand_in_named
from takt.schema.serving import ServedModel
from takt.server.admin import admin_address
from takt.server.composition import (
    Composition,
    DevicePlan,
    GatewayPlan,
    ServerPlan,
    split_cores,
    worker_name,
)
from takt.server.device_load import load_of_device, load_of_fleet
from takt.server.fleet_server import server_plan
from takt.server.formation_choice import AUTO, ChosenDevice, Load, choose_formations
from takt.server.log_lines import LogLines
from takt.server.model_roots import ModelRoots
from takt.server.reevaluation import Reevaluation
from takt.server.supervisor import GATEWAY_PATIENCE, Supervisor
from takt.sim.processes import processes
from takt.units import ms, seconds

__all__ = ["Serve"]

_OnEvent: TypeAlias = Callable[[str, Mapping[str, Any]], None]

_ECHO_OPTIONS = ("horizon", "latency_ms", "latency_per_row_ms", "prefix_share", "strict_spec")
_BESIDE_FLEET = (
    "fleet",
    "host",
    "token",
    "token_file",
    "network_allowance_ms",
    "trace",
    "state_dir",
    "hang_ms",
    "drain_seconds",
    "reevaluate_seconds",
    "json",
    "verbose",
)
"""Options that say nothing a fleet file says."""
_SLO_MS = 200.0
_FUTURE_DOORS = ("groot", "http")
_MOST = {"slo_ms": 3_600_000.0, "hang_ms": 3_600_000.0, "drain_seconds": 3600.0}
"""Options that must lie above 0 and up to this."""
_LONGEST_DWELL_S = 86_400.0
_LARGEST_PORT = 65_535
_MOST_ALLOWANCE_MS = 1000.0
"""What a session believes at most."""


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
    lerobot: int | None = None
    """Port of the LeRobot door; 0 takes a free one. There is no such door when absent."""
    host: str = "127.0.0.1"
    """Address the doors bind."""
    allow_from: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """DOOR=NETWORK or NETWORK, such as lerobot=10.0.0.0/24; may be repeated. Where robots may come
    from, for doors whose protocol cannot carry a token and whose host others can reach."""
    alias: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """MODEL=NAME: a further name of a model, what LeRobot robots give as pretrained_name_or_path.
    Nothing is downloaded or opened; may be repeated."""
    state_dir: Annotated[Path | None, tyro.conf.arg(metavar="DIRECTORY")] = None
    """Where the LeRobot door keeps what sessions are known by, so that robots go on after a
    restart of the server; in memory when absent."""
    token_file: Path | None = None
    """File with the token robots must present. The environment variable TAKT_TOKEN does the
    same."""
    token: str | None = None
    """The token itself; for tests, as others can read the command line."""
    fleet: Annotated[Path | None, tyro.conf.arg(metavar="FLEET.yaml")] = None
    """Serve the devices, models and gateways of a fleet file instead of --model."""
    paced: str | None = None
    """A GPU of 'takt hardware' to rehearse: launches take its modelled times by waiting, models are
    stand-ins named by their architecture (pi0, smolvla), and nothing is computed."""
    paced_seed: int | None = None
    """--paced: a stranger, whose times differ from the model's by up to a fifth."""
    slo_ms: float | None = None
    """Promised time from a robot sending an observation to the answer being at the robot; 200 when
    absent, with --paced the architecture's own."""
    profile: Path | None = None
    """Profile that 'takt profile' wrote: the scheduler believes these times."""
    formation: str = "lockstep"
    """How the device's lanes are driven: lockstep, flowing or monolithic; auto chooses the one that
    carries the most of the declared robots by simulation, see --robots."""
    robots: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """NAME=N: robots that will ask a model, for --formation auto; give it once per model."""
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
    stock_resize: bool = False
    """LeRobot checkpoints: first stretch images as LeRobot's own asynchronous server does, to
    compare with one."""
    deterministic: bool = False
    """LeRobot checkpoints: run every row alone, so that a chunk is the same to the last bit
    whatever else is served. Slow."""
    engine: Engine = "torch"
    """LeRobot checkpoints: what computes. openvino exports a checkpoint once, see 'takt export',
    and needs no torch afterwards."""
    precision: Precision = "auto"
    """LeRobot checkpoints: number format inside the network, f32 or bf16; auto is f32."""
    engine_cache: Path | None = None
    """--engine openvino: folder of exports; takt/engines in the user's cache when absent."""
    model_root: tyro.conf.UseAppendAction[tuple[Path, ...]] = ()
    """Folder that models are kept in; may be repeated. With it a POLICY that is a directory is a
    path inside one of them, and nothing outside of them is read, links included."""
    trace: Path | None = None
    """Write everything the scheduler is told and decides to this file; see 'takt replay'."""
    hang_ms: float = 1000.0
    """A worker that owes answers and makes no progress for this long, and for five times its
    longest launch, is killed and started again. So is a gateway that does not say that it lives,
    after this long or 2 s, whichever is longer."""
    drain_seconds: float = 10.0
    """Time that requests under way have after SIGTERM."""
    reevaluate_seconds: float = 60.0
    """--formation auto: choose again when the robots that ask have differed by a fifth from those
    it was chosen for, for this long; 0: never."""
    json: bool = False
    """Print one line of JSON per event instead of sentences."""
    verbose: bool = False
    """Log what the processes do."""
    groot: int | None = None
    """Refused: this version has no such door."""
    http: int | None = None
    """Refused: this version has no such door."""

    def run(self) -> None:
        """Serve until SIGTERM or Ctrl-C."""
        for door in _FUTURE_DOORS:
            if getattr(self, door) is not None:
                raise ConfigError(
                    f"--{door}: this version has no {door} door; it has: openpi, lerobot"
                )
        check_paths(self.state_dir, self.engine_cache, self.tokenizer)
        asked = self.plan() if self.fleet is None else self._fleet_plan(self.fleet)
        check_installed(asked)
        check_policies(asked)
        inputs = self.fleet, self.token_file, self.strict_spec, self.tokenizer
        check_traces(asked, self.trace, *inputs)
        plan, chosen = self._decided(asked)
        handler = logging.StreamHandler()
        handler.setFormatter(LogLines())
        logging.basicConfig(
            level=logging.INFO if self.verbose else logging.WARNING, handlers=[handler]
        )
        os.environ["TAKT_LOG_LEVEL"] = "INFO" if self.verbose else "WARNING"  # children inherit it
        composition = Composition.of(plan)
        say = partial(say_json, plan.paced) if self.json else Narrator(plan.paced).say
        try:
            asyncio.run(self._supervise(composition, say, plan.model_roots, chosen))
        finally:
            composition.close()
        if not self.json:
            say_stopped()

    def plan(self) -> ServerPlan:
        """The server these options ask for.

        Raises:
            ConfigError: An option is impossible.
        """
        self._check_numbers()
        if self.paced_seed is not None and self.paced is None:
            raise ConfigError("--paced-seed is for --paced GPU")
        if self.robots and self.formation != AUTO:
            raise ConfigError("--robots is for --formation auto; robots that connect are served")
        self._declared()
        prefix, denoise = self.prefix_cores, self.denoise_cores
        if not prefix and not denoise and self.paced is None:
            prefix, denoise = split_cores(sorted(os.sched_getaffinity(0)))
        device = DevicePlan(
            models=tuple(self._model(given) for given in self.model),
            formation=self.formation,
            discipline=self.discipline,
            profile_path=None if self.profile is None else str(self.profile.resolve()),
            prefix_cores=prefix,
            denoise_cores=denoise,
            paced=self.paced,
            paced_seed=self.paced_seed,
            trace_path=None if self.trace is None else str(self.trace.resolve()),
        )
        return ServerPlan(
            devices=(device,),
            gateways=(
                GatewayPlan(
                    host=self.host,
                    openpi_port=self.openpi,
                    lerobot=self._lerobot([model.name for model in device.models]),
                ),
            ),
            token=self._token(),
            network_allowance_ms=self.network_allowance_ms,
            hang_ms=self.hang_ms,
            model_roots=self._roots(),
        )

    def _check_numbers(self) -> None:
        check_numbers(self, _MOST)
        if not 0 <= self.network_allowance_ms <= _MOST_ALLOWANCE_MS:
            raise ConfigError(
                f"--network-allowance-ms must lie in 0 to {_MOST_ALLOWANCE_MS:g},"
                f" got {self.network_allowance_ms:g}"
            )
        for option in ("openpi", "lerobot"):
            port = getattr(self, option)
            if port is not None and not 0 <= port <= _LARGEST_PORT:
                raise ConfigError(f"--{option} must lie in 0 to {_LARGEST_PORT}, got {port}")
        for option in ("prefix_cores", "denoise_cores"):
            check_cores(option, getattr(self, option))

    def _fleet_plan(self, path: Path) -> ServerPlan:
        self._check_numbers()
        for option in dataclasses.fields(self):
            if option.name not in _BESIDE_FLEET and getattr(self, option.name) != option.default:
                flag = flag_of(option.name)
                raise ConfigError(f"{flag}: the fleet file says what is served; leave it out")
        token = self._token()
        with named_by("--fleet"):
            plan = server_plan(
                path,
                cores=tuple(sorted(os.sched_getaffinity(0))),
                host=self.host,
                token=token,
                network_allowance_ms=self.network_allowance_ms,
                trace=self.trace,
                state_dir=self.state_dir,
            )
        return dataclasses.replace(plan, hang_ms=self.hang_ms)

    def _decided(self, plan: ServerPlan) -> tuple[ServerPlan, list[ChosenDevice]]:
        """The plan with a formation for each device, chosen by simulation where it is auto."""
        if self.reevaluate_seconds and not 1 <= self.reevaluate_seconds <= _LONGEST_DWELL_S:
            raise ConfigError(
                f"--reevaluate-seconds must be 0 or lie in 1 to {_LONGEST_DWELL_S:g},"
                f" got {self.reevaluate_seconds:g}"
            )
        for device in plan.devices:
            check_formation(device)
            check_profile(device, self.fleet)
        chosen: list[ChosenDevice] = []
        if all(device.formation != AUTO for device in plan.devices):
            return plan, chosen
        say = say_choice if self.json else partial(print, file=sys.stderr, flush=True)
        with processes() as pool:
            plan = choose_formations(plan, self._load, pool.runner, say, chosen.append)
        return plan, chosen

    def _load(self, device: DevicePlan) -> Load:
        fleet, robots = self.fleet, self._declared()
        load = load_of_fleet(fleet, device.name) if fleet else load_of_device(device, robots)
        if not self.json:  # nothing else is said until a formation is chosen
            say_choosing(device.name)
        return load

    def _declared(self) -> dict[str, int]:
        """Robots that will ask each model."""
        return by_name("--robots", map(_robots, self.robots))

    def _lerobot(self, models: list[str]) -> LerobotOptions | None:
        """The LeRobot door.

        Raises:
            ConfigError: An option is impossible, or is given without the door.
        """
        if self.lerobot is None:
            for name in ("allow_from", "alias", "state_dir"):
                if getattr(self, name):
                    raise ConfigError(f"{flag_of(name)}: needs --lerobot PORT")
            return None
        aliases: dict[str, list[str]] = {}
        for given in self.alias:
            model, _, alias = given.partition("=")
            if model not in models or not alias:
                raise ConfigError(
                    f"--alias {given!r}: expected MODEL=NAME with a model of {', '.join(models)}"
                )
            aliases.setdefault(model, []).append(alias)
        return LerobotOptions(
            host=self.host,
            port=self.lerobot,
            allow_from=tuple(_network_for("lerobot", given) for given in self.allow_from),
            state_dir=None if self.state_dir is None else str(self.state_dir.resolve()),
            models={
                model: LerobotModelOptions(aliases=tuple(names)) for model, names in aliases.items()
            },
        )

    async def _supervise(
        self,
        composition: Composition,
        say: _OnEvent,
        model_roots: ModelRoots,
        chosen: list[ChosenDevice],
    ) -> None:
        supervisor = Supervisor(
            composition.workers,
            composition.gateways,
            say,
            drain=seconds(self.drain_seconds),
            gateway_patience=max(GATEWAY_PATIENCE, ms(self.hang_ms)),
            admin=admin_address(os.getpid()),
            model_roots=model_roots,
            reevaluation=self._reevaluation(chosen),
        )
        await supervisor.run()

    def _reevaluation(self, chosen: list[ChosenDevice]) -> Reevaluation | None:
        if not chosen or not self.reevaluate_seconds:
            return None
        devices = {worker_name(device.plan): device for device in chosen}
        return Reevaluation(devices, dwell=seconds(self.reevaluate_seconds))

    def _model(self, given: str) -> ServedModel:
        name, _, policy = given.partition("=")
        policy = policy or name
        if self.paced is not None:
            return self._stand_in(name, policy)
        options = self._echo_options() if policy == "echo" else {}
        if policy not in KNOWN_POLICIES:
            policy, rooted = self._roots().placed(policy, {}, Path.cwd())
            options = {**self._checkpoint_options(Path(policy)), **rooted}
        return ServedModel(name=name, policy=policy, options=options, slo_ms=self.slo_ms or _SLO_MS)

    def _roots(self) -> ModelRoots:
        with named_by("--model-root"):
            return ModelRoots.of(self.model_root, Path.cwd())

    def _stand_in(self, name: str, architecture: str) -> ServedModel:
        architecture = architecture.removeprefix(PACED)
        stand_in_named(architecture)
        slo_ms = self.slo_ms or architecture_named(architecture).slo_ms
        return ServedModel(name=name, policy=PACED + architecture, slo_ms=slo_ms)

    def _echo_options(self) -> dict[str, Any]:
        given = {name: getattr(self, name) for name in _ECHO_OPTIONS}
        told = {name: value for name, value in given.items() if value is not None}
        with naming_flags(*told):
            options = EchoOptions(**told)
        with named_by("--strict-spec"):
            echo_spec("echo", options)
        return {
            name: str(value.resolve()) if isinstance(value, Path) else value
            for name, value in told.items()
        }

    def _checkpoint_options(self, path: Path) -> dict[str, Any]:
        if not is_lerobot_checkpoint(path):
            return {}
        given: dict[str, Any] = {
            name: True for name in ("deterministic", "stock_resize") if getattr(self, name)
        }
        if self.engine != "torch":
            given["engine"] = self.engine
        if self.precision != "auto":
            given["precision"] = self.precision
        for option, value in (("tokenizer", self.tokenizer), ("cache", self.engine_cache)):
            if value is not None:
                given[option] = str(value.resolve())
        return given

    def _token(self) -> str | None:
        given = None if self.token_file is not None else self.token
        return given or read_token(self.token_file)


def _robots(text: str) -> tuple[str, int]:
    name, _, count = text.partition("=")
    if not name or not count.isdecimal() or int(count) < 1:
        raise ConfigError(f"--robots wants NAME=N with N at least 1, got {text!r}")
    return name, int(count)


def _network_for(door: str, given: str) -> str:
    """The network of an ``--allow-from``.

    Raises:
        ConfigError: It is for a door whose robots present a token, or for none.
    """
    named, _, network = given.rpartition("=")
    if named not in {"", door}:
        raise ConfigError(f"--allow-from {given!r}: expected {door}=NETWORK, such as 10.0.0.0/24")
    return network
