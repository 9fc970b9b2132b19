"""Draws how long a message takes between a robot and the server.

Each model is a frozen description; the generator of random numbers is handed in, so equal seeds
give equal delays. Every draw takes the same count of random numbers whatever its parameters are:
two runs that differ in one parameter see the same jitter otherwise.

Draws are independent of each other, so a later message can be drawn a smaller delay than an
earlier one; whether it may overtake is the caller's matter. Nothing is lost: a loss shows as a
burst, as it does under TCP.

Start reading at :class:`Network`; :class:`Wifi7Network` is the model for a robot hall.
"""

import math
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random
from typing import Literal, Protocol, TypeAlias

from takt.errors import ConfigError, UsageError
from takt.units import Nanos, ms

__all__ = [
    "CHUNK_BYTES",
    "ConstantNetwork",
    "Encoding",
    "LogNormalNetwork",
    "Network",
    "Way",
    "Wifi7Network",
    "observation_bytes",
]

Encoding: TypeAlias = Literal["raw", "jpeg"]
"""How camera images travel."""

_IMAGE_BYTES: dict[Encoding, int] = {"raw": 224 * 224 * 3, "jpeg": 20_000}
"""One camera image of 224 x 224 pixels; JPEG at quality 90 takes 15 to 25 kB."""

_STATE_BYTES = 1_000
"""Joint state, prompt and framing of one observation."""

CHUNK_BYTES = 50 * 32 * 4
"""An action chunk of 50 steps with 32 float32 values each."""

_MAX_SIGMA = 3.0
"""Widest jitter accepted: beyond it one message in a hundred takes a thousand medians."""

_ALLOWANCE_DRAWS = 20_000


class Network(Protocol):
    """A model of one-way delays."""

    def up(self, num_bytes: int, active_robots: int, rng: Random) -> Nanos:
        """Delay of one observation of ``num_bytes`` while ``active_robots`` share the medium."""
        ...

    def down(self, num_bytes: int, active_robots: int, rng: Random) -> Nanos:
        """Delay of one action chunk of ``num_bytes``, likewise."""
        ...

    def allowance(self) -> Nanos:
        """The network allowance: what a fleet file would state for both ways together.

        It is the 99th percentile of ``up + down``; exact where nothing is random, else from
        20 000 draws of a fixed seed.
        """
        ...


class Way:
    """A network, and how many observations are on their way through it.

    Args:
        network: The network.
    """

    __slots__ = ("allowance", "network", "num_sending")

    def __init__(self, network: Network) -> None:
        self.network = network
        self.allowance = network.allowance()
        """The network allowance."""
        self.num_sending = 0
        """Robots that share the air."""


