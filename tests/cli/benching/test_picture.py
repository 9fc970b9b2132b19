import re
from pathlib import Path

from tests.cli.benching.made import epoch, run

from takt.cli.benching.figures import bench_figures
from takt.cli.benching.picture import plot_bench
from takt.units import SECOND


def draw(path: Path, *latencies: int | None) -> set[str]:
    """The texts of the picture."""
    epochs = [epoch(run("a", *latencies), run("b", 5, 6, model="mini"), seed=s) for s in (0, 1)]
    figures = bench_figures(epochs, duration=SECOND, seed=0, target=0.98, planned=2)
    plot_bench(epochs, figures, path)
    return set(re.findall(r"<!-- (.+?) -->", path.read_text(encoding="utf-8")))


def test_a_picture_names_models_slos_the_target_and_the_parts(tmp_path: Path) -> None:
    words = draw(tmp_path / "bench.svg", 5, 80, None)

    assert {"echo", "slo of echo", "mini", "slo of mini", "target 0.98"} <= words
    assert {"held", "sender", "network", "server"} <= words
    assert "Answered within: 2 robots, 2 s in 2 epochs" in words


def test_a_model_that_was_never_answered_is_drawn(tmp_path: Path) -> None:
    assert "echo" in draw(tmp_path / "bench.svg", None)


def test_equal_benchmarks_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("one.svg", "two.svg"):
        draw(tmp_path / name, 5, 80)

    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
