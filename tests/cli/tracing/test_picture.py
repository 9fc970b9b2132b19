import re
from pathlib import Path

from tests.cli.tracing.made import SERVED_AND_SUPERSEDED, setup, submit

from takt.cli.tracing.picture import plot_stories
from takt.cli.tracing.story import ALWAYS, Window, stories_of
from takt.units import ms

PARTS = [setup(), *SERVED_AND_SUPERSEDED, setup("flowing"), submit(1, 60), submit(2, 70)]


def words(path: Path) -> set[str]:
    """The texts of an SVG, which matplotlib keeps as comments beside their outlines."""
    return set(re.findall(r"<!-- (.+?) -->", path.read_text(encoding="utf-8")))


def test_a_picture_names_lanes_models_queues_and_what_was_missed(tmp_path: Path) -> None:
    path = tmp_path / "trace.svg"

    plot_stories(stories_of(PARTS), path, ALWAYS, subtitle="run.jsonl")

    assert {"prefix", "denoise", "missed", "pi0", "superseded"} <= words(path)
    assert {"pi0, prefix", "pi0, denoise"} <= words(path)
    assert "Launches with their rows, lockstep, flowing: run.jsonl" in words(path)


def test_equal_stories_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("one.svg", "two.svg"):
        plot_stories(stories_of(PARTS), tmp_path / name, Window(0, ms(50)))

    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
