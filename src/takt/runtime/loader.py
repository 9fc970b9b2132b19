"""Loads a worker's models, one after another, in a thread beside the loop.

Each model serves as soon as it is warm. One that cannot be loaded is reported, the others serve.
Models that are given up are closed in the same thread, in turn with those that are loaded.
"""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from typing import NamedTuple, TypeAlias, cast, get_args

from takt.errors import TaktError
from takt.hardware.measured import MeasuredProfile
from takt.link.messages import ModelOffer
from takt.policies.catalog import open_policy
from takt.policies.interface import Placement, Precision
from takt.policies.stand_in import check_fits_device
from takt.runtime.config import WorkerConfig
from takt.runtime.models import LaneCaller, LoadedModel, load_model
from takt.runtime.paced_device import load_stand_in
from takt.schema.plain import to_plain
from takt.schema.serving import ServedModel
from takt.units import Nanos, to_ms

__all__ = ["AllLoaded", "Closed", "Loader", "LoaderEvent", "OfferChanged"]

log = logging.getLogger(__name__)


class OfferChanged(NamedTuple):
    """A model is being loaded, is ready, or has failed."""

    offer: ModelOffer
    loaded: LoadedModel | None = None
    """The model, when it is ready."""


class AllLoaded(NamedTuple):
    """Every model of the configuration is ready or has failed."""


class Closed(NamedTuple):
    """A model that was given up has let go of its memory."""

    model: str


LoaderEvent: TypeAlias = OfferChanged | AllLoaded | Closed


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
        self._measured = config.measured()
        self._call = call
        self._post = post
        self._clock = clock
        self._is_stopped = False
        self._tasks: SimpleQueue[Callable[[], None]] = SimpleQueue()
        # A daemon: a compiler that runs for minutes must not keep a drained worker alive.
        self._thread = threading.Thread(target=self._run, name="loader", daemon=True)

    def start(self) -> None:
        """Begin with the first model."""
        for served in self._config.models:
            self._tasks.put(partial(self._open, served))
        for served in self._config.models:
            self.load(served)
        self._tasks.put(lambda: self._tell(AllLoaded()))
        self._thread.start()

    def load(self, served: ServedModel) -> None:
        """Load one more model when it is its turn."""
        self._tasks.put(lambda: self._tell(self._load(served)))

    def discard(self, loaded: LoadedModel) -> None:
        """Close a model that no launch uses any more when it is its turn."""
        self._tasks.put(partial(self._close, loaded))

    def stop(self) -> None:
        """Begin with no further model, and post nothing more."""
        self._is_stopped = True
        self._tasks.put(lambda: None)

    def _run(self) -> None:
        while not self._is_stopped:
            self._tasks.get()()

    def _open(self, served: ServedModel) -> None:
        self._tell(OfferChanged(_opened(served)))

    def _close(self, loaded: LoadedModel) -> None:
        try:
            loaded.network.close()
        except Exception:
            log.exception("a model could not be closed: model=%s", loaded.model.name)
        name = loaded.model.name
        del loaded
        # What served was put out of the collector's sight; now it has to be looked at again.
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._tell(Closed(name))

    def _load(self, served: ServedModel) -> OfferChanged:
        start = self._clock()
        try:
            loaded = self._loaded(served)
        except Exception as error:  # noqa: BLE001 - logged below, and told to gateways
            return OfferChanged(_failed(served, error))
        took_ms = to_ms(self._clock() - start)
        log.info("model loaded: model=%s took_ms=%.0f", served.name, took_ms)
        return OfferChanged(_ready(loaded), loaded)

    def _loaded(self, served: ServedModel) -> LoadedModel:
        placement = _as_measured(self._config.placement, self._measured)
        is_paced = self._config.paced is not None
        check_fits_device(served.name, served.policy, is_paced=is_paced)
        if self._measured is not None:
            self._measured.model(served.name)  # before minutes are spent on loading it
        if is_paced:
            loaded = load_stand_in(served, placement)
        else:
            loaded = load_model(served, placement, self._call, self._clock)
        if self._measured is not None:
            self._measured.profile_for([loaded.model])
        return loaded

    def _tell(self, event: LoaderEvent) -> None:
        if not self._is_stopped:
            self._post(event)


def _as_measured(placement: Placement, measured: MeasuredProfile | None) -> Placement:
    """``placement`` in the number format whose times the scheduler believes.

    ``auto`` chooses by a trial, which on a busy computer may end otherwise than when the profile
    was measured.
    """
    found = None if measured is None else measured.header.precision
    if placement.precision != "auto" or found not in get_args(Precision):
        return placement
    return replace(placement, precision=cast("Precision", found))


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
