"""``takt robot``: drive a robot in a simulated environment on the wall clock, through a server."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import tyro
from rich.console import Console

from takt.cli.driving.outage import away_sentence, check_server
from takt.cli.evaluating.asking import Meter, MeteredConnection
from takt.cli.evaluating.environments import EnvironmentChoice, Simulation, chosen_environment
from takt.cli.evaluating.realtime_summary import realtime_sentences, realtime_summary
from takt.cli.evaluating.realtime_view import RealtimeView
from takt.cli.evaluating.recording import Recorder, check_strip
from takt.cli.interruption import Interruption
from takt.cli.option_numbers import check_numbers
from takt.cli.output_files import LOG, STEPS, check_named_after, check_outputs
from takt.client.address import server_address
from takt.client.connection import connect
from takt.client.episode_log import EpisodeLog
from takt.client.errors import ConnectionLostError
from takt.client.image_settings import SendImages
from takt.client.loop import ControlLoop
from takt.client.loop_settings import LoopSettings, Robot
from takt.client.realtime import (
    RealtimeEpisode,
    RealtimeMoment,
    RealtimeRules,
    run_realtime_episode,
)
from takt.client.robots.described import check_fit, description_of
from takt.errors import RefusedError, UsageError
from takt.robot.blending import MergeName
from takt.robot.contract_rules import ContractRules
from takt.robot.holding import HoldMode
from takt.robot.replanning import LatencyRule, ReplanningRule, ThresholdRule
from takt.schema.spec import PolicySpec
from takt.units import MILLISECOND, SECOND, Nanos

__all__ = ["DriveRobot", "RuleName"]

RuleName: TypeAlias = Literal["threshold", "latency"]
"""When a robot asks: at a share of a chunk, or as late as the measured latency allows."""

_STOP_AT_ONCE = 1e9
"""Deceleration per second with which a displacement is zero at the first tick without an action."""
_T_HOLD: Nanos = 500 * MILLISECOND
_MOST_HZ = 1000.0
_PASSING = frozenset({"busy", "expired", "superseded", "worker_lost"})
"""Codes of refusals that say nothing of the observation: the model may answer it later."""
_MOST_ATTEMPTS = 240
_PAUSE_S = 0.25
"""Between two attempts to ask a model that is not ready: a minute in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveRobot:
    """Drive a robot in a simulated environment on the wall clock, through a server.

    The environment is stepped at every control tick and never waits: what a late answer costs is
    seen. The same control loop drives real robots, see docs/how-to/drive-a-robot.md. 'takt eval'
    runs the same environments with the world standing still for every answer.
    """

    env: str
    """The environment: metaworld:TASK, such as metaworld:door-open-v3, or gymnasium:ID."""
    server: str
    """The server: host:port, or a ws:// or wss:// URL. The environment variable TAKT_TOKEN holds
    its token."""
    model: str | None = "mini"
    """Model of the server."""
    control_hz: float | None = None
    """Control ticks per second, one action and one step of the environment each; the policy's own
    rate when absent."""
    sync: bool = False
    """Ask only when every action is executed, and stand still for the answer."""
    rule: RuleName = "threshold"
    """When to ask: at the share --g of a chunk (threshold), or as late as the measured latency
    allows, and when as many actions as the policy's card says were executed (latency)."""
    g: float = 0.5
    """Share of a chunk left at which the robot asks, 0 to 1."""
    execute: int | None = None
    """Actions of a chunk to use; all when absent, and with --sync the policy's own word."""
    merge: MergeName = "latest_only"
    """How a chunk joins the actions still queued."""
    images: SendImages = "as_given"
    """How pictures are sent, where the server takes them so; see docs/reference/client.md."""
    episodes: int = 1
    """Episodes, each from another start."""
    seed: int = 1
    """Decides starts and goals."""
    instruction: str | None = None
    """What the policy is told; the usual words for a Meta-World task when absent."""
    key: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """For gymnasium:ID, POLICY_KEY=WHERE: where each of the policy's keys is found in the
    environment's observation (a/b within another, nothing for all of it), or render()."""
    hold: HoldMode | None = None
    """For gymnasium:ID, what actions command: positions (the default), which are repeated while
    there is no action, or velocities and displacements, in whose place zero is sent."""
    max_steps: int = 200
    """Control ticks after which a task counts as not solved."""
    log: Path | None = None
    """Write an episode log for 'takt episode' to this file; with several episodes one each, its
    number before the ending."""
    trace: Path | None = None
    """Write every step's action and the state seen before it to this file, a JSON object a line."""
    strip: Path | None = None
    """Write a strip of pictures of the first solved episode to this file (.jpg or .png)."""
    json: bool = False
    """Print the figures as JSON, and nothing else."""

    def run(self) -> None:
        """Run the episodes and print what came out.

        Raises:
            TaktError: An option is impossible, something is not installed, the server does not
                answer or its model is made for another robot, or nothing was executed.
        """
        console = Console(stderr=self.json)
        with Interruption() as interruption:
            figures = self.drive(console, interruption)
            if self.json:
                print(json.dumps(figures, indent=1))
                away = away_sentence(figures)
                if away is not None:
                    console.print(away, markup=False, highlight=False, soft_wrap=True)
            else:
                for line in realtime_sentences(figures):
                    console.print(line, markup=False, highlight=False, soft_wrap=True)
            interruption.raise_if_any()
        if not figures["executed"]:
            raise UsageError(f"no action was executed: {figures['last_failure'] or 'none came'}")
        check_server(figures)

    def drive(self, console: Console, interruption: Interruption) -> dict[str, Any]:
        """Run the episodes; the figures of :mod:`takt.cli.evaluating.realtime_summary`, and the
        options.

        Args:
            console: Where progress is shown.
            interruption: Its first signal stops the robot, and ends the episode and the run.

        Raises:
            KeyboardInterrupt: A signal came before there was anything to tell.
        """
        choice = self.check()
        link = _Link(self.server, self.model, self.images)
        with contextlib.closing(link):
            spec = link.open()
            settings_of = self._settings(spec)
            simulation = choice.open(seed=self.seed)
            with contextlib.closing(simulation):
                settings = settings_of(simulation)
                _check_fit(simulation, spec)
                simulation.environment.reset(0)
                link.ask_once(simulation.environment.observe())
                link.execute = self._execute(spec)
                episodes = self._episodes(simulation, settings, link, console, interruption)
        if not episodes:
            interruption.raise_if_any()
        return {
            "env": self.env,
            "instruction": choice.instruction,
            "through": "server, in real time",
            "model_digest": spec.digest if spec else None,
            "seed": self.seed,
            "max_steps": self.max_steps,
            "mode": "sync" if self.sync else "async",
            "rule": self.rule,
            "g": self.g,
            "execute": link.execute,
            "images": self.images,
            "control_hz": settings.control_hz,
            "broken_off": interruption.number is not None,
            **realtime_summary(episodes, link.meter, period=settings.control_period),
            "last_failure": episodes[-1].status.last_failure,
        }

    def check(self) -> EnvironmentChoice:
        """Look at the options that can be judged before anything is opened.

        Raises:
            UsageError: An option is impossible.
            ConfigError: A number is.
        """
        check_numbers(self, {"control_hz": _MOST_HZ})
        server_address(self.server, called="--server")
        if not 0 <= self.g <= 1:
            raise UsageError(f"--g must lie in 0 to 1, got {self.g:g}")
        if self.max_steps < 1:
            raise UsageError(f"--max-steps must be at least 1, got {self.max_steps}")
        if self.execute is not None and self.execute < 1:
            raise UsageError(f"--execute must be at least 1, got {self.execute}")
        choice = chosen_environment(
            self.env, instruction=self.instruction, keys=self.key, hold=self.hold
        )
        choice.check(episodes=self.episodes, max_steps=self.max_steps)
        self._check_files()
        return choice

    def _check_files(self) -> None:
        if self.episodes > 1:
            check_named_after("--log", self.log)
        num_logs = 0 if self.log is None else self.episodes
        written = [("--log", self._log_path(index), LOG) for index in range(num_logs)]
        check_outputs([*written, ("--trace", self.trace, STEPS), ("--strip", self.strip)])
        check_strip("--strip", self.strip)

    def _settings(self, spec: PolicySpec | None) -> Callable[[Simulation], LoopSettings]:
        """Of the loop, once it is known what the environment's actions command."""
        rate = self.control_hz or (spec.action.control_hz if spec else None)
        if rate is None:
            raise UsageError("--control-hz is needed: the model does not say its rate")
        period = round(SECOND / rate)
        rule: ReplanningRule = ThresholdRule(threshold=self.g)
        if self.rule == "latency":
            rule = LatencyRule(
                control_period=period,
                until_known=ThresholdRule(threshold=self.g),
                execution_horizon=spec.action.execution_horizon if spec else None,
            )
        return lambda simulation: LoopSettings(
            control_hz=rate,
            sync=self.sync,
            rule=rule,
            merge=self.merge,
            contract=_contract(simulation, spec, period),
        )

    def _execute(self, spec: PolicySpec | None) -> int | None:
        is_told = self.execute is not None or not self.sync or spec is None
        return self.execute if is_told or spec is None else spec.action.execution_horizon

    def _episodes(
        self,
        simulation: Simulation,
        settings: LoopSettings,
        link: _Link,
        console: Console,
        interruption: Interruption,
    ) -> list[RealtimeEpisode]:
        """Those that were run, the one that was broken off included."""
        episodes: list[RealtimeEpisode] = []
        rules = RealtimeRules(max_ticks=self.max_steps, rest=simulation.rest)
        view = RealtimeView(console, title=self.env, total=self.episodes, meter=link.meter)
        recorder = Recorder(trace=self.trace, strip=self.strip)

        def look(moment: RealtimeMoment) -> None:
            view.look(moment)
            if moment.moment is not None:
                recorder.look(moment.moment)

        # Between two episodes a signal raises: the figures of those before are told all the same.
        with interruption.heard(), view.open(), recorder:
            for index in range(self.episodes):
                interruption.at_first = lambda: None  # or half a log would be left
                with self._log(index) as log:
                    interruption.at_first = None
                    interruption.raise_if_any()
                    episode = run_realtime_episode(
                        simulation.environment,
                        lambda robot, log=log: _stopped_by(
                            interruption, link.loop(robot, settings, log)
                        ),
                        rules,
                        index=index,
                        look=look,
                    )
                interruption.at_first = None
                episodes.append(episode)
                view.finished(episode)
                recorder.finished(episode.result)
                interruption.raise_if_any()
        return episodes

    def _log(self, index: int) -> contextlib.AbstractContextManager[EpisodeLog | None]:
        path = self._log_path(index)
        if path is None:
            return contextlib.nullcontext()
        head = {"robot": self.env, "index": index, "seed": self.seed, "model": self.model}
        return EpisodeLog(path, head=head)

    def _log_path(self, index: int) -> Path | None:
        """The file of an episode's log: with several episodes each has its own."""
        if self.log is None or self.episodes == 1:
            return self.log
        return self.log.with_name(f"{self.log.stem}-{index}{self.log.suffix}")


