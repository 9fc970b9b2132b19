"""``takt plan`` refuses questions that make no sense; tests/integration has those that do."""

import math
from pathlib import Path
from typing import Any

import pytest

from takt.cli.main import main
from takt.cli.plan import Plan
from takt.errors import TaktError


def asking(**how: object) -> Plan:
    options: dict[str, Any] = {"hardware": "h100", "model": "pi0", **how}
    return Plan(**options)


@pytest.mark.parametrize(
    ("plan", "complaint"),
    [
        (Plan(), "give a fleet file, or --hardware"),
        (Plan(hardware="h100"), "give --model or --robots"),
        (Plan(hardware="h100", model="pi0", robots=("pi0=1",)), "one of them"),
        (Plan(hardware="h100", robots=("pi0",)), "--robots wants NAME=N"),
        (Plan(hardware="h100", robots=("pi0=0",)), "--robots wants NAME=N"),
        (asking(discipline="x"), "no discipline 'x'"),
        (Plan(fleet=Path("f.yaml"), model="pi0"), "not both"),
        (Plan(fleet=Path("f.yaml"), rate_hz=5.0), "--rate-hz is for --hardware"),
        (Plan(fleet=Path("f.yaml"), skip_masked=True), "--skip-masked is for --hardware"),
        (Plan(fleet=Path("f.yaml"), gathering="on"), "--gathering needs --formation"),
        (Plan(fleet=Path("b=2"), hardware="h100", robots=("a=1",)), "--robots once for each model"),
        (asking(hardware="foo"), "--hardware: unknown 'foo'; known: rtx-pro-6000, h100"),
        (asking(model="pi9"), "--model: unknown 'pi9'; known: pi0, pi05"),
        (asking(stack="x"), "--stack: unknown 'x'; known: eager"),
        (Plan(hardware="h100", robots=("pi9=1",)), "--robots: unknown 'pi9'"),
        (Plan(hardware="h100", robots=("pi0=1", "pi0=2")), "pi0 is named twice"),
        (asking(slo_ms=0.0), "--slo-ms must lie above 0"),
        (asking(slo_ms=math.nan), "--slo-ms must lie above 0"),
        (asking(rate_hz=0.0), "--rate-hz must lie above 0"),
        (asking(seconds=math.inf), "--seconds must lie above 0 and up to 3600"),
        (asking(seconds=1e-9), "--seconds must be at least 0.001"),
        (asking(interference=math.nan), "--interference must be a finite number"),
        (asking(target=1.0), "got 1; no number of draws shows that nothing is ever late"),
        (asking(target=98.0), "got 98; 98 % is 0.98"),
        (asking(target=0.0), "--target must lie above 0 and below 1, got 0$"),
        (asking(seeds=1), "--seeds must lie in 2 to 1000, got 1"),
        (asking(seeds=10**9), "--seeds must lie in 2 to 1000"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(plan: Plan, complaint: str) -> None:
    with pytest.raises(TaktError, match=complaint):
        plan.run()


def test_a_mix_gives_robots_once_for_each_model(capsys: pytest.CaptureFixture[str]) -> None:
    """Two models after one --robots would leave the second to be taken for a fleet file."""
    assert main(["plan", "--hardware", "h100", "--robots", "pi0=2", "smolvla=3"]) == 1

    assert "--robots once for each model: --robots smolvla=3" in capsys.readouterr().err
