"""From a door's call to its answer, with workers that live, die, stall and lie."""

import asyncio
import contextlib
import dataclasses
import threading
from collections.abc import Mapping
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.gateway.doubles import Bench, FakeWorker, code_of, observe, run, settled
from tests.wire.pictures import noise

from takt.errors import ObservationError, RefusedError
from takt.gateway.connection import GatewayConnection, GatewaySession
from takt.gateway.gateway import Gateway
from takt.gateway.request import Answer
from takt.link.messages import Outcome
from takt.policies.interface import Preprocessor
from takt.schema.encoded_image import EncodedImage
from takt.schema.observation import Observation
from takt.schema.row import RowHeader, RowRequest
from takt.schema.spec import PolicySpec
from takt.session.timing import Declared
from takt.wire.image_files import encode_image


def session_of(gateway: Gateway, robot: str | None = None) -> GatewaySession:
    return connection_of(gateway).session(robot)


def connection_of(gateway: Gateway) -> GatewayConnection:
    return gateway.connect(lambda _: None)


def test_an_answer_belongs_to_its_observation_and_its_stages_add_up() -> None:
    async def main() -> None:
        bench = Bench()
        gateway = await bench.start()

        answer = await session_of(gateway).infer("echo", observe(5), arrival=400)

        np.testing.assert_array_equal(answer.actions, [[5, 5, 5], [6, 6, 6]])
        assert sum(answer.stages.values()) == answer.answered - answer.arrival == 600
        assert answer.policy == 6
        assert gateway.statistics()["served"] == 1
        bench.close(gateway)

    run(main)


def test_an_unknown_model_is_refused_with_the_list_of_models() -> None:
    async def main() -> None:
        bench = Bench()
        gateway = await bench.start()

        with pytest.raises(
            RefusedError, match=r"no model 'pi9' here; this server has: echo"
        ) as caught:
            session_of(gateway).infer("pi9", observe(), arrival=0)

        assert caught.value.code == "unknown_model"
        bench.close(gateway)

    run(main)


@pytest.mark.parametrize(("state", "code"), [("loading", "busy"), ("failed", "failed")])
def test_a_model_that_is_not_ready_is_refused_at_once(state: str, code: str) -> None:
    async def main() -> None:
        bench = Bench(state=state)
        gateway = await bench.start()

        with pytest.raises(RefusedError, match=state if state == "loading" else "loaded") as caught:
            session_of(gateway).infer("echo", observe(), arrival=0)

        assert caught.value.code == code
        bench.close(gateway)

    run(main)


def test_requests_on_a_dead_worker_are_answered_and_service_resumes() -> None:
    async def main() -> None:
        bench = Bench(answers=False)
        gateway = await bench.start()
        session = session_of(gateway)
        answer = session.infer("echo", observe(), arrival=0)
        await settled()
        bench.answers = True

        bench.workers["w0"].die()
        await settled()

        assert code_of(answer) == "worker_lost"
        assert bench.said == ["ready", "worker_lost", "worker_back"]
        np.testing.assert_array_equal(
            (await session.infer("echo", observe(2), arrival=0)).actions[0], [2, 2, 2]
        )
        assert gateway.statistics()["slots_free"] == 8
        bench.close(gateway)

    run(main)


def test_a_request_of_a_dead_worker_goes_to_another_replica_once() -> None:
    async def main() -> None:
        bench = Bench(num_workers=3, answers=False)
        gateway = await bench.start()
        answer = session_of(gateway).infer("echo", observe(7), arrival=0)
        await settled()
        for _ in range(2):
            holder = next(w for w in bench.workers.values() if w.submits)
            holder.die()
            await settled()

        assert code_of(answer) == "worker_lost"
        assert gateway.statistics()["retried"] == 1
        bench.close(gateway)

    run(main)


def test_a_replica_answers_what_its_dead_neighbour_had() -> None:
    async def main() -> None:
        bench = Bench(num_workers=2, answers=False)
        gateway = await bench.start()
        answer = session_of(gateway).infer("echo", observe(7), arrival=0)
        await settled()
        for worker in bench.workers.values():
            worker.answers = True

        next(w for w in bench.workers.values() if w.submits).die()

        np.testing.assert_array_equal((await answer).actions[0], [7, 7, 7])
        bench.close(gateway)

    run(main)


