"""Every published latency of these policies that can be compared, with its source.

A figure can be compared when its device and the dimensions of its network are known, when it
names how the network was run, and when it times the network (or one stage of it) at a stated batch
size. Where a source does not say, this is assumed, and nothing else: batch 1; the policy's own
number of cameras and padded prompt; bf16; PyTorch without compilation, which is what a checkpoint
does when its framework loads it. Left out, with the reason, are the groups in :data:`LEFT_OUT`.

A figure that covers a whole request may include a few milliseconds of pre-processing and transport
(3 to 7 ms where a source splits them); the model predicts the two stages only.

Start reading at :class:`Published`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from takt.hardware.architectures import Layout

__all__ = ["LEFT_OUT", "PUBLISHED", "Published"]


class Published(NamedTuple):
    """One published latency."""

    source: str
    """Where it was published."""
    architecture: str
    """Name of the architecture."""
    device: str
    """Name of the device."""
    prefix: str
    """Stack that ran the prefix; empty when the figure does not cover it."""
    denoise: str
    """Stack that ran the denoise loop; empty when the figure does not cover it."""
    layout: Layout
    """Cameras and prompt tokens."""
    size: int
    """Batch size."""
    milliseconds: float
    """The figure."""
    note: str = ""
    """What a reader of its error should know."""

    @property
    def stack(self) -> str:
        """The stacks in words."""
        if self.prefix == self.denoise:
            return self.prefix
        return " + ".join(stack for stack in (self.prefix, self.denoise) if stack)

    @property
    def covers(self) -> str:
        """The stages in words."""
        if self.prefix and self.denoise:
            return "both"
        return "prefix" if self.prefix else "denoise"


_Covers = Literal["both", "prefix", "denoise"]
_DEFAULT = {
    "pi0": Layout(3, 48),
    "pi05": Layout(3, 200),
    "smolvla": Layout(2, 48),
    "groot-n1.5": Layout(1, 32),
    "groot-n1.6": Layout(1, 32),
    "groot-n1.7": Layout(1, 48),
    "xr0": Layout(2, 48),
}
"""Layout a figure is for when its source does not say. NVIDIA times GR00T with one camera."""


def _one(
    source: str,
    architecture: str,
    device: str,
    stack: str,
    milliseconds: float,
    *,
    covers: _Covers = "both",
    layout: tuple[int, int] | None = None,
    size: int = 1,
    note: str = "",
) -> Published:
    """A figure of one stack; ``"a>b"`` is a prefix under ``a`` and a denoise loop under ``b``."""
    prefix, _, denoise = stack.partition(">")
    return Published(
        source=source,
        architecture=architecture,
        device=device,
        prefix="" if covers == "denoise" else prefix,
        denoise="" if covers == "prefix" else denoise or prefix,
        layout=Layout(*layout) if layout else _DEFAULT[architecture],
        size=size,
        milliseconds=milliseconds,
        note=note,
    )


def _views(
    source: str,
    architecture: str,
    device: str,
    stack: str,
    figures: tuple[float, float, float],
    *,
    prompt_tokens: int = 0,
    note: str = "",
) -> Iterator[Published]:
    """Figures for one, two and three cameras."""
    for cameras, milliseconds in enumerate(figures, start=1):
        layout = cameras, prompt_tokens
        yield _one(source, architecture, device, stack, milliseconds, layout=layout, note=note)


_GROOT_GUIDE = "Isaac-GR00T N1.7 deployment guide"
_FP32_VISION = "the guide keeps the vision tower of the engine in 32 bits"


def _groot_guide() -> Iterator[Published]:
    """NVIDIA's table of GR00T N1.7: backbone and action head apart, one camera, four steps.

    The row "torch.compile" compiles the head only; its backbone repeats the eager one.
    """
    rows = (
        ("h100", 31.3, 48.2, 12.0, 8.8, 12.3),
        ("h20", 30.8, 47.3, 13.3, 14.2, 14.5),
        ("rtx-pro-6000", 29.3, 44.0, 16.5, 9.9, 13.2),
        ("rtx-pro-5000", 54.0, 63.2, 20.4, 14.4, 17.3),
        ("l40", 42.8, 78.9, 19.8, 13.1, 18.8),
        ("l20", 47.6, 86.9, 20.2, 17.3, 19.8),
        ("thor", 45.4, 59.9, 48.8, 26.2, 46.9),
    )
    for device, eager_prefix, eager_head, compiled_head, engine_prefix, engine_head in rows:
        yield from _groot_row(
            _GROOT_GUIDE,
            device,
            (eager_prefix, eager_head, compiled_head, engine_prefix, engine_head),
        )
    yield from _groot_row(
        f"{_GROOT_GUIDE}, earlier run", "h100", (52.53, 103.30, 13.58, 9.30, 13.21)
    )
    yield from _groot_row("Jetson AI Lab", "thor", (47.7, 68.2, 46.8, 27.0, 45.0))


def _groot_row(
    source: str, device: str, figures: tuple[float, float, float, float, float]
) -> Iterator[Published]:
    """One device of that table."""
    kinds: tuple[tuple[str, _Covers, str], ...] = (
        ("eager", "prefix", ""),
        ("eager", "denoise", ""),
        ("compiled", "denoise", ""),
        ("graph", "prefix", _FP32_VISION),
        ("graph", "denoise", ""),
    )
    for (stack, covers, note), milliseconds in zip(kinds, figures, strict=True):
        yield _one(source, "groot-n1.7", device, stack, milliseconds, covers=covers, note=note)


def _groot_n16() -> Iterator[Published]:
    """GR00T N1.6, whole requests: only the head is compiled, or built as an engine."""
    for device, eager, compiled, engine in (
        ("rtx-5090", 58, 37, 31),
        ("h100", 77, 38, 36),
        ("rtx-4090", 82, 44, 43),
        ("thor", 117, 105, 92),
    ):
        source = "Isaac-GR00T N1.6 guide"
        yield _one(source, "groot-n1.6", device, "eager", eager)
        yield _one(source, "groot-n1.6", device, "eager>compiled", compiled)
        yield _one(source, "groot-n1.6", device, "eager>graph", engine)
    fork = "Isaac-GR00T N1.6 TensorRT fork"
    yield _one(fork, "groot-n1.6", "h100", "eager", 137)
    yield _one(fork, "groot-n1.6", "h100", "eager>compiled", 55)
    yield _one(fork, "groot-n1.6", "h100", "graph", 6, covers="prefix")
    yield _one(fork, "groot-n1.6", "h100", "graph", 12, covers="denoise")
    yield _one(fork, "groot-n1.6", "h100", "fp8", 14, note="19 ms less 5 ms of pre-processing")


def _dexmal() -> Iterator[Published]:
    """Kernels written for pi0 and pi0.5 on one RTX 4090."""
    readme = "Dexmal realtime-vla README"
    yield from _views(readme, "pi0", "rtx-4090", "tuned", (20.0, 27.3, 36.8))
    yield from _views(readme, "pi0", "rtx-4090", "tuned", (23.6, 32.9, 39.2), prompt_tokens=20)
    yield from _views(readme, "pi0", "rtx-5090", "tuned", (17.6, 24.0, 31.9))
    yield from _views(readme, "pi05", "rtx-4090", "tuned", (22.1, 29.2, 38.9))
    yield from _views(readme, "pi05", "rtx-5090", "tuned", (20.1, 26.6, 34.2))
    yield _one(
        "arXiv 2510.26742",
        "pi0",
        "rtx-4090",
        "graph",
        45,
        layout=(2, 0),
        note="published as 40 to 50 ms",
    )
    issue = "Dexmal realtime-vla #26"
    yield _one(issue, "pi05", "l40s", "compiled", 81, note="openpi in JAX")
    yield _one(issue, "pi05", "l40s", "compiled", 57, note="LeRobot with torch.compile")
    yield _one(issue, "pi05", "l40s", "tuned", 42)
    yield _one("APXinf-robo #3", "pi05", "rtx-4090", "tuned", 37.7, layout=(2, 0))


_HOT_REPLAY = (
    "time on the GPU of a hot replay, without pre-processing; the same source gives 16.2 ms for"
    " half the cameras on the faster RTX 5090"
)


def _flashrt() -> Iterator[Published]:
    """Hand-written 8-bit kernels; nine prompt tokens, never padded."""
    source = "FlashRT benchmarks"
    yield from _views(source, "pi0", "rtx-5090", "fp8", (18.43, 21.16, 24.48), prompt_tokens=9)
    two = 2, 9
    yield _one(source, "pi05", "rtx-5090", "fp8", 17.58, layout=two)
    yield _one(source, "pi05", "l40", "fp8", 26.6, layout=two)
    yield _one(source, "pi05", "thor", "fp8", 44.0, layout=two)
    yield _one(source, "pi0", "thor", "fp8", 45.8, layout=two)
    yield _one(source, "groot-n1.6", "rtx-5090", "fp8", 13.08)
    yield _one(source, "groot-n1.6", "rtx-4090", "fp8", 18.4)
    yield _one(source, "groot-n1.6", "thor", "fp8", 45)
    yield _one(source, "groot-n1.7", "rtx-5090", "fp8", 16.2, note="published as 15.8 to 16.6 ms")
    yield _one(source, "groot-n1.7", "rtx-4090", "fp8", 9.85, layout=(2, 48), note=_HOT_REPLAY)
    yield _one(source, "groot-n1.7", "thor", "fp8", 11.0, covers="prefix")
    yield _one(source, "groot-n1.7", "thor", "fp8", 25.8, covers="denoise")
    yield _one(source, "groot-n1.7", "thor", "fp8", 50.2, layout=(2, 48))
    yield _one(source, "pi05", "rtx-5090", "eager", 107.5, note="LeRobot as shipped")
    yield _one(source, "pi05", "rtx-5090", "compiled", 58.9, note="LeRobot compiled")
    yield _one(source, "pi05", "thor", "eager", 163)
    yield _one(source, "pi05", "thor", "fp8", 95, note="TensorRT")


_FIRST_PORT = (
    "a first port; bf16 gains only a tenth over 32 bits (388 ms), so the host sets the time: about"
    " 1 ms per layer and step, three times the fitted value"
)


def _vllm_omni() -> Iterator[Published]:
    """Figures from vllm-omni's issues and pull requests."""
    fused = "vllm-omni #6524"
    yield _one(fused, "pi05", "rtx-pro-5000", "tuned", 41.30)
    yield _one(fused, "pi05", "rtx-pro-5000", "tuned", 20.55, layout=(1, 32))
    yield _one("vllm-omni #4419", "pi05", "a100", "tuned", 27.9, layout=(1, 32))
    yield _one("vllm-omni #4419", "pi05", "h20", "tuned", 28, layout=(1, 32))
    yield _one("vllm-omni #6950", "pi05", "rtx-4090", "eager", 349, note=_FIRST_PORT)
    client = "vllm-omni #7754"
    yield from _views(
        client,
        "pi05",
        "h100",
        "eager",
        (290, 301, 312),
        prompt_tokens=200,
        note="timed at the client; one camera in 32 bits takes 282 ms, so the host sets the time:"
        " about 1 ms per layer and step, three times the fitted value",
    )
    yield _one("vllm-omni #6567", "groot-n1.7", "a30", "eager", 152, note="at the client")