def observation_bytes(num_cameras: int, encoding: Encoding) -> int:
    """Bytes of one observation with ``num_cameras`` images of 224 x 224 pixels.

    Raises:
        ConfigError: ``num_cameras`` is negative or ``encoding`` is unknown.
    """
    if num_cameras < 0:
        raise ConfigError(f"num_cameras must be at least 0, got {num_cameras}")
    if encoding not in _IMAGE_BYTES:
        raise ConfigError(f"encoding must be 'raw' or 'jpeg', got {encoding!r}")
    return num_cameras * _IMAGE_BYTES[encoding] + _STATE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantNetwork:
    """Every message of a direction takes the same time, whatever its size."""

    up_ms: float = 2.0
    """Delay of an observation, in milliseconds."""
    down_ms: float = 2.0
    """Delay of an action chunk, in milliseconds."""

    def __post_init__(self) -> None:
        _refuse_negative(self, "up_ms", "down_ms")

    def up(self, num_bytes: int, active_robots: int, rng: Random) -> Nanos:
        """As :meth:`Network.up`."""
        return ms(self.up_ms)

    def down(self, num_bytes: int, active_robots: int, rng: Random) -> Nanos:
        """As :meth:`Network.down`."""
        return ms(self.down_ms)

    def allowance(self) -> Nanos:
        """As :meth:`Network.allowance`."""
        return ms(self.up_ms) + ms(self.down_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogNormalNetwork:
    """A base delay plus log-normal jitter plus rare bursts, whatever the message's size."""

    median_ms: float = 2.0
    """Median of the jitter of one way, in milliseconds."""
    sigma: float = 0.5
    """Spread of the logarithm of the jitter; 0 makes it constant."""
    base_ms: float = 0.0
    """Least delay of one way, in milliseconds."""
    burst_probability: float = 0.0
    """Share of the messages that a burst hits, 0..1."""
    burst_ms: tuple[float, float] = (20.0, 40.0)
    """Least and most delay that a burst adds, in milliseconds; uniform between."""

    def __post_init__(self) -> None:
        _refuse_negative(self, "median_ms", "sigma", "base_ms", "burst_probability")
        if self.sigma > _MAX_SIGMA:
            raise ConfigError(f"sigma must be at most {_MAX_SIGMA}, got {self.sigma}")
        if self.burst_probability > 1:
            raise ConfigError(f"burst_probability must lie in [0, 1], got {self.burst_probability}")
        low, high = self.burst_ms
        if not 0 <= low <= high < math.inf:
            raise ConfigError(f"burst_ms must be an ascending range, got {self.burst_ms}")

    def delay(self, rng: Random) -> Nanos:
        """Delay of one message, either way."""
        delay_ms = self.base_ms + self.median_ms * math.exp(self.sigma * rng.gauss(0.0, 1.0))
        chance = rng.random()
        if chance < self.burst_probability:
            # Given that it hits, chance / probability is uniform: no second draw is needed.
            low, high = self.burst_ms
            delay_ms += low + (high - low) * chance / self.burst_probability
        return ms(delay_ms)

    def up(self, num_bytes: int, active_robots: int, rng: Random) -> Nanos:
        """As :meth:`Network.up`."""
        return self.delay(rng)

    def down(self, num_bytes: int, active_robots: int, rng: Random) -> Nanos:
        """As :meth:`Network.down`."""
        return self.delay(rng)

    def allowance(self) -> Nanos:
        """As :meth:`Network.allowance`."""
        return _p99_both_ways(self, num_bytes_up=0, num_bytes_down=0, active_robots=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wifi7Network:
    """Robots that share one WiFi 7 access point.

    A message takes the air (base delay, log-normal jitter, rare bursts) plus the time its bytes
    need at the sender's part of the bandwidth. The figures are a proposal, not a measurement;
    for a server in a cloud raise ``base_ms`` by 15 to 30.
    """

    bandwidth_gbps: float = 1.0
    """Usable bandwidth that the active robots share equally, in Gbit/s."""
    base_ms: float = 1.5
    """Least delay of one way, in milliseconds."""
    jitter_median_ms: float = 0.8
    """Median of the jitter of one way, in milliseconds."""
    jitter_sigma: float = 0.7
    """Spread of the logarithm of the jitter."""
    burst_probability: float = 0.0
    """Share of the messages that a burst hits; 0.001 is a hall with interference."""
    burst_ms: tuple[float, float] = (20.0, 40.0)
    """Least and most delay that a burst adds, in milliseconds."""
    num_cameras: int = 2
    """Cameras per observation that the allowance reckons with."""
    encoding: Encoding = "raw"
    """Encoding of the images that the allowance reckons with."""
    planned_robots: int = 1
    """Robots sending at the same instant that the allowance reckons with."""

    _air: LogNormalNetwork = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 0 < self.bandwidth_gbps < math.inf:
            raise ConfigError(f"bandwidth_gbps must be positive, got {self.bandwidth_gbps}")
        if self.planned_robots < 1:
            raise ConfigError(f"planned_robots must be at least 1, got {self.planned_robots}")
        observation_bytes(self.num_cameras, self.encoding)
        _refuse_negative(self, "jitter_median_ms", "jitter_sigma")
        air = LogNormalNetwork(
            median_ms=self.jitter_median_ms,
            sigma=self.jitter_sigma,
            base_ms=self.base_ms,
            burst_probability=self.burst_probability,
            burst_ms=self.burst_ms,
        )
        object.__setattr__(self, "_air", air)  # built once: a draw takes a microsecond

    def up(self, num_bytes: int, active_robots: int, rng: Random) -> Nanos:
        """As :meth:`Network.up`.

        Raises:
            UsageError: ``num_bytes`` is negative or ``active_robots`` is below 1.
        """
        return self._transfer(num_bytes, active_robots) + self._air.delay(rng)

    def down(self, num_bytes: int, active_robots: int, rng: Random) -> Nanos:
        """As :meth:`Network.down`; errors as for :meth:`up`."""
        return self._transfer(num_bytes, active_robots) + self._air.delay(rng)

    def allowance(self) -> Nanos:
        """As :meth:`Network.allowance`, for the cameras, encoding and robots reckoned with."""
        return _p99_both_ways(
            self,
            num_bytes_up=observation_bytes(self.num_cameras, self.encoding),
            num_bytes_down=CHUNK_BYTES,
            active_robots=self.planned_robots,
        )

    def _transfer(self, num_bytes: int, active_robots: int) -> Nanos:
        if num_bytes < 0 or active_robots < 1:
            raise UsageError(
                "num_bytes must be at least 0 and active_robots at least 1,"
                f" got {num_bytes} and {active_robots}"
            )
        return round(num_bytes * 8 * active_robots / self.bandwidth_gbps)  # 1 Gbit/s = 1 bit/ns


@lru_cache(maxsize=256)
def _p99_both_ways(
    network: Network, *, num_bytes_up: int, num_bytes_down: int, active_robots: int
) -> Nanos:
    rng = Random(0)  # a fixed seed makes the allowance a constant of the network
    both_ways = sorted(
        network.up(num_bytes_up, active_robots, rng)
        + network.down(num_bytes_down, active_robots, rng)
        for _ in range(_ALLOWANCE_DRAWS)
    )
    return both_ways[_ALLOWANCE_DRAWS * 99 // 100 - 1]


def _refuse_negative(network: object, *names: str) -> None:
    for name in names:
        value = getattr(network, name)
        if not 0 <= value < math.inf:
            raise ConfigError(f"{name} must be a number of at least 0, got {value}")
