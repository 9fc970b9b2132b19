"""The pages tell the truth: links lead somewhere, names exist, commands run, figures are ours."""

import ast
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from tests.docs.command_page import sections

from takt.cli.main import COMMANDS, main
from takt.core.request import ALLOWED
from takt.robot.contract_rules import ContractRules
from takt.robot.contract_table import TABLE, Cause, State
from takt.units import ms

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "takt"
DECISIONS = ROOT / "docs" / "decisions"
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]

LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?:\.venv/bin/)?takt (\S.*)$", re.MULTILINE)
NAMED = re.compile(r"`([\w/]+\.py)::([\w.]+)`")
TYPED = re.compile(r"^(?:\w+=\S+ )?(?:\.venv/bin/)?takt (\w.*)$", re.MULTILINE)
OPTION = re.compile(r"^\| `(--[a-z-]+)", re.MULTILINE)
INSTALLED = re.compile(r"pip install (?:-e )?'\.\[[^\]\n]*server[^`\n]*")
"""Where a clone is installed with what `takt serve` needs."""
OUTSIDE = re.compile(r"(?<![\w.])/(?:work|tmp|root|home|Users)\b|\.\./shared")


def name_of(page: Path) -> str:
    """How a page is called in the list of tests."""
    return page.relative_to(ROOT).as_posix()


def text_of(page: Path) -> str:
    """The page without its fenced blocks."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def fences(page: Path, language: str) -> list[str]:
    """The fenced blocks of a page in one language."""
    blocks = FENCE.findall(page.read_text(encoding="utf-8"))
    return [body for found, body in blocks if found == language]


def commands(page: Path) -> list[str]:
    """What a page tells its reader to type after ``takt``, where it ends by itself."""
    typed = [line for block in fences(page, "sh") for line in COMMAND.findall(block)]
    return [line for line in typed if line.split()[0] in ("simulate", "replay", "trace", "profile")]


def shortened(line: str) -> list[str]:
    """Options that make a search short, which simulates many sizes of a fleet."""
    return ["--seconds", "2"] if "--target" in line and "--seconds" not in line else []


def typed(block: str) -> list[str]:
    """Lines of a block that call ``takt``, from the name of the command on."""
    return [line.split("#")[0] for line in TYPED.findall(block)]


def anchors(page: Path) -> set[str]:
    """The anchors a page's headings make."""
    headings = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def table_after(page: Path, heading: str) -> list[list[str]]:
    """Cells of the first table after a line, code marks removed."""
    rest = page.read_text(encoding="utf-8").split(f"\n{heading}\n", 1)[1].lstrip("\n")
    rest = rest[rest.index("|") :]
    rows = [line for line in rest.split("\n\n", 1)[0].splitlines() if line.startswith("|")]
    return [[cell.strip().strip("`") for cell in row.strip("|").split("|")] for row in rows]


