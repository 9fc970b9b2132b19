"""``takt plan`` refuses questions that make no sense; tests/integration has those that do."""

from pathlib import Path

import pytest

from takt.cli.plan import Plan
from takt.errors import UsageError


@pytest.mark.parametrize(
    ("plan", "complaint"),
    [
        (Plan(), "give a fleet file, or --hardware"),
        (Plan(hardware="h100"), "give --model or --robots"),
        (Plan(hardware="h100", model="pi0", robots=("pi0=1",)), "one of them"),
        (Plan(hardware="h100", robots=("pi0",)), "--robots wants NAME=N"),
        (Plan(hardware="h100", robots=("pi0=0",)), "--robots wants NAME=N"),
        (Plan(hardware="h100", model="pi0", discipline="x"), "no discipline 'x'"),
        (Plan(fleet=Path("f.yaml"), model="pi0"), "not both"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(plan: Plan, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        plan.run()