def test_a_newer_observation_supersedes_the_one_that_waits_for_a_slot() -> None:
    async def main() -> None:
        bench = Bench(answers=False)
        gateway = await bench.start(num_slots=1)
        session = session_of(gateway)
        first, second, third = (
            session.infer("echo", observe(value), arrival=0) for value in (1, 2, 3)
        )
        await settled()

        bench.workers["w0"].answers = True
        bench.workers["w0"].serve(bench.workers["w0"].submits[0])
        await settled()

        assert first.result().actions[0, 0] == 1
        assert code_of(second) == "superseded"
        assert third.result().actions[0, 0] == 3
        bench.close(gateway)

    run(main)


def test_a_closed_connection_cancels_at_the_worker_and_frees_the_slot_when_it_is_released() -> None:
    async def main() -> None:
        bench = Bench(answers=False)
        gateway = await bench.start(num_slots=1)
        connection = connection_of(gateway)
        answer = connection.session().infer("echo", observe(), arrival=0)
        await settled()

        connection.close()
        await settled()

        worker = bench.workers["w0"]
        assert answer.cancelled()
        assert [cancel.ref for cancel in worker.cancels] == [worker.submits[0].ref]
        assert gateway.statistics()["slots_free"] == 0
        worker.release(worker.cancels[0])
        await settled()
        assert gateway.statistics()["slots_free"] == 1
        bench.close(gateway)

    run(main)


def test_an_answer_the_door_gave_up_is_cancelled_like_a_connection() -> None:
    async def main() -> None:
        bench = Bench(answers=False)
        gateway = await bench.start(num_slots=1)
        session = session_of(gateway)
        running = session.infer("echo", observe(), arrival=0)
        waiting = session.infer("echo", observe(), arrival=0)
        await settled()

        waiting.cancel()
        running.cancel()
        await settled()
        worker = bench.workers["w0"]
        worker.release(worker.cancels[0])
        await settled()

        assert worker.submits == []
        assert gateway.statistics()["under_way"] == 0
        assert gateway.statistics()["slots_free"] == 1
        bench.close(gateway)

    run(main)


def test_a_reply_for_a_cancelled_request_reaches_nobody() -> None:
    async def main() -> None:
        bench = Bench(answers=False)
        gateway = await bench.start()
        connection = connection_of(gateway)
        connection.session().infer("echo", observe(), arrival=0)
        await settled()
        connection.close()

        bench.workers["w0"].serve(bench.workers["w0"].submits[0])
        await settled()

        assert gateway.statistics()["dropped.state"] == 1
        assert "served" not in gateway.statistics()
        bench.close(gateway)

    run(main)


def test_a_robot_that_connects_again_takes_over() -> None:
    async def main() -> None:
        bench = Bench(answers=False)
        gateway = await bench.start()
        told: list[str | None] = []
        older = gateway.connect(told.append).session("arm")
        answer = older.infer("echo", observe(), arrival=0)
        await settled()

        session_of(gateway, "arm")
        await settled()

        assert code_of(answer) == "cancelled"
        assert told == ["arm"]
        with pytest.raises(RefusedError, match="closed"):
            older.infer("echo", observe(), arrival=0)
        bench.close(gateway)

    run(main)


@pytest.mark.parametrize("outcome", [o for o in Outcome if o is not Outcome.SERVED])
def test_every_outcome_of_a_worker_has_its_code(outcome: Outcome) -> None:
    async def main() -> None:
        bench = Bench(answers=False)
        gateway = await bench.start()
        answer = session_of(gateway).infer("echo", observe(), arrival=0)
        await settled()

        bench.workers["w0"].serve(bench.workers["w0"].submits[0], outcome=outcome)
        await settled()

        assert code_of(answer) == outcome.code
        bench.close(gateway)

    run(main)


def test_a_bad_observation_costs_its_own_request_only() -> None:
    async def main() -> None:
        bench = Bench()
        gateway = await bench.start(num_slots=1)
        session = session_of(gateway)
        bad = session.infer("echo", observe().__class__(), arrival=0)
        good = session.infer("echo", observe(4), arrival=0)
        await settled()

        assert code_of(bad) == "observation"
        assert good.result().actions[0, 0] == 4
        bench.close(gateway)

    run(main)


