"""The sizes of the `mini` network and, from them, the name and shape of every tensor in its file.

:func:`tensor_shapes` is the table that loading, exporting and training agree on. Names and axis
orders are the ones of ``torch.nn``: a linear weight is ``(outputs, inputs)``, a convolution weight
``(outputs, inputs, height, width)``, so a module tree with the same names loads the file as it is.

::

    prefix.stem.{0..3}.{weight,bias}                      image to a 7x7 map of tokens
    prefix.words.weight                                   one row per word of the vocabulary
    prefix.readout                                        one learned token after the words
    prefix.position                                       one row per prefix token
    prefix.layers.{i}.attention.norm.{weight,bias}
    prefix.layers.{i}.attention.key_value.{weight,bias}   keys, then values
    prefix.layers.{i}.attention.{query,output}.{weight,bias}     not in the last layer
    prefix.layers.{i}.mlp.{norm,up,down}.{weight,bias}           not in the last layer
    denoise.state.{weight,bias}                           proprioception to one token
    denoise.action_in.{weight,bias}                       one noisy action to one token
    denoise.time.{0,1}.{weight,bias}                      flow time to a vector
    denoise.position                                      one row per denoise token
    denoise.layers.{i}.attention.{norm,query,key_value,output}.{weight,bias}
    denoise.layers.{i}.mlp.{norm,up,down}.{weight,bias}
    denoise.norm.{weight,bias}, denoise.action_out.{weight,bias}

The last prefix layer ends at its keys and values: nothing reads what would come after them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from takt.errors import ConfigError

__all__ = [
    "MAX_PARAMETERS",
    "MAX_SIZE",
    "STEM",
    "STEM_STRIDE",
    "MiniSizes",
    "Shape",
    "StemLayer",
    "num_parameters",
    "tensor_shapes",
]

Shape = tuple[int, ...]
MAX_SIZE = 4096
MAX_PARAMETERS = 64_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StemLayer:
    """One convolution of the image stem; its padding is ``kernel // 2`` unless it only patches."""

    kernel: int
    """Height and width of the kernel in pixels."""
    stride: int
    """Step between two outputs in pixels."""
    padding: int
    """Zeros added on each side."""


