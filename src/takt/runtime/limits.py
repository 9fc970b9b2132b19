"""Batch limits of a device: of the sizes a model is captured for, those its scheduler may use.

Small batches promise more than large ones where the slo is tight, so a limit is part of how a
device is driven, like its formation, and no part of what a model is loaded with.
"""

from __future__ import annotations

from dataclasses import replace

from takt.core.model import Model

__all__ = ["narrowed"]


def narrowed(model: Model, prefix_limit: int | None, denoise_limit: int | None) -> Model:
    """``model`` with the captured sizes up to the limits; the smallest one always stays.

    Args:
        model: As it is captured.
        prefix_limit: Most rows of a prefix launch; None: the largest captured size.
        denoise_limit: Most rows of a denoise launch; likewise.
    """
    return replace(
        model,
        prefix_sizes=_up_to(model.prefix_sizes, prefix_limit),
        denoise_sizes=_up_to(model.denoise_sizes, denoise_limit),
    )


def _up_to(sizes: tuple[int, ...], limit: int | None) -> tuple[int, ...]:
    if limit is None or not sizes:
        return sizes
    return tuple(size for size in sizes if size <= limit) or sizes[:1]
