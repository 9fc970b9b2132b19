"""Models are loaded at gateways first, unloaded at gateways first, and all or nothing."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from takt.errors import ConfigError
from takt.schema.serving import ServedModel
from takt.server.children import Child, ChildSpec
from takt.server.model_desk import ModelDesk
from takt.server.model_roots import ModelRoots

NEW = ServedModel(name="new", policy="echo")
ECHO = {"name": "echo", "policy": "echo", "options": {}, "slo_ms": 200.0}
GOOD = {
    ("gateway-0", "load_model"): "model_added",
    ("gateway-0", "unload_model"): "model_removed",
    ("worker-0", "load_model"): "model_ready",
    ("worker-0", "unload_model"): "model_unloaded",
    ("worker-1", "load_model"): "model_ready",
    ("worker-1", "unload_model"): "model_unloaded",
}


class FakeChild:
    """Says at once what it was told to say to a command; None: it does not run."""

    def __init__(self, scene: "Scene", name: str, config: dict[str, Any]) -> None:
        self.scene = scene
        self.spec = ChildSpec(name=name, command=(), config=config)
        self.config = config

    def tell(self, command: Mapping[str, Any]) -> bool:
        kind = command["command"]
        self.scene.told.append((self.spec.name, kind))
        event = self.scene.answers[self.spec.name, kind]
        model = command.get("name") or command["model"]["name"]
        if event is None:
            return False
        said = {"event": event, "model": model, "reason": "made to fail"}
        self.scene.hear(self, said)
        return True


class Scene:
    def __init__(
        self,
        answers: Mapping[tuple[str, str], str | None] | None = None,
        *,
        num_workers: int = 1,
        roots: ModelRoots | None = None,
    ) -> None:
        self.answers = {**GOOD, **(answers or {})}
        self.told: list[tuple[str, str]] = []
        names = [f"worker-{number}" for number in range(num_workers)]
        gateway = {
            "default_model": "echo",
            "models": [dict(ECHO)],
            "workers": [{"name": name, "address": name} for name in names],
        }
        self.workers = [FakeChild(self, name, {"models": [dict(ECHO)]}) for name in names]
        self.gateway = FakeChild(self, "gateway-0", {"gateway": gateway})
        self.desk = ModelDesk(self.workers, [self.gateway], roots)  # type: ignore[arg-type]

    def hear(self, child: FakeChild, said: Mapping[str, Any]) -> None:
        asyncio.get_running_loop().call_soon(self.desk.heard, cast("Child", child), said)

    def models(self) -> list[list[str]]:
        """Names in the configuration of the gateway and of each worker."""
        configs = [self.gateway.config["gateway"], *(worker.config for worker in self.workers)]
        return [[model["name"] for model in config["models"]] for config in configs]


def run(make: Callable[[], Scene], *steps: Callable[[ModelDesk], Awaitable[None]]) -> Scene:
    async def main() -> Scene:
        scene = make()
        for step in steps:
            await asyncio.wait_for(step(scene.desk), 10)
        return scene

    return asyncio.run(main())


def test_a_model_is_known_to_gateways_before_its_worker_loads_it() -> None:
    scene = run(Scene, lambda desk: desk.load(NEW))

    assert scene.told == [("gateway-0", "load_model"), ("worker-0", "load_model")]
    assert scene.models() == [["echo", "new"], ["echo", "new"]]
    assert [row["state"] for row in scene.desk.table()] == ["loading", "ready"]


def test_nobody_can_ask_for_a_model_that_drains() -> None:
    scene = run(Scene, lambda desk: desk.load(NEW), lambda desk: desk.unload("new"))

    assert scene.told[2:] == [("gateway-0", "unload_model"), ("worker-0", "unload_model")]
    assert scene.models() == [["echo"], ["echo"]]


@pytest.mark.parametrize(
    ("answers", "says", "undone"),
    [
        ({("gateway-0", "load_model"): "model_refused"}, "made to fail", ["gateway-0"]),
        ({("worker-0", "load_model"): "model_failed"}, "made to fail", ["gateway-0", "worker-0"]),
        ({("worker-0", "load_model"): "died"}, "made to fail", ["gateway-0", "worker-0"]),
        ({("worker-0", "load_model"): None}, "started again", ["gateway-0", "worker-0"]),
    ],
)
def test_a_model_that_cannot_be_served_is_taken_back_everywhere(
    answers: dict[tuple[str, str], str | None], says: str, undone: list[str]
) -> None:
    async def fails(desk: ModelDesk) -> None:
        with pytest.raises(ConfigError, match=says):
            await desk.load(NEW)

    scene = run(lambda: Scene(answers), fails)

    assert [name for name, kind in scene.told if kind == "unload_model"] == undone
    assert scene.models() == [["echo"], ["echo"]]


def test_a_worker_that_dies_while_it_unloads_does_not_bring_the_model_back() -> None:
    scene = run(
        lambda: Scene({("worker-0", "unload_model"): "died"}),
        lambda desk: desk.load(NEW),
        lambda desk: desk.unload("new"),
    )

    assert scene.models() == [["echo"], ["echo"]]


@pytest.mark.parametrize(
    ("step", "says"),
    [
        (lambda desk: desk.unload("nobody"), "no model 'nobody'; there are: echo"),
        (lambda desk: desk.unload("echo"), "what robots get that name none"),
        (lambda desk: desk.load(ServedModel(name="echo", policy="echo")), "there is a model"),
        (lambda desk: desk.load(NEW, "worker-7"), "no worker 'worker-7'"),
    ],
)
def test_what_must_not_be_is_refused_before_anybody_is_told(
    step: Callable[[ModelDesk], Awaitable[None]], says: str
) -> None:
    async def fails(desk: ModelDesk) -> None:
        with pytest.raises(ConfigError, match=says):
            await step(desk)

    assert run(Scene, fails).told == []


def test_a_model_outside_of_the_roots_is_refused_before_anybody_is_told(tmp_path: Path) -> None:
    outside = ServedModel(name="new", policy=str(tmp_path), options={"root": "/"})
    roots = ModelRoots.of(["."], tmp_path)

    async def fails(desk: ModelDesk) -> None:
        with pytest.raises(ConfigError, match="must be relative"):
            await desk.load(outside)

    assert run(lambda: Scene(roots=roots), fails).told == []


def test_children_are_told_where_a_relative_path_leads(tmp_path: Path) -> None:
    (tmp_path / "fold").mkdir()
    fold = ServedModel(name="new", policy="fold")

    scene = run(Scene, lambda desk: desk.load(fold, folder=tmp_path))

    assert scene.workers[0].config["models"][1]["policy"] == str(tmp_path / "fold")


def test_of_several_workers_one_is_named() -> None:
    async def fails(desk: ModelDesk) -> None:
        with pytest.raises(ConfigError, match="several workers; name one of: worker-0, worker-1"):
            await desk.load(NEW)

    scene = run(lambda: Scene(num_workers=2), fails, lambda desk: desk.load(NEW, "worker-1"))

    assert scene.models() == [["echo", "new"], ["echo"], ["echo", "new"]]


def test_the_table_says_why_a_model_failed_and_that_a_dead_worker_loads_again() -> None:
    async def main() -> list[str]:
        scene = Scene()
        worker: Any = scene.workers[0]
        states = []
        for event in (
            {"event": "model_ready", "model": "echo"},
            {"event": "model_failed", "model": "echo", "reason": "no weights"},
            {"event": "died"},
        ):
            scene.desk.heard(worker, event)
            states.append(scene.desk.table()[0]["state"])
        return states

    assert asyncio.run(main()) == ["ready", "failed: no weights", "loading"]
