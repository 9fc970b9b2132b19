"""A worker's loop with a manual clock, fake lanes and one gateway, in round numbers."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from tests.core.driving import model_of, profile_of

from takt.core.launch import Decision
from takt.core.model import Model
from takt.core.profile import Profile
from takt.core.request import Stage
from takt.core.trace import Setup
from takt.link.messages import Outcome, Released, Reply, SlotRef, WorkerMessage
from takt.runtime.events import Arrived, LoopEvent, SetupChanged
from takt.runtime.loop import WorkerLoop
from takt.runtime.models import LoadedModel
from takt.testing.clock import ManualClock
from takt.testing.gateway import FakeGateway
from takt.testing.lanes import FakeLanes
from takt.testing.network import fake_model

T = TypeVar("T")

__all__ = ["Rig", "only"]


def only(messages: Sequence[object], kind: type[T]) -> list[T]:
    """The messages of one kind."""
    return [message for message in messages if isinstance(message, kind)]


class Rig:
    """A loop that serves ``models``; a prefix launch takes 10, a denoise launch 20."""

    def __init__(
        self,
        *models: Model,
        kv_slots: int = 64,
        formation: str = "lockstep",
        profile: Profile | None = None,
        failing: Mapping[int, Stage] | None = None,
        is_ready: bool = True,
    ) -> None:
        self.clock = ManualClock()
        scheduled = models or (model_of(),)
        self.profile = profile or profile_of(*scheduled)
        self.formation = formation
        self.models = {m.name: fake_model(m, kv_slots=kv_slots) for m in scheduled}
        self.lanes = FakeLanes(self.profile, self.clock.now, failing=failing)
        self.trace: list[str] = []
        self.loop = WorkerLoop(self.lanes, trace=self.trace.extend)
        self.gateway = FakeGateway()
        self.wake_at: int | None = None
        self.said: list[tuple[object, WorkerMessage]] = []
        if is_ready:
            self.step(self.setup_changed())

    @property
    def now(self) -> int:
        return self.clock.now()

    def setup_changed(self, *names: str) -> SetupChanged:
        """The event that puts the named models in force; all without a name."""
        chosen = {name: self.models[name] for name in names or self.models}
        setup = Setup(
            models=tuple(loaded.model for loaded in chosen.values()),
            profile=self.profile,
            formation=self.formation,
        )
        return SetupChanged(setup, chosen)

    def loaded(self, name: str | None = None) -> LoadedModel:
        return self.models[name or next(iter(self.models))]

    def arrival(self, model: str | None = None, **fields: Any) -> Arrived:  # noqa: ANN401 - passed on
        return self.gateway.arrive(self.loaded(model), self.now, **fields)

    def step(self, *events: LoopEvent) -> Decision:
        decision = self.loop.step(events, self.now)
        self.wake_at = decision.wake_at
        self.said += self.loop.take_messages()
        return decision

    def submit(self, model: str | None = None, **fields: Any) -> SlotRef:  # noqa: ANN401 - passed on
        arrived = self.arrival(model, **fields)
        self.step(arrived)
        return arrived.submit.ref

    def advance(self, duration: int, *events: LoopEvent) -> Decision:
        """Let time pass, then step with what has ended and ``events``."""
        self.clock.advance(duration)
        return self.step(*self.lanes.take_ended(), *events)

    def run_out(self) -> None:
        """Go on from instant to instant until nothing is under way."""
        while (instant := self._next_instant()) is not None:
            self.advance(max(0, instant - self.now))

    def _next_instant(self) -> int | None:
        instants = [self.lanes.next_end(), self.wake_at]
        return min((instant for instant in instants if instant is not None), default=None)

    @property
    def messages(self) -> list[WorkerMessage]:
        return [message for _, message in self.said]

    def outcomes(self) -> dict[SlotRef, Outcome]:
        return {reply.ref: reply.outcome for reply in only(self.messages, Reply)}

    def released(self) -> list[SlotRef]:
        return [message.ref for message in only(self.messages, Released)]
