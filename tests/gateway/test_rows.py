"""Rows are written as their observations were when they came, by turns, and for none in vain."""

import asyncio
import dataclasses
import threading
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.gateway.doubles import Bench, code_of, connection_of, observe, session_of, settled
from tests.wire.pictures import noise

from takt.errors import ObservationError
from takt.gateway.gateway import Gateway
from takt.policies.interface import Preprocessor
from takt.schema.encoded_image import EncodedImage
from takt.schema.observation import Observation
from takt.schema.row import RowHeader, RowRequest
from takt.schema.spec import PolicySpec
from takt.wire.image_files import encode_image


def test_a_lent_observation_that_has_to_wait_is_answered_as_it_was_when_it_came() -> None:
    bench = Bench(answers=False)

    async def main(gateway: Gateway) -> None:
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

    bench.run(main, num_slots=1)


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


P = TypeVar("P", bound=GatedPreprocessor)


def prepared_by(kind: type[P], gateway: Gateway, *, is_light: bool = False) -> P:
    """Let a preprocessor of this kind write the rows of the model from here on."""
    model = gateway._models["echo"]
    preprocessor = kind(model.preprocessor)
    gateway._models["echo"] = dataclasses.replace(
        model, is_light=is_light, preprocessor=preprocessor
    )
    return preprocessor


def test_a_lent_observation_that_a_thread_prepares_is_prepared_as_it_was_when_it_came() -> None:
    async def main(gateway: Gateway) -> None:
        gated = prepared_by(GatedPreprocessor, gateway)
        state = np.full(3, 5, np.float32)
        answer = session_of(gateway).infer(
            "echo", Observation(state=state), arrival=0, is_lent=True
        )

        state[:] = 99
        gated.gate.set()

        np.testing.assert_array_equal((await answer).actions[0], [5, 5, 5])

    Bench().run(main)


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
    async def main(gateway: Gateway) -> None:
        orderly = prepared_by(OrderlyPreprocessor, gateway)
        greedy, modest = session_of(gateway, "greedy"), session_of(gateway, "modest")
        costly = [Observation(state=np.full(30, value, np.float32)) for value in (1, 2, 3)]
        answers = [greedy.infer("echo", seen, arrival=0) for seen in costly]
        answers.append(modest.infer("echo", observe(9), arrival=0))
        orderly.gate.set()
        await asyncio.gather(*answers)

        assert orderly.order == [1, 9, 2, 3]

    Bench().run(main, preprocess_threads=1)


def test_a_row_whose_robot_has_gone_while_it_waited_is_not_prepared() -> None:
    async def main(gateway: Gateway) -> None:
        orderly = prepared_by(OrderlyPreprocessor, gateway)
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

    Bench().run(main, preprocess_threads=1)


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
    async def main(gateway: Gateway) -> None:
        watchful = prepared_by(WatchfulPreprocessor, gateway, is_light=True)
        watchful.gate.set()
        buffer = bytearray(encode_image(noise(), "png"))

        answer = session_of(gateway).infer(
            "echo", seen_in(memoryview(buffer)), arrival=0, is_lent=True
        )
        buffer[:] = bytes(len(buffer))  # the lender uses its memory again

        np.testing.assert_array_equal((await answer).actions[0], [5, 5, 5])
        np.testing.assert_array_equal(watchful.seen.images["top"], noise())
        assert not watchful.seen.encoded
        assert watchful.thread != threading.get_ident()

    Bench().run(main)


def test_a_file_that_does_not_decode_is_the_fault_of_its_own_request_alone() -> None:
    async def main(gateway: Gateway) -> None:
        session = session_of(gateway)

        with pytest.raises(ObservationError, match=r"images\.top: expected a PNG file"):
            await session.infer("echo", seen_in(b"no picture"), arrival=0)

        assert (await session.infer("echo", observe(2), arrival=0)).actions[0, 0] == 2
        assert gateway.statistics()["slots_free"] == 8

    Bench().run(main)


def test_the_files_of_a_superseded_observation_are_never_looked_at() -> None:
    async def main(gateway: Gateway) -> None:
        session_of(gateway).infer("echo", observe(), arrival=0)
        session = session_of(gateway)
        older = session.infer("echo", seen_in(b"no picture"), arrival=0)

        newer = session.infer("echo", observe(2), arrival=0)
        await settled()

        assert code_of(older) == "superseded"
        assert not newer.done()

    Bench(answers=False).run(main, num_slots=1)
