import io
from typing import Any

import pytest
from rich.console import Console
from tests.cli.benching.made import GONE, epoch, run

from takt.cli.benching.figures import bench_figures
from takt.cli.benching.words import bench_sentences, show_bench
from takt.units import SECOND


def figures(*latencies: int | None, num_epochs: int = 2, cpu: int = 0) -> dict[str, Any]:
    epochs = [
        epoch(run("a", *latencies), run("b", 5, 5), seed=seed, cpu=(cpu,))
        for seed in range(num_epochs)
    ]
    return bench_figures(epochs, duration=SECOND, seed=0, target=0.98, planned=2)


def test_the_verdict_is_said_first() -> None:
    held, missed = (bench_sentences(figures(5, second))[0] for second in (5, 80))

    assert held.startswith("2 robots hold 98.00%: mean 100.00%, lower 95% bound 100.00%")
    assert missed.startswith("2 robots do not hold 98.00%: mean 75.00%")
    assert "(2 of 2 epochs)" in missed


def test_one_epoch_is_no_verdict() -> None:
    first = bench_sentences(figures(5, num_epochs=1))[0]

    assert first.endswith("in one epoch, which has no spread to judge 98.00% by")


def test_the_worst_robot_and_every_epoch_are_named() -> None:
    said = bench_sentences(figures(5, None))

    assert "worst robot: a, 50.00%" in said
    assert "epochs, each with other phases, the model served worst: 75.00%, 75.00%" in said


def test_that_the_server_went_away_is_said_before_the_circumstances() -> None:
    said = bench_sentences(figures(5, GONE))

    assert said[3].startswith(
        "the server went away 0.1 s into epoch 2 for 1 of 2 robots; it served"
    )
    assert said[4].startswith("on time")


@pytest.mark.parametrize(("cpu", "warns"), [(SECOND // 10, False), (SECOND, True)])
def test_a_client_that_is_the_bottleneck_says_so(cpu: int, warns: bool) -> None:
    said = bench_sentences(figures(5, cpu=cpu))[-1]

    assert said.startswith("this client: 1 process used ")
    assert ("the latencies are this client's too" in said) is warns


def test_a_person_sees_sentences_and_where_the_time_went() -> None:
    console = Console(file=io.StringIO(), width=100)

    show_bench(figures(5, 5), console)

    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "where the time went" in shown
    assert "network" in shown