class _Link:
    """The way to the server: a connection, and so a session, of its own for each episode."""

    def __init__(self, server: str, model: str | None, images: SendImages) -> None:
        self._server = server
        self._model = model
        self._images: SendImages = images
        self._token = os.environ.get("TAKT_TOKEN") or None
        # Two runs against one server must not take over each other's sessions.
        self._run = secrets.token_hex(3)
        self._episode = 0
        self._ready: MeteredConnection | None = None
        self.meter = Meter()
        self.execute: int | None = None

    def open(self) -> PolicySpec | None:
        """Connect once, so that what keeps the server from being asked is said before anything
        moves; the model's card.
        """
        self._ready = self._dial()
        return self._ready.spec

    def ask_once(self, observation: Mapping[str, object]) -> None:
        """Wait for a first answer, which takes longest, while no clock is running.

        Raises:
            RefusedError: The model refuses the observation, or is not ready after a minute.
        """
        ready = self._ready or self._dial()
        attempts, patience = 1, threading.Event()
        while not _is_answered(ready, observation, may_wait=attempts < _MOST_ATTEMPTS):
            patience.wait(_PAUSE_S)
            attempts += 1
        self.meter.clear()

    def loop(self, robot: Robot, settings: LoopSettings, log: EpisodeLog | None) -> ControlLoop:
        """The control loop of the next episode. It finds an open connection, if there is one to
        be had: an episode does not begin with the time that connecting takes.
        """
        self.close()
        self._episode += 1
        with contextlib.suppress(ConnectionLostError, RefusedError):  # the loop tries again
            self._ready = self._dial()
        return ControlLoop(robot, self._connect, settings, log=log)

    def close(self) -> None:
        """End a connection that nobody took."""
        if self._ready is not None:
            self._ready.close()
            self._ready = None

    def _connect(self) -> MeteredConnection:
        ready, self._ready = self._ready, None
        return ready or self._dial()

    def _dial(self) -> MeteredConnection:
        sent = time.monotonic_ns()
        try:
            connection = connect(
                self._server,
                token=self._token,
                model=self._model,
                robot=f"robot-{self._run}-{self._episode}",
                images=self._images,
            )
        except ConnectionLostError:
            self.meter.lost(sent)
            raise
        return MeteredConnection(connection, self.meter, execute=self.execute)


