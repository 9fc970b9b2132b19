"""Finds the parts of a policy by its name or its directory.

Importing this module imports no engine. Opening a policy reads its card; the network's engine is
imported when :attr:`PolicyParts.network` is called, so a gateway never loads it.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

from takt.errors import ConfigError
from takt.policies.echo import (
    EchoDecoder,
    EchoNetwork,
    EchoOptions,
    EchoPreprocessor,
    echo_spec,
)
from takt.policies.interface import Decoder, Network, Placement, Preprocessor
from takt.policies.stand_in import (
    StandInOptions,
    StandInPreprocessor,
    paced_architecture,
    stand_in_named,
    stand_in_network,
)
from takt.schema.plain import read_plain
from takt.schema.spec import PolicySpec

__all__ = ["KNOWN_POLICIES", "PolicyParts", "is_lerobot_checkpoint", "open_policy"]

KNOWN_POLICIES = ("echo", "mini")
"""Policies in the package; others are given with their directory."""

_CARD_FILE = "policy.json"
_LEROBOT_FILE = "config.json"
_MAX_CARD_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyParts:
    """A policy that is open but not loaded."""

    spec: PolicySpec
    """Its card."""
    preprocessor: Callable[[], Preprocessor]
    """Makes the gateway's part."""
    network: Callable[[Placement], Network]
    """Makes the worker's part, not yet loaded; imports the engine."""
    decoder: Callable[[], Decoder]
    """Makes the part that turns chunks into actions."""
    takes_leftovers: bool = False
    """Whether a request may say what its robot is still executing, so that the chunk continues
    it."""


def open_policy(
    policy: str, *, name: str | None = None, options: Mapping[str, object] | None = None
) -> PolicyParts:
    """Open a policy.

    Args:
        policy: One of :data:`KNOWN_POLICIES`, the directory of a checkpoint, or
            ``paced:ARCHITECTURE`` for a stand-in, see :mod:`takt.policies.stand_in`.
        name: Name robots will ask for; by default the policy's, or the directory's last part.
        options: Options of the policy by the names of its options class, such as
            :class:`~takt.policies.echo.EchoOptions`,
            :class:`~takt.policies.mini.checkpoint.MiniOptions` or, for a checkpoint of LeRobot,
            :class:`~takt.policies.lerobot.opening.CheckpointOptions`.

    Raises:
        ConfigError: No such policy, an unknown option, or a card that cannot be read.
    """
    given = dict(options or {})
    if policy == "echo":
        return _open_echo(name or policy, given)
    architecture = paced_architecture(policy)
    if architecture is not None:
        return _open_stand_in(name or architecture, architecture, given)
    path = Path(policy)
    if policy not in KNOWN_POLICIES and is_lerobot_checkpoint(path):
        return _open_lerobot(name or path.resolve().name, path, given)
    if policy == "mini":
        return _open_mini(name or policy, None, given)
    if os.path.isdir(path):
        return _open_directory(name or path.resolve().name, path, given)
    raise ConfigError(
        f"no policy {policy!r}; known: {', '.join(KNOWN_POLICIES)},"
        " or the directory of a checkpoint"
    )


def is_lerobot_checkpoint(path: Path) -> bool:
    """Whether a directory is a checkpoint as LeRobot writes them."""
    # In a folder that is closed to us, pathlib raises where os.path says no.
    return os.path.isfile(path / _LEROBOT_FILE) and not os.path.isfile(path / _CARD_FILE)


def _open_echo(name: str, options: dict[str, object]) -> PolicyParts:
    strict = options.pop("strict_spec", None)
    read = read_plain(EchoOptions, options, f"options of {name}")
    if isinstance(strict, str | Path):
        read = dataclasses.replace(read, strict_spec=Path(strict))
    elif strict is not None:
        raise ConfigError(f"options of {name}.strict_spec: expected a path, got {strict!r}")
    spec = echo_spec(name, read)
    return PolicyParts(
        spec=spec,
        preprocessor=partial(EchoPreprocessor, spec, read),
        network=partial(EchoNetwork, spec, read),
        decoder=EchoDecoder,
    )


def _open_stand_in(name: str, architecture: str, options: Mapping[str, object]) -> PolicyParts:
    stand_in = stand_in_named(architecture)
    spec = stand_in.spec(name, read_plain(StandInOptions, options, f"options of {name}"))
    return PolicyParts(
        spec=spec,
        preprocessor=partial(StandInPreprocessor, stand_in, spec),
        network=partial(stand_in_network, spec),
        decoder=EchoDecoder,
    )


def _open_lerobot(name: str, path: Path, options: Mapping[str, object]) -> PolicyParts:
    from takt.policies.lerobot.opening import open_parts

    parts = open_parts(name, path, options)
    return PolicyParts(
        spec=parts.checkpoint.spec(name),
        preprocessor=parts.preprocessor,
        network=parts.network,
        decoder=parts.decoder,
        takes_leftovers=True,
    )


def _open_directory(name: str, path: Path, options: Mapping[str, object]) -> PolicyParts:
    family = _family(path)
    if family != "mini":
        raise ConfigError(f"{path / _CARD_FILE}: family {family!r} is not known; known: mini")
    return _open_mini(name, path, options)


def _family(path: Path) -> object:
    card = path / _CARD_FILE
    try:
        if card.stat().st_size > _MAX_CARD_BYTES:
            raise ConfigError(f"{card}: expected at most {_MAX_CARD_BYTES} bytes")
        plain: object = json.loads(card.read_bytes())
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: not a checkpoint: it has neither mini's {_CARD_FILE}"
            f" nor LeRobot's {_LEROBOT_FILE}"
        ) from None
    except OSError as error:
        raise ConfigError(f"{card}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{card}: not JSON: {error}") from error
    if not isinstance(plain, dict):
        raise ConfigError(f"{card}: expected a mapping, got {type(plain).__name__}")
    return cast("dict[str, object]", plain).get("family")


def _open_mini(name: str, path: Path | None, options: Mapping[str, object]) -> PolicyParts:
    from takt.policies.mini.checkpoint import SHIPPED, MiniOptions, mini_spec, read_card

    directory = path or SHIPPED
    if path is None and not SHIPPED.is_dir():
        raise ConfigError("the weights of mini are not installed; install: pip install takt-mini")
    card = read_card(directory)
    read = read_plain(MiniOptions, options, f"options of {name}")
    spec = mini_spec(name, directory, card)

    def preprocessor() -> Preprocessor:
        from takt.policies.mini.rows import MiniPreprocessor  # imports OpenCV

        return MiniPreprocessor(spec, card)

    def decoder() -> Decoder:
        from takt.policies.mini.rows import MiniDecoder  # imports OpenCV

        return MiniDecoder(spec, card)

    def network(placement: Placement) -> Network:
        from takt.policies.mini.network import MiniNetwork  # imports OpenVINO

        return MiniNetwork(spec, card, directory, placement, read)

    return PolicyParts(spec=spec, preprocessor=preprocessor, network=network, decoder=decoder)
