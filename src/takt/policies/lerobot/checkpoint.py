"""A flow policy's checkpoint, opened: everything but the weights themselves.

Opening reads the JSON files, the statistics and the header of the weights, so that whatever is
wrong with a checkpoint is said before anything is served.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

from takt.errors import ConfigError
from takt.policies.flow import flow_tensors
from takt.policies.lerobot.config import FlowConfig, read_config
from takt.policies.lerobot.documents import Section, read_document
from takt.policies.lerobot.family import Family
from takt.policies.lerobot.layouts import FlowLayout, TokenKey, holding, layouts_of
from takt.policies.lerobot.names import Shapes
from takt.policies.lerobot.paths import CheckpointFiles
from takt.policies.lerobot.pipeline import (
    POSTPROCESSOR_FILE,
    PREPROCESSOR_FILE,
    Pipeline,
    read_pipeline,
)
from takt.policies.lerobot.sizes import read_dims
from takt.policies.lerobot.tensor_file import TensorFile, sha256_of
from takt.policies.lerobot.tokenizer import InstructionTokenizer, find_tokenizer
from takt.schema.spec import (
    ActionSpec,
    AxisSpec,
    CameraSpec,
    LayoutSpec,
    ObservationSpec,
    PolicySpec,
    TensorSpec,
)

__all__ = [
    "CONFIG_FILE",
    "WEIGHTS_FILE",
    "FlowCheckpoint",
    "FlowSizes",
    "SizesReader",
    "open_flow",
]

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"


class FlowSizes(Protocol):
    """Sizes of one family's network."""

    @property
    def num_layers(self) -> int:
        """Layers that leave keys and values."""
        ...

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values."""
        ...

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        ...

    @property
    def vocabulary(self) -> int:
        """Rows of the embedding."""
        ...

    @property
    def is_published(self) -> bool:
        """Whether these are the sizes of the published model."""
        ...

    def prefix_length(self, layout: FlowLayout) -> int:
        """Tokens in the prefix."""
        ...

    def prefix_tokens(self, layout: FlowLayout, empty: int, *, full: bool) -> list[TokenKey]:
        """What each token of a prefix stands for.

        Args:
            layout: Images and words.
            empty: Empty cameras.
            full: Whether images of empty cameras are there, as LeRobot has them; we leave them out
                and keep their special tokens.
        """
        ...


class SizesReader(Protocol):
    """Reads a family's sizes."""

    def __call__(
        self, shapes: Shapes, dims: Section | None, config: FlowConfig, section: Section, /
    ) -> FlowSizes:
        """Read them.

        Raises:
            ConfigError: They contradict each other.
        """
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class FlowCheckpoint:
    """An opened checkpoint."""

    files: CheckpointFiles
    family: Family
    config: FlowConfig
    section: Section
    """config.json, for what only one family asks."""
    pipeline: Pipeline
    sizes: FlowSizes
    given_tokenizer: Path | None
    """The operator's tokenizer, a file or a directory."""
    layouts: tuple[FlowLayout, ...]
    digest: str
    """Of weights, configuration and processors."""
    prefix_sizes: tuple[int, ...]
    denoise_sizes: tuple[int, ...]

    @cached_property
    def tokenizer(self) -> InstructionTokenizer:
        """The tokenizer. Read when it is first asked for: a worker does not need it.

        Raises:
            ConfigError: It is nowhere, damaged, or another model's.
        """
        pipeline, family = self.pipeline, self.family
        words = InstructionTokenizer(
            find_tokenizer(self.files.directory, self.given_tokenizer, pipeline.tokenizer_name),
            max_tokens=self.config.max_tokens,
            pad_token=family.pad_token,
            starts_with=family.starts_with,
        )
        if words.size > self.sizes.vocabulary:
            raise ConfigError(
                f"the tokenizer has {words.size} tokens, the embedding {self.sizes.vocabulary}"
                f" rows; it belongs to another model than {pipeline.tokenizer_name}"
            )
        return words

    @property
    def max_prefix(self) -> int:
        """Tokens in the longest prefix."""
        return max(self.sizes.prefix_length(layout) for layout in self.layouts)

    def cameras(self) -> tuple[CameraSpec, ...]:
        """Cameras under the names robots use."""
        config, names = self.config, self.pipeline.robot_names
        is_fixed = self.section.values.get(self.family.size_key) is None
        return tuple(
            CameraSpec(
                name=names.get(camera, camera),
                height=config.height,
                width=config.width,
                resize="exact" if is_fixed else self.family.resize,
                required=False,
                robot_may_resize=False,  # LeRobot mixes pixels as floats and does not round them
            )
            for camera in config.cameras
        )

    def spec(self, name: str) -> PolicySpec:
        """The policy's card."""
        config, sizes = self.config, self.sizes
        state = TensorSpec(name="state", shape=(config.max_state_dim,))
        images = (len(config.cameras), config.height, config.width, 3)
        prefix = (
            TensorSpec(name="images", shape=images),
            TensorSpec(name="num_images", shape=(), dtype="int32"),
            TensorSpec(name="tokens", shape=(config.max_tokens,), dtype="int32"),
            TensorSpec(name="num_tokens", shape=(), dtype="int32"),
        )
        in_prefix = self.family.state_in_prefix
        denoise = flow_tensors(config.horizon, config.max_action_dim)
        if config.is_relative:
            denoise = (*denoise, TensorSpec(name="raw_state", shape=(config.state_dim,)))
        heads = (sizes.num_layers, 2, sizes.kv_heads, self.max_prefix, sizes.head_dim)
        cameras = self.cameras()
        return PolicySpec(
            name=name,
            architecture=self.family.name
            if sizes.is_published
            else f"{self.family.name}-{sizes.num_layers}x{sizes.head_dim}",
            digest=self.digest,
            observation=ObservationSpec(cameras=cameras, state_dim=config.state_dim, prompt=True),
            action=self._action(),
            prefix_inputs=(*prefix, state) if in_prefix else prefix,
            kv=(TensorSpec(name="kv", shape=heads),),
            denoise_inputs=denoise if in_prefix else (state, *denoise),
            prefix_sizes=self.prefix_sizes,
            denoise_sizes=self.denoise_sizes,
            layouts=tuple(
                LayoutSpec(name=layout.name, num_images=layout.images, prompt_tokens=layout.tokens)
                for layout in self.layouts
            ),
            holds=holding(self.layouts),
        )

    def _action(self) -> ActionSpec:
        config = self.config
        return ActionSpec(
            action_dim=config.action_dim,
            model_action_dim=config.max_action_dim,
            horizon=config.horizon,
            execution_horizon=config.execution_horizon,
            axes=tuple(
                AxisSpec(name=name, relative=bool(relative))
                for name, relative in zip(
                    config.action_names or (), self.pipeline.relative, strict=False
                )
            ),
        )


