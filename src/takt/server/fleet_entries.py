"""What a fleet file may say: its parts, one structure each.

Every structure refuses unknown keys and numbers that no fleet could have, before anything is built
from them. :class:`takt.server.fleet_file.FleetFile` is the whole.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from takt.core.scheduler import MOST_PRIORITY
from takt.sim.fleet import MOST_HORIZON, MOST_HZ, MOST_ROBOTS
from takt.sim.network import ConstantNetwork, LogNormalNetwork, Network, Wifi7Network

__all__ = [
    "LEAST_SECONDS",
    "MOST_SECONDS",
    "ConstantEntry",
    "CpuEntry",
    "DeviceEntry",
    "FileName",
    "GatewayEntry",
    "LogNormalEntry",
    "ModelEntry",
    "RobotsEntry",
    "SimilarStateEntry",
    "SimulationEntry",
    "Wifi7Entry",
]

LEAST_SECONDS = 0.001
"""Shortest simulation."""
MOST_SECONDS = 1e6
"""Longest simulation."""

# Each has an upper limit, which also refuses `.inf`.
_Milliseconds = Annotated[float, Meta(ge=0, le=1e7)]
_Slo = Annotated[float, Meta(ge=0.001, le=1e7)]
_Hertz = Annotated[float, Meta(gt=0, le=MOST_HZ)]
_Probability = Annotated[float, Meta(ge=0, le=1)]
_Sigma = Annotated[float, Meta(ge=0, le=3)]
_Bandwidth = Annotated[float, Meta(ge=1e-6, le=1e6)]
_Size = Annotated[int, Meta(ge=1, le=65_536)]
_Cameras = Annotated[int, Meta(ge=0, le=1_000)]
_Core = Annotated[int, Meta(ge=0, le=65_535)]
FileName = Annotated[str, Meta(pattern=r"^[\w.-]+$")]  # becomes part of a trace's file name


class _Entry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One part of the file."""


class SimilarStateEntry(_Entry, frozen=True, kw_only=True):
    """See :class:`~takt.doors.lerobot_options.SimilarState`."""

    tolerance: Annotated[float, Meta(gt=0, le=1e9)]
    unit: Annotated[str, Meta(min_length=1, max_length=32)]


class ModelEntry(_Entry, frozen=True, kw_only=True):
    """A model that robots may ask for."""

    slo_ms: _Slo
    """Promised time from sending an observation to the answer being at the robot."""
    architecture: str | None = None
    """Its entries in the profile; the model's name when absent."""
    prefix_sizes: Annotated[tuple[_Size, ...], Meta(min_length=1, max_length=64)] | None = None
    """Batch sizes of the prefix stage, rising. When absent 1 alone, or what a paced device's
    architecture is captured for."""
    denoise_sizes: Annotated[tuple[_Size, ...], Meta(max_length=64)] | None = None
    """Batch sizes of the denoise stage, rising; empty for a single-pass policy. Likewise."""
    policy: str | None = None
    """For ``takt serve``: a policy of the package, or the directory of a checkpoint seen from the
    folder of this file; the model's name when absent. A paced device needs none."""
    options: dict[str, Any] = {}
    """Options of the policy."""
    aliases: tuple[str, ...] = ()
    """For LeRobot robots: further names of the model, what they give as
    ``pretrained_name_or_path``. Nothing is downloaded or opened."""
    similar_state: SimilarStateEntry | None = None
    """For LeRobot robots: drop observations whose state has hardly changed."""


class CpuEntry(_Entry, frozen=True, kw_only=True):
    """Cores of this computer that are a device."""

    prefix_cores: tuple[_Core, ...] = ()
    """Of the prefix lane; empty: any."""
    denoise_cores: tuple[_Core, ...] = ()
    """Of the denoise lane; empty: any."""


class DeviceEntry(_Entry, frozen=True, kw_only=True):
    """A device and how it is driven."""

    profile: str | None = None
    """Its entry in ``profiles``. A measured one is what simulations take and the scheduler of a
    server believes; any other is for simulations."""
    paced: str | None = None
    """A GPU of ``takt hardware``. Simulations take its modelled times; a server's launches take
    them by waiting and compute nothing."""
    paced_seed: int | None = None
    """Served, the paced device is a stranger: its times differ from the model's by up to a
    fifth."""
    cpu: CpuEntry | None = None
    """For servers: cores of this computer."""
    models: Annotated[tuple[str, ...], Meta(min_length=1)]
    """Models loaded on it."""
    formation: str = "lockstep"
    """How its lanes are driven; ``auto`` lets ``takt serve`` choose for the robots of this file."""
    options: dict[str, Any] = {}
    """Options of the formation."""
    discipline: str = "earliest_deadline"
    lateness: str = "yield"
    spread: Annotated[float, Meta(ge=0, le=0.5)] = 0.0
    """Simulated: by how much launches differ from their profiled times, one standard deviation as a
    share of them. Robots whose answers come just in time are then just late every other time."""