def _stopped_by(interruption: Interruption, loop: ControlLoop) -> ControlLoop:
    """The loop, which the first signal stops by its contract: at its next tick."""
    interruption.at_first = loop.stop
    if interruption.number is not None:  # what it raised was caught on the way, and no other comes
        loop.stop()
    return loop


def _is_answered(
    connection: MeteredConnection, observation: Mapping[str, object], *, may_wait: bool
) -> bool:
    """Ask; False when the model is not ready yet, and may be later."""
    try:
        connection.infer(observation)
    except RefusedError as error:
        if error.code not in _PASSING or not may_wait:
            raise
        return False
    return True


def _check_fit(simulation: Simulation, spec: PolicySpec | None) -> None:
    environment: Any = simulation.environment
    description = description_of(environment)
    if description is not None and spec is not None:
        check_fit(description, spec)


def _contract(simulation: Simulation, spec: PolicySpec | None, period: Nanos) -> ContractRules:
    """How a simulated robot is held: at once, and without a ramp when it goes on."""
    usual = ContractRules()
    steps = 0 if spec is None else spec.action.horizon
    if spec is not None and spec.sizes_are_maxima:
        steps = spec.action.execution_horizon
    return ContractRules(
        # A chunk may be executed to its end, however slow the ticks.
        max_action_age=max(usual.max_action_age, 2 * steps * period),
        t_hold=max(_T_HOLD, 2 * period),
        hold_mode=simulation.hold,
        deceleration=_STOP_AT_ONCE if simulation.hold == "velocity" else None,
        kept=simulation.kept,
        resume_ramp=0,
    )
