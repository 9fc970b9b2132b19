"""Installs the wheel as a robot computer does, in fresh environments, and measures what comes.

    make install-test
    python -m tests.install.install_page > docs/results/install.md

One environment for each Python from 3.10 to 3.13 that is found, with numpy 1.26 where there is one
for it and with numpy 2. In each, ``takt.client`` and ``takt.robot`` are imported and a loop runs
against a policy in its process. It needs a package index. The exit status is 1 when an environment
fails, brings torch, or weighs more than the budget.

Start reading at :func:`main`.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PROBE = Path(__file__).with_name("probe.py")
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
NUMPYS = ("1.26", "2")
EXTRAS = ("images", "view")
BUDGET_MB = 5.0
COMPILED = "compiled files"


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What was installed into one fresh environment, as its own interpreter says."""

    python: str
    numpy: str
    sizes_mb: dict[str, float]
    """Size on disk of each distribution beyond numpy and pip, and of what pip compiled."""
    largest: list[tuple[str, float]]
    """The largest files, in MB."""

    @property
    def installed_mb(self) -> float:
        """What the distributions bring beyond numpy."""
        return self.total_mb - self.sizes_mb.get(COMPILED, 0.0)

    @property
    def total_mb(self) -> float:
        """The same with what pip compiles."""
        return sum(self.sizes_mb.values())


def interpreters() -> dict[str, str]:
    """Command of each Python by its version; those that are missing are left out."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found: dict[str, str] = {}
    for version in PYTHONS:
        named = shutil.which(f"python{version}")
        candidates = [*([named] if named else []), *sorted(pyenv.glob(f"{version}.*/bin/python"))]
        for candidate in candidates:
            if _version_of(candidate) == version:
                found[version] = str(candidate)
                break
    return found


def _version_of(command: str | Path) -> str:
    code = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([command, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def build_wheel(folder: Path) -> Path:
    """The wheel of this checkout."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    (built,) = folder.glob("takt_serve-*.whl")
    return built


def install(folder: Path, python: str, requirements: list[str]) -> Path:
    """A fresh environment with these requirements; its interpreter."""
    subprocess.run([python, "-m", "venv", folder], check=True)
    fresh = folder / "bin" / "python"
    options = ["--quiet", "--disable-pip-version-check", "--no-warn-script-location"]
    subprocess.run([fresh, "-m", "pip", "install", *options, *requirements], check=True)
    return fresh


def probe(python: Path) -> dict[str, Any]:
    """What :mod:`tests.install.probe` says in an environment."""
    command = [python, "-I", "-W", "error", PROBE]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=python.parent)
    return json.loads(done.stdout)


def measure(wheel: Path, work: Path) -> list[Environment]:
    """Every environment there can be."""
    environments: list[Environment] = []
    for version, python in interpreters().items():
        for numpy in NUMPYS:
            if (version, numpy) == ("3.13", "1.26"):
                continue  # numpy 1.26 is older than Python 3.13
            folder = work / f"python{version}-numpy{numpy}"
            said = probe(install(folder, python, [str(wheel), f"numpy=={numpy}.*"]))
            environments.append(Environment(**said))
            shutil.rmtree(folder)
            sys.stderr.write(f"python {version}, numpy {said['numpy']}: ok\n")
    return environments


def check_extras(wheel: Path, work: Path) -> list[str]:
    """The extras a robot may want, with the oldest and the newest Python."""
    versions = list(interpreters())
    for version in {versions[0], versions[-1]}:
        folder = work / f"extras{version}"
        python = install(folder, interpreters()[version], [f"{wheel}[{','.join(EXTRAS)}]"])
        subprocess.run([python, "-c", "import simplejpeg, rich, takt.client"], check=True)
        shutil.rmtree(folder)
    return sorted({versions[0], versions[-1]})


def page(environments: list[Environment], extras: list[str]) -> str:
    """The page, as Markdown."""
    names = sorted(
        {name for environment in environments for name in environment.sizes_mb},
        key=lambda name: (name == COMPILED, name),
    )
    worst = max(environment.installed_mb for environment in environments)
    verdict = "Met" if worst <= BUDGET_MB else "**Missed**"
    rows = [
        "| "
        + " | ".join(
            [
                environment.python,
                environment.numpy,
                *(f"{environment.sizes_mb.get(name, 0.0):.2f}" for name in names),
                f"{environment.total_mb:.2f}",
            ]
        )
        + " |"
        for environment in environments
    ]
    compiled = max(environment.sizes_mb[COMPILED] for environment in environments)
    name, size = environments[-1].largest[0]
    return f"""\
<!-- Written by: python -m tests.install.install_page > docs/results/install.md -->
# What a robot computer installs

`make install-test` builds the wheel and installs it into fresh environments, as
`pip install takt-serve` does on a robot's computer. In each, `takt.client` and `takt.robot` are
imported, a control loop starts, executes and stops against a policy in its process, no torch is
there, and no warning is raised. MB are 10^6 bytes on disk; numpy is not counted. Compiled files are
what pip makes of the sources for this Python. {platform.system()} {platform.machine()}.

| Python | numpy | {" | ".join(f"{name}, MB" for name in names)} | beyond numpy, MB |
|{"---|" * (len(names) + 3)}
{chr(10).join(rows)}

Budget: at most {BUDGET_MB:g} MB beyond numpy, as the distributions bring it.
{verdict}: {worst:.1f} MB at worst. Up to {compiled:.1f} MB more are what pip compiles, which
`pip install --no-compile` leaves out. Takt's largest file is `{name}`,
{size:.2f} MB. The weights and recordings of `mini` are a distribution of their own (`takt-mini`),
because a robot has no use for them.

The extras `{"` and `".join(EXTRAS)}` install beside it on Python {" and ".join(extras)}.
"""


def main() -> int:
    """Measure, and print the page."""
    argparse.ArgumentParser(description="install the wheel as robots do").parse_args()
    if not interpreters():
        sys.stderr.write(f"none of Python {', '.join(PYTHONS)} is here\n")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        wheel = build_wheel(work)
        environments = measure(wheel, work)
        extras = check_extras(wheel, work)
    sys.stdout.write(page(environments, extras))
    return int(max(environment.installed_mb for environment in environments) > BUDGET_MB)


if __name__ == "__main__":
    sys.exit(main())
