"""Writes the truth page from the result of ``run.py``: claims first, then a section per part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.truth.part import Found, Part

__all__ = ["LIMITS", "page_of"]

LIMITS = (
    "A CPU shows that scheduling is right. It cannot show the speed-up of a GPU, which comes from a"
    " compute-bound and a memory-bound stage sharing one device; paced devices take such a GPU's"
    " modelled times by waiting, and compute nothing."
)
"""What these figures can and cannot show."""


def page_of(result: Mapping[str, Any], parts: Sequence[Part]) -> str:
    """The page.

    Args:
        result: What ``run.py`` writes.
        parts: In the order of the page.
    """
    found = result["parts"]
    claims = [claim for part in parts for claim in part.claims(found.get(part.name, {}))]
    sections = [part.section(found[part.name]) if found.get(part.name) else "" for part in parts]
    lines = [
        "# Predicted and measured",
        "",
        LIMITS,
        "",
        f"Measured with `python benchmarks/truth/run.py` {_where(result['circumstances'])}."
        f" {_commits(found, parts)}",
        "",
    ]
    if claims:
        lines += ["| holds | claim |", "|---|---|"]
        lines += [f"| {'yes' if claim.holds else '**no**'} | {claim.text} |" for claim in claims]
        lines.append("")
    missing = [part.name for part, section in zip(parts, sections, strict=True) if not section]
    if missing:
        lines += [f"Not measured yet: {', '.join(missing)}.", ""]
    text = "\n".join(lines)
    return "\n".join([text, *(f"{section.strip()}\n" for section in sections if section)])


def _commits(found: Mapping[str, Found], parts: Sequence[Part]) -> str:
    """At which commits each part was measured."""
    by_part = {
        part.name: dict.fromkeys(cell["commit"] for cell in found.get(part.name, {}).values())
        for part in parts
    }
    said = [f"{name} at {' and '.join(commits)}" for name, commits in by_part.items() if commits]
    return f"Commits that were measured: {', '.join(said) or 'none'}."


def _where(told: Mapping[str, Any]) -> str:
    packages = told["packages"].items()
    versions = ", ".join(f"{name} {version}" for name, version in packages)
    return (
        f"on {told['cores']} cores of {told['cpu']}, {told['python']}"
        f"{', ' if versions else ''}{versions}"
    )
