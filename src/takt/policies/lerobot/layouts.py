"""The shapes launches are captured for: how many images, and how long an instruction.

Images are packed: whichever cameras an observation has, they take the first places, so a layout
counts images and does not name cameras. A launch of few images and a short instruction does not pay
for the cameras and words that are not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

__all__ = ["FlowLayout", "TokenKey", "holding", "layouts_of", "smallest"]

_NUM_BUCKETS = 3
_BUCKET_STEP = 8


class TokenKey(NamedTuple):
    """What a token of the prefix stands for, whatever its place."""

    kind: str
    """``image``, ``special``, ``empty`` (image of an empty camera), ``empty_special``, ``word``,
    ``state``."""
    block: int = 0
    """Number of the image."""
    number: int = 0
    """Number within the image or the instruction."""


class FlowLayout(NamedTuple):
    """One captured shape."""

    images: int
    """Images a row may have."""
    tokens: int
    """Tokens its instruction may have."""

    @property
    def name(self) -> str:
        """Name for people."""
        return f"{self.images} image{'' if self.images == 1 else 's'}, {self.tokens} tokens"

    def holds(self, other: FlowLayout) -> bool:
        """Whether a launch of this layout can hold a row of the other."""
        return self.images >= other.images and self.tokens >= other.tokens


def layouts_of(
    max_images: int, max_tokens: int, length: Callable[[FlowLayout], int]
) -> tuple[FlowLayout, ...]:
    """Every layout of a policy, from the shortest prefix to the longest.

    Args:
        max_images: Cameras of the policy.
        max_tokens: Longest instruction.
        length: Tokens in the prefix of a layout.
    """
    step = _BUCKET_STEP
    buckets = {
        min(max_tokens, -(-max_tokens * part // (_NUM_BUCKETS * step)) * step)
        for part in range(1, _NUM_BUCKETS + 1)
    }
    layouts = [FlowLayout(n, t) for n in range(1, max_images + 1) for t in sorted(buckets)]
    return tuple(sorted(layouts, key=lambda layout: (length(layout), layout)))


def holding(layouts: Iterable[FlowLayout]) -> tuple[int, ...]:
    """For each layout the bit mask of those that hold it, as a policy's card has it."""
    listed = tuple(layouts)
    return tuple(
        sum(1 << place for place, large in enumerate(listed) if large.holds(small))
        for small in listed
    )


def smallest(layouts: Iterable[FlowLayout], row: FlowLayout) -> int:
    """Place of the first layout that holds ``row``."""
    return next(place for place, layout in enumerate(layouts) if layout.holds(row))
