"""A long run of the shipped loop in which everything happens that happens to a worker.

Two gateways submit, cancel and die; rows fail; requests expire, supersede each other and are
refused; models come and go; the worker itself is killed and goes on in the same trace file. Time is
manual and lanes are fake, so that a seed says everything and ten thousand requests take seconds.
"""

import random
from collections import Counter

from tests.core.driving import model_of, profile_of

from takt.core.trace import Setup
from takt.link.messages import Released, Reply, SlotRef
from takt.runtime.events import Arrived, GatewayLost, LoopEvent, SetupChanged
from takt.runtime.inbox import Inbox
from takt.runtime.loop import WorkerLoop
from takt.testing.clock import ManualClock
from takt.testing.gateway import FakeGateway
from takt.testing.lanes import FakeLanes
from takt.testing.network import fake_model

__all__ = ["Storm"]

MODELS = (
    model_of("pi0", slo=60, prefix=(1, 2, 4), denoise=(1, 2, 4, 8), holds=(0b11, 0b10)),
    model_of("act", slo=40, prefix=(1, 2, 4), denoise=()),
)
PROFILE = profile_of(*MODELS)
KV_SLOTS = 20
NUM_SLOTS = 16
NUM_ROBOTS = 24


class Storm:
    """Runs until enough requests have been submitted.

    Args:
        seed: Of everything that happens.
        num_requests: Least number of requests.
    """

    def __init__(self, seed: int, num_requests: int) -> None:
        self.trace: list[str] = []
        """Lines of all lives of the worker, as they would stand in its file."""
        self.outcomes: Counter[str] = Counter()
        """Replies by outcome."""
        self.happened: Counter[str] = Counter()
        self._draw = random.Random(seed)
        self._clock = ManualClock()
        self._loaded = {model.name: fake_model(model, kv_slots=KV_SLOTS) for model in MODELS}
        self._epoch = 0
        self._gateways = [self._new_gateway(), self._new_gateway()]
        self._weights = {
            self._submit: 1000,
            self._cancel: 60,
            self._change_models: 4,
            self._lose_gateway: 3,
            self._kill: 1,
        }
        self._start_worker()
        while self.happened["submitted"] < num_requests:
            self._go_on()
        self._run_out()

    # The worker

    def _start_worker(self) -> None:
        self._lanes = FakeLanes(PROFILE, self._clock.now)
        self._loop = WorkerLoop(self._lanes, trace=self.trace.extend)
        self._inbox: Inbox[LoopEvent] = Inbox()
        self._wake_at: int | None = None
        self._open: dict[SlotRef, FakeGateway] = {}
        self._inbox.post(self._setup(["pi0", "act"]))
        self._step()

    def _setup(self, names: list[str]) -> SetupChanged:
        chosen = {name: self._loaded[name] for name in names}
        models = tuple(loaded.model for loaded in chosen.values())
        return SetupChanged(Setup(models=models, profile=PROFILE), chosen)

    def _step(self) -> None:
        for completed in self._lanes.take_ended():
            self._inbox.post(completed)
        self._wake_at = self._loop.step(self._inbox.take(), self._clock.now()).wake_at
        for source, message in self._loop.take_messages():
            assert isinstance(source, FakeGateway)
            if isinstance(message, Reply):
                self.outcomes[message.outcome.name.lower()] += 1
                source.table.reply(message.ref, link=1)
            elif isinstance(message, Released):
                source.table.release(message.ref, link=1)
            self._open.pop(message.ref, None)  # type: ignore[union-attr]

    def _go_on(self) -> None:
        """Time passes to the next instant of the worker or a little way, then things happen."""
        ahead = self._draw.choice([0, 1, 1, 2, 3, 5])
        instants = [self._lanes.next_end(), self._wake_at]
        known = [max(0, at - self._clock.now()) for at in instants if at is not None]
        self._clock.advance(min([ahead, *known]))
        for _ in range(self._draw.choice([0, 0, 0, 1, 1, 2, 4])):
            self._happen()
        self._step()

    def _run_out(self) -> None:
        while not self._loop.is_idle:
            instants = [self._lanes.next_end(), self._wake_at]
            self._clock.advance(
                max(0, min(at for at in instants if at is not None) - self._clock.now())
            )
            self._step()
        self._inbox.close()

    # What happens

    def _happen(self) -> None:
        [happen] = self._draw.choices([*self._weights], [*self._weights.values()])
        happen()

    def _new_gateway(self) -> FakeGateway:
        self._epoch += 1
        return FakeGateway(epoch=self._epoch, num_slots=NUM_SLOTS)

    def _submit(self) -> None:
        draw, gateway = self._draw, self._draw.choice(self._gateways)
        if not gateway.table.num_free:
            return
        arrived: Arrived = gateway.arrive(
            self._loaded[draw.choice(["pi0", "pi0", "act"])],
            self._clock.now(),
            session=f"robot {draw.randrange(NUM_ROBOTS)}",
            value=draw.choice([1.0] * 30 + [float("nan")]),
            due_in=draw.randrange(-20, 120),
            promise_in=draw.randrange(100),
            expires_in=draw.choice([5, 60, 120, 200]),
            layout=draw.choice([0, 0, 0, 1]),
            supersede=draw.random() < 0.8,
        )
        self.happened["submitted"] += 1
        self._open[arrived.submit.ref] = gateway
        self._inbox.post(arrived)

    def _cancel(self) -> None:
        if self._open:
            ref = self._draw.choice([*self._open])
            self._inbox.post(self._open.pop(ref).cancel(ref))
            self.happened["cancelled"] += 1

    def _lose_gateway(self) -> None:
        place = self._draw.randrange(2)
        lost = self._gateways[place]
        self._gateways[place] = self._new_gateway()
        self._open = {ref: gateway for ref, gateway in self._open.items() if gateway is not lost}
        self._inbox.post(GatewayLost(lost))
        self.happened["gateways_lost"] += 1

    def _kill(self) -> None:
        """The worker is gone; both gateways connect to its next life with empty slots."""
        self._inbox.close()
        self._gateways = [self._new_gateway(), self._new_gateway()]
        self.happened["workers_killed"] += 1
        self._start_worker()

    def _change_models(self) -> None:
        """A model is unloaded, or loaded again."""
        self._inbox.post(self._setup(self._draw.choice([["pi0"], ["pi0", "act"], ["pi0", "act"]])))
        self.happened["setups"] += 1
