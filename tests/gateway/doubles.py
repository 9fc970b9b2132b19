"""A worker inside the test's own loop that answers when it is told to, and a manual timer."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import numpy as np

from takt.errors import RefusedError
from takt.gateway.config import GatewayConfig, WorkerAddress
from takt.gateway.connection import GatewayConnection, GatewaySession
from takt.gateway.gateway import Gateway
from takt.gateway.request import Answer
from takt.link.asyncio_watch import AsyncioWatch
from takt.link.channel import Channel, PeerLostError
from takt.link.ends import GatewayLink
from takt.link.layout import SlotLayout
from takt.link.messages import (
    Cancel,
    GatewayHello,
    GatewayMessage,
    ModelOffer,
    Outcome,
    Released,
    Reply,
    StageTimes,
    Submit,
    WorkerHello,
    chunk_fields,
)
from takt.policies.catalog import open_policy
from takt.schema.observation import Observation
from takt.schema.plain import to_plain
from takt.schema.serving import ServedModel

__all__ = [
    "ECHO",
    "SPEC",
    "Bench",
    "FakeWorker",
    "code_of",
    "connection_of",
    "observe",
    "run",
    "session_of",
    "settled",
]

ECHO = ServedModel(name="echo", policy="echo")
SPEC = open_policy("echo").spec
LAYOUT = SlotLayout.of((t.name, t.shape, t.dtype) for t in SPEC.slot_tensors)


def observe(value: float = 1.0) -> Observation:
    return Observation(state=np.full(3, value, np.float32))


def run(main: Callable[[], object]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(main(), 20)  # type: ignore[arg-type]

    asyncio.run(bounded())


async def settled() -> None:
    """Let everything that can happen without time passing happen."""
    for _ in range(30):
        await asyncio.sleep(0)


@dataclass
class FakeWorker:
    """One life of a worker, over one end of a socket pair."""

    name: str
    link: GatewayLink
    offers: tuple[ModelOffer, ...]
    answers: bool = True
    submits: list[Submit] = field(default_factory=list)
    cancels: list[Cancel] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.watch = AsyncioWatch(self.link, on_message=self.hear, on_end=lambda _: None)

    def hear(self, message: GatewayMessage) -> None:
        match message:
            case GatewayHello():
                self.link.send(WorkerHello(worker=self.name, models=self.offers))
            case Submit():
                self.submits.append(message)
                if self.answers:
                    self.serve(message)
            case Cancel():
                self.cancels.append(message)
            case _:
                pass

    def serve(self, submit: Submit, *, outcome: Outcome = Outcome.SERVED) -> None:
        if outcome is not Outcome.SERVED:
            self.link.send(Reply(ref=submit.ref, outcome=outcome, detail="told to"))
            return
        width = submit.row["state_dim"]
        assert isinstance(width, int)
        state = self.link.slot(submit.ref, LAYOUT).read(submit.ref)["state"][:width]
        chunk = state.astype("<f4")[None, :] + np.arange(2, dtype=np.float32)[:, None]
        times = StageTimes(waited=1, prefix=2, between=3, denoise=4, finishing=5)
        self.link.send(
            Reply(
                ref=submit.ref,
                outcome=Outcome.SERVED,
                times=times,
                **chunk_fields(chunk.astype(np.float32)),
            )
        )

    def release(self, cancel: Cancel) -> None:
        self.submits = [submit for submit in self.submits if submit.ref != cancel.ref]
        self.link.send(Released(ref=cancel.ref))

    def die(self) -> None:
        self.watch.detach()
        self.link.close("killed")
        self.submits.clear()
        self.cancels.clear()


@dataclass
class Bench:
    """A gateway with fake workers; dials of a worker that is down are refused."""

    num_workers: int = 1
    answers: bool = True
    state: str = "ready"
    down: set[str] = field(default_factory=set)
    workers: dict[str, FakeWorker] = field(default_factory=dict)
    events: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    now: int = 1_000

    def connect(self, address: str) -> Channel:
        if address in self.down:
            raise PeerLostError("nobody listens")
        near, far = socket.socketpair()
        offer = ModelOffer(
            model="echo",
            state=self.state,  # type: ignore[arg-type]
            spec=to_plain(SPEC),
        )
        link = GatewayLink(Channel(far, accept_fd=True))
        self.workers[address] = FakeWorker(address, link, (offer,), answers=self.answers)
        return Channel(near)

    async def start(self, **config: object) -> Gateway:
        names = [f"w{number}" for number in range(self.num_workers)]
        gateway = Gateway(
            GatewayConfig(
                name="g",
                workers=tuple(WorkerAddress(name=name, address=name) for name in names),
                **{"models": (ECHO,), "num_slots": 8, **config},  # type: ignore[arg-type]
            ),
            on_event=lambda event, fields: self.events.append((event, dict(fields))),
            clock=lambda: self.now,
            connect=self.connect,
        )
        gateway.start()
        await settled()
        return gateway

    def run(self, main: Callable[[Gateway], Awaitable[None]], **config: object) -> None:
        """Run ``main`` on a gateway of this configuration, and close everything behind it."""

        async def with_gateway() -> None:
            gateway = await self.start(**config)
            try:
                await main(gateway)
            finally:
                gateway.close()
                for worker in self.workers.values():
                    worker.die()

        run(with_gateway)

    @property
    def said(self) -> list[str]:
        return [event for event, _ in self.events]


def connection_of(gateway: Gateway) -> GatewayConnection:
    return gateway.connect(lambda _: None)


def session_of(gateway: Gateway, robot: str | None = None) -> GatewaySession:
    return connection_of(gateway).session(robot)


def code_of(answer: asyncio.Future[Answer]) -> str:
    """The code of a refusal that has come."""
    assert answer.done()
    error = answer.exception()
    assert isinstance(error, RefusedError)
    return error.code
