"""Networks as dimensions: how much arithmetic and memory traffic one launch of a stage is.

A policy here is four stacks of equal transformer layers (a vision tower, a language model, for
some an adapter behind it, and the expert that denoises) and a few counts. Everything else follows:
floating-point operations, weight bytes, the key/value cache, per stage and per layout. No weights
are read and no network is built.

A *layout* is what a row holds: how many cameras are present and to how many tokens its prompt is
padded. Layouts are numbered from the cheapest to the dearest, as ``takt.core`` wants them.

Formulas, with 2 bytes per number: a layer of width ``d`` has ``2 d q + 2 d kv + m d ff`` weights
(``m`` is 3 for a gated feed-forward part, else 2); ``t`` tokens that attend to ``a`` tokens cost
``2 weights t + 4 t a q`` operations per layer.

Start reading at :class:`Architecture`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from takt.core.request import Stage
from takt.errors import ConfigError

__all__ = [
    "ARCHITECTURES",
    "Architecture",
    "Layout",
    "StageCost",
    "Tower",
    "architecture_named",
    "known_architectures",
]

_BYTES = 2
"""Bytes of a number in bf16 or fp16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tower:
    """A stack of equal transformer layers."""

    layers: int
    """Number of layers."""
    width: int
    """Numbers per token between layers."""
    heads: int
    """Query heads."""
    kv_heads: int
    """Key and value heads."""
    head_dim: int
    """Numbers per head."""
    ff_width: int
    """Width of the feed-forward part."""
    gated: bool = False
    """Whether the feed-forward part has three matrices instead of two."""

    @property
    def query_width(self) -> int:
        """Numbers per token in the queries of one layer."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Numbers per token in the keys of one layer; the values have as many."""
        return self.kv_heads * self.head_dim

    @property
    def weights(self) -> int:
        """Weights of all layers. Embeddings are left out: a launch reads only a few rows."""
        attention = 2 * self.width * (self.query_width + self.kv_width)
        return self.layers * (attention + (3 if self.gated else 2) * self.width * self.ff_width)

    def flops(self, tokens: int, attended: int) -> int:
        """Floating-point operations for ``tokens`` tokens that attend to ``attended`` tokens."""
        attention = 4 * self.layers * tokens * attended * self.query_width
        return 2 * self.weights * tokens + attention

    def activation_bytes(self, tokens: int) -> int:
        """Bytes between kernels for ``tokens`` tokens when nothing is fused."""
        per_token = 6 * self.width + 2 * (self.query_width + 2 * self.kv_width) + 3 * self.ff_width
        return _BYTES * self.layers * tokens * per_token


class Layout(NamedTuple):
    """What one row of a launch holds."""

    cameras: int
    """Cameras that are present; a masked camera is not computed."""
    prompt_tokens: int
    """Tokens the prompt is padded to."""

    def __str__(self) -> str:
        plural = "" if self.cameras == 1 else "s"
        return f"{self.cameras} camera{plural}, {self.prompt_tokens} prompt tokens"

    def fits_in(self, other: Layout) -> bool:
        """Whether a launch of ``other`` can hold a row of this layout."""
        return self.cameras <= other.cameras and self.prompt_tokens <= other.prompt_tokens


