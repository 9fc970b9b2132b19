"""Gateways that do anything a gateway may do, lanes that fail, and a check of all the loop says.

``test_loop_machine.py`` runs the machine and shows that it can fail.
"""

from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.core.driving import model_of, profile_of

from takt.core.request import Stage
from takt.core.trace import Setup, replay
from takt.link.messages import Outcome, Released, Reply, SlotRef
from takt.runtime.events import (
    Arrived,
    DrainAsked,
    DrivingOffered,
    GatewayLost,
    LoopEvent,
    SetupChanged,
)
from takt.runtime.launches import Job
from takt.runtime.loop import WorkerLoop
from takt.runtime.trace_file import split_traces
from takt.testing.clock import ManualClock
from takt.testing.gateway import FakeGateway
from takt.testing.lanes import FakeLanes
from takt.testing.network import FakeNetwork, fake_model

__all__ = ["LoopMachine"]

MODELS = (
    model_of("pi0", slo=60, prefix=(1, 2), denoise=(1, 2, 4), holds=(0b11, 0b10)),
    model_of("act", slo=40, prefix=(1, 3), denoise=()),
)
PROFILE = profile_of(*MODELS)
KV_SLOTS = 5
NUM_SLOTS = 6
NAN = float("nan")
MOST_STEPS = 1_000

OBSERVATIONS = st.fixed_dictionaries(
    {
        "model": st.sampled_from(["pi0", "pi0", "act"]),
        "session": st.sampled_from("abcd"),
        "value": st.sampled_from([1.0, 2.0, 3.0, NAN]),
        "due_in": st.integers(-20, 120),
        "expires_in": st.integers(0, 150),
        "layout": st.integers(0, 1),
        "supersede": st.booleans(),
    }
)


