"""Loads a worker's models, one after another, in a thread beside the loop.

Each model serves as soon as it is warm. One that cannot be loaded is reported, the others serve.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from takt.errors import TaktError
from takt.link.messages import ModelOffer
from takt.policies.catalog import open_policy
from takt.runtime.config import WorkerConfig
from takt.runtime.models import LaneCaller, LoadedModel, load_model
from takt.schema.plain import to_plain
from takt.schema.serving import ServedModel
from takt.units import Nanos, to_ms

__all__ = ["AllLoaded", "Loader", "LoaderEvent", "OfferChanged"]

log = logging.getLogger(__name__)


class OfferChanged(NamedTuple):
    """A model is being loaded, is ready, or has failed."""

    offer: ModelOffer
    loaded: LoadedModel | None = None
    """The model, when it is ready."""


class AllLoaded(NamedTuple):
    """Every model is ready or has failed."""


LoaderEvent: TypeAlias = OfferChanged | AllLoaded


class Loader:
    """Loads the models of a worker.

    Args:
        config: Which ones, and where they run.
        call: Runs a function in a lane.
        post: Told what happens; called by the loading thread.
        clock: Monotonic, in nanoseconds.
    """

    def __init__(
        self,
        config: WorkerConfig,
        call: LaneCaller,
        post: Callable[[LoaderEvent], None],
        clock: Callable[[], Nanos],
    ) -> None:
        self._config = config
        self._call = call
        self._post = post
        self._clock = clock
        self._is_stopped = False
        # A daemon: a compiler that runs for minutes must not keep a drained worker alive.
        self._thread = threading.Thread(target=self._run, name="loader", daemon=True)

    def start(self) -> None:
        """Begin with the first model."""
        self._thread.start()

    def stop(self) -> None:
        """Begin with no further model, and post nothing more."""
        self._is_stopped = True

    def _run(self) -> None:
        for served in self._config.models:
            self._tell(OfferChanged(_opened(served)))
        for served in self._config.models:
            if not self._is_stopped:
                self._tell(self._load(served))
        self._tell(AllLoaded())

    def _load(self, served: ServedModel) -> OfferChanged:
        start = self._clock()
        try:
            loaded = load_model(served, self._config.placement, self._call, self._clock)
        except Exception as error:  # noqa: BLE001 - logged below, and told to gateways
            return OfferChanged(_failed(served, error))
        took_ms = to_ms(self._clock() - start)
        log.info("model loaded: model=%s took_ms=%.0f", served.name, took_ms)
        return OfferChanged(_ready(loaded), loaded)

    def _tell(self, event: LoaderEvent) -> None:
        if not self._is_stopped:
            self._post(event)


def _opened(served: ServedModel) -> ModelOffer:
    """The offer of a model that is still to be loaded."""
    try:
        parts = open_policy(served.policy, name=served.name, options=served.options)
    except TaktError:
        return ModelOffer(model=served.name, state="loading", spec={})  # loading it says why
    return ModelOffer(model=served.name, state="loading", spec=to_plain(parts.spec))


def _ready(loaded: LoadedModel) -> ModelOffer:
    """The offer of a model that is warm."""
    return ModelOffer(
        model=loaded.model.name,
        state="ready",
        spec=to_plain(loaded.spec),
        prefix_batches=loaded.model.prefix_sizes,
        denoise_batches=loaded.model.denoise_sizes,
    )


def _failed(served: ServedModel, error: Exception) -> ModelOffer:
    """The offer of a model that cannot be served; logs why."""
    if isinstance(error, TaktError):
        log.error("model failed to load: model=%s reason=%s", served.name, error)
        reason = str(error)
    elif isinstance(error, ModuleNotFoundError) and not _is_ours(error):
        reason = f"the package {_package(error)} is not installed here"
        log.error("model failed to load: model=%s reason=%s", served.name, reason)
    else:
        log.error("model failed to load: model=%s", served.name, exc_info=error)
        reason = f"{type(error).__name__}; the worker's log says more"
    return ModelOffer(model=served.name, state="failed", spec={}, reason=reason)


def _is_ours(error: ModuleNotFoundError) -> bool:
    return _package(error) == "takt"


def _package(error: ModuleNotFoundError) -> str:
    return (error.name or "takt").partition(".")[0]
