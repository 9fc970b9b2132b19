"""A name that an option gives twice is refused, by every option that takes names."""

import dataclasses
import importlib
from typing import Any, get_args, get_type_hints

import pytest
import tyro

from takt.cli.main import COMMANDS, main
from takt.cli.named_values import by_name
from takt.errors import UsageError

PACED = ("--paced", "h100", "--model", "pi0")
GYMNASIUM = ("--env", "gymnasium:Reach-v0")
TWICE = {
    ("profile", "layout"): (["profile", *PACED], "--layout", "pi0=1", "pi0=2"),
    ("serve", "robots"): (["serve", *PACED, "--formation", "auto"], "--robots", "pi0=1", "pi0=2"),
    ("models load", "option"): (["models", "load", "echo"], "--option", "horizon=1", "horizon=2"),
    ("eval", "key"): (["eval", *GYMNASIUM, "--in-process"], "--key", "prompt=a", "prompt=b"),
    ("robot", "key"): (["robot", *GYMNASIUM, "--server", "h:1"], "--key", "prompt=a", "prompt=b"),
}
"""Options whose names are refused the second time, and how they are given."""
OTHERWISE = {
    ("plan", "robots"),  # refused in words of its own: a mix is meant
    ("serve", "model"),
    ("profile", "model"),  # both refused where models are put together
    ("serve", "alias"),  # a model may have several names; one of two models is refused
    ("drive", "robots"),
    ("bench", "robots"),
    ("demo", "robots"),  # robots of a model add up
    ("serve", "allow_from"),
    ("serve", "model_root"),
    ("hardware", "model"),
    ("hardware", "device"),  # lists without names
}


def repeatable() -> set[tuple[str, str]]:
    """Every option that may be given more than once."""
    found = set[tuple[str, str]]()
    for name, entry in COMMANDS.items():
        kind = getattr(importlib.import_module(entry.module), entry.name)
        for command, options in parts_of(name, kind):
            hints = get_type_hints(options, include_extras=True)
            found |= {
                (command, field.name)
                for field in dataclasses.fields(options)
                if tyro.conf.UseAppendAction in getattr(hints[field.name], "__metadata__", ())
            }
    return found


def parts_of(name: str, kind: Any) -> list[tuple[str, Any]]:  # noqa: ANN401
    """The command itself, or its subcommands."""
    hints = get_type_hints(kind, include_extras=True)
    if "command" not in hints:
        return [(name, kind)]
    union = get_args(hints["command"])[0]
    return [
        (f"{name} {one.__name__.lower()}", one)
        for one in (get_args(part)[0] for part in get_args(union))
    ]


def test_every_option_that_may_be_repeated_is_accounted_for() -> None:
    assert repeatable() == {*TWICE, *OTHERWISE}


@pytest.mark.parametrize("option", TWICE, ids=" ".join)
def test_a_name_that_is_given_twice_is_one_line_that_names_option_and_name(
    option: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, flag, first, second = TWICE[option]

    assert main([*arguments, flag, first, flag, second]) == 1

    name = first.partition("=")[0]
    assert capsys.readouterr().err == f"takt: {flag}: {name!r} is named twice; give it once\n"


def test_values_keep_their_names_and_their_order() -> None:
    assert list(by_name("--x", [("b", 1), ("a", 2)]).items()) == [("b", 1), ("a", 2)]

    with pytest.raises(UsageError, match="--x: 'b' is named twice"):
        by_name("--x", [("b", 1), ("a", 2), ("b", 1)])
