"""Looks at a Submit before the scheduler hears of it.

A gateway that sends nonsense, by a fault or because it speaks of another version of a model, gets a
typed outcome for that request; the loop and everybody else go on.
"""

from __future__ import annotations

from typing import Protocol

from takt.errors import RefusedError, UsageError, WireError
from takt.link.layout import SlotLayout, SlotView
from takt.link.messages import MAX_CHUNK_BYTES, Outcome, SlotRef, Submit
from takt.runtime.launches import HeldRow
from takt.runtime.models import LoadedModel
from takt.schema.row import Row, RowHeader

__all__ = ["RowSource", "UnservableError", "open_row"]

_MAX_CHUNK_VALUES = MAX_CHUNK_BYTES // 4


class UnservableError(RefusedError):
    """This request cannot be served here."""

    def __init__(self, outcome: Outcome, sentence: str) -> None:
        super().__init__(sentence, code=outcome.code)
        self.outcome = outcome


class RowSource(Protocol):
    """One connection of a gateway, as the loop sees it: whose requests, and where they lie."""

    @property
    def epoch(self) -> int:
        """Which life of the gateway this is."""
        ...

    def slot(self, ref: SlotRef, layout: SlotLayout) -> SlotView:
        """The bytes of a request.

        Raises:
            UsageError: There is no such slot, or it is too small for the layout.
        """
        ...


def open_row(source: RowSource, submit: Submit, loaded: LoadedModel) -> HeldRow:
    """The row of ``submit``, checked as far as it can be without reading tensors.

    Raises:
        UnservableError: The slot holds something else, or the row is none of this model.
    """
    header = _header(submit, loaded)
    try:
        view = source.slot(submit.ref, loaded.slot_layout)
    except (UsageError, WireError) as error:
        raise UnservableError(Outcome.STALE_SLOT, str(error)) from None
    held = HeldRow(Row(header, view.full), view, submit.ref)
    if not held.is_current():
        raise UnservableError(
            Outcome.STALE_SLOT,
            f"slot {submit.ref.slot} does not hold generation {submit.ref.generation} in the slot"
            f" layout of {submit.model!r}; gateway and worker must serve the same version",
        )
    return held


def _header(submit: Submit, loaded: LoadedModel) -> RowHeader:
    try:
        header = RowHeader.from_plain(submit.row)
    except WireError as error:
        raise UnservableError(Outcome.FAILED, str(error)) from None
    num_layouts = len(loaded.spec.layouts)
    if not submit.layout < num_layouts or header.layout != submit.layout:
        raise UnservableError(
            Outcome.FAILED,
            f"layout: expected one of 0..{num_layouts - 1}, the same in message and row,"
            f" got {submit.layout} and {header.layout}",
        )
    action = loaded.spec.action
    _check_size("horizon", header.horizon, 1, action.horizon)
    _check_size("action_dim", header.action_dim, 1, action.action_dim)
    _check_size("state_dim", header.state_dim, 0, loaded.max_state_dim)
    _check_size("horizon * action_dim", header.horizon * header.action_dim, 1, _MAX_CHUNK_VALUES)
    return header


def _check_size(key: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise UnservableError(Outcome.FAILED, f"row.{key}: expected {least}..{most}, got {value}")
