"""Every case of the page on life and death names a test, and that test exists."""

import ast
from pathlib import Path

import pytest
from tests.docs.test_documents import table_after

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "life.md"
CASES = [row[-1].replace("`, `", "::") for row in table_after(PAGE, "## Cases")[2:]]


def test_the_table_has_every_case() -> None:
    assert len(CASES) >= 20
    assert len(set(CASES)) == len(CASES)


@pytest.mark.parametrize("case", CASES)
def test_the_test_of_a_case_exists(case: str) -> None:
    file, _, name = case.partition("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))

    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("name", ["test_life_models", "test_life_processes", "test_life_robots"])
def test_every_test_of_life_and_death_is_a_case_or_says_why_not(name: str) -> None:
    tree = ast.parse((ROOT / "tests" / "integration" / f"{name}.py").read_text(encoding="utf-8"))
    tests = {
        f"tests/integration/{name}.py::{node.name}"
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }

    assert tests - set(CASES) - NO_CASES == set()


NO_CASES = {
    f"tests/integration/test_life_models.py::{name}"
    for name in (
        "test_what_an_operator_must_not_do_is_refused_with_the_reason",
        "test_the_operators_door_has_no_file_and_no_port",
        "test_a_model_loaded_at_run_time_is_held_to_the_model_roots",
    )
}
"""What is tested there and is no case of its own."""