def members(body: list[ast.stmt], prefix: str = "") -> set[str]:
    """Names a module or class defines, those of its classes with their class before them."""
    names: set[str] = set()
    for node in body:
        match node:
            case ast.ClassDef():
                names |= {prefix + node.name, *members(node.body, f"{prefix}{node.name}.")}
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                names.add(prefix + node.name)
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                names.add(prefix + name)
            case _:
                pass
    return names


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_relative_link_leads_to_a_file(page: Path) -> None:
    broken: list[str] = []

    for link in LINK.findall(text_of(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)

    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_name_given_as_file_and_name_is_defined_there(page: Path) -> None:
    missing: list[str] = []

    for file, name in NAMED.findall(text_of(page)):
        path = SOURCE / file
        if not path.exists() or name not in members(ast.parse(path.read_text("utf-8")).body):
            missing.append(f"{file}::{name}")

    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_page_mentions_a_path_of_one_machine(page: Path) -> None:
    assert OUTSIDE.findall(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_a_page_names_exists(page: Path) -> None:
    named = re.findall(r"`takt ([a-z]+)", text_of(page))

    assert set(named) - set(COMMANDS) == set()


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=name_of)
def test_the_commands_of_a_page_run_as_shown(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    for block in fences(page, "yaml"):
        titled = re.match(r"# (\S+\.yaml)\n", block)
        if titled:
            (tmp_path / titled[1]).write_text(block, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    statuses = {line: main([*shlex.split(line), *shortened(line)]) for line in commands(page)}

    assert statuses == dict.fromkeys(statuses, 0)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_option_a_page_tells_to_type_exists(page: Path) -> None:
    known = {title: set(OPTION.findall(section)) for title, section in sections().items()}
    unknown: list[str] = []

    blocks = [block for language in ("sh", "") for block in fences(page, language)]
    for line in [line for block in blocks for line in typed(block)]:
        words = re.sub(r'"[^"]*"', '""', line).split()  # what is quoted is a value
        title = " ".join(words[:2]) if " ".join(words[:2]) in known else words[0]
        given = {word.partition("=")[0] for word in words if word.startswith("--")}
        if given - known[title]:
            unknown.append(line)

    assert unknown == []


def test_a_clone_that_is_to_serve_is_installed_with_the_data_of_mini() -> None:
    texts = [*PAGES, *(ROOT / "examples").rglob("*.md"), *SOURCE.rglob("*.py")]
    told = [line for text in texts for line in INSTALLED.findall(text.read_text(encoding="utf-8"))]

    assert len(told) >= 4
    for line in told:
        # A copy has only what is installed beside it; what is editable has all of the clone.
        assert " -e " in line or "./packages/mini" in line


def test_contributing_names_the_verbs_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    contributing = (ROOT / "CONTRIBUTING.md").read_text("utf-8")

    verbs = set(re.findall(r"^(\w+):.*## ", makefile, re.MULTILINE)) - {"help"}

    assert set(re.findall(r"^    make (\w+) +#", contributing, re.MULTILINE)) == verbs


def test_readme_and_the_how_to_show_commands_that_are_run() -> None:
    shown = {name_of(page) for page in PAGES if commands(page)}

    assert {"README.md", "docs/how-to/simulate-a-fleet.md"} <= shown


def test_the_table_of_decisions_lists_every_page_once() -> None:
    pages = sorted(page.name for page in DECISIONS.glob("*.md") if page.name != "README.md")
    rows = re.findall(r"^\| \[\d{4}\]\((\S+)\)", (DECISIONS / "README.md").read_text(), re.M)

    assert rows == pages


@pytest.mark.parametrize("page", sorted(DECISIONS.glob("0*.md")), ids=name_of)
def test_a_decision_begins_with_its_number(page: Path) -> None:
    assert page.read_text(encoding="utf-8").startswith(f"# {page.name[:4]}: ")


def test_the_index_leads_to_every_page() -> None:
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / link).resolve() for link in LINK.findall(index.read_text())}
    pages = {page for page in PAGES if page.parent != DECISIONS and page != index}

    assert pages - linked == set()


def test_the_map_in_the_readme_names_every_package() -> None:
    mapped = set(re.findall(r"\]\(src/takt/(\w+)\)", PAGES[0].read_text(encoding="utf-8")))
    packages = {init.parent.name for init in SOURCE.glob("*/__init__.py")}

    assert packages - mapped == set()


def test_the_table_of_phases_is_that_of_the_core() -> None:
    page = ROOT / "docs" / "explanation" / "life-of-a-request.md"
    rows = table_after(page, "## Phases")[2:]
    drawn = {phase: set(filter(None, moves.split(", "))) for phase, _, moves in rows}

    assert drawn == {phase.name: {move.name for move in moves} for phase, moves in ALLOWED.items()}


LATE_SERVER = ROOT / "docs" / "explanation" / "late-server.md"


def test_the_moves_of_the_late_server_contract_are_those_of_the_code() -> None:
    rows = table_after(LATE_SERVER, "## Every move")[2:]

    drawn = {(before, cause): after for before, cause, after in rows}

    assert len(drawn) == len(rows)
    assert drawn == {
        (before.name, cause.name): after.name for (before, cause), after in TABLE.items()
    }


@pytest.mark.parametrize(
    ("heading", "names"), [("## States", State), ("What the causes mean:", Cause)]
)
def test_every_state_and_cause_of_the_contract_is_explained(
    heading: str, names: type[State] | type[Cause]
) -> None:
    explained = [row[0] for row in table_after(LATE_SERVER, heading)[2:]]

    assert explained == [member.name for member in names]


def test_the_times_of_the_late_server_contract_are_the_defaults() -> None:
    rows = table_after(LATE_SERVER, "## Times")[2:]
    quoted = {name: ms(int(default.removesuffix(" ms"))) for name, default, _ in rows}

    assert quoted == {name: getattr(ContractRules(), name) for name in quoted}


RULES = {"yield, regain always": "regain_always", "yield, solo times": "solo_times"}


@pytest.mark.parametrize("formation", ["monolithic", "lockstep"])
def test_the_overload_figures_are_those_of_the_benchmark(formation: str) -> None:
    page = ROOT / "docs" / "explanation" / "lateness.md"
    results = json.loads((ROOT / "benchmarks" / "results" / "overload.json").read_text("utf-8"))
    measured = {
        (point["rule"], point["robots"]): point["robots_worth"]
        for point in results["points"]
        if point["formation"] == formation and point["due_from"] == "slo"
    }
    head, _, *rows = table_after(page, f"{formation.capitalize()}:")

    quoted = {
        (RULES.get(rule, rule), int(robots.removesuffix(" robots"))): float(figure)
        for rule, *figures in rows
        for robots, figure in zip(head[1:], figures, strict=True)
    }

    assert quoted == {key: measured[key] for key in quoted}