def test_a_drain_refuses_new_requests_and_waits_for_those_under_way() -> None:
    async def main() -> None:
        bench = Bench(answers=False)
        gateway = await bench.start()
        session = session_of(gateway)
        answer = session.infer("echo", observe(), arrival=0)
        await settled()
        drained = asyncio.create_task(gateway.drain("maintenance"))
        await settled()

        with pytest.raises(RefusedError, match="maintenance") as caught:
            session.infer("echo", observe(), arrival=0)
        assert caught.value.code == "draining"
        assert not drained.done()
        bench.workers["w0"].serve(bench.workers["w0"].submits[0])
        await drained
        assert answer.result().actions[0, 0] == 1
        bench.close(gateway)

    run(main)


def test_instants_travel_as_durations_from_the_moment_of_sending() -> None:
    async def main() -> None:
        bench = Bench(answers=False)
        gateway = await bench.start()

        session_of(gateway, "arm").infer(
            "echo",
            observe(),
            arrival=400,
            declared=Declared(due_in=50, max_action_age=5_000),
            sequence=9,
        )
        await settled()

        submit = bench.workers["w0"].submits[0]
        assert (submit.sent, submit.age) == (1_000, 600)
        assert (submit.due_in, submit.expires_in) == (-550, 4_400)
        assert (submit.session, submit.sequence) == ("arm#1", 9)
        bench.close(gateway)

    run(main)


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
    async def main() -> None:
        bench = Bench(num_workers=2, answers=False)
        gateway = await bench.start(num_slots=3)
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
        bench.close(gateway)

    run(main)


def test_a_lent_observation_that_has_to_wait_is_answered_as_it_was_when_it_came() -> None:
    async def main() -> None:
        bench = Bench(answers=False)
        gateway = await bench.start(num_slots=1)
        state = np.full(3, 5, np.float32)
        lent = Observation(state=state)
        first = session_of(gateway).infer("echo", lent, arrival=0, is_lent=True)
        second = session_of(gateway).infer("echo", lent, arrival=0, is_lent=True)

        state[:] = 99  # the lender uses its memory again
        await settled()
        worker = bench.workers["w0"]
        worker.answers = True
        worker.serve(worker.submits[0])

        np.testing.assert_array_equal((await first).actions[0], [5, 5, 5])
        np.testing.assert_array_equal((await second).actions[0], [5, 5, 5])
        bench.close(gateway)

    run(main)


class GatedPreprocessor:
    """Writes a row when it is let."""

    def __init__(self, inner: Preprocessor) -> None:
        self.gate = threading.Event()
        self._inner = inner

    @property
    def spec(self) -> PolicySpec:
        return self._inner.spec

    def write(
        self, observation: Observation, slot: Mapping[str, NDArray[Any]], request: RowRequest
    ) -> RowHeader:
        assert self.gate.wait(20)
        return self._inner.write(observation, slot, request)


def test_a_lent_observation_that_a_thread_prepares_is_prepared_as_it_was_when_it_came() -> None:
    async def main() -> None:
        bench = Bench()
        gateway = await bench.start()
        model = gateway._models["echo"]
        gated = GatedPreprocessor(model.preprocessor)
        gateway._models["echo"] = dataclasses.replace(model, is_light=False, preprocessor=gated)
        state = np.full(3, 5, np.float32)
        answer = session_of(gateway).infer(
            "echo", Observation(state=state), arrival=0, is_lent=True
        )

        state[:] = 99
        gated.gate.set()

        np.testing.assert_array_equal((await answer).actions[0], [5, 5, 5])
        bench.close(gateway)

    run(main)


class OrderlyPreprocessor(GatedPreprocessor):
    """Notes the order of the rows, by their first state value."""

    def __init__(self, inner: Preprocessor) -> None:
        super().__init__(inner)
        self.order: list[float] = []
        self.has_begun = threading.Event()

    def write(
        self, observation: Observation, slot: Mapping[str, NDArray[Any]], request: RowRequest
    ) -> RowHeader:
        assert observation.state is not None
        self.order.append(float(observation.state[0]))
        self.has_begun.set()
        return super().write(observation, slot, request)