class LoopMachine(RuleBasedStateMachine):
    """Two gateways, two models, one loop."""

    loop_class: type[WorkerLoop] = WorkerLoop

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.lanes = FakeLanes(PROFILE, self.clock.now)
        self.trace: list[str] = []
        self.loop = self.loop_class(self.lanes, trace=self.trace.extend)
        self.models = {model.name: fake_model(model, kv_slots=KV_SLOTS) for model in MODELS}
        self.num_gateways = 2
        self.gateways = [FakeGateway(epoch=n, num_slots=NUM_SLOTS) for n in (1, 2)]
        self.pending: list[LoopEvent] = []
        self.wake_at: int | None = None
        self.is_draining = False
        self.owed: dict[SlotRef, float] = {}
        """Value of each request that is owed a reply."""
        self.unwanted: set[SlotRef] = set()
        """Cancelled requests: a release is owed, or a refusal that crossed the cancel."""

    @initialize(formation=st.sampled_from(["lockstep", "monolithic"]))
    def load(self, formation: str) -> None:
        self.formation = formation
        self.change_setup(["pi0", "act"])

    # What gateways do

    @rule(
        which=st.integers(0, 1),
        observations=st.lists(OBSERVATIONS, min_size=1, max_size=4),
    )
    def submit(self, which: int, observations: list[dict[str, Any]]) -> None:
        gateway = self.gateways[which]
        for fields in observations[: gateway.table.num_free]:
            loaded = self.models[fields["model"]]
            rest = {name: value for name, value in fields.items() if name != "model"}
            arrived = gateway.arrive(loaded, self.clock.now(), **rest)
            self.pending.append(arrived)
            self.owed[arrived.submit.ref] = fields["value"]

    @precondition(lambda self: self.pending)
    @rule(damage=st.sampled_from([{"model": "pi9"}, {"row": {}}, {"layout": 7}]))
    def damage(self, damage: dict[str, object]) -> None:
        """The submit that was made last turns out to be nonsense."""
        last = self.pending[-1]
        if isinstance(last, Arrived):
            self.pending[-1] = last._replace(submit=msgspec.structs.replace(last.submit, **damage))

    @precondition(lambda self: self.owed)
    @rule(which=st.integers(0, 50))
    def cancel(self, which: int) -> None:
        ref = [*self.owed][which % len(self.owed)]
        [gateway] = [gateway for gateway in self.gateways if gateway.epoch == ref.epoch]
        self.pending.append(gateway.cancel(ref))
        del self.owed[ref]
        self.unwanted.add(ref)

    @rule(which=st.integers(0, 1))
    def lose_gateway(self, which: int) -> None:
        lost = self.gateways[which]
        self.pending.append(GatewayLost(lost))
        self.num_gateways += 1
        self.gateways[which] = FakeGateway(epoch=self.num_gateways, num_slots=NUM_SLOTS)
        self.owed = {ref: value for ref, value in self.owed.items() if ref.epoch != lost.epoch}
        self.unwanted = {ref for ref in self.unwanted if ref.epoch != lost.epoch}

    # What the process does

    @rule(names=st.sampled_from([["pi0"], ["pi0", "act"]]))
    def change_setup(self, names: list[str]) -> None:
        self.served = {name: self.models[name] for name in names}
        self.pending.append(SetupChanged(self.setup(), self.served))

    @rule(formation=st.sampled_from(["lockstep", "monolithic", "flowing"]))
    def offer(self, formation: str) -> None:
        """Another formation would carry more."""
        self.formation = formation
        self.pending.append(DrivingOffered(self.setup()))

    def setup(self) -> Setup:
        return Setup(
            models=tuple(loaded.model for loaded in self.served.values()),
            profile=PROFILE,
            formation=self.formation,
        )

    @rule(stage=st.sampled_from(Stage), is_broken=st.booleans())
    def break_network(self, stage: Stage, is_broken: bool) -> None:
        network = self.models["pi0"].network
        assert isinstance(network, FakeNetwork)
        network.faults = {stage: RuntimeError("broken")} if is_broken else {}

    @rule(elapsed=st.sampled_from([0, 1, 5, 10, 20, 60]), early=st.booleans())
    def step(self, elapsed: int, early: bool) -> None:
        """Time passes, and everything that has happened is taken in."""
        self.clock.advance(elapsed)
        ended = self.lanes.take_ended()
        events = [*ended, *self.pending] if early else [*self.pending, *ended]
        self.pending = []
        self.wake_at = self.loop.step(events, self.clock.now()).wake_at
        for source, message in self.loop.take_messages():
            assert isinstance(source, FakeGateway)
            assert source in self.gateways, "a gateway that is gone is spoken to"
            if isinstance(message, Reply):
                self.check_reply(source, message)
            else:
                assert isinstance(message, Released)
                self.unwanted.remove(message.ref)
                source.table.release(message.ref, link=1)
        self.check_slots()

    def teardown(self) -> None:
        """Drain; everybody gets the answer that is owed."""
        self.pending.append(DrainAsked())
        for _ in range(MOST_STEPS):
            self.step(0, early=False)
            instants = [self.lanes.next_end(), self.wake_at]
            known = [instant for instant in instants if instant is not None]
            if not known:
                break
            self.clock.advance(max(0, min(known) - self.clock.now()))
        assert self.loop.is_idle
        assert not self.loop.awaits_change
        assert not self.owed, "no reply"
        assert not self.unwanted, "no release"
        for gateway in self.gateways:
            assert gateway.table.num_free == NUM_SLOTS
            assert not gateway.table.dropped
        self.check_trace()

    # What must hold

    def check_reply(self, gateway: FakeGateway, reply: Reply) -> None:
        if reply.ref in self.unwanted:
            assert reply.outcome is not Outcome.SERVED
            self.unwanted.remove(reply.ref)
            assert gateway.table.reply(reply.ref, link=1) is None
            gateway.table.dropped.clear()
            return
        value = self.owed.pop(reply.ref)  # fails for a second reply
        assert gateway.table.reply(reply.ref, link=1) is not None
        if reply.outcome is Outcome.SERVED:
            assert (reply.actions() == value).all(), "the chunk of another row"

    def check_slots(self) -> None:
        jobs: list[Job] = [*self.lanes.running.values()]
        held = [(job.launch.model, kv_slot) for job in jobs for kv_slot in job.kv_slots]
        assert len(held) == len(set(held)), "two rows share a cache slot"
        read = {row.ref for job in jobs for row in job.rows}
        present = {gateway.epoch for gateway in self.gateways}
        for ref in read:
            is_known = ref in self.owed or ref in self.unwanted
            assert is_known or ref.epoch not in present, "a slot is given back while it is read"

    def check_trace(self) -> None:
        for trace in split_traces(f"{line}\n" for line in self.trace):
            assert list(replay(trace)) == trace, "the trace does not replay"
