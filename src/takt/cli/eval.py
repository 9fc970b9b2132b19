"""``takt eval``: let a policy act in a simulated task and say how often it solves it."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console

from takt.cli.evaluating.environments import EnvironmentChoice, chosen_environment
from takt.cli.evaluating.in_process import InProcessPolicy
from takt.cli.evaluating.recording import Recorder, check_strip
from takt.cli.evaluating.summary import sentence, summary_of
from takt.cli.evaluating.view import EpisodeView
from takt.cli.option_numbers import naming_flags
from takt.cli.output_files import STEPS, check_outputs
from takt.client.address import server_address
from takt.client.connection import connect
from takt.client.errors import ConnectionLostError
from takt.client.rollout import (
    Ask,
    Environment,
    EpisodeResult,
    EpisodeRules,
    Moment,
    run_episode,
)
from takt.errors import RefusedError, TaktError, UsageError
from takt.policies.interface import Precision
from takt.schema.spec import PolicySpec

__all__ = ["Eval", "EvalEndedError"]


class EvalEndedError(TaktError):
    """The policy gave no more chunks, before the last episode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Eval:
    """Let a policy act in a simulated task, and say how often it solves it.

    Asks a server for every chunk, or runs the policy in this process; everything else is the same.
    The policy gets the picture, the instruction, and position and opening of the gripper. Where
    objects are it must see for itself.
    """

    env: str
    """The task: metaworld:TASK, such as metaworld:drawer-open-v3, or gymnasium:ID."""
    server: str | None = None
    """The server to ask: host:port, or a ws:// or wss:// URL. The environment variable TAKT_TOKEN
    holds its token."""
    in_process: bool = False
    """Run the policy in this process instead."""
    model: str = "mini"
    """Model of the server; with --in-process a policy's name or the directory of a checkpoint."""
    episodes: int = 25
    """Episodes, each from another start."""
    seed: int = 1
    """Decides starts and goals."""
    instruction: str | None = None
    """What the policy is told; the usual words for a Meta-World task when absent."""
    key: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """For gymnasium:ID, POLICY_KEY=WHERE: where each of the policy's keys is found in the
    environment's observation (a/b within another, nothing for all of it), or render()."""
    black_images: bool = False
    """Show the policy black pictures, to see whether it looks."""
    max_steps: int = 200
    """Actions after which a task counts as not solved."""
    execute: int | None = None
    """Actions of a chunk to execute before the next is asked for; the policy's own word when
    absent."""
    precision: Precision = "auto"
    """Number format of the network, with --in-process."""
    trace: Path | None = None
    """Write every action and the state before it to this file, a JSON object a line."""
    strip: Path | None = None
    """Write a strip of pictures of the first solved episode to this file (.jpg or .png)."""
    json: bool = False
    """Print the figures as JSON, and nothing else."""

    def run(self) -> None:
        """Run the episodes and print what came out.

        Raises:
            TaktError: An option is impossible, something is not installed, or the server does not
                answer, be it in the middle: what was printed is of the episodes before.
        """
        console = Console(stderr=self.json)
        figures = self.evaluate(console)
        if self.json:
            print(json.dumps(figures, indent=1))
        else:
            console.print(f"{self.env}: {sentence(figures)}", highlight=False, soft_wrap=True)
        if figures["ended_by"] is not None:
            raise EvalEndedError(figures["ended_by"])

    def evaluate(self, console: Console) -> dict[str, Any]:
        """Run the episodes.

        Returns:
            The figures of :mod:`takt.cli.evaluating.summary`, the options, and as ``ended_by`` what
            ended the run before its last episode; None when nothing did.
        """
        choice = self.check()
        simulation = choice.open(seed=self.seed, black_images=self.black_images)
        with contextlib.closing(simulation), self._policy() as (ask, spec):
            rules = EpisodeRules(max_steps=self.max_steps, execute=self._execute(spec))
            results, ended_by = self._episodes(simulation.environment, ask, rules, console)
        return {
            "env": self.env,
            "instruction": choice.instruction,
            "images": "black" if self.black_images else "seen",
            "through": "server" if self.server else "in process",
            "model_digest": spec.digest if spec else None,
            "seed": self.seed,
            "max_steps": rules.max_steps,
            "execute": rules.execute,
            **summary_of(results),
            "ended_by": ended_by,
        }

    def check(self) -> EnvironmentChoice:
        """Look at the options that can be judged before anything is opened.

        Returns:
            The environment.

        Raises:
            UsageError: An option is impossible.
            ConfigError: A number is.
        """
        if self.in_process == (self.server is not None):
            raise UsageError("give either --server ADDRESS or --in-process")
        if self.server is not None:
            server_address(self.server, called="--server")
        choice = chosen_environment(self.env, instruction=self.instruction, keys=self.key)
        with naming_flags("max_steps", "execute"):
            EpisodeRules(max_steps=self.max_steps, execute=self.execute)
        check_outputs([("--trace", self.trace, STEPS), ("--strip", self.strip)])
        check_strip("--strip", self.strip)
        choice.check(episodes=self.episodes, max_steps=self.max_steps)
        return choice

    def _episodes(
        self, environment: Environment, ask: Ask, rules: EpisodeRules, console: Console
    ) -> tuple[list[EpisodeResult], str | None]:
        """Those that came to their end, and what kept the others from it."""
        results: list[EpisodeResult] = []
        view = EpisodeView(console, title=self.env, total=self.episodes)
        recorder = Recorder(trace=self.trace, strip=self.strip)
        with view.open(), recorder:
            for index in range(self.episodes):
                look = _both(view.look, recorder.look)
                try:
                    result = run_episode(environment, ask, rules, index=index, look=look)
                except (ConnectionLostError, RefusedError) as error:
                    if not results:
                        raise
                    return results, _why(error, f"episode {index + 1} of {self.episodes}")
                results.append(result)
                view.finished(result)
                recorder.finished(result)
        return results, None

    @contextlib.contextmanager
    def _policy(self) -> Generator[tuple[Ask, PolicySpec | None], None, None]:
        """Where chunks come from, and the policy's card."""
        if self.server is None:
            policy = InProcessPolicy(self.model, precision=self.precision)
            with contextlib.closing(policy):
                yield policy.ask, policy.spec
            return
        token = os.environ.get("TAKT_TOKEN") or None
        with connect(self.server, token=token, model=self.model) as connection:
            yield lambda observation: connection.infer(observation).actions, connection.spec

    def _execute(self, spec: PolicySpec | None) -> int | None:
        if self.execute is not None or spec is None:
            return self.execute
        return spec.action.execution_horizon


def _why(error: TaktError, place: str) -> str:
    lost = isinstance(error, ConnectionLostError)
    return f"{'the server went away' if lost else 'no chunk came'} in {place}: {error}"


def _both(
    first: Callable[[Moment], None], second: Callable[[Moment], None]
) -> Callable[[Moment], None]:
    def look(moment: Moment) -> None:
        first(moment)
        second(moment)

    return look
