"""What a gateway process is told when it starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from takt.errors import ConfigError
from takt.link.address import LinkAddress
from takt.schema.json_document import read_json_document
from takt.schema.serving import ServedModel

__all__ = ["GatewayConfig", "WorkerAddress"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerAddress:
    """Where a worker is reached."""

    name: str
    """Name of the worker in logs and events."""
    address: str
    """Its link address, see :class:`~takt.link.address.LinkAddress`."""

    def __post_init__(self) -> None:
        LinkAddress.parse(self.address).on_this_host()


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """One gateway."""

    name: str
    """Its name in logs and to workers."""
    workers: tuple[WorkerAddress, ...]
    """Workers to dial. A model that several of them serve goes to the one with least under way."""
    models: tuple[ServedModel, ...]
    """Models robots may ask for."""
    default_model: str | None = None
    """Model of robots that name none; None: the first."""
    num_slots: int = 64
    """Observations that can be on their way through workers at once. Each takes shared memory for
    the largest row of any model; without a free slot the newest observation of a session waits."""
    reserved_row_bytes: int = 0
    """Size of a slot beyond what the models need that are served from the start: a model that is
    added later must fit into it."""
    network_allowance_ms: float = 0.0
    """What the network of a client that does not measure it takes, both ways."""
    second_connection: Literal["take_over", "refuse"] = "take_over"
    """What happens to a connection that declares a robot which is connected already."""
    supersede: bool = True
    """Whether a newer observation of a session replaces one that waits. Off for benchmarks that
    count every request."""
    preprocess_threads: int = 2
    """Threads that turn images into rows."""
    max_sessions: int = 4096
    """Robots at once."""
    max_sessions_per_connection: int = 256
    """Robots at once that one connection may speak for."""
    seed: int = 0
    """Seed of the noise that flow policies start from."""
    hang_ms: float = 1000.0
    """A worker that owes answers and makes no progress for this long, and for five times its
    longest launch, counts as hung. Shorter finds a hung worker sooner and takes a busy host for
    one."""

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigError("a gateway needs a name")
        if not self.models:
            raise ConfigError(f"gateway {self.name!r}: at least one model is needed")
        _check_distinct("model", [model.name for model in self.models])
        _check_distinct("worker", [worker.name for worker in self.workers])
        names = [model.name for model in self.models]
        if self.default_model is not None and self.default_model not in names:
            raise ConfigError(
                f"default_model {self.default_model!r} is none of the models: {', '.join(names)}"
            )
        for field in (
            "num_slots",
            "preprocess_threads",
            "max_sessions",
            "max_sessions_per_connection",
        ):
            if getattr(self, field) < 1:
                raise ConfigError(f"{field} must be at least 1, got {getattr(self, field)}")
        if self.reserved_row_bytes < 0:
            raise ConfigError(
                f"reserved_row_bytes must not be negative, got {self.reserved_row_bytes}"
            )
        if not self.hang_ms > 0:
            raise ConfigError(f"hang_ms must be positive, got {self.hang_ms}")

    @property
    def default(self) -> str:
        """Model of robots that name none."""
        return self.default_model or self.models[0].name

    def to_json(self) -> bytes:
        """The configuration as one line of JSON; :meth:`from_json` reads it back."""
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, document: bytes) -> GatewayConfig:
        """Read a configuration.

        Raises:
            ConfigError: A key is unknown, missing, of the wrong type or impossible.
        """
        return read_json_document(cls, document, "gateway configuration")


def _check_distinct(what: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{what} {name!r} is given twice")
