"""Names and shapes of a checkpoint's tensors, translated to ours.

Translating is done by rules for prefixes and parts of names. Nothing is skipped silently: a tensor
is used, or it stands in a family's short list of tensors that inference does not need.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from takt.errors import ConfigError
from takt.policies.lerobot.tensor_file import StoredTensor

__all__ = ["NameRules", "Shapes", "check_tensors"]

Shapes = Mapping[str, tuple[int, ...]]
"""Shape of each parameter by our name."""

_MAX_SHOWN = 6
_FLOATS = ("F32", "BF16", "F16")

_PARTS = (
    (".embeddings.patch_embedding.", ".patch."),
    (".embeddings.position_embedding.weight", ".positions"),
    (".encoder.layers.", ".layers."),
    (".self_attn.q_proj.", ".query."),
    (".self_attn.k_proj.", ".key."),
    (".self_attn.v_proj.", ".value."),
    (".self_attn.o_proj.", ".output."),
    (".self_attn.out_proj.", ".output."),
    (".mlp.gate_proj.", ".gate."),
    (".mlp.up_proj.", ".up."),
    (".mlp.down_proj.", ".down."),
    (".mlp.fc1.", ".up."),
    (".mlp.fc2.", ".down."),
    (".layer_norm1.", ".norm_attention."),
    (".layer_norm2.", ".norm_mlp."),
    (".input_layernorm.", ".norm_attention."),
    (".post_attention_layernorm.", ".norm_mlp."),
    (".post_layernorm.", ".norm."),
    (".embed_tokens.weight", ".embedding"),
)
"""Parts of names that all families share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameRules:
    """How one family names its tensors."""

    prefixes: tuple[tuple[str, str], ...]
    """Beginning of a name and what it becomes; the first that fits is applied."""
    unused: tuple[str, ...] = ()
    """Names, without a leading ``model.``, that inference does not need."""
    substitutes: tuple[tuple[str, str], ...] = ()
    """A name of ours that may be missing, and the unused tensor (as stored) that fills it then."""

    def translate(self, stored: Mapping[str, StoredTensor]) -> dict[str, str]:
        """Our name of every stored tensor that is used, and its stored name.

        Raises:
            ConfigError: Two stored tensors get the same name.
        """
        ours: dict[str, str] = {}
        spare: dict[str, str] = {}
        for name in stored:
            bare = name.removeprefix("model.")
            if bare in self.unused:
                spare[bare] = name
                continue
            new = self._translate_one(bare)
            if new in ours:
                raise ConfigError(f"{name} and {ours[new]} both mean {new}")
            ours[new] = name
        for wanted, substitute in self.substitutes:
            if wanted not in ours and substitute in spare:
                ours[wanted] = spare[substitute]
        return ours

    def _translate_one(self, name: str) -> str:
        for start, new in self.prefixes:
            if name.startswith(start):
                name = new + name.removeprefix(start)
                break
        for part, new in _PARTS:
            name = name.replace(part, new)
        return name


def check_tensors(
    path: Path,
    expected: Shapes,
    names: Mapping[str, str],
    stored: Mapping[str, StoredTensor],
) -> None:
    """Refuse a file that does not fill every parameter exactly once.

    Args:
        path: The file, for errors.
        expected: Shape of every parameter.
        names: From :meth:`NameRules.translate`.
        stored: The file's tensors.

    Raises:
        ConfigError: Tensors are missing, unexpected, of another shape or not floating point; the
            message lists them.
    """
    faults = [f"missing {name}" for name in expected if name not in names]
    faults += [f"unexpected {kept}" for name, kept in names.items() if name not in expected]
    for name, shape in expected.items():
        found = stored[names[name]] if name in names else None
        if found is not None and found.shape != shape:
            faults.append(f"{names[name]} has shape {list(found.shape)}, expected {list(shape)}")
        elif found is not None and found.dtype not in _FLOATS:
            faults.append(f"{names[name]} has dtype {found.dtype}, expected one of {_FLOATS}")
    if faults:
        _refuse(path, faults)


def _refuse(path: Path, faults: list[str]) -> NoReturn:
    more = f" and {len(faults) - _MAX_SHOWN} more" if len(faults) > _MAX_SHOWN else ""
    raise ConfigError(f"{path}: {'; '.join(faults[:_MAX_SHOWN])}{more}")