class StageCost(NamedTuple):
    """What a launch of one stage has to do, whatever the device."""

    flops: int
    """Floating-point operations per row."""
    weights: int
    """Weights read per launch, whatever its size; a denoise loop reads them at every step."""
    row_bytes: int
    """Bytes of the key/value cache per row: written by the prefix, read by each denoise step."""
    activation_bytes: int
    """Bytes between kernels per row when nothing is fused."""
    layer_steps: int
    """Layers that run one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A policy network as dimensions; fine-tuned variants of it share them."""

    name: str
    """Name on the command line and key of its entries in a profile."""
    title: str
    """Name its authors use."""
    vision: Tower
    """Vision tower. It sees one camera at a time."""
    patches: int
    """Tokens per camera inside the vision tower."""
    image_tokens: int
    """Tokens per camera in the language model."""
    language: Tower
    """Language model."""
    adapter: Tower | None = None
    """Layers between language model and expert."""
    extra_tokens: int = 0
    """Prefix tokens that are neither image nor prompt, such as the robot's state."""
    expert: Tower
    """Expert that denoises actions."""
    suffix_tokens: int
    """Tokens the expert works on: the actions of a chunk and what goes with them."""
    steps: int
    """Denoise steps."""
    hands_over_cache: bool
    """Whether the expert reads the language model's keys and values, or only its last features."""
    layouts: tuple[Layout, ...]
    """Layouts worth capturing, from the cheapest to the dearest; the last holds every row."""
    slo_ms: float
    """Promise used when none is given."""
    slo_is_published: bool = False
    """Whether ``slo_ms`` is a published figure; the others are proposals of ours."""
    source: str
    """Where the dimensions come from."""
    uncertainty: float
    """How far its operations and bytes may be off, as a share."""

    def __post_init__(self) -> None:
        for layout in self.layouts:
            if not layout.fits_in(self.layouts[-1]):
                raise ConfigError(f"{self.name}: the last layout must hold the row of {layout}")

    @property
    def holds(self) -> tuple[int, ...]:
        """For each layout the layouts that can hold its row, as a bit mask."""
        return tuple(
            sum(1 << index for index, other in enumerate(self.layouts) if layout.fits_in(other))
            for layout in self.layouts
        )

    def prefix_tokens(self, layout: Layout) -> int:
        """Tokens of a row in the language model."""
        return layout.cameras * self.image_tokens + layout.prompt_tokens + self.extra_tokens

    def cache_bytes(self, layout: Layout) -> int:
        """Bytes a row hands from the prefix to the denoise stage."""
        cache = 2 * self.language.layers * self.language.kv_width
        per_token = cache if self.hands_over_cache else self.language.width
        return _BYTES * per_token * self.prefix_tokens(layout)

    def cost(self, stage: Stage, layout: Layout) -> StageCost:
        """What a launch of ``stage`` has to do for rows of ``layout``."""
        return self._prefix(layout) if stage is Stage.PREFIX else self._denoise(layout)

    def _prefix(self, layout: Layout) -> StageCost:
        tokens = self.prefix_tokens(layout)
        behind = [self.language, *([self.adapter] if self.adapter else [])]
        seen = layout.cameras * self.patches
        return StageCost(
            flops=layout.cameras * self.vision.flops(self.patches, self.patches)
            + sum(tower.flops(tokens, tokens) for tower in behind),
            weights=sum(tower.weights for tower in (self.vision, *behind)),
            row_bytes=self.cache_bytes(layout),
            activation_bytes=self.vision.activation_bytes(seen)
            + sum(tower.activation_bytes(tokens) for tower in behind),
            layer_steps=sum(tower.layers for tower in (self.vision, *behind)),
        )

    def _denoise(self, layout: Layout) -> StageCost:
        attended = self.prefix_tokens(layout) + self.suffix_tokens
        return StageCost(
            flops=self.steps * self.expert.flops(self.suffix_tokens, attended),
            weights=self.steps * self.expert.weights,
            row_bytes=self.steps * self.cache_bytes(layout),
            activation_bytes=self.steps * self.expert.activation_bytes(self.suffix_tokens),
            layer_steps=self.steps * self.expert.layers,
        )


_SIGLIP_SO400M = Tower(layers=27, width=1152, heads=16, kv_heads=16, head_dim=72, ff_width=4304)
_SIGLIP_BASE = Tower(layers=12, width=768, heads=12, kv_heads=12, head_dim=64, ff_width=3072)
_QWEN3_VISION = Tower(layers=24, width=1024, heads=16, kv_heads=16, head_dim=64, ff_width=4096)
_GEMMA_2B = Tower(
    layers=18, width=2048, heads=8, kv_heads=1, head_dim=256, ff_width=16384, gated=True
)
_GEMMA_300M = Tower(
    layers=18, width=1024, heads=8, kv_heads=1, head_dim=256, ff_width=4096, gated=True
)
_SMOLLM2 = Tower(layers=16, width=960, heads=15, kv_heads=5, head_dim=64, ff_width=2560, gated=True)
_SMOL_EXPERT = Tower(
    layers=16, width=720, heads=15, kv_heads=5, head_dim=64, ff_width=2048, gated=True
)
_QWEN3_4B = Tower(
    layers=36, width=2560, heads=32, kv_heads=8, head_dim=128, ff_width=9728, gated=True
)


def _qwen3_2b(layers: int) -> Tower:
    """The first layers of Qwen3 1.7B; GR00T cuts off the rest."""
    return Tower(
        layers=layers, width=2048, heads=16, kv_heads=8, head_dim=128, ff_width=6144, gated=True
    )


def _groot_head(layers: int) -> Tower:
    """GR00T's diffusion transformer."""
    return Tower(layers=layers, width=1536, heads=32, kv_heads=32, head_dim=48, ff_width=6144)


_GROOT_ADAPTER = Tower(layers=4, width=2048, heads=32, kv_heads=32, head_dim=64, ff_width=8192)
_XR0_HEAD = Tower(layers=16, width=1024, heads=32, kv_heads=8, head_dim=128, ff_width=4096)

_CONFIGS = "public model configurations"


