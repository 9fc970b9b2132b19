"""Dialling, pauses and patience with one worker."""

import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pytest
from tests.gateway.doubles import ECHO, SPEC, FakeWorker, run, settled

from takt.gateway.config import WorkerAddress
from takt.gateway.models import open_models
from takt.gateway.workers import WorkerPeer
from takt.link.arena import Arena, ArenaGeometry
from takt.link.channel import Channel, PeerLostError
from takt.link.ends import GatewayLink, WorkerLink
from takt.link.messages import (
    Cancel,
    ModelOffer,
    ModelReady,
    Outcome,
    Progress,
    Reply,
    SlotRef,
    StageTimes,
    Submit,
    WorkerMessage,
)
from takt.schema.plain import to_plain
from takt.units import SECOND

REF = SlotRef(1, 0, 1)
OFFER = ModelOffer(model="echo", state="ready", spec=to_plain(SPEC))


@dataclass
class Timer:
    delay: float
    callback: Callable[[], None]
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


@dataclass
class Scene:
    """A peer, whoever owns it, and time by hand."""

    is_down: bool = False
    greets: bool = True
    now: int = 0
    timers: list[Timer] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    workers: list[FakeWorker] = field(default_factory=list)
    offers: tuple[ModelOffer, ...] = (OFFER,)

    def __post_init__(self) -> None:
        self.arena = Arena.create(ArenaGeometry(num_slots=2, slot_bytes=16 * 1024))
        links = iter(range(100))
        self.peer = WorkerPeer(
            WorkerAddress(name="w", address="a"),
            models=open_models([ECHO]),
            owner=self,
            greet=partial(WorkerLink, arena=self.arena, gateway="g", epoch=1),
            connect=self.connect,
            new_link=lambda: next(links),
            timers=self,
            clock=lambda: self.now,
            hang=SECOND,
        )

    def __enter__(self) -> "Scene":
        return self

    def __exit__(self, *error: object) -> None:
        self.peer.close()
        for worker in self.workers:
            worker.die()
        self.arena.close()

    def connect(self, address: str) -> Channel:
        if self.is_down:
            raise PeerLostError("nobody")
        near, far = socket.socketpair()
        link = GatewayLink(Channel(far, accept_fd=True))
        self.workers.append(FakeWorker("w", link, self.offers, answers=False))
        return Channel(near)

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        self.timers.append(Timer(delay, callback))
        return self.timers[-1]

    def fire(self) -> float:
        timer = self.timers.pop()
        self.now += round(timer.delay * SECOND)
        timer.callback()
        return timer.delay

    def heard(self, peer: WorkerPeer, message: WorkerMessage) -> None:
        self.told.append(type(message).__name__)

    def lost(self, peer: WorkerPeer, link: int, reason: str) -> None:
        self.told.append(f"lost {link}")

    def hung(self, peer: WorkerPeer, silence: int) -> None:
        self.told.append(f"hung {silence // SECOND}")

    def models_changed(self, peer: WorkerPeer) -> None:
        self.told.append("models")

    def submit(self, ref: SlotRef = REF) -> None:
        self.peer.submit(
            Submit(
                ref=ref,
                model="echo",
                session="s",
                sequence=0,
                seed=0,
                sent=self.now,
                age=0,
                due_in=0,
                promise_in=0,
                expires_in=1,
            )
        )


def test_pauses_between_dials_double_up_to_two_seconds() -> None:
    async def main() -> None:
        with Scene(is_down=True) as scene:
            scene.peer.dial()

            assert [scene.fire() for _ in range(8)] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
            assert scene.peer.readiness("echo").state == "loading"

    run(main)


def test_a_worker_that_dies_before_its_hello_is_not_dialled_at_once() -> None:
    async def main() -> None:
        with Scene() as scene:
            scene.peer.dial()
            scene.workers[0].die()
            await settled()

            assert len(scene.workers) == 1
            assert [timer.delay for timer in scene.timers] == [0.05]
            assert scene.told == []

    run(main)


def test_a_worker_that_dies_after_its_hello_is_dialled_at_once_over_a_new_link() -> None:
    async def main() -> None:
        with Scene() as scene:
            scene.peer.dial()
            await settled()
            scene.workers[0].die()
            await settled()

            assert scene.told == ["models", "lost 0", "models"]
            assert scene.peer.link_number == 1
            assert scene.peer.serves("echo")

    run(main)


@pytest.mark.parametrize("change", ["kv", "prefix_inputs", "action", "digest"])
def test_a_worker_with_another_card_serves_nothing_and_says_why(change: str) -> None:
    async def main() -> None:
        plain = to_plain(SPEC) | {change: "other"}
        with Scene(offers=(ModelOffer(model="echo", state="ready", spec=plain),)) as scene:
            scene.peer.dial()
            await settled()

            assert not scene.peer.serves("echo")
            assert change in scene.peer.failures["echo"]

    run(main)


