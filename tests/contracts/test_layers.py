"""The contracts of pyproject.toml hold, and each of them can fail.

A contract that never fails protects nothing, so every one is tried on a copy of the package with
one forbidden import planted in it.
"""

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "takt"
PURE = ("takt.core", "takt.errors", "takt.units")


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One import that some contract forbids."""

    rule: str
    contract: str
    importer: str
    line: str
    needs: str = ""


VIOLATIONS = [
    Violation(
        rule="the_core_never_imports_a_driver",
        contract="Layers",
        importer="takt.core.planted",
        line="import takt.sim.planted",
        needs="takt.sim.planted",
    ),
    Violation(
        rule="the_simulator_never_imports_the_worker",
        contract="Layers",
        importer="takt.sim.planted",
        line="from takt.runtime import planted",
        needs="takt.runtime.planted",
    ),
    Violation(
        rule="the_schema_never_imports_the_robot_rules",
        contract="Layers",
        importer="takt.schema.planted",
        line="def late() -> None:\n    import takt.robot.planted",
        needs="takt.robot.planted",
    ),
    Violation(
        rule="a_new_package_is_given_its_layer_first",
        contract="Layers",
        importer="takt.utils.planted",
        line="import takt.units",
    ),
    Violation(
        rule="a_door_never_imports_the_worker",
        contract="Processes",
        importer="takt.doors.planted",
        line="import takt.runtime.planted",
        needs="takt.runtime.planted",
    ),
    Violation(
        rule="the_core_never_imports_numpy",
        contract="Core",
        importer="takt.core.planted",
        line="import numpy as np",
    ),
    Violation(
        rule="the_core_never_reads_a_clock",
        contract="Core",
        importer="takt.core.planted",
        line="from time import monotonic_ns",
    ),
    Violation(
        rule="the_core_never_imports_torch",
        contract="Torch",
        importer="takt.core.planted",
        line="import torch.cuda",
    ),
    Violation(
        rule="the_gateway_never_imports_torch",
        contract="Torch",
        importer="takt.gateway.planted",
        line="import torch",
    ),
    Violation(
        rule="nothing_imports_pickle",
        contract="Pickle",
        importer="takt.wire.planted",
        line="import pickle",
    ),
    Violation(
        rule="the_client_never_reaches_the_command_line_library",
        contract="Client",
        importer="takt.client.planted",
        line="import tyro",
    ),
]


def plant(tree: Path, module: str, line: str = "") -> None:
    """Write ``module`` below ``tree`` with one line in it, and the packages it lies in."""
    *packages, name = module.split(".")
    folder = tree
    for package in packages:
        folder = folder / package
        folder.mkdir(exist_ok=True)
        (folder / "__init__.py").touch()
    (folder / f"{name}.py").write_text(line + "\n")


def broken_contracts(tree: Path) -> list[str]:
    """Names of the contracts the package at ``tree`` breaks, as lint-imports reports them."""
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [linter, "--no-logo", "--no-cache", ROOT / "pyproject.toml"],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Contracts: " in done.stdout, done.stdout + done.stderr
    broken = [
        line.partition(" BROKEN")[0] for line in done.stdout.splitlines() if " BROKEN" in line
    ]
    assert done.returncode == (1 if broken else 0)
    return broken


def imported_by(module: Path) -> Iterator[str]:
    """Names of the modules ``module`` imports, wherever in the file it does."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder with a copy of the package, free to be broken."""
    shutil.copytree(PACKAGE, tmp_path / "takt", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.mark.integration
def test_the_package_keeps_every_contract(tree: Path) -> None:
    assert broken_contracts(tree) == []


@pytest.mark.integration
@pytest.mark.parametrize("violation", VIOLATIONS, ids=lambda violation: violation.rule)
def test_one_forbidden_import_breaks_its_contract(tree: Path, violation: Violation) -> None:
    if violation.needs:
        plant(tree, violation.needs)
    plant(tree, violation.importer, violation.line)

    broken = broken_contracts(tree)

    assert [name.partition(":")[0] for name in broken].count(violation.contract) == 1


def test_the_core_imports_nothing_but_the_standard_library_and_itself() -> None:
    modules = [*(PACKAGE / "core").rglob("*.py"), PACKAGE / "errors.py", PACKAGE / "units.py"]

    strangers = [
        f"{module.relative_to(PACKAGE)} imports {name}"
        for module in modules
        for name in imported_by(module)
        if name.partition(".")[0] not in sys.stdlib_module_names
        and not f"{name}.".startswith(tuple(f"{pure}." for pure in PURE))
    ]

    assert strangers == []
