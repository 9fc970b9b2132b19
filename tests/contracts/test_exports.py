"""``__all__`` tells the truth: it lists the public names a module defines, and no others.

Modules are read, not imported, so the test needs neither torch nor a GPU. A package's
``__init__`` may also list what it takes from the rest of Takt.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "takt"
MODULES = sorted(PACKAGE.rglob("*.py"))
# A module's logger belongs to the module, whatever its name looks like.
PRIVATE_BY_CUSTOM = frozenset(["log"])


def assigned(target: ast.expr) -> Iterator[str]:
    """Names an assignment to ``target`` binds."""
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            yield from assigned(element)


def defined(body: list[ast.stmt]) -> Iterator[str]:
    """Names the statements bind at the top level of their module, imports aside."""
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.Assign(value=ast.Call(func=ast.Name(id="TypeVar" | "ParamSpec"))):
                pass  # a stand-in for a type belongs to the signatures that use it
            case ast.Assign(targets=[target]):
                yield from assigned(target)
            case ast.AnnAssign():
                yield from assigned(node.target)
            case ast.If() | ast.Try():
                yield from defined(branches(node))
            case _:
                pass


def branches(node: ast.If | ast.Try) -> list[ast.stmt]:
    """Statements of every way through ``node``; each may bind a name."""
    handled = [] if isinstance(node, ast.If) else [*node.handlers]
    return [*node.body, *(line for handler in handled for line in handler.body), *node.orelse]


def reexported(tree: ast.Module) -> Iterator[str]:
    """Names the module takes from the rest of Takt."""
    for node in ast.walk(tree):  # a name may be imported lazily, and for type checkers alone
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("takt"):
            yield from (alias.asname or alias.name for alias in node.names)


def listed(tree: ast.Module) -> list[str]:
    """The module's ``__all__``, or nothing where it has none."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and "__all__" in assigned(node.targets[0]):
            return ast.literal_eval(node.value)
    return []


def is_public(name: str) -> bool:
    return not name.startswith("_") and name not in PRIVATE_BY_CUSTOM


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_all_lists_the_public_names_and_no_others(path: Path) -> None:
    tree = ast.parse(path.read_text())
    names = listed(tree)
    own = set(filter(is_public, defined(tree.body)))
    allowed = own | set(reexported(tree)) if path.name == "__init__.py" else own

    unlisted = own.difference(names)
    foreign = set(names) - allowed

    assert not unlisted, f"list in __all__, or begin with an underscore: {sorted(unlisted)}"
    assert not foreign, f"in __all__ but not defined here: {sorted(foreign)}"
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("source", "public"),
    [
        ("def f(): ...\n_hidden = 1\nclass C: ...", {"f", "C"}),
        ("import os\nfrom takt.units import ms\nA, B = 1, 2", {"A", "B"}),
        ("x: int = 1\nlog = 0", {"x"}),
        ("T = TypeVar('T')", set()),
        ("if True:\n    a = 1\nelse:\n    b = 1", {"a", "b"}),
        ("try:\n    a = 1\nexcept OSError:\n    b = 1", {"a", "b"}),
    ],
)
def test_public_names_are_those_a_module_binds_itself(source: str, public: set[str]) -> None:
    assert set(filter(is_public, defined(ast.parse(source).body))) == public