class RobotsEntry(_Entry, frozen=True, kw_only=True):
    """Robots that behave alike; see :class:`~takt.sim.fleet.RobotGroup`."""

    model: str
    count: Annotated[int, Meta(ge=0, le=MOST_ROBOTS)]
    name: Annotated[str, Meta(min_length=1)] | None = None
    """What reports call them. When absent the model's name; the second unnamed group of a model is
    ``<model>.2``."""
    device: str | None = None
    """Device that serves them; may be left out when only one serves the model."""
    rate_hz: _Hertz | None = None
    jitter_ms: _Milliseconds = 0.0
    threshold: _Probability = 0.5
    control_hz: _Hertz = 30.0
    horizon: Annotated[int, Meta(ge=1, le=MOST_HORIZON)] = 50
    deadline: str = "slo"
    supersede: bool = False
    priority: Annotated[int, Meta(ge=0, le=MOST_PRIORITY)] = 0
    """Class of the robots, 0 first; see :attr:`~takt.core.request.Request.priority`."""
    layout: Annotated[int, Meta(ge=0, le=63)] | None = None
    """Layout of their rows on a paced device, numbered from the cheapest; when absent the one that
    holds every row. Live, it follows from what a robot sends."""
    num_cameras: _Cameras = 2
    encoding: str = "raw"
    network: ConstantEntry | LogNormalEntry | Wifi7Entry | None = None
    """Between these robots and the server; that of the file when absent."""


class GatewayEntry(_Entry, frozen=True, kw_only=True):
    """A gateway of a server, and its doors."""

    openpi: Annotated[int, Meta(ge=0, le=65_535)] = 8000
    """Port of the openpi door; 0 takes a free one."""
    host: str | None = None
    """Address its doors bind; what the command line says when absent."""
    devices: tuple[str, ...] | None = None
    """Devices it sends to; all when absent."""
    default_model: str | None = None
    """Model of robots that name none; the first of its devices when absent."""
    lerobot: Annotated[int, Meta(ge=0, le=65_535)] | None = None
    """Port of the LeRobot door; 0 takes a free one. There is no such door when absent."""
    lerobot_allow_from: tuple[str, ...] = ()
    """Networks that LeRobot robots may come from; needed where others can reach the host, since
    their protocol cannot carry a token."""


class ConstantEntry(_Entry, frozen=True, kw_only=True, tag_field="kind", tag="constant"):
    """See :class:`~takt.sim.network.ConstantNetwork`."""

    up_ms: _Milliseconds = 2.0
    down_ms: _Milliseconds = 2.0

    def network(self) -> Network:
        """The model of delays it describes."""
        return ConstantNetwork(**msgspec.structs.asdict(self))


class LogNormalEntry(_Entry, frozen=True, kw_only=True, tag_field="kind", tag="log_normal"):
    """See :class:`~takt.sim.network.LogNormalNetwork`."""

    median_ms: _Milliseconds = 2.0
    sigma: _Sigma = 0.5
    base_ms: _Milliseconds = 0.0
    burst_probability: _Probability = 0.0
    burst_ms: tuple[_Milliseconds, _Milliseconds] = (20.0, 40.0)

    def network(self) -> Network:
        """The model of delays it describes."""
        return LogNormalNetwork(**msgspec.structs.asdict(self))


class Wifi7Entry(_Entry, frozen=True, kw_only=True, tag_field="kind", tag="wifi7"):
    """See :class:`~takt.sim.network.Wifi7Network`."""

    bandwidth_gbps: _Bandwidth = 1.0
    base_ms: _Milliseconds = 1.5
    jitter_median_ms: _Milliseconds = 0.8
    jitter_sigma: _Sigma = 0.7
    burst_probability: _Probability = 0.0
    burst_ms: tuple[_Milliseconds, _Milliseconds] = (20.0, 40.0)
    num_cameras: _Cameras = 2
    encoding: str = "raw"
    planned_robots: Annotated[int, Meta(ge=1, le=MOST_ROBOTS)] = 1

    def network(self) -> Network:
        """The model of delays it describes."""
        return Wifi7Network(**msgspec.structs.asdict(self))


class SimulationEntry(_Entry, frozen=True, kw_only=True):
    """How long to simulate, and with which seed."""

    seconds: Annotated[float, Meta(ge=LEAST_SECONDS, le=MOST_SECONDS)] = 60.0
    """Time reported on."""
    warm_up_seconds: Annotated[float, Meta(ge=0, le=MOST_SECONDS)] = 5.0
    """Time before it."""
    seed: int = 0
