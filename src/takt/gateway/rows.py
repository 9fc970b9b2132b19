"""Writes observations into the arena's slots, on a few threads where there are images to prepare.

A row without images is written on the spot: waking another thread would take longer than the
work. Everything else goes to a thread, so that a large image never delays a ping. Images that came
as files are decoded there, when the row's turn has come: one that was superseded never is.
Robots take turns on the threads (:mod:`takt.gateway.turns`).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from takt.errors import InvariantError, RefusedError
from takt.gateway.decoding import with_decoded_images
from takt.gateway.request import GatewayRequest
from takt.gateway.turns import Turns
from takt.link.arena import Arena
from takt.link.layout import SlotView
from takt.schema.row import RowHeader

__all__ = ["RowWriter"]

log = logging.getLogger(__name__)


class RowWriter:
    """Writes rows.

    Args:
        arena: Where they go.
        seed: The server's seed.
        num_threads: Threads for observations with images.
        on_written: Called on the loop with each row's header, or why there is none.
        loop: The loop.
    """

    def __init__(
        self,
        arena: Arena,
        *,
        seed: int,
        num_threads: int,
        on_written: Callable[[GatewayRequest, RowHeader | RefusedError], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._arena = arena
        self._seed = seed
        self._on_written = on_written
        self._loop = loop
        self._views: dict[tuple[int, int], SlotView] = {}
        self._threads = ThreadPoolExecutor(num_threads, thread_name_prefix="takt-rows")
        self._turns: Turns[tuple[GatewayRequest, SlotView]] = Turns()
        self._num_idle = num_threads
        self._is_closed = False

    def write(self, request: GatewayRequest) -> None:
        """Write the row of a request that has a slot; ``on_written`` follows, perhaps at once."""
        view = self._view(request)
        assert request.observation is not None
        if request.model.is_read_at_once(request.observation):
            self._on_written(request, _row(request, view, self._seed))
        else:
            self._turns.add(request.session.number, _cost(request), (request, view))
            self._set_to_work()

    def close(self) -> None:
        """Wait for the rows being written and end the threads; what waits is not written."""
        self._is_closed = True
        self._threads.shutdown()

    def _set_to_work(self) -> None:
        """Give every thread that is idle a row whose turn it is."""
        while self._num_idle and not self._is_closed:
            turn = self._turns.take()
            if turn is None:
                return
            self._num_idle -= 1
            self._threads.submit(self._write_elsewhere, *turn)

    def _write_elsewhere(self, request: GatewayRequest, view: SlotView) -> None:
        written = _row(request, view, self._seed)
        try:
            self._loop.call_soon_threadsafe(self._written, request, written)
        except RuntimeError:
            log.debug("a row was written after the loop had ended")

    def _written(self, request: GatewayRequest, written: RowHeader | RefusedError) -> None:
        self._num_idle += 1
        self._turns.done(request.session.number)
        self._set_to_work()
        self._on_written(request, written)

    def _view(self, request: GatewayRequest) -> SlotView:
        ref = request.ref
        if ref is None:
            raise InvariantError("a row is to be written without a slot")
        key = request.model.layout.fingerprint, ref.slot
        view = self._views.get(key)
        if view is None:
            view = SlotView(self._arena.slot(ref.slot), request.model.layout)
            self._views[key] = view
        return view


def _cost(request: GatewayRequest) -> int:
    """Bytes of the observation, those that files announce included."""
    observation = request.observation
    assert observation is not None
    files = sum(image.decoded_bytes for image in observation.encoded.values())
    return observation.num_bytes + files


def _row(request: GatewayRequest, view: SlotView, seed: int) -> RowHeader | RefusedError:
    """Write one row; runs on any thread and touches the slot and the observation only."""
    assert request.ref is not None
    assert request.observation is not None
    model = request.model
    if request.is_settled:  # it has expired or its robot has gone while it waited for its turn
        return RefusedError("nobody waits for this row any more", code="cancelled")
    try:
        view.stamp(request.ref)
        observation = with_decoded_images(request.observation, model.spec.observation)
        return model.preprocessor.write(observation, view.full, request.row_request(seed))
    except RefusedError as error:
        return error
    except Exception:
        number = secrets.token_hex(4)
        log.exception("preprocessing failed: error=%s model=%s", number, model.name)
        return RefusedError(
            f"the server could not prepare this observation; its log has error {number}",
            code="failed",
        )
