"""What a pi0 checkpoint is: names, sizes, conventions. No network engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

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

__all__ = ["PI0", "Pi0Sizes", "read_pi0_sizes"]

_PALIGEMMA = "paligemma_with_expert.paligemma."
_EXPERT = "paligemma_with_expert.gemma_expert."

PI0 = Family(
    name="pi0",
    names=NameRules(
        prefixes=(
            (f"{_PALIGEMMA}model.vision_tower.vision_model.", "vision."),
            (f"{_PALIGEMMA}model.multi_modal_projector.linear.", "projector."),
            (f"{_PALIGEMMA}model.language_model.", "language."),
            (f"{_EXPERT}model.", "expert."),
            ("time_mlp_in.", "action_time_mlp_in."),
            ("time_mlp_out.", "action_time_mlp_out."),
        ),
        unused=(f"{_PALIGEMMA}lm_head.weight", f"{_EXPERT}lm_head.weight"),
        # Converted base checkpoints tie the embedding to the output layer and keep the latter.
        substitutes=(("language.embedding", f"{_PALIGEMMA}lm_head.weight"),),
    ),
    steps_key="num_inference_steps",
    size_key="image_resolution",
    is_width_first=False,
    resize="pad_center",
    newline_step="pi0_new_line_processor",
    default_tokenizer="google/paligemma-3b-pt-224",
    pad_token="<pad>",
    starts_with="<bos>",
    state_in_prefix=False,
    heads_of_towers={1152: 16},
    head_dims={2048: 256, 1024: 256},
)
"""The family."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pi0Sizes(PairedSizes):
    """Sizes of a pi0 network."""

    published: ClassVar[tuple[int, int, int]] = (2048, 18, 1024)

    def prefix_length(self, layout: FlowLayout) -> int:
        """Images, then the instruction."""
        return layout.images * self.image_tokens + layout.tokens

    def prefix_tokens(self, layout: FlowLayout, empty: int, *, full: bool) -> list[TokenKey]:
        """See :meth:`takt.policies.lerobot.checkpoint.FlowSizes.prefix_tokens`."""
        places = range(self.image_tokens)
        images = [TokenKey("image", n, i) for n in range(layout.images) for i in places]
        blank = [TokenKey("empty", n, i) for n in range(empty) for i in places]
        words = [TokenKey("word", 0, i) for i in range(layout.tokens)]
        return [*images, *(blank if full else ()), *words]


def read_pi0_sizes(
    shapes: Shapes, dims: Section | None, config: FlowConfig, section: Section
) -> Pi0Sizes:
    """Read the sizes off the weights.

    Raises:
        ConfigError: They contradict each other or the configuration.
    """
    vision = tower_sizes(shapes, dims, PI0.heads_of_towers)
    of_language = None if dims is None else dims.take_section("vlm")
    of_expert = None if dims is None else dims.take_section("expert")
    language = stack_sizes(shapes, "language", of_language, PI0.head_dims)
    expert = stack_sizes(shapes, "expert", of_expert, PI0.head_dims)
    return Pi0Sizes(
        vision=vision,
        language=language,
        expert=expert,
        vocabulary=shapes.get("language.embedding", (0,))[0],
        image_tokens=image_tokens(section.where, vision, config.height, config.width),
    )
