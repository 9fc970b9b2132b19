"""The picture can be drawn, says what it shows, and is the same every time."""

import sys
from pathlib import Path

import pytest

from takt.errors import ConfigError
from takt.hardware.plot import plot_comparisons
from takt.hardware.report import CAVEAT, comparisons

SOME = comparisons(devices=["h100"])


@pytest.mark.slow
def test_the_picture_says_that_it_was_not_measured_and_is_the_same_every_time(
    tmp_path: Path,
) -> None:
    pictures = [tmp_path / "one.svg", tmp_path / "two.svg"]

    for picture in pictures:
        plot_comparisons(SOME, picture)

    # matplotlib writes text as outlines and keeps the words in a comment.
    assert CAVEAT in pictures[0].read_text(encoding="utf-8")
    assert pictures[0].read_bytes() == pictures[1].read_bytes()


@pytest.mark.slow
def test_a_half_with_nothing_to_judge_it_by_can_be_drawn(tmp_path: Path) -> None:
    plot_comparisons([one for one in SOME if one.fitted], tmp_path / "plot.png")

    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_a_file_name_that_is_no_picture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"plot\.pdf: a plot ends in \.png or \.svg"):
        plot_comparisons(SOME, tmp_path / "plot.pdf")


def test_nothing_to_draw_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no published latency to draw"):
        plot_comparisons([], tmp_path / "plot.svg")


def test_a_missing_matplotlib_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    with pytest.raises(ConfigError, match=r"takt-serve\[plot\]"):
        plot_comparisons(SOME, tmp_path / "plot.svg")


@pytest.mark.slow
def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"plot\.svg: cannot write the plot"):
        plot_comparisons(SOME, tmp_path / "nowhere" / "plot.svg")
