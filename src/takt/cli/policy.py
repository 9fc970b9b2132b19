"""``takt policy``: show a policy's card, or verify its network against golden values."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from takt.cli.input_files import check_tokenizer
from takt.cli.option_numbers import check_numbers
from takt.errors import ConfigError
from takt.policies.catalog import is_lerobot_checkpoint, open_policy
from takt.schema.plain import to_plain
from takt.schema.spec import CameraSpec, PolicySpec

if TYPE_CHECKING:
    from takt.policies.lerobot.verification import Finding

__all__ = ["Policy", "Show", "Verify", "card_lines"]

_UNKNOWN_FAMILY = 2
_MOST_TOLERANCE = 1e9
_RESIZE_WORDS = {
    "exact": "must have this size",
    "stretch": "stretched to this size",
    "pad_center": "scaled to fit, black on both sides",
    "pad_left_top": "scaled to fit, black to the left and above",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Show:
    """Print a policy's card, as robots get it when they connect."""

    path: Annotated[Path, tyro.conf.Positional]
    """A policy of the package (echo, mini) or the directory of a checkpoint."""
    tokenizer: Path | None = None
    """Tokenizer of the checkpoint, a file or a directory."""
    json: bool = False
    """Print the card as JSON."""

    def run(self) -> None:
        """Print the card."""
        options = {} if self.tokenizer is None else {"tokenizer": self.tokenizer}
        if options and not is_lerobot_checkpoint(self.path):
            raise ConfigError(f"--tokenizer is for checkpoints of LeRobot, {self.path} is none")
        check_tokenizer(self.tokenizer)
        spec = open_policy(str(self.path), options=options).spec
        if self.json:
            print(json.dumps(to_plain(spec), indent=2))
        else:
            print("\n".join(card_lines(spec)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Verify:
    """Recompute golden cases with the network that serves, and compare every tensor.

    Exit status: 0 when all are within the tolerances, 1 when one is not or the checkpoint cannot be
    loaded, 2 when the family is not known.
    """

    directory: Annotated[Path, tyro.conf.Positional]
    """Directory with checkpoint/, golden.json, golden.safetensors, raw_observations.npz."""
    tolerance: float = 2e-4
    """Largest absolute error of an intermediate tensor."""
    chunk_tolerance: float = 3e-5
    """Largest absolute error of the model-space chunk."""
    json: bool = False
    """Print one JSON document instead of a table."""

    def run(self) -> None:
        """Verify, print, and exit with the status."""
        check_numbers(self, {"tolerance": _MOST_TOLERANCE, "chunk_tolerance": _MOST_TOLERANCE})
        from takt.policies.lerobot.opening import UnknownFamilyError

        try:
            findings = self._findings()
        except UnknownFamilyError as error:
            print(f"takt: {error}", file=sys.stderr)
            sys.exit(_UNKNOWN_FAMILY)
        is_ok = all(finding.verdict != "off" for finding in findings)
        print(_document(self, findings, is_ok) if self.json else _table(findings))
        if not is_ok:
            sys.exit(1)

    def _findings(self) -> list[Finding]:
        from takt.policies.lerobot.verification import verify

        try:
            return verify(
                self.directory, tolerance=self.tolerance, chunk_tolerance=self.chunk_tolerance
            )
        except ImportError as error:
            raise ConfigError(
                f"verifying needs {error.name}; install torch for this host"
            ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Look at a policy before it is served."""

    command: Annotated[
        Annotated[Show, tyro.conf.subcommand("show")]
        | Annotated[Verify, tyro.conf.subcommand("verify")],
        tyro.conf.arg(name=""),
    ]
    """What to do."""

    def run(self) -> None:
        """Do it."""
        self.command.run()


def card_lines(spec: PolicySpec) -> list[str]:
    """A policy's card as lines for people."""
    action, seen = spec.action, spec.observation
    rate = "not known" if action.control_hz is None else f"{action.control_hz:g} Hz"
    state = ", ".join(f"{axis.name} {axis.unit}".strip() for axis in seen.state) or "unnamed"
    lines = [
        f"{spec.name}: {spec.architecture}",
        f"digest     {spec.digest or 'none'}",
        *(_camera_line(camera) for camera in seen.cameras),
        f"state      {seen.state_dim} values: {state}",
        f"prompt     {'needed' if seen.prompt else 'not read'}",
        f"action     {action.action_dim} values:"
        + (" unnamed, units as in the training data" if not action.axes else ""),
    ]
    for number, axis in enumerate(action.axes):
        kind = "relative to the state inside the network" if axis.relative else "absolute"
        unit = axis.unit or "unit as in the training data"
        lines.append(f"             {number} {axis.name}: {unit}, {kind}")
    lines += [
        f"horizon    {action.horizon} steps, {action.execution_horizon} to execute",
        f"rate       {rate}",
        f"history    {seen.history} observations, {seen.history_spacing} steps apart",
        f"batches    prefix {_numbers(spec.prefix_sizes)}; denoise {_numbers(spec.denoise_sizes)}",
        f"layouts    {'; '.join(layout.name for layout in spec.layouts)}",
    ]
    return lines


def _camera_line(camera: CameraSpec) -> str:
    need = "needed" if camera.required else "may be missing"
    size = f"{camera.width}x{camera.height}"
    return f"camera     {camera.name}: {size}, {_RESIZE_WORDS[camera.resize]}, {need}"


def _numbers(sizes: tuple[int, ...]) -> str:
    return ", ".join(map(str, sizes)) or "none"


def _table(findings: list[Finding]) -> str:
    width = max(len(finding.case) for finding in findings)
    wide = max(len(finding.tensor) for finding in findings)
    rows = [
        f"{f.case:<{width}}  {f.tensor:<{wide}}  {f.max_abs_error:9.2e}  {f.verdict}"
        for f in findings
    ]
    off = sum(finding.verdict == "off" for finding in findings)
    skipped = sum(finding.verdict == "not compared" for finding in findings)
    head = f"{'case':<{width}}  {'tensor':<{wide}}  max error  verdict"
    tail = f"{len(findings)} tensors, {off} off" + (f", {skipped} not compared" if skipped else "")
    return "\n".join([head, *rows, tail])


def _document(asked: Verify, findings: list[Finding], is_ok: bool) -> str:
    document: dict[str, Any] = {
        "directory": str(asked.directory),
        "tolerance": asked.tolerance,
        "chunk_tolerance": asked.chunk_tolerance,
        "ok": is_ok,
        "findings": [_plain(finding) for finding in findings],
    }
    return json.dumps(document, indent=2)


def _plain(finding: Finding) -> dict[str, Any]:
    plain = dataclasses.asdict(finding)
    if not math.isfinite(finding.max_abs_error):
        plain["max_abs_error"] = None  # JSON has no infinity
    return plain
