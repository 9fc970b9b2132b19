"""Paced lanes with a manual clock and a timer that remembers what it was set to."""

from collections.abc import Callable

from tests.core.driving import model_of

from takt.core.launch import Lane, Launch
from takt.core.profile import Profile, Work
from takt.runtime.admission import open_row
from takt.runtime.launches import Completed, Job
from takt.runtime.paced_lanes import PacedLanes
from takt.testing.clock import ManualClock
from takt.testing.gateway import FakeGateway
from takt.testing.network import FakeNetwork, fake_model

__all__ = ["Bench", "FakeTimer"]


class FakeTimer:
    """Fires never; a test looks when it would."""

    def __init__(self) -> None:
        self.instant: int | None = None

    def set(self, instant: int | None) -> None:
        self.instant = instant


class Bench:
    """Lanes of one model; every launch has one row."""

    def __init__(
        self, profile: Profile | None, *, vary: Callable[[int], int] | None = None
    ) -> None:
        self.clock = ManualClock()
        self.timer = FakeTimer()
        self.completed: list[Completed] = []
        self.lanes = PacedLanes(self.completed.append, self.timer, clock=self.clock.now, vary=vary)
        if profile is not None:
            self.lanes.pace(profile)
        self.model = fake_model(model_of(), kv_slots=1)
        gateway = FakeGateway(num_slots=1)
        self.row = open_row(gateway, gateway.arrive(self.model, 0).submit, self.model)
        self.network.prefix([self.row.row], size=1, layout=0, kv_slots=[0])

    @property
    def network(self) -> FakeNetwork:
        assert isinstance(self.model.network, FakeNetwork)
        return self.model.network

    def start(self, work: Work, seq: int = 0) -> None:
        lane = Lane(0, work.stage)
        launch = Launch(lane, "pi0", (seq,), work.size, work.layout, work.share)
        self.lanes.start(Job(launch=launch, model=self.model, rows=(self.row,), kv_slots=(0,)))

    def take_ended(self) -> list[Completed]:
        self.lanes.take_ended()
        ended = [*self.completed]
        self.completed.clear()
        return ended
