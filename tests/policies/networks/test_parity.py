"""The network that serves computes what LeRobot computed, and a wrong detail would show."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest

torch = pytest.importorskip("torch", reason="the networks need torch")

from tests.policies.lerobot.checkpoints import PI0, SMOLVLA  # noqa: E402

from takt.policies.lerobot import comparison, resize, rows, verification  # noqa: E402
from takt.policies.lerobot.golden import read_golden  # noqa: E402
from takt.policies.lerobot.pipeline import Scaling  # noqa: E402
from takt.policies.lerobot.verification import CHUNK_TENSORS, verify  # noqa: E402
from takt.policies.networks import flow, stage, transformer, vision  # noqa: E402
from takt.policies.pi0 import network as pi0  # noqa: E402
from takt.policies.smolvla import network as smolvla  # noqa: E402
from takt.schema.spec import CameraSpec  # noqa: E402

TOLERANCE, CHUNK_TOLERANCE = 2e-4, 3e-5


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def worst_chunk_of_the_first_case(directory: Path, patch: pytest.MonkeyPatch) -> float:
    golden = read_golden(directory)
    first = replace(golden, cases=golden.cases[:1])
    patch.setattr(verification, "read_golden", lambda directory: first)
    findings = verify(directory, tolerance=TOLERANCE, chunk_tolerance=CHUNK_TOLERANCE)
    return max(f.max_abs_error for f in findings if f.tensor in CHUNK_TENSORS)


@pytest.mark.slow
@pytest.mark.parametrize("directory", [PI0, SMOLVLA], ids=["pi0_relative", "smolvla"])
def test_every_golden_tensor_of_the_repository_is_reproduced(directory: Path) -> None:
    findings = verify(directory, tolerance=TOLERANCE, chunk_tolerance=CHUNK_TOLERANCE)

    assert len(findings) > 50
    assert [finding for finding in findings if finding.verdict != "ok"] == []


@pytest.mark.slow
@pytest.mark.parametrize("family", ["pi0", "pi0_relative", "smolvla"])
def test_every_golden_tensor_of_the_collection_is_reproduced(family: str, fixtures: Path) -> None:
    findings = verify(
        fixtures / "policies" / family, tolerance=TOLERANCE, chunk_tolerance=CHUNK_TOLERANCE
    )

    assert [finding for finding in findings if finding.verdict != "ok"] == []


Loose: TypeAlias = Any
"""A tensor or what goes with one; torch may not be installed where types are checked."""

Flip = Callable[[pytest.MonkeyPatch], None]


def gelu_form(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(vision, "gelu_tanh", torch.nn.functional.gelu)


def pi0_mlp_gelu_form(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pi0, "gelu_tanh", torch.nn.functional.gelu)


def vision_eps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(vision, "_LAYER_NORM_EPS", 1e-5)


def pi0_eps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pi0, "_EPS", 1e-5)


def smolvla_eps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(smolvla, "_EPS", 1e-6)


def norm_offset(patch: pytest.MonkeyPatch) -> None:
    forward = transformer.RmsNorm.forward

    def flipped(self: transformer.RmsNorm, x: Loose) -> Loose:
        self.offset, kept = 1.0 - self.offset, self.offset
        try:
            return forward(self, x)
        finally:
            self.offset = kept

    patch.setattr(transformer.RmsNorm, "forward", flipped)


def word_scaling(patch: pytest.MonkeyPatch) -> None:
    for module in (pi0, smolvla):
        patch.setattr(module.math, "sqrt", lambda value: 1.0)


def rope_theta(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(transformer, "_ROPE_THETA", 100000.0)


def rope_form(patch: pytest.MonkeyPatch) -> None:
    def interleaved(x: Loose, by: Loose) -> Loose:
        cos, sin = by
        first, second = x[..., ::2], x[..., 1::2]
        parts = [first * cos - second * sin, second * cos + first * sin]
        return torch.stack(parts, dim=-1).flatten(-2)

    for module in (stage, pi0, smolvla):
        patch.setattr(module, "rotate", interleaved)


def mask_rule(patch: pytest.MonkeyPatch) -> None:
    def upside_down(real: Loose, among: Loose) -> Loose:
        flipped = ~among | torch.eye(among.shape[1], dtype=torch.bool)
        return stage.padded_mask(real, flipped)

    for module in (pi0, smolvla):
        patch.setattr(module, "padded_mask", upside_down)


def padding_side(patch: pytest.MonkeyPatch) -> None:
    write = resize.write_scaled
    other = {"pad_center": "pad_left_top", "pad_left_top": "pad_center"}

    def flipped(image: Loose, camera: CameraSpec, out: Loose) -> None:
        write(image, with_rule(camera, other[camera.resize]), out)

    patch.setattr(rows, "write_scaled", flipped)


def with_rule(camera: CameraSpec, rule: Loose) -> CameraSpec:
    return replace(camera, resize=rule)


def image_range(patch: pytest.MonkeyPatch) -> None:
    tokens = pi0.Pi0Network.image_tokens
    patch.setattr(
        pi0.Pi0Network, "image_tokens", lambda self, images: tokens(self, (images + 1) / 2)
    )
    others = smolvla.SmolvlaNetwork.image_tokens
    patch.setattr(
        smolvla.SmolvlaNetwork, "image_tokens", lambda self, images: others(self, (images + 1) / 2)
    )


def time_embedding_order(patch: pytest.MonkeyPatch) -> None:
    table = flow.time_table

    def cosines_first(*given: float) -> Loose:
        steps, width, low, high = given
        made = table(int(steps), int(width), low, high)
        return made.roll(made.shape[1] // 2, dims=1)

    for module in (pi0, smolvla):
        patch.setattr(module, "time_table", cosines_first)


def time_embedding_precision(patch: pytest.MonkeyPatch) -> None:
    def narrow(steps: int, width: int, low: float, high: float) -> Loose:
        with torch.device("cpu"):
            period = low * (high / low) ** torch.linspace(0, 1, width // 2)
            times = torch.from_numpy(flow.step_times(steps))
            angles = 2 * torch.pi * times[:, None] / period[None]
            return torch.cat([angles.sin(), angles.cos()], dim=1)

    for module in (pi0, smolvla):
        patch.setattr(module, "time_table", narrow)


def time_of_a_step(patch: pytest.MonkeyPatch) -> None:
    times = flow.step_times
    patch.setattr(flow, "step_times", lambda steps: times(steps) - 1 / steps)


def state_normalisation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Scaling, "forward", lambda self, values: values - self.first)


FLIPS: list[tuple[Path, Flip]] = [
    (PI0, gelu_form),
    (PI0, pi0_mlp_gelu_form),
    (SMOLVLA, gelu_form),
    (PI0, vision_eps),
    (PI0, pi0_eps),
    (SMOLVLA, smolvla_eps),
    (PI0, norm_offset),
    (SMOLVLA, norm_offset),
    (PI0, word_scaling),
    (SMOLVLA, word_scaling),
    (PI0, rope_theta),
    (SMOLVLA, rope_theta),
    (PI0, rope_form),
    (SMOLVLA, rope_form),
    (PI0, mask_rule),
    (SMOLVLA, mask_rule),
    (PI0, padding_side),
    (SMOLVLA, padding_side),
    (PI0, image_range),
    (SMOLVLA, image_range),
    (PI0, time_embedding_order),
    (SMOLVLA, time_embedding_order),
    (PI0, time_embedding_precision),
    (PI0, time_of_a_step),
    (SMOLVLA, time_of_a_step),
    (PI0, state_normalisation),
    (SMOLVLA, state_normalisation),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("directory", "flip"), FLIPS, ids=[f"{path.name}-{flip.__name__}" for path, flip in FLIPS]
)
def test_a_wrong_detail_exceeds_the_chunk_tolerance(
    directory: Path, flip: Flip, monkeypatch: pytest.MonkeyPatch
) -> None:
    flip(monkeypatch)

    assert worst_chunk_of_the_first_case(directory, monkeypatch) > CHUNK_TOLERANCE


def test_verification_compares_every_kind_of_tensor_it_is_given() -> None:
    names = set(comparison._COMPARISONS)

    assert {"prefix.key", "suffix.hidden", "velocity", "x_final", "pre.tokens"} <= names
