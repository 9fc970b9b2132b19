"""Entry point of the ``takt`` command.

Each command is a dataclass with a ``run`` method; tyro turns its fields into options and its
docstrings into help. Whatever goes wrong on purpose, a bad option included, becomes one line on
stderr and exit status 1.

Start reading at :func:`main`.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import re
import signal
import sys
from collections.abc import Sequence
from typing import NamedTuple, Protocol, cast

from takt import __version__
from takt.cli.standard_output import OutputFailedError, standard_output_watched
from takt.errors import TaktError, UsageError
from takt.heap import keep_freed_memory

__all__ = ["COMMANDS", "Command", "Entry", "main"]

_OLDEST_PYTHON = (3, 11)
_STDERR = 2
_ELSEWHERE = {("serve", "--port"): "the port of the openpi door is --openpi"}
"""Options that a command does not have, and what is meant by those who give them."""
_NO_NUMBER = re.compile(
    r"^Error parsing (?P<option>\S+): "
    r"(?:invalid literal for int\(\) with base 10: "
    r"|could not convert string to (?P<float>float): "
    r"|no type matching (?:INT|(?P<or_none>FLOAT)) could be instantiated from \[)"
    r"(?P<given>'.*')(?:\]\.)?$"
)
"""What tyro says where a number was expected."""


class Entry(NamedTuple):
    """Where a command lives. Only the one asked for is imported, so that each starts fast."""

    module: str
    name: str
    summary: str


COMMANDS = {
    "serve": Entry("takt.cli.serve", "Serve", "serve policies to robots"),
    "models": Entry("takt.cli.models", "Models", "load and unload models of a running server"),
    "policy": Entry("takt.cli.policy", "Policy", "show a policy's card, verify its network"),
    "export": Entry("takt.cli.export", "Export", "a checkpoint's graphs for the CPU engine"),
    "replay": Entry("takt.cli.replay", "Replay", "check that a recorded trace decides again"),
    "trace": Entry("takt.cli.trace", "Trace", "show every launch of a recorded trace"),
    "hardware": Entry("takt.cli.hardware", "Hardware", "modelled stage times of GPUs, with errors"),
    "episode": Entry("takt.cli.episode", "Episode", "what moved a robot, and why"),
    "drive": Entry("takt.cli.drive", "Drive", "let simulated robots run against a server"),
    "bench": Entry("takt.cli.bench", "Bench", "measure a running server with real clients"),
    "demo": Entry("takt.cli.demo", "Demo", "serve and drive a small fleet on this computer"),
    "eval": Entry("takt.cli.eval", "Eval", "how often a policy solves a simulated task"),
    "robot": Entry("takt.cli.robot", "DriveRobot", "drive a simulated robot on the wall clock"),
    "simulate": Entry("takt.cli.simulate", "Simulate", "predict a fleet's attainment, no GPU"),
    "plan": Entry("takt.cli.plan", "Plan", "how many robots a device carries, no GPU"),
    "profile": Entry("takt.cli.profile", "Profile", "measure what launches take on a device"),
}
"""Every command by its name."""


class Command(Protocol):
    """A dataclass whose fields are options."""

    def run(self) -> None:
        """Do what the options say."""
        ...


def main(
    arguments: Sequence[str] | None = None, *, python: tuple[int, ...] = tuple(sys.version_info[:3])
) -> int:
    """Run one command.

    Args:
        arguments: What follows ``takt`` on the command line; the process's own when None.
        python: Version of the interpreter.

    Returns:
        The exit status: 0, 1 after a line on stderr that says what is wrong, or 128 and the number
        of the signal that ended it; of SIGPIPE when the reader of its output has gone.
    """
    _open_standard_streams()
    keep_freed_memory()
    try:
        with standard_output_watched():
            _run(sys.argv[1:] if arguments is None else arguments, python)
    except TaktError as error:
        print(f"takt: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as interrupt:
        return 128 + (interrupt.args[0] if interrupt.args else signal.SIGINT)
    except (OutputFailedError, BrokenPipeError) as error:
        # The interpreter flushes once more when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, OutputFailedError) and not error.reader_has_gone:
            print(f"takt: {error}", file=sys.stderr)
            return 1
        return 128 + signal.SIGPIPE
    return 0


def _open_standard_streams() -> None:
    """See to it that descriptors 0 to 2 are open, also where whoever started us closed them.

    Otherwise the next files and sockets get these numbers, and what children inherit is not what
    they are told.
    """
    while (opened := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(opened, True)
    os.close(opened)
    # Python has left out the streams that it found closed.
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison]
        sys.stdin = open(0, encoding="utf-8")  # noqa: SIM115 - for as long as the process lives
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]
        sys.stdout = open(1, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison]
        sys.stderr = open(_STDERR, "w", encoding="utf-8")  # noqa: SIM115


def _run(arguments: Sequence[str], python: tuple[int, ...]) -> None:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_help())
    elif arguments[0] == "--version":
        print(f"takt {__version__}")
    else:
        _refuse_old(python)
        command = _command(arguments[0], arguments[1:])
        if command is not None:
            command.run()


def _help() -> str:
    width = max(map(len, COMMANDS))
    rows = [f"  {name:<{width}}  {entry.summary}" for name, entry in COMMANDS.items()]
    return "\n".join(
        [
            "usage: takt COMMAND [OPTIONS]",
            "",
            "Serve vision-language-action policies to fleets of robots.",
            "",
            "commands:",
            *rows,
            "",
            "takt COMMAND --help tells the options of a command; takt --version the version.",
        ]
    )


def _refuse_old(python: tuple[int, ...]) -> None:
    if python < _OLDEST_PYTHON:
        raise UsageError(
            f"the commands need Python 3.11 or later, this is {'.'.join(map(str, python))};"
            " the client library (takt.client) runs on 3.10"
        )


def _command(name: str, options: Sequence[str]) -> Command | None:
    """The command as its options describe it; None when they asked for help, which is printed."""
    entry = COMMANDS.get(name)
    if entry is None:
        raise UsageError(f"no command {name!r}; commands: {', '.join(COMMANDS)}")
    try:
        kind = cast("type[Command]", getattr(importlib.import_module(entry.module), entry.name))
    except ModuleNotFoundError as error:
        package = (error.name or "takt").partition(".")[0]
        if package == "takt":
            raise
        raise UsageError(
            f"takt {name} needs {package}, which comes with: pip install 'takt-serve[server]'"
        ) from None
    return _parse(name, kind, options)


def _parse(name: str, kind: type[Command], options: Sequence[str]) -> Command | None:
    import tyro

    said = io.StringIO()
    config = (tyro.conf.DisallowNone, tyro.conf.FlagCreatePairsOff)
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(kind, prog=f"takt {name}", args=options, config=config)
    except SystemExit as stop:
        if not stop.code:
            return None
        wrong = _what_is_wrong(said.getvalue())
        raise UsageError(f"{wrong}{_hint(name, wrong)}; see: takt {name} --help") from None


def _hint(command: str, wrong: str) -> str:
    """What is meant by options that the command does not have, where that is known."""
    given = re.split(r"[\s,=]+", wrong) if wrong.startswith("Unrecognized") else []
    hints = [hint for (of, name), hint in _ELSEWHERE.items() if of == command and name in given]
    return "".join(f"; {hint}" for hint in hints)


def _what_is_wrong(box: str) -> str:
    """What tyro complains of in its box of advice, on one line.

    The first complaint, but a mistyped option before one that is missing: it is the likelier cause.
    What is missing is named without its help; of a mistyped subcommand the known ones are told.
    """
    parts: list[list[str]] = [[]]
    for line in box.splitlines()[1:]:  # below the title
        text = line.strip("│").rstrip()
        if text.strip(" ─-╭╮╰╯"):
            parts[-1].append(text)
        else:
            parts.append([])
    said = [_sentence(part) for part in parts if part]
    wrong = next(
        (part for part in said if part.startswith("Unrecognized")), said[0] if said else ""
    )
    no_number = _NO_NUMBER.match(wrong)
    if no_number is not None:
        kind = "a number" if no_number["float"] or no_number["or_none"] else "a whole number"
        wrong = f"{no_number['option']}: expected {kind}, got {no_number['given']}"
    known = next((part for part in said if part.startswith("Available subcommands")), None)
    return wrong if known is None else f"{wrong}; {known.replace('Available', 'available')}"


def _sentence(part: Sequence[str]) -> str:
    """One complaint on one line."""
    title, *rest = (text.strip() for text in part)
    if not title.startswith("Missing from"):
        return " ".join((title, *rest))
    # Each name stands above its help, which is indented more.
    depths = [len(text) - len(text.lstrip()) for text in part[1:]]
    names = (text for text, depth in zip(rest, depths, strict=True) if depth == depths[0])
    return f"{title} {', '.join(names)}"


if __name__ == "__main__":
    sys.exit(main())
