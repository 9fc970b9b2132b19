"""From a door's call to its answer, with workers that live, die, stall and lie."""

import asyncio

import numpy as np
import pytest
from tests.gateway.doubles import Bench, code_of, connection_of, observe, session_of, settled

from takt.errors import RefusedError
from takt.gateway.gateway import Gateway
from takt.link.messages import Outcome
from takt.schema.observation import Observation
from takt.session.timing import Declared


def test_an_answer_belongs_to_its_observation_and_its_stages_add_up() -> None:
    async def main(gateway: Gateway) -> None:
        answer = await session_of(gateway).infer("echo", observe(5), arrival=400)

        np.testing.assert_array_equal(answer.actions, [[5, 5, 5], [6, 6, 6]])
        assert sum(answer.stages.values()) == answer.answered - answer.arrival == 600
        assert answer.policy == 6
        assert gateway.statistics()["served"] == 1

    Bench().run(main)


def test_an_unknown_model_is_refused_with_the_list_of_models() -> None:
    async def main(gateway: Gateway) -> None:
        with pytest.raises(
            RefusedError, match=r"no model 'pi9' here; this server has: echo"
        ) as caught:
            session_of(gateway).infer("pi9", observe(), arrival=0)

        assert caught.value.code == "unknown_model"

    Bench().run(main)


@pytest.mark.parametrize(("state", "code"), [("loading", "busy"), ("failed", "failed")])
def test_a_model_that_is_not_ready_is_refused_at_once(state: str, code: str) -> None:
    async def main(gateway: Gateway) -> None:
        with pytest.raises(RefusedError, match=state if state == "loading" else "loaded") as caught:
            session_of(gateway).infer("echo", observe(), arrival=0)

        assert caught.value.code == code

    Bench(state=state).run(main)


def test_requests_on_a_dead_worker_are_answered_and_service_resumes() -> None:
    bench = Bench(answers=False)

    async def main(gateway: Gateway) -> None:
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

    bench.run(main)


def test_a_request_of_a_dead_worker_goes_to_another_replica_once() -> None:
    bench = Bench(num_workers=3, answers=False)

    async def main(gateway: Gateway) -> None:
        answer = session_of(gateway).infer("echo", observe(7), arrival=0)
        await settled()
        for _ in range(2):
            holder = next(w for w in bench.workers.values() if w.submits)
            holder.die()
            await settled()

        assert code_of(answer) == "worker_lost"
        assert gateway.statistics()["retried"] == 1

    bench.run(main)


def test_a_replica_answers_what_its_dead_neighbour_had() -> None:
    bench = Bench(num_workers=2, answers=False)

    async def main(gateway: Gateway) -> None:
        answer = session_of(gateway).infer("echo", observe(7), arrival=0)
        await settled()
        for worker in bench.workers.values():
            worker.answers = True

        next(w for w in bench.workers.values() if w.submits).die()

        np.testing.assert_array_equal((await answer).actions[0], [7, 7, 7])

    bench.run(main)


def test_a_newer_observation_supersedes_the_one_that_waits_for_a_slot() -> None:
    bench = Bench(answers=False)

    async def main(gateway: Gateway) -> None:
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

    bench.run(main, num_slots=1)


def test_a_closed_connection_cancels_at_the_worker_and_frees_the_slot_when_it_is_released() -> None:
    bench = Bench(answers=False)

    async def main(gateway: Gateway) -> None:
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

    bench.run(main, num_slots=1)


def test_an_answer_the_door_gave_up_is_cancelled_like_a_connection() -> None:
    bench = Bench(answers=False)

    async def main(gateway: Gateway) -> None:
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

    bench.run(main, num_slots=1)


def test_a_reply_for_a_cancelled_request_reaches_nobody() -> None:
    bench = Bench(answers=False)

    async def main(gateway: Gateway) -> None:
        connection = connection_of(gateway)
        connection.session().infer("echo", observe(), arrival=0)
        await settled()
        connection.close()

        bench.workers["w0"].serve(bench.workers["w0"].submits[0])
        await settled()

        assert gateway.statistics()["dropped.state"] == 1
        assert "served" not in gateway.statistics()

    bench.run(main)


def test_a_robot_that_connects_again_takes_over() -> None:
    async def main(gateway: Gateway) -> None:
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

    Bench(answers=False).run(main)


@pytest.mark.parametrize("outcome", [o for o in Outcome if o is not Outcome.SERVED])
def test_every_outcome_of_a_worker_has_its_code(outcome: Outcome) -> None:
    bench = Bench(answers=False)

    async def main(gateway: Gateway) -> None:
        answer = session_of(gateway).infer("echo", observe(), arrival=0)
        await settled()

        bench.workers["w0"].serve(bench.workers["w0"].submits[0], outcome=outcome)
        await settled()

        assert code_of(answer) == outcome.code

    bench.run(main)


def test_a_bad_observation_costs_its_own_request_only() -> None:
    async def main(gateway: Gateway) -> None:
        session = session_of(gateway)
        bad = session.infer("echo", Observation(), arrival=0)
        good = session.infer("echo", observe(4), arrival=0)
        await settled()

        assert code_of(bad) == "observation"
        assert good.result().actions[0, 0] == 4

    Bench().run(main, num_slots=1)


def test_a_drain_refuses_new_requests_and_waits_for_those_under_way() -> None:
    bench = Bench(answers=False)

    async def main(gateway: Gateway) -> None:
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

    bench.run(main)


def test_instants_travel_as_durations_from_the_moment_of_sending() -> None:
    bench = Bench(answers=False)

    async def main(gateway: Gateway) -> None:
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

    bench.run(main)
