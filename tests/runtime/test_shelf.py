"""Models come and go while others serve."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.core.driving import model_of, profile_of

from takt.link.messages import ModelFailed, ModelOffer, ModelReady, ModelUnloaded
from takt.runtime.config import WorkerConfig
from takt.runtime.events import DrivingOffered, SetupChanged
from takt.runtime.loader import AllLoaded, Closed, OfferChanged
from takt.runtime.models import LoadedModel
from takt.runtime.shelf import Shelf
from takt.schema.serving import ServedModel
from takt.testing.network import FakeNetwork, fake_model

MODELS = {name: model_of(name) for name in ("a", "b")}
PROFILE = profile_of(*MODELS.values())


def served(name: str) -> ServedModel:
    return ServedModel(name=name, policy="echo")


@dataclass
class Scene:
    """A shelf with models ``a`` and ``b``, and whoever hears of it."""

    told: list[Any] = field(default_factory=list)
    announced: list[Any] = field(default_factory=list)
    changes: list[SetupChanged | DrivingOffered] = field(default_factory=list)
    loading: list[str] = field(default_factory=list)
    discarded: list[LoadedModel] = field(default_factory=list)
    is_stopped: bool = False

    def __post_init__(self) -> None:
        self.shelf = Shelf(
            WorkerConfig(name="w", address="x", models=(served("a"), served("b"))),
            self,  # type: ignore[arg-type]
            profile=lambda _: PROFILE,
            tell=self.told.append,
            greet=lambda: self.told.append("hello"),
            announce=self.announced.append,
            change=self.changes.append,
        )

    # The loader

    def load(self, model: ServedModel) -> None:
        self.loading.append(model.name)

    def discard(self, loaded: LoadedModel) -> None:
        self.discarded.append(loaded)

    def stop(self) -> None:
        self.is_stopped = True

    def be_ready(self, name: str) -> LoadedModel:
        loaded = fake_model(model_of(name))
        self.shelf.take(OfferChanged(ModelOffer(model=name, state="ready", spec={}), loaded))
        return loaded

    def fail(self, name: str) -> None:
        offer = ModelOffer(model=name, state="failed", spec={}, reason="no weights")
        self.shelf.take(OfferChanged(offer))

    @property
    def states(self) -> dict[str, str]:
        return {offer.model: offer.state for offer in self.shelf.offers}

    @property
    def models_in_force(self) -> Mapping[str, LoadedModel]:
        """Those of the newest setup."""
        change = self.changes[-1]
        assert isinstance(change, SetupChanged)
        return change.models


def test_every_model_is_offered_before_it_is_loaded() -> None:
    assert Scene().states == {"a": "loading", "b": "loading"}


def test_a_model_serves_as_soon_as_it_is_warm() -> None:
    scene = Scene()

    loaded = scene.be_ready("a")

    assert scene.models_in_force == {"a": loaded}
    assert isinstance(scene.told[-1], ModelReady)
    assert scene.announced == [{"event": "model_ready", "model": "a"}]


def test_a_model_that_fails_is_named_and_changes_nothing() -> None:
    scene = Scene()

    scene.fail("b")
    scene.shelf.take(AllLoaded())

    assert scene.changes == []
    assert scene.told == [ModelFailed(model="b", reason="no weights")]
    assert scene.announced[-1]["models"] == {"a": "loading", "b": "failed"}


def test_a_model_loaded_at_run_time_is_offered_to_gateways_before_its_weights_are_touched() -> None:
    scene = Scene()

    scene.shelf.load(served("c"))

    assert scene.states["c"] == "loading"
    assert (scene.told, scene.loading) == (["hello"], ["c"])


def test_a_name_that_is_taken_is_refused() -> None:
    scene = Scene()

    scene.shelf.load(served("a"))

    assert scene.loading == []
    assert "has a model 'a'" in scene.announced[0]["reason"]


def test_memory_is_given_back_when_the_setup_without_the_model_is_in_force() -> None:
    scene = Scene()
    a, b = scene.be_ready("a"), scene.be_ready("b")

    scene.shelf.unload("a")

    assert scene.told[-1] == ModelUnloaded(model="a")
    assert scene.models_in_force == {"b": b}
    scene.shelf.let_go({"a": a, "b": b})  # requests are still under way
    assert scene.discarded == []
    scene.shelf.let_go({"b": b})
    assert scene.discarded == [a]
    assert not scene.shelf.is_leaving
    scene.shelf.take(Closed("a"))
    assert scene.announced[-1] == {"event": "model_unloaded", "model": "a"}


def test_a_model_unloaded_while_it_loads_never_serves() -> None:
    scene = Scene()

    scene.shelf.unload("a")
    loaded = scene.be_ready("a")

    assert scene.changes == []
    assert scene.discarded == [loaded]
    assert not scene.shelf.is_leaving


def test_a_model_that_failed_or_never_was_is_unloaded_at_once() -> None:
    scene = Scene()
    scene.fail("a")

    scene.shelf.unload("a")
    scene.shelf.unload("nobody")

    assert [e["event"] for e in scene.announced[-2:]] == ["model_unloaded"] * 2
    assert "a" not in scene.states


def test_a_model_that_fails_after_it_was_given_up_is_unloaded() -> None:
    scene = Scene()

    scene.shelf.unload("a")
    scene.fail("a")

    assert scene.announced == [{"event": "model_unloaded", "model": "a"}]


def test_the_end_closes_what_serves_and_what_leaves() -> None:
    scene = Scene()
    a, b = scene.be_ready("a"), scene.be_ready("b")
    for loaded in (a, b):
        loaded.network.load()
    scene.shelf.unload("a")

    scene.shelf.close()

    networks = [loaded.network for loaded in (a, b)]
    assert [n.is_loaded for n in networks if isinstance(n, FakeNetwork)] == [False, False]
    assert scene.is_stopped


def test_another_formation_is_offered_for_the_models_that_serve_and_kept_for_those_to_come() -> (
    None
):
    scene = Scene()
    flowing = WorkerConfig(
        name="w",
        address="x",
        models=(served("a"), served("b")),
        formation="flowing",
        denoise_limit=1,
    )
    scene.shelf.drive(flowing)
    assert scene.changes == []  # nothing serves yet

    scene.be_ready("a")
    scene.shelf.drive(dataclasses.replace(flowing, formation="monolithic"))
    scene.be_ready("b")

    assert [change.setup.formation for change in scene.changes] == [
        "flowing",
        "monolithic",
        "monolithic",
    ]
    assert isinstance(scene.changes[1], DrivingOffered)
    assert {model.denoise_sizes for model in scene.changes[2].setup.models} == {(1,)}
