"""What a worker process is told when it starts: one JSON document."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from takt.core.formations import FORMATIONS
from takt.core.group import Group
from takt.core.model import Model
from takt.core.profile import Profile
from takt.core.scheduler import Lateness
from takt.core.trace import Setup
from takt.errors import ConfigError
from takt.hardware.devices import device_named
from takt.hardware.measured import MeasuredProfile
from takt.link.address import LinkAddress
from takt.policies.interface import Placement, Precision
from takt.policies.stand_in import check_fits_device
from takt.runtime.limits import narrowed
from takt.schema.commands import DriveIn
from takt.schema.json_document import read_json_document
from takt.schema.serving import ServedModel

__all__ = ["WorkerConfig", "worker_formations"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """One worker."""

    name: str
    """Its name in logs and to gateways."""
    address: str
    """Link address at which gateways reach it."""
    models: tuple[ServedModel, ...]
    """Models to load, in this order."""
    formation: str = "lockstep"
    """How the lanes are driven; a key of :data:`~takt.core.formations.FORMATIONS`."""
    formation_options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of the formation."""
    discipline: str = "earliest_deadline"
    """Which queue goes next; a key of :data:`~takt.core.disciplines.DISCIPLINES`."""
    lateness: str = "yield"
    """What becomes of requests that can no longer be on time; a value of
    :class:`~takt.core.scheduler.Lateness`."""
    prefix_cores: tuple[int, ...] = ()
    """CPU cores of the prefix lane; empty: any."""
    denoise_cores: tuple[int, ...] = ()
    """CPU cores of the denoise lane; empty: any. Lanes on the same cores slow each other down."""
    precision: Precision = "auto"
    """Number format inside the networks."""
    paced: str | None = None
    """GPU whose times launches take by waiting, see :mod:`takt.runtime.paced_device`; its models
    are stand-ins. None: the device is this computer's CPU."""
    paced_seed: int | None = None
    """Makes the paced device a stranger whose times differ from the table; None: it keeps to it."""
    profile_path: str | None = None
    """Profile that ``takt profile`` wrote; the scheduler believes it and nothing else. None: what
    is measured while models are warmed, or a paced device's table."""
    prefix_limit: int | None = None
    """Most rows of a prefix launch; None: the largest captured size."""
    denoise_limit: int | None = None
    """Most rows of a denoise launch; likewise."""
    max_requests: int = 128
    """Requests of one model that may be under way at once; further ones are answered ``busy``.
    Each takes a slot of the key/value cache, whose memory is taken when the model loads."""
    listening_fd: int | None = None
    """Listening socket inherited from the parent, so that gateways can dial while the worker
    restarts; None: the worker binds the address itself."""
    trace_path: str | None = None
    """File that receives the trace of the scheduler; None: no trace."""

    def __post_init__(self) -> None:
        if not self.name or not self.address:
            raise ConfigError("a worker needs a name and an address")
        LinkAddress.parse(self.address).on_this_host()
        names = [model.name for model in self.models]
        if len(set(names)) != len(names):
            raise ConfigError(f"worker {self.name!r}: model names must differ, got {names}")
        if self.lateness not in [lateness.value for lateness in Lateness]:
            known = ", ".join(lateness.value for lateness in Lateness)
            raise ConfigError(f"lateness must be one of {known}, got {self.lateness!r}")
        if self.paced is not None:
            device_named(self.paced)
        elif self.paced_seed is not None:
            raise ConfigError(f"worker {self.name!r}: paced_seed is for a paced device")
        _check_limits(prefix_limit=self.prefix_limit, denoise_limit=self.denoise_limit)
        for model in self.models:
            check_fits_device(model.name, model.policy, is_paced=self.paced is not None)
        _ = self.placement
        self._check_formation()

    def _check_formation(self) -> None:
        """Refuse a misspelt formation now and not after minutes of loading."""
        if self.formation not in FORMATIONS:
            known = ", ".join(worker_formations())
            raise ConfigError(f"no formation {self.formation!r}; known: {known}")
        no_models = self.setup((), Profile(units=1, shares=(1,), solo={}, slowdown={}))
        if not _fits_worker(no_models.group):
            raise ConfigError(
                f"formation {self.formation!r} needs several devices or single denoise steps;"
                " a worker has one device and runs whole denoise loops"
            )

    @property
    def placement(self) -> Placement:
        """Where and how the networks run."""
        return Placement(
            kv_slots=self.max_requests,
            prefix_cores=self.prefix_cores,
            denoise_cores=self.denoise_cores,
            precision=self.precision,
        )

    def setup(self, models: tuple[Model, ...], profile: Profile) -> Setup:
        """How the scheduler is set up for ``models``."""
        return Setup(
            models=tuple(narrowed(it, self.prefix_limit, self.denoise_limit) for it in models),
            profile=profile,
            formation=self.formation,
            options=self.formation_options,
            discipline=self.discipline,
            lateness=Lateness(self.lateness),
        )

    def driven(self, command: DriveIn) -> WorkerConfig:
        """The same worker in another formation.

        Raises:
            ConfigError: A worker cannot drive it.
        """
        return dataclasses.replace(
            self,
            formation=command.formation,
            formation_options=command.options,
            prefix_limit=command.prefix_limit,
            denoise_limit=command.denoise_limit,
        )

    def measured(self) -> MeasuredProfile | None:
        """The profile at :attr:`profile_path`.

        Raises:
            ConfigError: It cannot be read.
        """
        return None if self.profile_path is None else MeasuredProfile.read(Path(self.profile_path))

    def to_json(self) -> bytes:
        """The configuration as one line of JSON; :meth:`from_json` reads it back."""
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, document: bytes) -> WorkerConfig:
        """Read a configuration.

        Raises:
            ConfigError: A key is unknown, missing, of the wrong type or impossible.
        """
        return read_json_document(cls, document, "worker configuration")


def worker_formations() -> tuple[str, ...]:
    """Names of the formations that a worker can drive."""
    return tuple(name for name, kind in FORMATIONS.items() if _fits_worker(kind().group))


def _fits_worker(group: Group) -> bool:
    """Whether a formation needs one device and runs whole denoise loops, as a worker does."""
    return len(group.home) <= 1 and group.stepping is None


def _check_limits(**limits: int | None) -> None:
    for name, limit in limits.items():
        if limit is not None and limit < 1:
            raise ConfigError(f"{name} must be at least 1, got {limit}")
