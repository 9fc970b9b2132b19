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
from copy import copy
from functools import cache
from typing import Any, Generic, NamedTuple, TypeVar

from takt.core.request import Stage
from takt.errors import ConfigError, InvariantError
from takt.units import Nanos

__all__ = ["FULL_SPEED", "PARTS", "CoRun", "Profile", "Work", "work_of"]

K = TypeVar("K", bound=Hashable)

FULL_SPEED = 1_000_000
"""Speed of a launch that runs alone, in parts per million."""

PARTS = 16
"""Parts a running launch is divided into where only a rough figure of what is left is needed."""


class Work(NamedTuple):
    """What determines the cost of a launch."""

    architecture: str
    stage: Stage
    layout: int
    size: int
    share: int
    """Units of the device (SMs, cores) the launch may use."""


@cache
def work_of(architecture: str, stage: Stage, layout: int, size: int, share: int) -> Work:
    """The work of such a launch; there are few, and each is looked up at every start."""
    return Work(architecture, stage, layout, size, share)


class Profile:
    """Solo times and slowdowns of one device.

    Args:
        units: Units of the device (SMs of a GPU, cores of a CPU). A share of ``units`` is the
            whole device.
        shares: Shares a prefix launch may be held to, rising; the last one is ``units``.
        solo: Time of each launch that runs alone.
        slowdown: For ``(work, beside)``, the time of ``work`` while ``beside`` runs, as a multiple
            of its solo time, at least 1.
        transfer: For ``(architecture, layout)``, the time a row's key/value cache takes to another
            device. Only groups that run the stages on different devices need it.

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
        transfer: Mapping[tuple[str, int], Nanos] | None = None,
    ) -> None:
        self.units = units
        self.shares = tuple(shares)
        self._solo = dict(solo)
        self._speed = {pair: _speed(pair, factor) for pair, factor in slowdown.items()}
        self._transfer = dict(transfer or {})
        self._best: dict[tuple[Work, Work, int], int] = {}
        self._check()

    def _check(self) -> None:
        if not self.shares or list(self.shares) != sorted(set(self.shares)) or self.shares[0] < 1:
            raise ConfigError(f"shares must rise from 1, got {list(self.shares)}")
        if self.shares[-1] != self.units:
            raise ConfigError(f"the last share must be the whole device, {self.units} units")
        for work, time in self._solo.items():
            if time <= 0:
                raise ConfigError(f"{_name(work)}: its time must be positive, got {time} ns")
        for key, time in self._transfer.items():
            if time < 0:
                raise ConfigError(f"{key}: its transfer must take at least 0, got {time} ns")
        self._check_speeds()

    def _check_speeds(self) -> None:
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

    def transfer(self, architecture: str, layout: int) -> Nanos:
        """Time a row's key/value cache takes to another device.

        Raises:
            ConfigError: The profile does not say.
        """
        try:
            return self._transfer[architecture, layout]
        except KeyError:
            raise ConfigError(
                f"the profile has no transfer time for {architecture} layout {layout}",
            ) from None

    def stepped(self, steps: Mapping[str, int], inspection: Nanos, packing: Nanos) -> Profile:
        """The profile of a device whose denoise launches are parts of the loop.

        Args:
            steps: For each architecture, the equal parts its loop is cut into.
            inspection: Time added to each such launch.
            packing: Time added to each such launch per row.
        """
        profile = copy(self)
        profile._best = {}
        profile._solo = {
            work: time
            if work.stage is Stage.PREFIX
            else -(-time // steps[work.architecture]) + inspection + packing * work.size
            for work, time in self._solo.items()
        }
        return profile

    def best_share(self, prefix: Work, denoise: Work, parts_left: int = PARTS) -> int:
        """Share of ``prefix`` with which the pair, started together, is over soonest.

        The whole device is a candidate like any other. Of equal shares the largest wins: it
        leaves the prefix the most once the denoise launch has ended.

        Args:
            prefix: The launch that starts; its own share does not matter.
            denoise: The launch beside it.
            parts_left: Parts of the denoise launch that are still to run, of :data:`PARTS`. So
                coarse a figure lets every share be worked out once.
        """
        if prefix.share != self.units:
            prefix = prefix._replace(share=self.units)
        pair = prefix, denoise, parts_left
        best = self._best.get(pair)
        if best is None:
            best = min(
                reversed(self.shares),
                key=lambda share: max(
                    self.pair_ends(prefix._replace(share=share), denoise, parts_left)
                ),
            )
            self._best[pair] = best
        return best

    def pair_time(self, one: Work, other: Work) -> Nanos:
        """Time until two launches that start together have both ended."""
        return max(self.pair_ends(one, other))

    def pair_ends(self, one: Work, other: Work, parts_left: int = PARTS) -> tuple[Nanos, Nanos]:
        """End of each of two launches that run together from 0; ``other`` may have begun before."""
        # What a CoRun of the two would say, written out: formations ask for every share.
        left = self.solo(one) * FULL_SPEED
        other_left = self.solo(other) * parts_left // PARTS * FULL_SPEED
        speed, other_speed = self.speed(one, other), self.speed(other, one)
        end, other_end = -(-left // speed), -(-other_left // other_speed)
        if end < other_end:
            rest = max(other_left - end * other_speed, 0)
            return end, end - (-rest // FULL_SPEED)
        rest = max(left - other_end * speed, 0)
        return other_end - (-rest // FULL_SPEED), other_end

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
            "transfer": sorted([*key, time] for key, time in self._transfer.items()),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Profile:
        """The profile that :meth:`to_json` wrote.

        Raises:
            ConfigError: ``data`` is not such a profile.
        """
        try:
            solo = {Work(row[0], Stage(row[1]), *row[2:5]): row[5] for row in data["solo"]}
            transfer = {(row[0], row[1]): row[2] for row in data.get("transfer", ())}
            profile = cls(
                units=data["units"],
                shares=data["shares"],
                solo=solo,
                slowdown={},
                transfer=transfer,
            )
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
        self.speed = 0  # until it has started


class CoRun(Generic[K]):
    """The launches that run side by side on one device, as remaining work with a speed.

    Keys are chosen by the caller, usually lanes. Of ends at one instant the launch that started
    first comes first.
    """

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._running: dict[K, _Running] = {}
        self._now: Nanos = 0
        self._next: tuple[Nanos, K] | None = None

    def __len__(self) -> int:
        return len(self._running)

    def start(self, key: K, work: Work, now: Nanos, solo: Nanos | None = None) -> None:
        """Begin ``work``; ``solo`` overrides its profiled time alone (for jitter).

        Raises:
            InvariantError: A launch with this key is still running.
        """
        if key in self._running:
            raise InvariantError(f"lane {key!r} was given a launch while it runs one")
        time = self._profile.solo(work) if solo is None else solo
        self._running[key] = _Running(work, time * FULL_SPEED)
        self._change(now)

    def finish(self, key: K, now: Nanos) -> None:
        """Take the launch ``key`` off the device, ended or not."""
        del self._running[key]
        self._change(now)

    def next_end(self) -> tuple[Nanos, K] | None:
        """Instant and key of the launch that ends next if nothing else starts."""
        return self._next

    def work_of(self, key: K) -> Work:
        """What the launch ``key`` is."""
        return self._running[key].work

    def end_of(self, key: K) -> Nanos:
        """Instant at which the launch ``key`` ends if nothing starts or ends before."""
        run = self._running[key]
        return self._now - (-run.left // run.speed)

    def parts_left(self, key: K, now: Nanos) -> int:
        """Parts of :data:`PARTS` of the launch ``key`` that are still to run, rounded up."""
        run = self._running[key]
        left = run.left - (now - self._now) * run.speed
        whole = self._profile.solo(run.work) * FULL_SPEED
        return min(max(-(-left * PARTS // whole), 0), PARTS)

    def ends(self) -> Iterator[tuple[Nanos, K]]:
        """Each next end in turn; the caller calls :meth:`finish` between two of them."""
        while (end := self.next_end()) is not None:
            yield end

    def _change(self, now: Nanos) -> None:
        """Credit what has been done until ``now``; then other speeds hold, and other ends."""
        elapsed = now - self._now
        if elapsed < 0:
            raise InvariantError(f"time went back by {-elapsed} ns")
        self._now, running = now, self._running
        is_alone = len(running) == 1
        first: tuple[Nanos, K] | None = None
        for key, run in running.items():
            left = run.left - elapsed * run.speed
            run.left = left = left if left > 0 else 0
            run.speed = speed = FULL_SPEED if is_alone else self._speed_of(key, run.work)
            end = now - (-left // speed)
            if first is None or end < first[0]:
                first = end, key
        self._next = first

    def _speed_of(self, key: K, work: Work) -> int:
        """Speed of ``work`` beside everything else that runs."""
        speed = FULL_SPEED
        for other, beside in self._running.items():
            if other is not key:
                speed = speed * self._profile.speed(work, beside.work) // FULL_SPEED
        return speed


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
