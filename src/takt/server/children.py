"""One child process of the supervisor: started, listened to, restarted, stopped.

A child reads its configuration as one line of JSON from its standard input and then keeps reading:
further lines are commands (:mod:`takt.server.commands`), an empty one asks whether it lives, and an
end of file means that the supervisor has died, upon which the child drains and exits. It tells of
every change of its state with one line of JSON on its standard output; its log goes to standard
error, which it shares with the supervisor.

A child that listens is asked again and again whether it lives. One that is stopped, or whose loop
is stuck, does not answer; it is killed and started again like one that has died.
"""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from takt.errors import ConfigError
from takt.units import SECOND, Nanos, to_ms, to_seconds

__all__ = ["Backoff", "Child", "ChildSpec"]

_STEADY: Nanos = 30 * SECOND
_MAX_LINE = 1 << 20
_ASKS_PER_PATIENCE = 4
_SECOND_LOOK: Nanos = SECOND // 10
"""Perhaps it was this process that was held up: what a child has said meanwhile is read first."""

log = logging.getLogger(__name__)


class Backoff:
    """How long to wait before a child that died is started again.

    The first restart is immediate, so that a single fault costs no more than the start itself.
    Each further death in a row doubles the wait, up to a cap; a child that lived for half a
    minute begins anew.
    """

    def __init__(self, *, base: Nanos = SECOND // 2, most: Nanos = 30 * SECOND) -> None:
        self._base = base
        self._most = most
        self.deaths = 0
        """Deaths in a row."""

    def after_death(self, lived: Nanos) -> Nanos:
        """Time to wait after a child died that had lived for ``lived``."""
        self.deaths = 1 if lived >= _STEADY else self.deaths + 1
        if self.deaths == 1:
            return 0
        return min(self._base << min(self.deaths - 2, 32), self._most)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """What a child runs."""

    name: str
    """Its name in logs and events."""
    command: Sequence[str]
    """Program and arguments."""
    config: Mapping[str, Any]
    """Its configuration, as plain values."""
    inherited: Sequence[int] = ()
    """File descriptors it inherits under the numbers they have here."""


class Child:
    """A process that is to be alive until :meth:`stop`.

    Args:
        spec: What it runs.
        on_event: Told each event of the child, as it was said; ``hung`` and ``died`` are ours.
        clock: Monotonic, in nanoseconds.
        patience: How long it may leave the question unanswered whether it lives; None: it is not
            asked.
    """

    def __init__(
        self,
        spec: ChildSpec,
        on_event: Callable[[Child, Mapping[str, Any]], None],
        clock: Callable[[], Nanos],
        *,
        patience: Nanos | None = None,
    ) -> None:
        self.spec = spec
        self.config: dict[str, Any] = copy.deepcopy({**spec.config})
        """What it is told when it is started next."""
        self.has_been_up = False
        """Whether it has ever listened: its configuration is sound."""
        self._patience = patience
        self._failure: str | None = None  # why it says that it cannot serve
        self._lives = asyncio.Event()
        self._is_up = False
        self._on_event = on_event
        self._clock = clock
        self._backoff = Backoff()
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """Its process, if it runs."""
        return None if self._process is None else self._process.pid

    async def keep_alive(self) -> None:
        """Run the child again and again until it is told to stop.

        Raises:
            ConfigError: It exits without ever having listened, or says in its first life that it
                cannot serve: starting it again would not help.
        """
        is_first_life = True
        while not self._stopping.is_set():
            started, self._failure = self._clock(), None
            try:
                status = await self._run_once()
            except OSError as error:  # no process, memory or descriptor for it
                status = -1
                why = f"cannot be started: {error.strerror}"
                log.error("child: name=%s reason=%s", self.spec.name, why)
            else:
                why = "could not start; its message is above"
            if self._stopping.is_set():
                return
            if is_first_life and self._failure is not None:
                raise ConfigError(f"{self.spec.name}: {self._failure}")
            if not self.has_been_up:
                raise ConfigError(f"{self.spec.name} {why}")
            is_first_life = False
            wait = self._backoff.after_death(self._clock() - started)
            died = {
                "event": "died",
                "status": status,
                "deaths_in_a_row": self._backoff.deaths,
                "restart_in_s": to_seconds(wait),
                **({} if self._failure is None else {"reason": self._failure}),
            }
            log.warning("child died: name=%s %s", self.spec.name, died)
            self._on_event(self, died)
            await self._pause(wait)

    async def stop(self, within: Nanos) -> None:
        """Ask the child to drain and exit; kill it if it has not done so in time."""
        self._stopping.set()
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), to_seconds(within))
        except TimeoutError:
            log.warning("child did not drain in time: name=%s", self.spec.name)
            self.kill()
            await process.wait()

    def kill(self) -> None:
        """End the child at once; :meth:`keep_alive` starts it again unless it is stopping."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    def tell(self, command: Mapping[str, Any]) -> bool:
        """Give the child a command; False if it does not run."""
        process = self._process
        if process is None or process.returncode is not None or process.stdin is None:
            return False
        process.stdin.write(json.dumps(command).encode() + b"\n")
        return True

    async def _run_once(self) -> int:
        process = await asyncio.create_subprocess_exec(
            *self.spec.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=tuple(self.spec.inherited),
            limit=_MAX_LINE,
            # A Ctrl-C at the terminal reaches the whole group; only the supervisor obeys it.
            process_group=0,
        )
        self._process = process
        if self._stopping.is_set():
            process.kill()  # it was being started when everybody was told to stop
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(self.config).encode() + b"\n")
        watch: asyncio.Task[None] | None = None
        try:
            async for line in process.stdout:
                self._hear(line)
                if watch is None and self._is_up and self._patience is not None:
                    watch = asyncio.create_task(self._watch(process, self._patience))
        finally:
            self._is_up = False
            if watch is not None:
                watch.cancel()
        return await process.wait()

    async def _watch(self, process: asyncio.subprocess.Process, patience: Nanos) -> None:
        """Ask the child whether it lives; kill it if it does not answer."""
        assert process.stdin is not None
        while True:
            self._lives.clear()
            process.stdin.write(b"\n")
            if not (await self._answers(patience) or await self._answers(_SECOND_LOOK)):
                break
            await asyncio.sleep(to_seconds(patience // _ASKS_PER_PATIENCE))
        self._on_event(self, {"event": "hung", "silence_ms": to_ms(patience)})
        process.kill()

    async def _answers(self, within: Nanos) -> bool:
        try:
            await asyncio.wait_for(self._lives.wait(), to_seconds(within))
        except TimeoutError:
            return False
        return True

    def _hear(self, line: bytes) -> None:
        try:
            said: object = json.loads(line)
        except ValueError:
            said = None
        event = cast("dict[str, Any]", said) if isinstance(said, dict) else {}
        if "event" not in event:
            log.warning("child said something odd: name=%s said=%r", self.spec.name, line[:200])
            return
        if event["event"] == "lives":
            self._lives.set()
            return
        if event["event"] == "listening":
            self.has_been_up = self._is_up = True
            self._keep_port(event)
        if event["event"] == "failed":
            self._failure = str(event.get("reason"))
        self._on_event(self, event)

    def _keep_port(self, event: Mapping[str, Any]) -> None:
        """A door that took a free port has it in its next life, too: robots know it by now."""
        door = self.config.get(event.get("door", ""))
        if isinstance(door, dict) and "port" in event:
            door["port"] = event["port"]

    async def _pause(self, wait: Nanos) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), to_seconds(wait))
        except TimeoutError:
            return