@pytest.mark.parametrize(("lives", "state"), [(1, "loading"), (2, "lost")])
def test_a_model_not_spoken_of_yet_has_not_failed(lives: int, state: str) -> None:
    async def main() -> None:
        with Scene(offers=()) as scene:
            scene.peer.dial()
            await settled()
            for _ in range(lives - 1):
                scene.workers[-1].die()
                await settled()

            assert scene.peer.readiness("echo").state == state
            assert scene.peer.is_loading
            scene.workers[-1].link.send(ModelReady(offer=OFFER))
            await settled()
            assert scene.peer.serves("echo")

    run(main)


def test_batch_sizes_are_the_workers_own_business() -> None:
    async def main() -> None:
        plain = to_plain(SPEC) | {"prefix_sizes": [1], "denoise_sizes": [1]}
        with Scene(offers=(ModelOffer(model="echo", state="ready", spec=plain),)) as scene:
            scene.peer.dial()
            await settled()

            assert scene.peer.serves("echo")

    run(main)


def test_a_worker_that_owes_an_answer_and_is_silent_counts_as_hung() -> None:
    async def main() -> None:
        with Scene() as scene:
            scene.peer.dial()
            await settled()

            scene.submit()
            assert scene.fire() == 30  # no launch of this worker has been timed

            assert scene.told == ["models", "hung 30", "lost 0"]

    run(main)


def test_every_word_of_a_worker_buys_it_time() -> None:
    async def main() -> None:
        with Scene() as scene:
            scene.peer.dial()
            await settled()
            scene.submit()
            scene.now += 20 * SECOND
            scene.workers[0].link.send(ModelReady(offer=OFFER))
            await settled()
            scene.now -= 20 * SECOND

            scene.fire()

            assert "hung 30" not in scene.told
            assert scene.timers[-1].delay == 20

    run(main)


def test_a_worker_that_owes_nothing_may_be_silent() -> None:
    async def main() -> None:
        with Scene() as scene:
            scene.peer.dial()
            await settled()
            scene.submit()
            scene.workers[0].link.send(Reply(ref=REF, outcome=Outcome.BUSY))
            await settled()

            scene.fire()

            assert scene.told == ["models", "Reply"]
            assert scene.timers == []

    run(main)


def test_patience_shrinks_as_soon_as_a_launch_has_been_timed() -> None:
    async def main() -> None:
        with Scene() as scene:
            scene.peer.dial()
            await settled()
            scene.submit()
            first = scene.timers[-1]
            times = StageTimes(prefix=2 * SECOND // 10, denoise=SECOND // 2)
            scene.submit(SlotRef(1, 1, 1))
            reply = Reply(ref=REF, outcome=Outcome.FAILED, times=times)
            scene.workers[0].link.send(reply)
            await settled()

            assert (first.delay, first.is_cancelled) == (30, True)
            assert scene.timers[-1].delay == 2.5  # five launches
            scene.fire()
            assert scene.told[-2:] == ["hung 2", "lost 0"]

    run(main)


async def scene_with_a_timed_launch(scene: Scene) -> None:
    """A worker whose launches take a tenth of a second and that owes nothing."""
    scene.peer.dial()
    await settled()
    scene.submit()
    times = StageTimes(prefix=SECOND // 10)
    scene.workers[0].link.send(Reply(ref=REF, outcome=Outcome.FAILED, times=times))
    await settled()
    scene.timers.clear()
    scene.peer._check = None


def test_a_lane_that_is_stuck_shows_however_much_the_worker_talks() -> None:
    async def main() -> None:
        with Scene() as scene:
            await scene_with_a_timed_launch(scene)
            scene.submit()
            scene.workers[0].link.send(
                Progress(launches_started=1, launches_finished=0, running=(REF,))
            )
            await settled()
            for step in range(3):
                scene.now += SECOND * 3 // 10
                scene.workers[0].link.send(Progress(launches_started=step, launches_finished=step))
                await settled()
            scene.now -= SECOND * 9 // 10

            scene.fire()
            scene.fire()  # it was to expire a nanosecond after it was sent

            assert scene.told[-2:] == ["hung 1", "lost 0"]

    run(main)


def test_a_cancelled_request_is_owed_until_the_worker_lets_go_of_it() -> None:
    async def main() -> None:
        with Scene() as scene:
            await scene_with_a_timed_launch(scene)
            scene.submit()
            scene.peer.cancel(Cancel(ref=REF))

            scene.fire()

            assert scene.told[-2:] == ["hung 1", "lost 0"]

    run(main)


def test_a_gateway_that_was_held_up_itself_accuses_nobody() -> None:
    async def main() -> None:
        with Scene() as scene:
            await scene_with_a_timed_launch(scene)
            scene.submit()
            scene.now += 5 * SECOND

            scene.fire()

            assert "lost 0" not in scene.told
            assert scene.timers[-1].delay == 1

    run(main)
