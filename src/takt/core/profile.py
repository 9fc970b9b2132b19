"""How long a launch takes on a device, alone and beside another one.

The cost model has two halves. A :class:`Profile` stores solo times and, for each pair of launches
that may run side by side, the slowdown of either side. A :class:`CoRun` plays them: a running
launch is *remaining work with a speed*, and the speed of every launch is looked up again whenever
a co-runner starts or ends, so an end may move. Storing durations of pairs instead would credit a
launch with an overlap that was over before it was.

Speeds are whole parts per million and work is counted in nanoseconds times parts per million, so
that no rounding is lost, however often a speed changes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from takt.core.request import Stage
from takt.errors import ConfigError, InvariantError
from takt.units import Nanos

__all__ = ["FULL_SPEED", "CoRun", "Profile", "Work"]

K = TypeVar("K", bound=Hashable)

FULL_SPEED = 1_000_000
"""Speed of a launch that runs alone, in parts per million."""


class Work(NamedTuple):
    """What determines the cost of a launch."""

    architecture: str
    stage: Stage
    layout: int
    size: int
    share: int
    """Units of the device (SMs, cores) the launch may use."""


class Profile:
    """Solo times and slowdowns of one device.

    Args:
        units: Units of the device (SMs of a GPU, cores of a CPU). A share of ``units`` is the
            whole device.
        shares: Shares a prefix launch may be held to, rising; the last one is ``units``.
        solo: Time of each launch that runs alone.
        slowdown: For ``(work, beside)``, the time of ``work`` while ``beside`` runs, as a multiple
            of its solo time, at least 1.

    Raises:
        ConfigError: A time, share or slowdown is impossible.
    """

    def __init__(
        self,
        *,
        units: int,
        shares: Sequence[int],
        solo: Mapping[Work, Nanos],
        slowdown: Mapping[tuple[Work, Work], float],
    ) -> None:
        self.units = units
        self.shares = tuple(shares)
        self._solo = dict(solo)
        self._speed = {pair: _speed(pair, factor) for pair, factor in slowdown.items()}
        self._best: dict[tuple[Work, Work], int] = {}
        self._check()

    def _check(self) -> None:
        if not self.shares or list(self.shares) != sorted(set(self.shares)) or self.shares[0] < 1:
            raise ConfigError(f"shares must rise from 1, got {list(self.shares)}")
        if self.shares[-1] != self.units:
            raise ConfigError(f"the last share must be the whole device, {self.units} units")
        for work, time in self._solo.items():
            if time <= 0:
                raise ConfigError(f"{_name(work)}: its time must be positive, got {time} ns")
        for (work, beside), speed in self._speed.items():
            if not 0 < speed <= FULL_SPEED:
                raise ConfigError(
                    f"{_name(work)} beside {_name(beside)}: speed must be from 1 to {FULL_SPEED}"
                    f" parts per million, got {speed}",
                )

    def solo(self, work: Work) -> Nanos:
        """Time of ``work`` when it runs alone.

        Raises:
            ConfigError: The profile has no such launch.
        """
        try:
            return self._solo[work]
        except KeyError:
            raise ConfigError(f"the profile has no time for {_name(work)}") from None

    def speed(self, work: Work, beside: Work) -> int:
        """Speed of ``work`` while ``beside`` runs, in parts per million.

        Raises:
            ConfigError: The profile has no such pair.
        """
        try:
            return self._speed[work, beside]
        except KeyError:
            raise ConfigError(
                f"the profile has no slowdown for {_name(work)} beside {_name(beside)}",
            ) from None

    def best_share(self, prefix: Work, denoise: Work) -> int:
        """Share of ``prefix`` with which the pair, started together, is over soonest.

        The whole device is a candidate like any other. Of equal shares the largest wins: it
        leaves the prefix the most once the denoise launch has ended.
        """
        pair = prefix._replace(share=self.units), denoise
        best = self._best.get(pair)
        if best is None:
            best = min(
                reversed(self.shares),
                key=lambda share: self.pair_time(prefix._replace(share=share), denoise),
            )
            self._best[pair] = best
        return best

    def pair_time(self, one: Work, other: Work) -> Nanos:
        """Time until two launches that start together have both ended."""
        return max(self.pair_ends(one, other))

    def pair_ends(self, one: Work, other: Work) -> tuple[Nanos, Nanos]:
        """End of each of two launches that start together at 0."""
        run: CoRun[int] = CoRun(self)
        run.start(0, one, 0)
        run.start(1, other, 0)
        ends = [0, 0]
        for end, key in run.ends():
            run.finish(key, end)
            ends[key] = end
        return ends[0], ends[1]

    def to_json(self) -> dict[str, object]:
        """The profile as plain lists and numbers; :meth:`from_json` reads it back."""
        works = sorted(self._solo)
        index = {work: number for number, work in enumerate(works)}
        return {
            "units": self.units,
            "shares": list(self.shares),
            "solo": [[*work, self._solo[work]] for work in works],
            "speed": sorted(
                [index[work], index[beside], speed] for (work, beside), speed in self._speed.items()
            ),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Profile:
        """The profile that :meth:`to_json` wrote.

        Raises:
            ConfigError: ``data`` is not such a profile.
        """
        try:
            solo = {Work(row[0], Stage(row[1]), *row[2:5]): row[5] for row in data["solo"]}
            profile = cls(units=data["units"], shares=data["shares"], solo=solo, slowdown={})
            works = list(solo)
            speeds: list[tuple[int, int, int]] = data["speed"]
            profile._speed = {(works[a], works[b]): speed for a, b, speed in speeds}
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise ConfigError(f"not a profile: {error!r}") from None
        profile._check()
        return profile


class _Running:
    """One launch under way."""

    __slots__ = ("left", "speed", "work")

    def __init__(self, work: Work, left: int) -> None:
        self.work = work
        self.left = left
        self.speed = FULL_SPEED


class CoRun(Generic[K]):
    """The launches that run side by side on one device, as remaining work with a speed.

    Keys are chosen by the caller, usually lanes. Of ends at one instant the launch that started
    first comes first.
    """

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._running: dict[K, _Running] = {}
        self._now: Nanos = 0

    def __len__(self) -> int:
        return len(self._running)

    def start(self, key: K, work: Work, now: Nanos, *, solo: Nanos | None = None) -> None:
        """Begin ``work``; ``solo`` overrides its profiled time alone (for jitter).

        Raises:
            InvariantError: A launch with this key is still running.
        """
        if key in self._running:
            raise InvariantError(f"lane {key!r} was given a launch while it runs one")
        self._advance(now)
        time = self._profile.solo(work) if solo is None else solo
        self._running[key] = _Running(work, time * FULL_SPEED)
        self._respeed()

    def finish(self, key: K, now: Nanos) -> None:
        """Take the launch ``key`` off the device, ended or not."""
        self._advance(now)
        del self._running[key]
        self._respeed()

    def next_end(self) -> tuple[Nanos, K] | None:
        """Instant and key of the launch that ends next if nothing else starts."""
        best: tuple[Nanos, K] | None = None
        for key, run in self._running.items():
            end = self._now - (-run.left // run.speed)
            if best is None or end < best[0]:
                best = end, key
        return best

    def ends(self) -> Iterator[tuple[Nanos, K]]:
        """Each next end in turn; the caller calls :meth:`finish` between two of them."""
        while (end := self.next_end()) is not None:
            yield end

    def _advance(self, now: Nanos) -> None:
        elapsed = now - self._now
        if elapsed < 0:
            raise InvariantError(f"time went back by {-elapsed} ns")
        self._now = now
        for run in self._running.values():
            run.left = max(run.left - elapsed * run.speed, 0)

    def _respeed(self) -> None:
        for key, run in self._running.items():
            speed = FULL_SPEED
            for other, beside in self._running.items():
                if other is not key:
                    speed = speed * self._profile.speed(run.work, beside.work) // FULL_SPEED
            run.speed = speed


def _speed(pair: tuple[Work, Work], factor: float) -> int:
    if not 1 <= factor <= FULL_SPEED:  # so written, it refuses a factor that is not a number
        raise ConfigError(
            f"{_name(pair[0])} beside {_name(pair[1])}: slowdown must be from 1 to {FULL_SPEED},"
            f" got {factor}",
        )
    return round(FULL_SPEED / factor)


def _name(work: Work) -> str:
    return (
        f"{work.architecture} {Stage(work.stage).name.lower()} layout {work.layout}"
        f" size {work.size} share {work.share}"
    )
