"""The parent of all processes of a server: it alone starts, kills, reaps and restarts them.

Workers come first, then the gateway that robots connect to. On SIGTERM or SIGINT the gateway
drains, then the workers. If the supervisor dies its children notice and drain by themselves.

A worker that hangs is found by the gateways, which wait for it; a gateway that hangs by the
supervisor, which asks it whether it lives. Workers are asked too, with more patience: it finds one
that hangs before a gateway could send it anything.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from takt.errors import ConfigError
from takt.server.admin import Admin
from takt.server.children import Child, ChildSpec
from takt.server.model_desk import ModelDesk
from takt.server.model_roots import ModelRoots
from takt.server.reevaluation import Reevaluation
from takt.units import SECOND, Nanos

__all__ = ["GATEWAY_PATIENCE", "Supervisor"]

GATEWAY_PATIENCE: Nanos = 2 * SECOND
"""How long a gateway may leave the question unanswered whether it lives."""

log = logging.getLogger(__name__)


class Supervisor:
    """Keeps a server's processes alive.

    Args:
        workers: Processes that own devices.
        gateways: Processes that own doors; started after the workers and stopped before them.
        on_event: Told each event of each child: its name and what it said. When it raises, the
            server is stopped in order.
        drain: Time each child has to finish what is under way.
        gateway_patience: How long a gateway may not answer before it counts as hung.
        worker_patience: The same of a worker, which may be loading a model.
        admin: Address of the operator's door; None: there is none.
        reevaluation: Looks after formations that were chosen; None: they stay as they are.
        model_roots: Where models loaded through that door may lie; anywhere by default.
        clock: Monotonic, in nanoseconds.
    """

    def __init__(
        self,
        workers: Sequence[ChildSpec],
        gateways: Sequence[ChildSpec],
        on_event: Callable[[str, Mapping[str, Any]], None],
        *,
        drain: Nanos = 10 * SECOND,
        gateway_patience: Nanos = GATEWAY_PATIENCE,
        worker_patience: Nanos = 30 * SECOND,
        admin: str | None = None,
        model_roots: ModelRoots | None = None,
        reevaluation: Reevaluation | None = None,
        clock: Callable[[], Nanos] = time.monotonic_ns,
    ) -> None:
        self._on_event = on_event
        self._unheard: Exception | None = None  # why nothing more is told
        self._drain = drain
        self._admin = admin
        self.workers = [
            Child(spec, self._heard, clock, patience=worker_patience) for spec in workers
        ]
        self.gateways = [
            Child(spec, self._heard, clock, patience=gateway_patience) for spec in gateways
        ]
        self.models = ModelDesk(self.workers, self.gateways, model_roots)
        self._reevaluation = reevaluation
        if reevaluation is not None:
            reevaluation.attend(self.workers, self.gateways, self._tell)
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Run until told to stop.

        Raises:
            ConfigError: A child cannot start at all.
            Exception: What ``on_event`` raised.
        """
        if self._admin is None:
            await self._run()
            return
        admin = Admin(self.models, self._admin)
        try:
            await admin.serve()
            await self._run()
        finally:
            admin.close()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        lives = [
            asyncio.create_task(child.keep_alive(), name=child.spec.name)
            for child in (*self.workers, *self.gateways)
        ]
        stop = asyncio.create_task(self._stop.wait())
        watch = asyncio.create_task(self._watch_population())
        try:
            done, _ = await asyncio.wait([stop, *lives], return_when=asyncio.FIRST_COMPLETED)
        finally:
            watch.cancel()
            await self._stop_children()
            stop.cancel()
        await asyncio.gather(watch, *lives, return_exceptions=True)
        for life in done - {stop}:
            life.result()
        if self._unheard is not None:
            raise self._unheard

    async def _watch_population(self) -> None:
        if self._reevaluation is None:
            return
        try:
            await self._reevaluation.run()
        except Exception:
            log.exception("formations are not looked after any more")

    def kill(self, name: str) -> None:
        """End one child at once; it is started again.

        Raises:
            ConfigError: There is no such child.
        """
        for child in (*self.workers, *self.gateways):
            if child.spec.name == name:
                child.kill()
                return
        raise ConfigError(f"no child process {name!r}")

    def _heard(self, child: Child, event: Mapping[str, Any]) -> None:
        hung = event.get("worker") if event.get("event") == "worker_hung" else None
        if isinstance(hung, str):
            log.warning("worker hung: name=%s", hung)
            self.kill(hung)
        self.models.heard(child, event)
        told = event if self._reevaluation is None else self._reevaluation.heard(child, event)
        if told is not None:
            self._tell(child.spec.name, {**told, "pid": child.pid})

    def _tell(self, name: str, event: Mapping[str, Any]) -> None:
        """Pass an event on.

        Whoever causes one, such as a child that is started, has no part in what goes wrong here.
        """
        if self._unheard is not None:
            return
        try:
            self._on_event(name, event)
        except Exception as error:  # noqa: BLE001 - raised once all children are stopped
            self._unheard = error
            self._stop.set()

    async def _stop_children(self) -> None:
        for group in (self.gateways, self.workers):
            await asyncio.gather(*(child.stop(self._drain) for child in group))