def open_flow(
    files: CheckpointFiles,
    family: Family,
    read_sizes: SizesReader,
    *,
    tokenizer: Path | None,
    prefix_sizes: tuple[int, ...],
    denoise_sizes: tuple[int, ...],
) -> FlowCheckpoint:
    """Open a checkpoint.

    Args:
        files: Its directory.
        family: The family its configuration names.
        read_sizes: Reads that family's sizes.
        tokenizer: The operator's tokenizer, a file or a directory.
        prefix_sizes: Batch sizes of the prefix stage, rising.
        denoise_sizes: Batch sizes of the denoise stage, rising.

    Raises:
        ConfigError: Anything about it is missing, impossible or not served.
    """
    section = read_document(files.path(CONFIG_FILE))
    config = read_config(section, family)
    pipeline = read_pipeline(files, config, family)
    sizes = read_sizes(_shapes(files, family), read_dims(files), config, section)
    return FlowCheckpoint(
        files=files,
        family=family,
        config=config,
        section=section,
        pipeline=pipeline,
        sizes=sizes,
        given_tokenizer=tokenizer,
        layouts=layouts_of(len(config.cameras), config.max_tokens, sizes.prefix_length),
        digest=_digest(files),
        prefix_sizes=prefix_sizes,
        denoise_sizes=denoise_sizes,
    )


def _shapes(files: CheckpointFiles, family: Family) -> dict[str, tuple[int, ...]]:
    with TensorFile(_weights(files)) as file:
        names = family.names.translate(file.tensors)
        return {name: file.tensors[kept].shape for name, kept in names.items()}


def _weights(files: CheckpointFiles) -> Path:
    if not files.has(WEIGHTS_FILE):
        others = sorted(path.name for path in files.directory.glob("*.bin"))
        others += sorted(path.name for path in files.directory.glob("*.pt*"))
        hint = f"; {others[0]} is a pickle and is never read" if others else ""
        raise ConfigError(f"{files.directory / WEIGHTS_FILE}: no such file{hint}")
    return files.path(WEIGHTS_FILE)


def _digest(files: CheckpointFiles) -> str:
    names = [CONFIG_FILE, WEIGHTS_FILE, PREPROCESSOR_FILE, POSTPROCESSOR_FILE]
    names += sorted(path.name for path in files.directory.glob("policy_*processor*.safetensors"))
    return sha256_of(files.path(name) for name in names)