_LEAN = (
    "0.42 ms per layer where GR00T's backbones take 0.7 to 1.2: how many kernels a layer launches"
    " is a property of the code, not of the GPU"
)


def _sglang() -> Iterator[Published]:
    """Figures from sglang's pull requests: ALOHA observations, three cameras."""
    source = "sglang #34256"
    yield _one(source, "pi05", "h200", "eager", 19.01, covers="prefix", note=_LEAN)
    yield _one(source, "pi05", "h200", "graph", 11.99, covers="prefix")
    yield _one(source, "pi05", "h200", "eager>graph", 49.26)
    yield _one(source, "pi05", "h200", "graph", 43.07)
    yield _one("sglang #34599", "pi05", "h200", "eager", 190, note="50 ms of it on the GPU")


_SMALL_YET_SLOW = (
    "slower than pi0 in the same table (28.8 ms), which has five times the arithmetic: its kernels,"
    " not the GPU, set the time"
)


def _others() -> Iterator[Published]:
    """Single figures."""
    yield _one("openpi #318", "pi0", "rtx-4090", "compiled", 75, note="openpi in JAX")
    yield _one(
        "LeRobot #1537",
        "pi0",
        "rtx-4090",
        "eager",
        200,
        covers="denoise",
        note="ten steps of about 20 ms, or 1.1 ms per layer: three times the fitted value, spent"
        " launching kernels from the host",
    )
    rlinf = "RLinf #1364"
    yield _one(rlinf, "pi05", "rtx-pro-5000", "compiled", 65.8, note="cameras one by one")
    yield _one(rlinf, "pi05", "rtx-pro-5000", "compiled", 58.9, note="cameras in one batch")
    tau = "OpenTau #111"
    yield _one(tau, "pi05", "rtx-3090", "compiled", 150, note="default mode")
    yield _one(tau, "pi05", "rtx-3090", "compiled", 100, note="max-autotune")
    yield _one("Jetson AI Lab", "pi05", "thor", "eager", 132)
    yield _one("Jetson AI Lab", "pi05", "thor", "fp8", 54, note="TensorRT")
    yield _one("Jetson AI Lab", "groot-n1.7", "thor", "fp8", 14.1, covers="prefix")
    yield _one("Jetson AI Lab", "groot-n1.7", "thor", "fp8", 21.1, covers="denoise")
    yield _one(
        "Armory on one A6000",
        "pi05",
        "a6000",
        "compiled",
        218.6,
        layout=(2, 200),
        size=2,
        note="two requests at 9.15 chunks per second: the throughput of a saturated server,"
        " transport included, and its batches may not have been full",
    )
    cpp = "vla.cpp, RTX 5090 benchmark"
    yield _one(cpp, "pi0", "rtx-5090", "graph", 28.8, layout=(2, 48))
    yield _one(cpp, "pi05", "rtx-5090", "graph", 29.2, layout=(2, 200))
    yield _one(cpp, "smolvla", "rtx-5090", "graph", 38.2, note=_SMALL_YET_SLOW)
    yield _one(cpp, "groot-n1.5", "rtx-5090", "graph", 16.1)
    yield _one(cpp, "groot-n1.6", "rtx-5090", "graph", 19.4)
    yield _one(cpp, "groot-n1.7", "rtx-5090", "graph", 19.5)
    yield _one("tether README", "smolvla", "a10g", "eager", 108.1, note="ONNX Runtime, CUDA")
    yield _one("tether README", "smolvla", "a10g", "graph", 19.49, note="ONNX Runtime, TensorRT")
    yield _one("arXiv 2602.12684", "xr0", "rtx-4090", "eager", 80, note="stack not stated")


