"""Loads and unloads models of a running server.

Gateways come first when a model is loaded, so that it is known when its worker offers it, and first
when it is unloaded, so that nobody asks for it while it drains. What children are told when they
are started again changes with it. One change is made at a time.

Two versions of a model are two models: load the new one under its own name, let robots move, unload
the old one.

Start reading at :meth:`ModelDesk.load`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import msgspec

from takt.errors import ConfigError
from takt.schema.serving import ServedModel
from takt.server.children import Child
from takt.server.commands import load_line, unload_line
from takt.server.model_roots import ModelRoots

__all__ = ["ModelDesk"]


class ModelDesk:
    """Which models the children serve.

    Args:
        workers: Processes that own devices.
        gateways: Processes that own doors.
        roots: Where the models may lie; anywhere by default.
    """

    def __init__(
        self,
        workers: Sequence[Child],
        gateways: Sequence[Child],
        roots: ModelRoots | None = None,
    ) -> None:
        self._workers = workers
        self._gateways = gateways
        self._roots = roots or ModelRoots()
        self._states: dict[tuple[str, str], str] = {}
        self._waiting: list[tuple[Child, str, asyncio.Future[Mapping[str, Any]]]] = []
        self._turn = asyncio.Lock()

    def heard(self, child: Child, event: Mapping[str, Any]) -> None:
        """A child said something."""
        kind, model = str(event.get("event")), str(event.get("model"))
        name = child.spec.name
        if kind in ("died", "listening"):
            self._states = {key: state for key, state in self._states.items() if key[0] != name}
        elif kind == "model_ready":
            self._states[name, model] = "ready"
        elif kind == "model_failed":
            self._states[name, model] = f"failed: {event.get('reason')}"
        if kind in _ENDINGS:
            self._wake(child, None if kind == "died" else model, event)

    def table(self) -> list[dict[str, Any]]:
        """Every model of every worker and its state."""
        return [
            {
                "model": model["name"],
                "policy": model["policy"],
                "slo_ms": model["slo_ms"],
                "worker": worker.spec.name,
                "state": self._states.get((worker.spec.name, model["name"]), "loading"),
                "formation": worker.config.get("formation", ""),
            }
            for worker in self._workers
            for model in _models_of(worker)
        ]

    async def load(
        self, served: ServedModel, worker: str | None = None, folder: Path | None = None
    ) -> None:
        """Serve one more model; returns when it is warm.

        Args:
            served: The model. Its policy is held to the same model roots as those at the start.
            worker: On which worker; None: on the only one.
            folder: Where a relative path starts if there are no roots; None: the server's own.

        Raises:
            ConfigError: It cannot be served, and why. Nothing has changed.
        """
        policy, options = self._roots.placed(served.policy, served.options, folder or Path.cwd())
        served = replace(served, policy=policy, options=options)
        async with self._turn:
            target = self._worker(worker)
            if any(model["name"] == served.name for model in self._all_models()):
                raise ConfigError(f"there is a model {served.name!r}; unload it or choose a name")
            gateways = [gateway for gateway in self._gateways if _sends_to(gateway, target)]
            asked: list[Child] = []
            try:
                for child in (*gateways, target):
                    asked.append(child)
                    await self._ask_to_load(child, served)
            except ConfigError:
                for child in asked:
                    await self._ask(child, unload_line(served.name), served.name)
                raise
            for child in asked:
                _models_of(child).append(msgspec.to_builtins(served))

    async def unload(self, name: str) -> None:
        """Serve a model no longer; returns when what was under way is answered.

        Raises:
            ConfigError: There is no such model, or it is what robots get that name none.
        """
        async with self._turn:
            if all(model["name"] != name for model in self._all_models()):
                known = ", ".join(model["name"] for model in self._all_models())
                raise ConfigError(f"no model {name!r}; there are: {known}")
            for gateway in self._gateways:
                if gateway.config["gateway"]["default_model"] == name:
                    raise ConfigError(f"model {name!r} is what robots get that name none")
            for child in (*self._gateways, *self._workers):
                models = _models_of(child)
                if any(model["name"] == name for model in models):
                    # A child that dies now must not bring it back.
                    models[:] = [model for model in models if model["name"] != name]
                    await self._ask(child, unload_line(name), name)

    async def _ask_to_load(self, child: Child, served: ServedModel) -> None:
        said = await self._ask(child, load_line(served), served.name)
        kind = None if said is None else said["event"]
        if kind not in ("model_added", "model_ready"):
            why = "is being started again; try later" if said is None else said.get("reason")
            raise ConfigError(f"{child.spec.name}: {why or 'died while it loaded the model'}")

    async def _ask(
        self, child: Child, command: Mapping[str, Any], model: str
    ) -> Mapping[str, Any] | None:
        """Tell a child and wait for how it ends; None: it does not run."""
        answer: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        entry = (child, model, answer)
        self._waiting.append(entry)
        try:
            return await answer if child.tell(command) else None
        finally:
            self._waiting.remove(entry)

    def _wake(self, child: Child, model: str | None, event: Mapping[str, Any]) -> None:
        for asked, name, answer in self._waiting:
            if asked is child and model in (name, None) and not answer.done():
                answer.set_result(event)

    def _worker(self, name: str | None) -> Child:
        names = [worker.spec.name for worker in self._workers]
        if name is None and len(names) == 1:
            return self._workers[0]
        if name not in names:
            said = "several workers" if name is None else f"no worker {name!r}"
            raise ConfigError(f"{said}; name one of: {', '.join(names)}")
        return self._workers[names.index(name)]

    def _all_models(self) -> Iterable[dict[str, Any]]:
        return [model for worker in self._workers for model in _models_of(worker)]


_ENDINGS = frozenset(
    {
        "died",
        "model_added",
        "model_failed",
        "model_ready",
        "model_refused",
        "model_removed",
        "model_unloaded",
    }
)
"""Events that end a command."""


def _models_of(child: Child) -> list[dict[str, Any]]:
    """The models in a child's configuration, to be read and changed."""
    config = child.config.get("gateway", child.config)
    return cast("list[dict[str, Any]]", config.setdefault("models", []))


def _sends_to(gateway: Child, worker: Child) -> bool:
    return any(
        address["name"] == worker.spec.name for address in gateway.config["gateway"]["workers"]
    )