STEM = (
    StemLayer(kernel=4, stride=4, padding=0),
    StemLayer(kernel=3, stride=2, padding=1),
    StemLayer(kernel=3, stride=1, padding=1),
    StemLayer(kernel=3, stride=2, padding=1),
)
"""Together they shrink an image by 16 in each direction."""
STEM_STRIDE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class MiniSizes:
    """How large the network is. The defaults are the shipped one."""

    image_size: int = 112
    """Height and width of the image in pixels; a multiple of 16."""
    num_words: int = 12
    """Word tokens of an instruction; shorter ones are padded."""
    vocabulary_size: int = 64
    """Rows of the word table."""
    stem_width: int = 128
    """Channels inside the image stem; the first convolution has half of them."""
    prefix_width: int = 192
    """Width of a prefix token."""
    denoise_width: int = 128
    """Width of a denoise token."""
    num_layers: int = 4
    """Layers of the prefix and of the denoise network; they pair up one to one."""
    num_heads: int = 4
    """Attention heads of both networks."""
    head_width: int = 64
    """Width of one head."""
    state_dim: int = 4
    """Values of proprioception."""
    action_dim: int = 4
    """Values of one action, as the network integrates them."""
    horizon: int = 16
    """Actions in a chunk."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not 1 <= value <= MAX_SIZE:
                raise ConfigError(f"{field.name} must lie in 1..{MAX_SIZE}, got {value}")
        if self.image_size % STEM_STRIDE:
            raise ConfigError(f"image_size must be a multiple of 16, got {self.image_size}")
        if self.stem_width % 2 or self.denoise_width % 2:
            raise ConfigError("stem_width and denoise_width must be even")
        if num_parameters(self) > MAX_PARAMETERS:
            raise ConfigError(f"these sizes ask for more than {MAX_PARAMETERS:,} parameters")

    @property
    def attention_width(self) -> int:
        """Width of all heads together."""
        return self.num_heads * self.head_width

    @property
    def num_image_tokens(self) -> int:
        """Tokens of one image."""
        return (self.image_size // STEM_STRIDE) ** 2

    @property
    def num_prefix_tokens(self) -> int:
        """Image, words and the readout token."""
        return self.num_image_tokens + self.num_words + 1

    @property
    def num_denoise_tokens(self) -> int:
        """Proprioception and one token per action."""
        return 1 + self.horizon

    @property
    def kv_shape(self) -> Shape:
        """Key/value cache of one row: ``(layers, prefix tokens, 2 * attention width)``."""
        return (self.num_layers, self.num_prefix_tokens, 2 * self.attention_width)


def tensor_shapes(sizes: MiniSizes) -> dict[str, Shape]:
    """Name and shape of every tensor in the weights file."""
    return dict(_tensors(sizes))


def num_parameters(sizes: MiniSizes) -> int:
    """Numbers in the weights file."""
    total = 0
    for _, shape in _tensors(sizes):
        count = 1
        for length in shape:
            count *= length
        total += count
    return total


def _tensors(sizes: MiniSizes) -> Iterator[tuple[str, Shape]]:
    yield from _prefix(sizes)
    yield from _denoise(sizes)


def _prefix(sizes: MiniSizes) -> Iterator[tuple[str, Shape]]:
    channels = (3, sizes.stem_width // 2, sizes.stem_width, sizes.stem_width, sizes.prefix_width)
    for index, layer in enumerate(STEM):
        shape = (channels[index + 1], channels[index], layer.kernel, layer.kernel)
        yield f"prefix.stem.{index}.weight", shape
        yield f"prefix.stem.{index}.bias", shape[:1]
    yield "prefix.words.weight", (sizes.vocabulary_size, sizes.prefix_width)
    yield "prefix.readout", (1, sizes.prefix_width)
    yield "prefix.position", (sizes.num_prefix_tokens, sizes.prefix_width)
    for index in range(sizes.num_layers):
        is_last = index == sizes.num_layers - 1
        yield from _layer(f"prefix.layers.{index}", sizes.prefix_width, sizes, ends_at_kv=is_last)


def _denoise(sizes: MiniSizes) -> Iterator[tuple[str, Shape]]:
    width = sizes.denoise_width
    yield from _linear("denoise.state", sizes.state_dim, width)
    yield from _linear("denoise.action_in", sizes.action_dim, width)
    yield from _linear("denoise.time.0", width, width)
    yield from _linear("denoise.time.1", width, width)
    yield "denoise.position", (sizes.num_denoise_tokens, width)
    for index in range(sizes.num_layers):
        yield from _layer(f"denoise.layers.{index}", width, sizes, ends_at_kv=False)
    yield from _norm("denoise.norm", width)
    yield from _linear("denoise.action_out", width, sizes.action_dim)


def _layer(
    name: str, width: int, sizes: MiniSizes, *, ends_at_kv: bool
) -> Iterator[tuple[str, Shape]]:
    inner = sizes.attention_width
    yield from _norm(f"{name}.attention.norm", width)
    yield from _linear(f"{name}.attention.key_value", width, 2 * inner)
    if ends_at_kv:
        return
    yield from _linear(f"{name}.attention.query", width, inner)
    yield from _linear(f"{name}.attention.output", inner, width)
    yield from _norm(f"{name}.mlp.norm", width)
    yield from _linear(f"{name}.mlp.up", width, 4 * width)
    yield from _linear(f"{name}.mlp.down", 4 * width, width)


def _linear(name: str, inputs: int, outputs: int) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (outputs, inputs)
    yield f"{name}.bias", (outputs,)


def _norm(name: str, width: int) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (width,)
    yield f"{name}.bias", (width,)