def _grid(cameras: tuple[int, ...], prompts: tuple[int, ...]) -> tuple[Layout, ...]:
    """Every pair of a number of cameras and a prompt bucket."""
    return tuple(Layout(count, prompt) for count in cameras for prompt in prompts)


_ALL = (
    Architecture(
        name="pi0",
        title="pi0",
        vision=_SIGLIP_SO400M,
        patches=256,
        image_tokens=256,
        language=_GEMMA_2B,
        expert=_GEMMA_300M,
        suffix_tokens=51,
        steps=10,
        hands_over_cache=True,
        layouts=_grid((2, 3), (24, 48)),
        slo_ms=156.0,
        slo_is_published=True,
        source=f"{_CONFIGS} (openpi, PaliGemma 3B); SLO: Robion, Jetson AGX Thor at 70 W",
        uncertainty=0.02,
    ),
    Architecture(
        name="pi05",
        title="pi0.5",
        vision=_SIGLIP_SO400M,
        patches=256,
        image_tokens=256,
        language=_GEMMA_2B,
        expert=_GEMMA_300M,
        suffix_tokens=50,
        steps=10,
        hands_over_cache=True,
        layouts=_grid((2, 3), (64, 200)),
        slo_ms=158.0,
        source=f"{_CONFIGS} (openpi, PaliGemma 3B); the conditioning of each layer is left out",
        uncertainty=0.05,
    ),
    Architecture(
        name="smolvla",
        title="SmolVLA",
        vision=_SIGLIP_BASE,
        patches=1024,
        image_tokens=64,
        language=_SMOLLM2,
        extra_tokens=1,
        expert=_SMOL_EXPERT,
        suffix_tokens=50,
        steps=10,
        hands_over_cache=True,
        layouts=_grid((1, 2), (16, 48)),
        slo_ms=65.0,
        source=f"{_CONFIGS} (LeRobot, SmolVLM2 500M at 512 px)",
        uncertainty=0.05,
    ),
    Architecture(
        name="groot-n1.5",
        title="GR00T N1.5",
        vision=_SIGLIP_SO400M,
        patches=256,
        image_tokens=256,
        language=_qwen3_2b(12),
        adapter=_GROOT_ADAPTER,
        expert=_groot_head(16),
        suffix_tokens=49,
        steps=4,
        hands_over_cache=False,
        layouts=_grid((1, 2), (32,)),
        slo_ms=140.0,
        source=f"{_CONFIGS} (Isaac-GR00T); image tokens per camera assumed",
        uncertainty=0.15,
    ),
    Architecture(
        name="groot-n1.6",
        title="GR00T N1.6",
        vision=_SIGLIP_SO400M,
        patches=256,
        image_tokens=256,
        language=_qwen3_2b(16),
        expert=_groot_head(32),
        suffix_tokens=51,
        steps=4,
        hands_over_cache=False,
        layouts=_grid((1, 2), (32,)),
        slo_ms=132.0,
        source=f"{_CONFIGS} (Isaac-GR00T); image tokens per camera assumed",
        uncertainty=0.2,
    ),
    Architecture(
        name="groot-n1.7",
        title="GR00T N1.7",
        vision=_QWEN3_VISION,
        patches=256,
        image_tokens=64,
        language=_qwen3_2b(16),
        adapter=_GROOT_ADAPTER,
        expert=_groot_head(32),
        suffix_tokens=41,
        steps=4,
        hands_over_cache=False,
        layouts=_grid((1, 2), (48,)),
        slo_ms=138.0,
        source=f"{_CONFIGS} (Isaac-GR00T deployment guide); prompt length assumed",
        uncertainty=0.1,
    ),
    Architecture(
        name="xr0",
        title="Xiaomi-Robotics-0",
        vision=_QWEN3_VISION,
        patches=256,
        image_tokens=64,
        language=_QWEN3_4B,
        expert=_XR0_HEAD,
        suffix_tokens=31,
        steps=5,
        hands_over_cache=True,
        layouts=_grid((1, 2), (48,)),
        slo_ms=230.0,
        source="arXiv 2602.12684 (Qwen3-VL 4B, 16-layer head); width and steps of the head assumed",
        uncertainty=0.2,
    ),
)

ARCHITECTURES = {architecture.name: architecture for architecture in _ALL}
"""Every architecture by name."""


def known_architectures() -> tuple[str, ...]:
    """Names :func:`architecture_named` knows."""
    return tuple(ARCHITECTURES)


def architecture_named(name: str) -> Architecture:
    """The architecture of that name.

    Raises:
        ConfigError: There is none; the message lists those there are.
    """
    try:
        return ARCHITECTURES[name]
    except KeyError:
        known = ", ".join(ARCHITECTURES)
        raise ConfigError(f"no architecture {name!r}; known: {known}") from None