def test_a_robot_that_keeps_a_thread_busy_keeps_neither_the_others_nor_the_next_turn() -> None:
    async def main() -> None:
        bench = Bench()
        gateway = await bench.start(preprocess_threads=1)
        model = gateway._models["echo"]
        orderly = OrderlyPreprocessor(model.preprocessor)
        gateway._models["echo"] = dataclasses.replace(model, is_light=False, preprocessor=orderly)
        greedy, modest = session_of(gateway, "greedy"), session_of(gateway, "modest")
        costly = [Observation(state=np.full(30, value, np.float32)) for value in (1, 2, 3)]
        answers = [greedy.infer("echo", seen, arrival=0) for seen in costly]
        answers.append(modest.infer("echo", observe(9), arrival=0))
        orderly.gate.set()
        await asyncio.gather(*answers)

        assert orderly.order == [1, 9, 2, 3]
        bench.close(gateway)

    run(main)


def test_a_row_whose_robot_has_gone_while_it_waited_is_not_prepared() -> None:
    async def main() -> None:
        bench = Bench()
        gateway = await bench.start(preprocess_threads=1)
        model = gateway._models["echo"]
        orderly = OrderlyPreprocessor(model.preprocessor)
        gateway._models["echo"] = dataclasses.replace(model, is_light=False, preprocessor=orderly)
        connection = connection_of(gateway)
        for value in (1, 2, 3):
            connection.session("gone").infer("echo", observe(value), arrival=0)
        assert await asyncio.to_thread(orderly.has_begun.wait, 20)
        connection.close()
        orderly.gate.set()

        other = session_of(gateway)
        for value in (8, 9):  # all that waited has had its turn by then
            answer = await other.infer("echo", observe(value), arrival=0)
            assert answer.actions[0, 0] == value

        assert orderly.order == [1, 8, 9]
        assert gateway.statistics()["slots_free"] == 8
        bench.close(gateway)

    run(main)


def seen_in(data: bytes | memoryview) -> Observation:
    """An observation with a picture as a file."""
    image = EncodedImage(encoding="png", data=data, shape=(24, 40, 3))
    return Observation(state=np.full(3, 5, np.float32), encoded={"top": image})


class WatchfulPreprocessor(GatedPreprocessor):
    """Notes what it is given, and by which thread."""

    def write(
        self, observation: Observation, slot: Mapping[str, NDArray[Any]], request: RowRequest
    ) -> RowHeader:
        self.seen = observation
        self.thread = threading.get_ident()
        return super().write(observation, slot, request)


def test_a_lent_file_is_decoded_by_a_thread_even_for_a_model_whose_rows_are_light() -> None:
    async def main() -> None:
        bench = Bench()
        gateway = await bench.start()
        model = gateway._models["echo"]
        watchful = WatchfulPreprocessor(model.preprocessor)
        watchful.gate.set()
        gateway._models["echo"] = dataclasses.replace(model, preprocessor=watchful)
        buffer = bytearray(encode_image(noise(), "png"))

        answer = session_of(gateway).infer(
            "echo", seen_in(memoryview(buffer)), arrival=0, is_lent=True
        )
        buffer[:] = bytes(len(buffer))  # the lender uses its memory again

        np.testing.assert_array_equal((await answer).actions[0], [5, 5, 5])
        np.testing.assert_array_equal(watchful.seen.images["top"], noise())
        assert not watchful.seen.encoded
        assert watchful.thread != threading.get_ident()
        bench.close(gateway)

    run(main)


def test_a_file_that_does_not_decode_is_the_fault_of_its_own_request_alone() -> None:
    async def main() -> None:
        bench = Bench()
        gateway = await bench.start()
        session = session_of(gateway)

        with pytest.raises(ObservationError, match=r"images\.top: expected a PNG file"):
            await session.infer("echo", seen_in(b"no picture"), arrival=0)

        assert (await session.infer("echo", observe(2), arrival=0)).actions[0, 0] == 2
        assert gateway.statistics()["slots_free"] == 8
        bench.close(gateway)

    run(main)


def test_the_files_of_a_superseded_observation_are_never_looked_at() -> None:
    async def main() -> None:
        bench = Bench(answers=False)
        gateway = await bench.start(num_slots=1)
        session_of(gateway).infer("echo", observe(), arrival=0)
        session = session_of(gateway)
        older = session.infer("echo", seen_in(b"no picture"), arrival=0)

        newer = session.infer("echo", observe(2), arrival=0)
        await settled()

        assert code_of(older) == "superseded"
        assert not newer.done()
        bench.close(gateway)

    run(main)
