"""What tells one family of LeRobot flow policies from another, as data.

Everything else about reading a checkpoint, preparing rows and serving is shared.
"""

from __future__ import annotations

from dataclasses import dataclass

from takt.policies.lerobot.names import NameRules
from takt.schema.spec import ResizeRule

__all__ = ["Family"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One family."""

    name: str
    """Value of ``type`` in config.json, and our key of its times in a profile."""
    names: NameRules
    """How its tensors are called."""
    steps_key: str
    """Key of the number of denoise steps in config.json."""
    size_key: str
    """Key of the image size in config.json."""
    is_width_first: bool
    """Whether that size is (width, height)."""
    resize: ResizeRule
    """Where padding goes."""
    newline_step: str
    """Name of the processor step that ends an instruction with a newline."""
    default_tokenizer: str
    """Tokenizer of the published model."""
    pad_token: str
    """Text of the token that fills up instructions."""
    starts_with: str | None = None
    """Text of the token in front of every instruction."""
    state_in_prefix: bool
    """Whether the prefix stage reads the state; else the denoise stage does."""
    heads_of_towers: dict[int, int]
    """Heads of published vision towers by their width."""
    head_dims: dict[int, int]
    """Head dimension of published transformers by their width."""
