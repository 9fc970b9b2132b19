"""Says how well a fleet was served: SLO attainment, on-time share, latencies, the worst robot.

A driver hands in one :class:`RequestRecord` per request that a robot sent; this module counts.
It reads no clock and keeps nothing between calls, so the simulator, the load driver and the
benchmarks report by the same lines.

Two rules decide what the figures mean:

- **The denominator is every issued request.** A refusal, an error, silence and a request still
  under way when the run ends are misses. A driver that does not want to be charged for the last
  ones stops sending one slo before it stops listening.
- **Quantiles are nearest-rank**: the p-th percentile of n values is the value at place
  ``ceil(p * n / 100)`` in ascending order, counted from 1. It is always a value that occurred.

Intervals over seeds use the t-distribution; :func:`t_interval` says when not to trust them.

Start reading at :func:`summarise`.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from takt.errors import UsageError
from takt.units import Nanos

__all__ = [
    "OUTCOMES",
    "STAGES",
    "Attainment",
    "Interval",
    "Quantiles",
    "RequestRecord",
    "StageTimes",
    "Summary",
    "lower_bound",
    "summarise",
    "t_interval",
    "t_quantile",
]

OUTCOMES = ("served", "expired", "superseded", "cancelled", "failed", "pending")
"""Every way a request can stand at the end of a run, in the order reports list them."""

STAGES = ("uplink", "queue", "prefix", "wait", "denoise", "reply")
"""The parts of a request's latency, in the order they happen."""


class StageTimes(NamedTuple):
    """Where the time of one answered request went. Durations, so no two clocks are compared."""

    uplink: Nanos
    """From the robot sending the observation to its last byte at the server."""
    queue: Nanos
    """From arrival to the start of the prefix launch, preprocessing included."""
    prefix: Nanos
    """The prefix launch."""
    wait: Nanos
    """From the end of the prefix to the start of the denoise launch."""
    denoise: Nanos
    """The denoise launch; 0 for a single-pass policy."""
    reply: Nanos
    """From the end of the last launch to the chunk being at the robot."""


