"""Writes ``docs/reference/command-line.md`` from the commands themselves.

    python -m tests.docs.command_page > docs/reference/command-line.md

Options are the fields of a command's dataclass, and what they mean is the docstring below each, as
in ``takt COMMAND --help``. Start reading at :func:`page`.
"""

import ast
import dataclasses
import importlib
import inspect
import sys
import textwrap
import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import tyro

from takt.cli.main import COMMANDS

__all__ = ["page", "sections"]

_HEAD = """\
<!-- Written by: python -m tests.docs.command_page > docs/reference/command-line.md -->
# The command line

What `takt COMMAND --help` says, on one page. `takt` and `takt --help` list the commands,
`takt --version` says the version.

- The exit status is 0 when all went well. Whatever goes wrong on purpose, a bad option included, is
  one line on standard error and status 1. Ctrl-C gives 130, another signal that ends a command in
  order 128 and its number, and a reader of the output that has gone 141.
- Durations are in milliseconds where the name ends in `-ms`, else in seconds.
- An option that is *repeatable* is given once for each value.
- `--json` prints nothing but JSON on standard output.
"""

_WORDS = {str: "TEXT", int: "INT", float: "FLOAT", Path: "PATH"}


def page() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *sections().values()])


def sections() -> dict[str, str]:
    """One section for each command, those of a command with subcommands below it."""
    found: dict[str, str] = {}
    for name, entry in COMMANDS.items():
        kind: type[Any] = getattr(importlib.import_module(entry.module), entry.name)
        parts = subcommands(kind)
        found[name] = _section(f"## `takt {name}`", kind, with_table=not parts)
        for part in parts:
            title = f"{name} {part.__name__.lower()}"
            found[title] = _section(f"### `takt {title}`", part)
    return found


def subcommands(kind: type[Any]) -> list[type[Any]]:
    """The dataclasses one of which a command's only field takes; none for a plain command."""
    hints = get_type_hints(kind)
    options = [arg for hint in hints.values() for arg in get_args(hint)]
    return [arg for arg in options if isinstance(arg, type) and dataclasses.is_dataclass(arg)]


def _section(heading: str, kind: type[Any], *, with_table: bool = True) -> str:
    lines = [heading, "", inspect.cleandoc(kind.__doc__ or ""), ""]
    if with_table:
        lines += ["| option | default | meaning |", "|---|---|---|", *_rows(kind), ""]
    return "\n".join(lines)


def _rows(kind: type[Any]) -> list[str]:
    said = _docstrings(kind)
    hints = get_type_hints(kind, include_extras=True)
    return [
        f"| `{_written(field, hints[field.name])}` | {_default(field, hints[field.name])}"
        f" | {said[field.name]} |"
        for field in dataclasses.fields(kind)
    ]


def _docstrings(kind: type[Any]) -> dict[str, str]:
    """The docstring below each field, on one line."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(tree, ast.ClassDef)
    said: dict[str, str] = {}
    for field, below in zip(tree.body, tree.body[1:], strict=False):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                said[name] = " ".join(text.replace("``", "`").replace("|", "\\|").split())
            case _:
                pass
    return said


def _written(field: dataclasses.Field[Any], hint: object) -> str:
    """How an option is typed."""
    plain, markers = _parts(hint)
    flag = f"--{field.name.replace('_', '-')}"
    if plain is bool:
        return flag
    word = _word(field.name, plain, markers)
    if tyro.conf.Positional in markers:
        return word if field.default is dataclasses.MISSING else f"[{word}]"
    many = get_origin(plain) is tuple and tyro.conf.UseAppendAction not in markers
    return f"{flag} {word} ..." if many else f"{flag} {word}"


def _word(name: str, plain: object, markers: list[object]) -> str:
    """What stands for an option's value."""
    for marker in markers:
        metavar: object = getattr(marker, "metavar", None)
        if metavar:
            return str(metavar)
    if tyro.conf.Positional in markers:
        return name.upper()
    if get_origin(plain) is tuple:
        plain = get_args(plain)[0]
    if get_origin(plain) is Literal:
        return "{" + ",".join(map(str, get_args(plain))) + "}"
    return next(word for kind, word in _WORDS.items() if kind is plain)


def _default(field: dataclasses.Field[Any], hint: object) -> str:
    if field.default is dataclasses.MISSING:
        return "required"
    if tyro.conf.UseAppendAction in _parts(hint)[1]:
        return "repeatable"
    if field.default is None or field.default is False or field.default == ():
        return ""
    return f"{field.default:g}" if isinstance(field.default, float) else str(field.default)


def _parts(hint: object) -> tuple[object, list[object]]:
    """A type without markers and without None, and its markers."""
    markers: list[object] = list(getattr(hint, "__metadata__", ()))
    plain: object = get_args(hint)[0] if markers else hint
    if get_origin(plain) in (Union, types.UnionType):
        plain = next(arg for arg in get_args(plain) if arg is not type(None))
    return plain, markers


if __name__ == "__main__":
    sys.stdout.write(page())
