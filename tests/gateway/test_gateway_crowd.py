"""Robots that come and go, ask and give up, with workers that fail and die, in any order."""

import asyncio
import contextlib
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.gateway.doubles import Bench, FakeWorker, connection_of, observe, settled

from takt.errors import RefusedError
from takt.gateway.gateway import Gateway
from takt.gateway.request import Answer
from takt.link.messages import Outcome


class Crowd:
    """Four robots and two workers to whom anything may happen."""

    def __init__(self, bench: Bench, gateway: Gateway, random: Random) -> None:
        self.bench, self.gateway, self.random = bench, gateway, random
        self.robots = [connection_of(gateway) for _ in range(4)]
        self.asked: list[tuple[float, asyncio.Future[Answer]]] = []

    @property
    def worker(self) -> FakeWorker:
        return self.bench.workers[self.random.choice(["w0", "w1"])]

    def ask(self) -> None:
        place = self.random.randrange(4)
        value = 10.0 * len(self.asked) + place
        with contextlib.suppress(RefusedError):
            session = self.robots[place].session()
            self.asked.append((value, session.infer("echo", observe(value), arrival=0)))

    def serve(self, outcome: Outcome = Outcome.SERVED) -> None:
        worker = self.worker
        if worker.submits:
            worker.serve(worker.submits.pop(0), outcome=outcome)

    def fail(self) -> None:
        self.serve(Outcome.EXPIRED)

    def kill(self) -> None:
        self.worker.die()

    def leave(self) -> None:
        place = self.random.randrange(4)
        self.robots[place].close()
        self.robots[place] = connection_of(self.gateway)

    def cancel(self) -> None:
        if self.asked:
            self.asked[-1][1].cancel()

    def release(self) -> None:
        for worker in self.bench.workers.values():
            while worker.cancels:
                worker.release(worker.cancels.pop())


@settings(max_examples=50)
@given(
    st.lists(st.sampled_from(["ask", "serve", "fail", "kill", "leave", "cancel"]), max_size=40),
    st.integers(0, 1000),
)
def test_whatever_happens_every_request_ends_once_and_no_chunk_is_another_robots(
    steps: list[str], seed: int
) -> None:
    bench = Bench(num_workers=2, answers=False)

    async def main(gateway: Gateway) -> None:
        crowd = Crowd(bench, gateway, Random(seed))
        for step in steps:
            getattr(crowd, step)()
            await settled()
            crowd.release()
        for worker in [*bench.workers.values()]:
            worker.die()
        await settled()

        for value, answer in crowd.asked:
            assert answer.done()
            if not answer.cancelled() and answer.exception() is None:
                assert answer.result().actions[0, 0] == value
        assert gateway.statistics()["slots_free"] == 3
        assert gateway.statistics()["under_way"] == 0

    bench.run(main, num_slots=3)
