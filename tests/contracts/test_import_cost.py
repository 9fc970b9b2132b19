"""Importing Takt is free, and importing its client costs a robot computer numpy and a transport.

The linter follows the imports a file states; here an interpreter reports what it really loaded.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "takt"
REPORT = (
    "import json, sys; before = set(sys.modules); import {module}; "
    "print(json.dumps(sorted(set(sys.modules) - before)))"
)
# What a robot computer does not have, and the half of Takt that needs it.
SERVER_ONLY = frozenset(
    [
        "cv2", "matplotlib", "openvino", "picows", "rich", "scipy", "simplejpeg", "torch", "tyro",
        "uvloop", "yaml",
    ]
)  # fmt: skip
# Whose objects the client drives without importing them.
FOREIGN = frozenset(["gymnasium", "lerobot"])
SERVER_SIDE = frozenset(
    f"takt.{name}"
    for name in (
        "cli", "cluster", "dashboard", "doors", "fleet", "gateway", "link", "policies", "runtime",
        "server", "sim", "testing",
    )
)  # fmt: skip
LIGHT = [
    f"takt.{name}"
    for name in ("client", "robot", "schema", "session", "wire", "core", "errors", "units")
    if (PACKAGE / name / "__init__.py").exists() or (PACKAGE / f"{name}.py").exists()
]

pytestmark = pytest.mark.integration


def loaded_by(module: str) -> set[str]:
    """Modules a fresh interpreter loads for ``import module``."""
    done = subprocess.run(
        [sys.executable, "-c", REPORT.format(module=module)],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(done.stdout))


def test_importing_takt_loads_nothing_else() -> None:
    assert loaded_by("takt") == {"takt"}


def test_the_core_loads_no_third_party_package() -> None:
    packages = {name.partition(".")[0] for name in loaded_by("takt.core")}

    assert packages - sys.stdlib_module_names == {"takt"}


def test_the_manual_clock_needs_nothing_that_a_robot_computer_lacks() -> None:
    loaded = loaded_by("takt.testing, takt.testing.clock; from takt.testing import ManualClock")

    assert {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names == {"takt"}


@pytest.mark.parametrize("module", LIGHT)
def test_what_a_robot_imports_loads_no_part_of_the_server(module: str) -> None:
    loaded = loaded_by(module)

    assert {name.partition(".")[0] for name in loaded} & (SERVER_ONLY | FOREIGN) == set()
    assert loaded & SERVER_SIDE == set()
