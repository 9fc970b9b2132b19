"""What a SmolVLA checkpoint is: names, sizes, conventions. No network engine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from takt.errors import ConfigError
from takt.policies.lerobot.config import FlowConfig
from takt.policies.lerobot.documents import Section
from takt.policies.lerobot.family import Family
from takt.policies.lerobot.layouts import FlowLayout, TokenKey
from takt.policies.lerobot.names import NameRules, Shapes
from takt.policies.lerobot.sizes import (
    PairedSizes,
    image_tokens,
    stack_sizes,
    tower_sizes,
)
from takt.policies.lerobot.tokenizer import InstructionTokenizer

__all__ = ["NUM_SPECIALS", "SMOLVLA", "SmolvlaSizes", "read_smolvla_sizes", "special_ids"]

_VLM = "vlm_with_expert.vlm."
_EXPERT = "vlm_with_expert.lm_expert."

NUM_SPECIALS = 3
"""Special tokens around an image: two in front of it, one behind."""

SMOLVLA = Family(
    name="smolvla",
    names=NameRules(
        prefixes=(
            (f"{_VLM}model.vision_model.", "vision."),
            (f"{_VLM}model.connector.modality_projection.proj.", "connector."),
            (f"{_VLM}model.text_model.", "language."),
            (_EXPERT, "expert."),
        ),
        unused=(f"{_VLM}lm_head.weight", f"{_EXPERT}embed_tokens.weight"),
    ),
    steps_key="num_steps",
    size_key="resize_imgs_with_padding",
    is_width_first=True,
    resize="pad_left_top",
    newline_step="smolvla_new_line_processor",
    default_tokenizer="HuggingFaceTB/SmolVLM2-500M-Video-Instruct",
    pad_token="<|im_end|>",
    state_in_prefix=True,
    heads_of_towers={768: 12},
    head_dims={960: 64, 720: 64},
)
"""The family."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmolvlaSizes(PairedSizes):
    """Sizes of a SmolVLA network."""

    published: ClassVar[tuple[int, int, int]] = (960, 16, 720)

    shuffle: int
    """Side of the square of patches that become one token."""
    has_specials: bool
    """Whether images stand between special tokens."""
    num_empty: int
    """Cameras that are always empty; only their special tokens are in the prefix."""
    self_attention: tuple[bool, ...]
    """For each layer of the expert whether it attends to itself; else to the prefix alone."""

    @property
    def image_block(self) -> int:
        """Tokens of one image with its special tokens."""
        return self.image_tokens + (NUM_SPECIALS if self.has_specials else 0)

    @property
    def empty_block(self) -> int:
        """Special tokens of all empty cameras."""
        return NUM_SPECIALS * self.num_empty if self.has_specials else 0

    def prefix_length(self, layout: FlowLayout) -> int:
        """Images, special tokens of empty cameras, the instruction, the state."""
        return layout.images * self.image_block + self.empty_block + layout.tokens + 1

    def prefix_tokens(self, layout: FlowLayout, empty: int, *, full: bool) -> list[TokenKey]:
        """See :meth:`takt.policies.lerobot.checkpoint.FlowSizes.prefix_tokens`."""
        blocks = [self._block("image", "special", n) for n in range(layout.images)]
        blank = [self._block("empty", "empty_special", n) for n in range(empty)]
        kept = [key for block in blank for key in block if full or key.kind != "empty"]
        words = [TokenKey("word", 0, i) for i in range(layout.tokens)]
        return [*(key for block in blocks for key in block), *kept, *words, TokenKey("state")]

    def _block(self, image: str, special: str, number: int) -> list[TokenKey]:
        pixels = [TokenKey(image, number, i) for i in range(self.image_tokens)]
        if not self.has_specials:
            return pixels
        around = [TokenKey(special, number, i) for i in range(NUM_SPECIALS)]
        return [*around[:-1], *pixels, around[-1]]


def read_smolvla_sizes(
    shapes: Shapes, dims: Section | None, config: FlowConfig, section: Section
) -> SmolvlaSizes:
    """Read the sizes off the weights.

    Raises:
        ConfigError: They contradict each other or the configuration.
    """
    vision = tower_sizes(shapes, dims, SMOLVLA.heads_of_towers)
    of_language = None if dims is None else dims.take_section("text")
    of_expert = None if dims is None else dims.take_section("expert")
    language = stack_sizes(shapes, "language", of_language, SMOLVLA.head_dims)
    expert = stack_sizes(shapes, "expert", of_expert, SMOLVLA.head_dims)
    shuffle = math.isqrt(shapes.get("connector.weight", (0, 0))[1] // vision.width)
    patches = image_tokens(section.where, vision, config.height, config.width)
    sides = (config.height // vision.patch, config.width // vision.patch)
    if shuffle < 1 or any(side % shuffle for side in sides):
        raise ConfigError(f"the connector joins {shuffle}x{shuffle} of {sides} patches")
    return SmolvlaSizes(
        vision=vision,
        language=language,
        expert=expert,
        vocabulary=shapes.get("language.embedding", (0,))[0],
        image_tokens=patches // shuffle**2,
        shuffle=shuffle,
        has_specials=section.take_bool("add_image_special_tokens", False),
        num_empty=config.empty_cameras,
        self_attention=_self_attention(section, expert.depth),
    )


def _self_attention(section: Section, depth: int) -> tuple[bool, ...]:
    mode = section.take_text("attention_mode", "cross_attn")
    every = section.take_int("self_attn_every_n_layers", -1, 1 << 10, 2)
    if "cross" not in mode:
        return (True,) * depth
    return tuple(every > 0 and layer % every == 0 for layer in range(depth))


def special_ids(tokenizer: InstructionTokenizer, sizes: SmolvlaSizes) -> tuple[int, ...]:
    """The tokens around an image: two in front of it, one behind; none where they are off.

    Raises:
        ConfigError: The tokenizer lacks one of them.
    """
    if not sizes.has_specials:
        return ()
    fake, whole = map(tokenizer.id_of, ("<fake_token_around_image>", "<global-img>"))
    return fake, whole, fake
