"""A launch on its way through a lane: what the lane is given, and what comes of it.

:func:`run_job` is the whole work of a lane. It reads the rows, runs one stage, and decodes the
chunks of a last stage row by row, so that a row which cannot be computed costs nobody else.
Nothing it meets, be it a network that raises or a slot whose bytes have changed, ends the lane.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from takt.core.launch import Lane, Launch
from takt.core.request import Stage
from takt.errors import RefusedError
from takt.link.layout import SlotView
from takt.link.messages import Outcome, SlotRef
from takt.policies.interface import FloatArray
from takt.runtime.models import LoadedModel
from takt.schema.row import Row

__all__ = ["Completed", "Failure", "HeldRow", "Job", "Lanes", "run_job"]

log = logging.getLogger(__name__)


class HeldRow(NamedTuple):
    """A row and the slot its tensors lie in."""

    row: Row
    view: SlotView
    ref: SlotRef

    def is_current(self) -> bool:
        """Whether the bytes are still this request's."""
        return self.view.holds(self.ref)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Job:
    """A launch with everything a lane needs to run it."""

    launch: Launch
    model: LoadedModel
    rows: tuple[HeldRow, ...]
    """Row ``i`` belongs to ``launch.requests[i]``."""
    kv_slots: tuple[int, ...]
    """Slot of the key/value cache of each row."""

    @property
    def is_last(self) -> bool:
        """Whether the launch gives chunks."""
        return self.launch.lane.stage is Stage.DENOISE or self.model.model.single_pass


class Failure(NamedTuple):
    """Why a row has no chunk."""

    outcome: Outcome
    sentence: str
    """For the robot's operator."""


class Completed(NamedTuple):
    """A launch ended."""

    lane: Lane
    chunks: Mapping[int, FloatArray]
    """Actions by request; empty after a prefix that a denoise launch follows."""
    failures: Mapping[int, Failure]
    """Requests of the launch whose rows could not be computed."""


class Lanes(Protocol):
    """The lanes of one device. Whatever implements it is a device to the worker."""

    def start(self, job: Job) -> None:
        """Begin a launch and return soon; its :class:`Completed` goes to the inbox.

        Soon is at once, or when a launch has run that takes less than handing it over. Its end is
        an event like any other, taken in at a later instant.
        """
        ...

    def call(self, stage: Stage, function: Callable[[], object]) -> None:
        """Run ``function`` where launches of ``stage`` run, between two of them, and wait for it.

        It raises what the function raises.
        """
        ...

    def close(self) -> None:
        """End the lanes; a launch that waits is cut short and its completion is not posted."""
        ...


def run_job(job: Job) -> Completed:
    """Run a launch in the calling thread; never raises."""
    launch = job.launch
    try:
        chunks = _run_stage(job)
    except Exception:
        log.exception(
            "launch failed: model=%s stage=%s rows=%d",
            launch.model,
            launch.lane.stage.name.lower(),
            len(job.rows),
        )
        sentence = f"the {launch.lane.stage.name.lower()} stage of {launch.model!r} failed"
        failure = Failure(Outcome.FAILED, f"{sentence}; the worker's log says why")
        return Completed(launch.lane, {}, dict.fromkeys(launch.requests, failure))
    actions: dict[int, FloatArray] = {}
    failures: dict[int, Failure] = {}
    for place, (seq, held) in enumerate(zip(launch.requests, job.rows, strict=True)):
        result = _finish_row(job, held, None if chunks is None else chunks[place])
        if isinstance(result, Failure):
            failures[seq] = result
        elif result is not None:
            actions[seq] = result
    return Completed(launch.lane, actions, failures)


def _run_stage(job: Job) -> FloatArray | None:
    launch, network = job.launch, job.model.network
    rows = [held.row for held in job.rows]
    run = network.prefix if launch.lane.stage is Stage.PREFIX else network.denoise
    chunks = run(rows, size=launch.size, layout=launch.layout, kv_slots=job.kv_slots)
    if not job.is_last:
        return None
    if chunks is None or len(chunks) != len(rows):
        raise ValueError(
            f"expected {len(rows)} chunks, got {None if chunks is None else chunks.shape}"
        )
    return chunks


def _finish_row(job: Job, held: HeldRow, chunk: FloatArray | None) -> FloatArray | Failure | None:
    """The actions of a row, why it has none, or None after a prefix."""
    if not held.is_current():
        sentence = f"slot {held.ref.slot} was written again while the worker read it"
        return Failure(Outcome.STALE_SLOT, sentence)
    if chunk is None:
        return None
    try:
        return _checked(job.model.decoder.decode(chunk, held.row), held.row)
    except RefusedError as error:
        is_finite = bool(np.isfinite(chunk).all())
        return Failure(Outcome.FAILED if is_finite else Outcome.NON_FINITE, str(error))
    except Exception:
        log.exception("decoding failed: model=%s", job.launch.model)
        sentence = f"the answer of {job.launch.model!r} could not be decoded"
        return Failure(Outcome.FAILED, f"{sentence}; the worker's log says why")


def _checked(actions: FloatArray, row: Row) -> FloatArray:
    """The last look before a robot moves: a decoder's fault must not pass for an answer."""
    shape = (row.header.horizon, row.header.action_dim)
    if actions.shape != shape or actions.dtype != np.float32:
        raise ValueError(f"decoded {actions.dtype} of {actions.shape}, expected float32 of {shape}")
    if not np.isfinite(actions).all():
        raise RefusedError("the answer is not finite; send a new observation")
    return actions