PUBLISHED: tuple[Published, ...] = tuple(
    sorted(
        (
            *_groot_guide(),
            *_groot_n16(),
            *_dexmal(),
            *_flashrt(),
            *_vllm_omni(),
            *_sglang(),
            *_others(),
        )
    )
)
"""All of them, sorted by source, architecture, device, stacks, layout, size and figure."""

LEFT_OUT: tuple[tuple[str, str], ...] = (
    ("32-bit weights, 4-bit weights (NVFP4), cached frames", "another precision or less work"),
    ("Robion's 156 ms (Jetson AGX Thor at 70 W)", "a power mode below the device's peak"),
    ("vla.cpp on RTX 3090, Orin, Orin Nano and M4", "precision not stated, timed at the client"),
    ("DGX Spark, Orin, RTX 5060 Ti, RTX 5090 laptop, MI350X", "devices that are not modelled"),
    ('FlashRT\'s "OpenPI reference" (244 ms, 714 ms)', "neither back end nor precision stated"),
    ("FlashRT 21.6 and 25.6 ms, OpenPI host 28.8 and 41.7 ms", "precision or scope not stated"),
    ('"More than 100 ms", "more than 250 ms"', "bounds, not figures"),
    ("pi0-FAST, OpenVLA, X-VLA, DM0, LingBot-VLA, GR00T N1", "other or unpublished dimensions"),
    ("mstar (pi0.5, batch 1 to 4), A800 head", "device or network not named"),
    ("p99 under load, robots per GPU", "queueing, not a launch"),
)
"""Published figures that are not compared, and why."""
