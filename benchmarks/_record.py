"""Writes a benchmark's result together with the circumstances it was measured under.

A figure without its machine, versions and seed cannot be compared with the next one. A benchmark
prints what a person reads and hands the rest to :func:`write`.
"""

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["RESULTS", "circumstances", "write"]

RESULTS = Path(__file__).parent / "results"
"""Where named baselines lie."""


def circumstances(*, seed: int | None, packages: Iterable[str] = ()) -> dict[str, object]:
    """What a figure depends on besides the code under test.

    Args:
        seed: Seed of the workload; None when nothing is drawn.
        packages: Distributions whose versions matter.
    """
    return {
        "commit": _commit(),
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 1),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        # The same version is a tenth slower where it was built without profile-guided optimisation.
        "python_built": f"{platform.python_build()[1]}, {platform.python_compiler()}",
        "packages": {name: _version(name) for name in sorted(packages)},
        "seed": seed,
    }


def write(path: Path, result: Mapping[str, object]) -> None:
    """Write ``result`` as readable JSON; keys keep their order, so that results compare."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")


def _commit() -> str:
    """The commit of this checkout; a trailing + says that files differ from it."""
    commit = _git("rev-parse", "--short=12", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no")
    return f"{commit}+" if commit and changed else commit or "unknown"


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
