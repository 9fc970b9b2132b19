"""The package is light: what it needs beyond the standard library is imported when used."""

import ast
import sys
from pathlib import Path

import pytest

import takt.hardware

FOLDER = Path(takt.hardware.__file__).parent
READERS = {"measured": {"msgspec"}}
"""What reads files from outside may use to check them; the package itself imports none of it."""


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_importing_it_needs_the_standard_library_and_takt_alone(path: Path) -> None:
    roots = {
        name.partition(".")[0]
        for node in ast.parse(path.read_text()).body
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }

    assert roots - sys.stdlib_module_names <= {"takt"} | READERS.get(path.stem, set())
