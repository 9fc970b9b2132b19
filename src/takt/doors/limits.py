"""What every door allows its clients, in one place and derived from the models it serves.

A message need not be larger than what the largest model can use, so a door that serves two small
cameras refuses a message of 60 MB when it has read its header. The limits of one message's content
are :class:`takt.wire.limits.Limits`; here are those of connections, requests and their rate beside
them.

=====================  ==========================================================================
what                   where it is checked
=====================  ==========================================================================
message size           by the transport, when the length of a frame or a piece is read
fragments              when a piece arrives, before it is kept
arrays, rank, nesting  while decoding, before memory is taken
decoded pixels         the same
prompt length          while decoding (bytes), and by the policy (letters)
connections            when one is accepted
requests in flight     before a message is read on
rate per robot         before a message is decoded
=====================  ==========================================================================

Start reading at :func:`door_limits`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields

from takt.errors import ConfigError, LimitError
from takt.schema.check import MAX_PROMPT_LETTERS
from takt.schema.spec import ObservationSpec, PolicySpec
from takt.units import SECOND, Nanos
from takt.wire.limits import Limits

__all__ = ["DoorLimits", "RateLimit", "door_limits"]

_PIXELS_OF_A_CAMERA = 1280 * 720
"""A robot may send larger images than the policy looks at; this many pixels of any camera."""
_BYTES_OF_A_PIXEL = 3 * 4
"""Colour, as floats at worst."""
_SPARE_CAMERAS = 2
"""Cameras that a robot may have beyond those the policy knows."""
_BESIDE_IMAGES = 1 << 20
"""State, prompt and names."""
_UTF8_BYTES = 4
_CALLS_HZ = 500.0
_CALLS_PER_ACTION = 4
"""A robot polls and sends; twice that leaves it room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorLimits:
    """What a door allows."""

    message: Limits = field(default_factory=Limits)
    """What one message may hold."""
    max_fragments: int = 64
    """Pieces of one message, on a door whose protocol cuts messages itself."""
    max_connections: int = 1024
    """Connections at once."""
    max_in_flight: int = 16
    """Requests of one connection that are not answered."""
    max_requests_hz: float = 5000.0
    """Messages of one robot in a second, over a while, where each waits for its answer."""
    max_calls_hz: float = _CALLS_HZ
    """Calls of one robot in a second, over a while, where it sends at its control rate whether it
    is answered or not."""
    max_upload_bytes_hz: float = 128 * 2.0**20
    """Bytes of observations of one connection in a second, on a door that reads at its own pace:
    it reads no faster."""
    max_uploading_bytes: int = 2 * 2**30
    """Bytes of observations of all connections that have not arrived as a whole, on such a door."""
    burst_s: float = 1.0
    """Seconds of the allowed rate that may come at once."""

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if not isinstance(value, Limits) and not value > 0:
                raise ConfigError(f"{limit.name} must be positive, got {value}")

    def request_rate(self, now: Nanos) -> RateLimit:
        """The account of a robot that waits for its answers, beginning now."""
        return RateLimit(self.max_requests_hz, self.burst_s, now)

    def upload_rate(self, now: Nanos) -> RateLimit:
        """The account of the bytes that a connection uploads, beginning now."""
        return RateLimit(self.max_upload_bytes_hz, self.burst_s, now)

    def call_rate(self, now: Nanos) -> RateLimit:
        """The account of a robot that sends at its control rate, beginning now."""
        return RateLimit(self.max_calls_hz, self.burst_s, now)


def door_limits(specs: Iterable[PolicySpec]) -> DoorLimits:
    """The limits for doors that serve these models: enough for the largest, and no more.

    A model that names no cameras (echo) may be sent any, so the default limits hold.

    Args:
        specs: Cards of the models.
    """
    cards = [*specs]
    observations = [spec.observation for spec in cards]
    fastest = max((spec.action.control_hz or 0.0 for spec in cards), default=0.0)
    calls_hz = max(_CALLS_HZ, _CALLS_PER_ACTION * fastest)
    most = Limits()
    if not observations or not all(observation.cameras for observation in observations):
        return DoorLimits(max_calls_hz=calls_hz)
    largest = max(_image_bytes(observation) for observation in observations)
    content = min(largest + _BESIDE_IMAGES, most.max_message_bytes)
    return DoorLimits(
        max_calls_hz=calls_hz,
        message=Limits(
            max_message_bytes=content,
            max_decoded_bytes=content,
            max_elements=content,
            max_string_bytes=_UTF8_BYTES * MAX_PROMPT_LETTERS,
        ),
    )


class RateLimit:
    """Counts one robot's messages, or bytes: a bucket that fills at the allowed rate.

    Args:
        rate_hz: Messages a second.
        burst_s: Seconds of that rate which may come at once.
        now: When it begins, full.
    """

    __slots__ = ("_burst", "_left", "_rate_hz", "_since")

    def __init__(self, rate_hz: float, burst_s: float, now: Nanos) -> None:
        self._rate_hz = rate_hz
        self._burst = max(1.0, rate_hz * burst_s)
        self._left = self._burst
        self._since = now

    def charge(self, now: Nanos) -> None:
        """Count one message.

        Raises:
            LimitError: The robot sends faster than it may; the message is not counted.
        """
        self._grow(now)
        if self._left < 1.0:
            raise LimitError(
                f"expected at most {self._rate_hz:g} messages a second from one robot, got more"
            )
        self._left -= 1.0

    def pause(self, amount: int, now: Nanos) -> Nanos:
        """Count so much and say how long to wait until it is within the rate; 0 if it is."""
        self._grow(now)
        self._left -= amount
        return round(max(0.0, -self._left) * SECOND / self._rate_hz)

    def _grow(self, now: Nanos) -> None:
        grown = (now - self._since) * self._rate_hz / SECOND
        self._left = min(self._burst, self._left + max(0.0, grown))
        self._since = now


def _image_bytes(observation: ObservationSpec) -> int:
    pixels = sum(
        max(_PIXELS_OF_A_CAMERA, camera.height * camera.width) for camera in observation.cameras
    )
    pixels += _SPARE_CAMERAS * _PIXELS_OF_A_CAMERA
    return pixels * _BYTES_OF_A_PIXEL * observation.history
