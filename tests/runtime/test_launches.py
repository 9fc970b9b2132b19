"""The work of a lane: rows in, chunks or failures out, and never an exception."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
from tests.core.driving import model_of

from takt.core.launch import Lane, Launch
from takt.core.request import Stage
from takt.link.messages import Outcome, SlotRef
from takt.policies.interface import FloatArray
from takt.runtime.admission import open_row
from takt.runtime.launches import Completed, Failure, Job, run_job
from takt.runtime.models import LoadedModel
from takt.schema.row import Row
from takt.testing.gateway import FakeGateway
from takt.testing.network import FakeNetwork, fake_model


@pytest.fixture
def model() -> LoadedModel:
    return fake_model(model_of())


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway()


def job_of(
    model: LoadedModel, gateway: FakeGateway, values: Sequence[float], stage: Stage = Stage.PREFIX
) -> Job:
    submits = [gateway.arrive(model, 0, value=value).submit for value in values]
    requests = tuple(range(10, 10 + len(values)))
    return Job(
        launch=Launch(Lane(0, stage), model.model.name, requests, 4, 0, 4),
        model=model,
        rows=tuple(open_row(gateway, submit, model) for submit in submits),
        kv_slots=tuple(range(len(values))),
    )


def denoised(job: Job) -> Completed:
    """Run the prefix of ``job`` and then its denoise stage."""
    run_job(job)
    launch = job.launch._replace(lane=Lane(0, Stage.DENOISE))
    return run_job(dataclasses.replace(job, launch=launch))


def test_a_prefix_leaves_its_result_in_the_cache_and_gives_no_chunks(
    model: LoadedModel, gateway: FakeGateway
) -> None:
    completed = run_job(job_of(model, gateway, [1.0, 2.0]))

    assert completed == Completed(Lane(0, Stage.PREFIX), {}, {})


def test_a_denoise_launch_gives_each_request_its_own_chunk(
    model: LoadedModel, gateway: FakeGateway
) -> None:
    completed = denoised(job_of(model, gateway, [1.0, 2.0]))

    assert completed.failures == {}
    np.testing.assert_array_equal(completed.chunks[10], np.full((3, 2), 1.0))
    np.testing.assert_array_equal(completed.chunks[11], np.full((3, 2), 2.0))


def test_a_single_pass_policy_gives_chunks_after_its_prefix(gateway: FakeGateway) -> None:
    model = fake_model(model_of("act", denoise=()))

    completed = run_job(job_of(model, gateway, [3.0]))

    np.testing.assert_array_equal(completed.chunks[10], np.full((3, 2), 3.0))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_row_that_is_not_finite_fails_alone(
    model: LoadedModel, gateway: FakeGateway, bad: float
) -> None:
    completed = denoised(job_of(model, gateway, [1.0, bad, 2.0]))

    assert set(completed.chunks) == {10, 12}
    assert completed.failures == {11: Failure(Outcome.NON_FINITE, "the answer is not finite")}


@pytest.mark.parametrize("stage", Stage)
def test_a_stage_that_raises_fails_all_its_rows_and_keeps_its_secrets(
    model: LoadedModel, gateway: FakeGateway, stage: Stage
) -> None:
    assert isinstance(model.network, FakeNetwork)
    model.network.faults[stage] = RuntimeError("/home/robot/weights")
    job = job_of(model, gateway, [1.0, 2.0])

    completed = run_job(job) if stage is Stage.PREFIX else denoised(job)

    assert set(completed.failures) == {10, 11}
    assert completed.failures[10].outcome is Outcome.FAILED
    assert "/home" not in completed.failures[10].sentence


def test_a_row_whose_bytes_changed_while_they_were_read_has_no_answer(
    model: LoadedModel, gateway: FakeGateway
) -> None:
    job = job_of(model, gateway, [1.0, 2.0])
    job.rows[0].view.stamp(SlotRef(1, 0, 99))

    completed = denoised(job)

    assert set(completed.chunks) == {11}
    assert completed.failures[10].outcome is Outcome.STALE_SLOT


class OddDecoder:
    """A decoder with a fault."""

    def __init__(self, answer: FloatArray | Exception) -> None:
        self.answer = answer

    def decode(self, chunk: FloatArray, row: Row) -> FloatArray:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (np.zeros((3, 3), np.float32), Outcome.FAILED),
        (np.zeros((3, 2), np.float64), Outcome.FAILED),
        (np.full((3, 2), np.nan, np.float32), Outcome.FAILED),
        (KeyError("unit"), Outcome.FAILED),
    ],
    ids=["shape", "dtype", "nan", "raises"],
)
def test_a_faulty_decoder_moves_no_robot(
    model: LoadedModel, gateway: FakeGateway, answer: FloatArray | Exception, outcome: Outcome
) -> None:
    odd = dataclasses.replace(model, decoder=OddDecoder(answer))

    completed = denoised(job_of(odd, gateway, [1.0]))

    assert completed.chunks == {}
    assert completed.failures[10].outcome is outcome


class ShortNetwork(FakeNetwork):
    """Forgets a row."""

    def denoise(
        self, rows: Sequence[Row], *, size: int, layout: int, kv_slots: Sequence[int]
    ) -> FloatArray:
        return super().denoise(rows, size=size, layout=layout, kv_slots=kv_slots[1:])


def test_a_network_that_forgets_a_row_answers_nobody_with_a_neighbours_chunk(
    model: LoadedModel, gateway: FakeGateway
) -> None:
    odd = dataclasses.replace(model, network=ShortNetwork(model.spec))

    completed = denoised(job_of(odd, gateway, [1.0, 2.0]))

    assert completed.chunks == {}
    assert set(completed.failures) == {10, 11}
