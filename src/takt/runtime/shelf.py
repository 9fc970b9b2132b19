"""The models of a worker: which are offered, which serve, which are on their way in or out.

A model is offered to gateways as ``loading`` before its weights are touched and as ``ready`` when
it is warm. One that is unloaded is taken back from gateways first; when nothing is under way in the
setup it belonged to, the next setup is in force without it and its memory is given back. The others
serve all the while.

Start reading at :meth:`Shelf.take` and :meth:`Shelf.unload`.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping

from takt.core.profile import Profile
from takt.core.trace import Setup
from takt.link.messages import ModelFailed, ModelOffer, ModelReady, ModelUnloaded, WorkerMessage
from takt.runtime.config import WorkerConfig
from takt.runtime.events import DrivingOffered, SetupChanged
from takt.runtime.loader import AllLoaded, Closed, Loader, LoaderEvent, OfferChanged
from takt.runtime.models import LoadedModel
from takt.schema.serving import ServedModel

__all__ = ["Shelf"]


class Shelf:
    """What a worker serves.

    Args:
        config: The models it starts with, and where they run.
        loader: Loads and closes them.
        profile: Times of the launches of what is loaded.
        tell: Says something to every gateway.
        greet: Says to every gateway again what is offered.
        announce: Told of each change, for the supervisor.
        change: Puts another setup in force, as soon as nothing is under way.
    """

    def __init__(
        self,
        config: WorkerConfig,
        loader: Loader,
        *,
        profile: Callable[[tuple[LoadedModel, ...]], Profile],
        tell: Callable[[WorkerMessage], None],
        greet: Callable[[], None],
        announce: Callable[[Mapping[str, object]], None],
        change: Callable[[SetupChanged | DrivingOffered], None],
    ) -> None:
        self._config = config
        self._loader = loader
        self._profile = profile
        self._tell = tell
        self._greet = greet
        self._announce = announce
        self._change = change
        # Complete from the first hello on: a gateway must not take a model that is still to be
        # loaded for one that is not served here.
        self._offers = {model.name: _loading(model) for model in config.models}
        self._loaded: dict[str, LoadedModel] = {}
        self._leaving: dict[str, LoadedModel | None] = {}
        """Models that were unloaded and have not let go of their memory; None: still loading."""
        self._times: Profile | None = None
        """Of the models that serve; None before there are any."""

    @property
    def offers(self) -> tuple[ModelOffer, ...]:
        """What a gateway is told with the hello."""
        return tuple(self._offers.values())

    def load(self, served: ServedModel) -> None:
        """Serve one more model."""
        name = served.name
        if name in self._offers or name in self._leaving:
            reason = f"this worker has a model {name!r}; unload it first"
            self._announce({"event": "model_failed", "model": name, "reason": reason})
            return
        self._offers[name] = _loading(served)
        self._greet()
        self._loader.load(served)

    def unload(self, name: str) -> None:
        """Serve a model no longer."""
        offer = self._offers.pop(name, None)
        if offer is not None:
            self._tell(ModelUnloaded(model=name))
        if offer is None or offer.state == "failed":
            self._announce({"event": "model_unloaded", "model": name})
            return
        self._leaving[name] = self._loaded.pop(name, None)
        if self._leaving[name] is not None:
            self._change_setup()

    def drive(self, config: WorkerConfig) -> None:
        """Drive the models, and those to come, as ``config`` says, once the device is idle."""
        self._config = config
        if self._times is not None:
            self._change(DrivingOffered(self._setup(self._times)))

    def take(self, event: LoaderEvent) -> None:
        """The loader has done something."""
        match event:
            case OfferChanged(offer, loaded):
                self._take_offer(offer, loaded)
            case AllLoaded():
                self._be_ready()
            case Closed(model):
                self._announce({"event": "model_unloaded", "model": model})

    def let_go(self, in_force: Mapping[str, LoadedModel]) -> None:
        """Give back the memory of models that were unloaded and are no longer in force."""
        for name, loaded in [*self._leaving.items()]:
            if loaded is not None and in_force.get(name) is not loaded:
                del self._leaving[name]
                self._loader.discard(loaded)

    @property
    def is_leaving(self) -> bool:
        """Whether :meth:`let_go` may have something to do."""
        return bool(self._leaving)

    def close(self) -> None:
        """Close every model; nothing runs any more."""
        self._loader.stop()
        for loaded in (*self._loaded.values(), *self._leaving.values()):
            if loaded is not None:
                loaded.network.close()

    def _take_offer(self, offer: ModelOffer, loaded: LoadedModel | None) -> None:
        if offer.model in self._leaving:
            self._drop(offer, loaded)
            return
        if offer.model not in self._offers:
            return
        self._offers[offer.model] = offer
        if loaded is not None:
            self._loaded[offer.model] = loaded
            self._change_setup()
            self._tell(ModelReady(offer=offer))
            self._announce({"event": "model_ready", "model": offer.model})
        elif offer.state == "failed":
            self._tell(ModelFailed(model=offer.model, reason=offer.reason))
            event = {"event": "model_failed", "model": offer.model, "reason": offer.reason}
            self._announce(event)

    def _drop(self, offer: ModelOffer, loaded: LoadedModel | None) -> None:
        """A model was unloaded while it was being loaded."""
        if offer.state == "loading":
            return
        del self._leaving[offer.model]
        if loaded is None:
            self._announce({"event": "model_unloaded", "model": offer.model})
        else:
            self._loader.discard(loaded)

    def _change_setup(self) -> None:
        self._times = self._profile(tuple(self._loaded.values()))
        self._change(SetupChanged(self._setup(self._times), dict(self._loaded)))

    def _setup(self, times: Profile) -> Setup:
        return self._config.setup(tuple(it.model for it in self._loaded.values()), times)

    def _be_ready(self) -> None:
        # What loading left behind lives as long as the process. Out of the collector's sight it
        # costs no request the tens of milliseconds of a full collection.
        gc.collect()
        gc.freeze()
        states = {name: offer.state for name, offer in self._offers.items()}
        self._announce({"event": "ready", "models": states})


def _loading(served: ServedModel) -> ModelOffer:
    return ModelOffer(model=served.name, state="loading", spec={})
