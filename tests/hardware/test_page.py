"""The reference page is what the code says, and explains what it gets wrong."""

from itertools import pairwise
from pathlib import Path

import pytest

from takt.hardware.page import markdown
from takt.hardware.published import PUBLISHED
from takt.hardware.report import CAVEAT, comparisons, without_eager, worst

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "hardware.md"


@pytest.mark.slow
def test_the_page_in_the_documentation_is_the_one_the_command_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == markdown(), (
        "run: takt hardware --markdown > docs/reference/hardware.md"
    )


def test_the_worst_figures_of_the_reported_half_are_explained() -> None:
    reported = [one for one in comparisons() if not one.fitted]

    for one in (*worst(reported), *worst(without_eager(reported))):
        assert len(one.published.note) > 40, one.published


def test_the_page_says_that_nothing_in_it_was_measured() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert f"**Every time on this page is {CAVEAT}.**" in page
    assert all(point.source in page for point in PUBLISHED)


def test_every_row_of_a_table_has_as_many_cells_as_its_head() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()

    for above, line in pairwise(lines):
        if above.startswith("|") and line.startswith("|"):
            assert line.count("|") == above.count("|"), line