@dataclass(slots=True, kw_only=True)  # frozen, it takes twice as long to make
class RequestRecord:
    """One request as its robot saw it. All instants are on that robot's clock."""

    robot: str
    """Name of the robot."""
    model: str
    """Name of the model it asked."""
    sent: Nanos
    """Instant the robot sent the observation."""
    slo: Nanos
    """The model's promised time from ``sent`` to ``answered``."""
    due: Nanos
    """Instant the robot's queue ran dry, or would have. It may lie before ``sent``."""
    answered: Nanos | None
    """Instant the chunk was at the robot; None when none came (refusal, error, silence)."""
    outcome: str
    """One of :data:`OUTCOMES`. A served request without ``answered`` lost its chunk on the way."""
    stages: StageTimes | None = None
    """Where the time went, when it is known."""

    def __post_init__(self) -> None:
        if self.outcome not in OUTCOMES:
            known = ", ".join(OUTCOMES)
            raise UsageError(f"outcome must be one of {known}, got {self.outcome!r}")
        if self.slo <= 0:
            raise UsageError(f"slo must be positive, got {self.slo} ns")
        if self.answered is None:
            return
        if self.answered < self.sent:
            raise UsageError(f"answered ({self.answered}) lies before sent ({self.sent})")
        if self.outcome != "served":
            raise UsageError(f"outcome must be 'served' when a chunk came, got {self.outcome!r}")

    @property
    def latency(self) -> Nanos | None:
        """Time from sending to the chunk being at the robot; None when no chunk came."""
        return None if self.answered is None else self.answered - self.sent

    @property
    def is_met(self) -> bool:
        """The chunk came within the slo."""
        return self.answered is not None and self.answered - self.sent <= self.slo

    @property
    def is_on_time(self) -> bool:
        """The chunk came by ``due``."""
        return self.answered is not None and self.answered <= self.due


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """Nearest-rank quantiles of durations."""

    p50: Nanos
    p90: Nanos
    p99: Nanos
    max: Nanos

    @classmethod
    def of(cls, durations: Iterable[Nanos]) -> "Quantiles | None":
        """Quantiles of ``durations``; None when there are none."""
        ordered = sorted(durations)
        if not ordered:
            return None
        p50, p90, p99 = (_nearest_rank(ordered, percent) for percent in (50, 90, 99))
        return cls(p50=p50, p90=p90, p99=p99, max=ordered[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Attainment:
    """How one group of requests was served: a fleet, a model's requests or a robot's."""

    issued: int
    """Requests the robots sent: the denominator of both shares."""
    answered: int
    """Requests whose chunk came, in time or not."""
    met: int
    """Requests answered within their slo."""
    on_time: int
    """Requests answered by their due."""
    outcomes: Mapping[str, int]
    """Requests per outcome; every name of :data:`OUTCOMES` is present."""
    latency: Quantiles | None
    """Latencies of the answered requests; None when there are none."""
    stages: Mapping[str, Quantiles]
    """Time per stage over the answered requests that know it; empty when none does."""

    @classmethod
    def of(cls, records: Sequence[RequestRecord]) -> "Attainment":
        """Count ``records`` as one group."""
        latencies = [record.latency for record in records if record.latency is not None]
        outcomes = [record.outcome for record in records]
        return cls(
            issued=len(records),
            answered=len(latencies),
            met=sum(record.is_met for record in records),
            on_time=sum(record.is_on_time for record in records),
            outcomes={outcome: outcomes.count(outcome) for outcome in OUTCOMES},
            latency=Quantiles.of(latencies),
            stages=_stage_quantiles(records),
        )

    @property
    def attainment(self) -> float:
        """Share of the issued requests met, 0..1; 0 when nothing was issued."""
        return self.met / self.issued if self.issued else 0.0

    @property
    def on_time_share(self) -> float:
        """Share of the issued requests answered by their due, 0..1; 0 when nothing was issued."""
        return self.on_time / self.issued if self.issued else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A run's figures: the whole fleet, then the same figures per model and per robot."""

    total: Attainment
    by_model: Mapping[str, Attainment]
    """Per model, by name in ascending order."""
    by_robot: Mapping[str, Attainment]
    """Per robot, by name in ascending order."""
    worst_robot: str | None
    """Robot with the lowest attainment; of equals the one with the highest p99 (none at all
    counts as the highest), then the first by name. None when nothing was issued."""


def summarise(records: Iterable[RequestRecord]) -> Summary:
    """Count a run's requests; their order does not matter.

    Args:
        records: Every request that was issued, answered or not.
    """
    issued = list(records)
    by_robot = _grouped(issued, lambda record: record.robot)
    return Summary(
        total=Attainment.of(issued),
        by_model=_grouped(issued, lambda record: record.model),
        by_robot=by_robot,
        worst_robot=min(by_robot, key=lambda robot: _rank(robot, by_robot[robot]), default=None),
    )


def _grouped(
    records: Sequence[RequestRecord], name_of: Callable[[RequestRecord], str]
) -> dict[str, Attainment]:
    groups: dict[str, list[RequestRecord]] = {}
    for record in records:
        groups.setdefault(name_of(record), []).append(record)
    return {name: Attainment.of(groups[name]) for name in sorted(groups)}


def _rank(robot: str, served: Attainment) -> tuple[float, float, str]:
    p99 = math.inf if served.latency is None else served.latency.p99
    return served.attainment, -p99, robot


def _stage_quantiles(records: Sequence[RequestRecord]) -> dict[str, Quantiles]:
    known = [r.stages for r in records if r.answered is not None and r.stages is not None]
    found = {stage: Quantiles.of(getattr(times, stage) for times in known) for stage in STAGES}
    return {stage: quantiles for stage, quantiles in found.items() if quantiles is not None}


def _nearest_rank(ordered: Sequence[Nanos], percent: int) -> Nanos:
    # Integer arithmetic: 0.99 * 100 in floating point is not 99 for every count.
    return ordered[-(-percent * len(ordered) // 100) - 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean with its two-sided confidence interval."""

    mean: float
    low: float
    high: float


def t_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Confidence interval of the mean of independent runs, one value per seed.

    The ends are not clamped: for attainments near 1 ``high`` may exceed 1. When all values are
    equal the interval has no width, which says that the seeds agreed, not that the mean is known.

    Args:
        values: At least two figures, such as one attainment per seed.
        confidence: Probability that the interval covers the mean, between 0 and 1.

    Raises:
        UsageError: Fewer than two values (one run has no spread), or ``confidence`` is no
            probability.
    """
    _check_sample(values, confidence)
    reach = t_quantile((1 + confidence) / 2, len(values) - 1) * _standard_error(values)
    mean = statistics.fmean(values)
    return Interval(mean=mean, low=mean - reach, high=mean + reach)


def lower_bound(values: Sequence[float], confidence: float = 0.95) -> float:
    """Figure that the mean of independent runs exceeds with probability ``confidence``.

    The bound for a claim such as "this fleet attains 98 %": one-sided, so it lies closer to the
    mean than the low end of :func:`t_interval` at the same confidence.

    Raises:
        UsageError: As for :func:`t_interval`.
    """
    _check_sample(values, confidence)
    reach = t_quantile(confidence, len(values) - 1) * _standard_error(values)
    return statistics.fmean(values) - reach


def _check_sample(values: Sequence[float], confidence: float) -> None:
    if len(values) < 2:  # noqa: PLR2004
        raise UsageError(f"an interval needs at least 2 values, got {len(values)}")
    if not 0 < confidence < 1:
        raise UsageError(f"confidence must lie between 0 and 1, got {confidence}")


def _standard_error(values: Sequence[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values))


def t_quantile(probability: float, degrees: int) -> float:
    """Value that Student's t with ``degrees`` degrees of freedom stays below so often.

    For whole degrees the distribution is a finite sum in the angle ``atan(t / sqrt(degrees))``;
    it grows with the angle, so bisection inverts it to the precision of a float.

    Args:
        probability: Between 0 and 1, both excluded.
        degrees: At least 1: number of values less one.

    Raises:
        UsageError: An argument is out of range.

    Source:
        Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.7.3 and 26.7.4.
    """
    if not 0 < probability < 1:
        raise UsageError(f"probability must lie between 0 and 1, got {probability}")
    if degrees < 1:
        raise UsageError(f"degrees must be at least 1, got {degrees}")
    central = abs(2 * probability - 1)
    low, high = 0.0, math.pi / 2
    for _ in range(64):
        middle = (low + high) / 2
        if _central_probability(middle, degrees) < central:
            low = middle
        else:
            high = middle
    return math.copysign(math.sqrt(degrees) * math.tan(low), probability - 0.5)


def _central_probability(angle: float, degrees: int) -> float:
    """Probability that ``abs(t) <= sqrt(degrees) * tan(angle)``."""
    sine, cosine, odd = math.sin(angle), math.cos(angle), degrees % 2
    term, total = (cosine if odd else 1.0), 0.0
    for place in range(1, degrees // 2 + 1):
        total += term
        term *= cosine * cosine * (2 * place - 1 + odd) / (2 * place + odd)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
