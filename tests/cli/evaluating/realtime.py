"""Episodes in real time that nobody ran, for tests of what is said about them."""

from typing import Any

from takt.cli.evaluating.asking import Meter
from takt.client.loop import LoopStatus
from takt.client.realtime import Ending, RealtimeEpisode
from takt.client.rollout import EpisodeResult
from takt.robot.contract_table import State
from takt.units import MILLISECOND, Nanos, ms

__all__ = ["episode", "meter", "status"]


def meter(*round_trips_ms: float) -> Meter:
    """A meter that measured these, or one of 20 ms."""
    return Meter(round_trips=[ms(took) for took in round_trips_ms or (20.0,)])


def status(**changed: Any) -> LoopStatus:  # noqa: ANN401
    """A loop after 40 ticks."""
    usual: dict[str, Any] = {
        "state": State.ACTIVE,
        "is_connected": True,
        "ticks": 40,
        "overruns": 0,
        "skipped_ticks": 0,
        "executed": 30,
        "starved_ticks": 10,
        "remaining": 4,
        "next_timestep": 30,
        "answered": 5,
        "late": 1,
        "guided": 0,
        "splices": 4,
        "failures": {"busy": 2},
        "last_failure": None,
        "faults": {},
        "violations": {},
        "rejected_starts": 0,
        "round_trip": ms(20),
        "log_dropped": 0,
    }
    return LoopStatus(**{**usual, **changed})


def episode(
    *,
    index: int = 0,
    is_solved: bool = True,
    ending: Ending = "solved",
    step: Nanos | None = 5 * MILLISECOND,
    observe: Nanos = 10 * MILLISECOND,
    skipped: int = 0,
) -> RealtimeEpisode:
    """An episode of 40 ticks and 2 s."""
    return RealtimeEpisode(
        result=EpisodeResult(index=index, is_solved=is_solved, steps=40, chunks=5),
        ending=ending,
        status=status(skipped_ticks=skipped),
        rested=3,
        duration=ms(2000),
        step_times=[] if step is None else [step] * 40,
        observe_times=[] if step is None else [observe] * 5,
    )
