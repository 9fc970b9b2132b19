"""Devices as rates: what a GPU could do at best, from its data sheet.

Only peaks are kept here. What software gets out of them is the subject of
:mod:`takt.hardware.calibration`. Peaks are dense bf16 with 32-bit accumulation; a sparse peak is
twice as high and of no use to these networks.

Start reading at :data:`DEVICES`.
"""

from __future__ import annotations

from dataclasses import dataclass

from takt.errors import ConfigError

__all__ = ["DEVICES", "Device", "device_named", "known_devices"]

_LEAST_SHARE = 0.25
"""Candidate shares begin at a quarter of the device, as in the sweep of Robion's profiler."""
_STEPS = 12
"""Candidate shares lie about a twelfth of the device apart: 16 of 188 SMs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A GPU as its data sheet describes it."""

    name: str
    """Name on the command line."""
    title: str
    """Name its vendor uses."""
    peak_tflops: float
    """Dense bf16 operations per second with 32-bit accumulation, in units of 1e12."""
    bandwidth_tbs: float
    """Memory bandwidth in units of 1e12 bytes per second."""
    units: int
    """Streaming multiprocessors (SMs)."""
    granularity: int
    """SM shares come in multiples of this. CUDA 12.4: 2 for compute capability 8, 8 from 9 on."""
    has_fp8: bool = True
    """Whether the tensor cores multiply 8-bit numbers, at twice the bf16 rate."""
    uncertainty: float = 0.05
    """How far the peaks may be off, as a share: clocks differ between boards and under load."""
    source: str = "vendor data sheet, quoted second-hand"
    """Where the rates come from."""

    @property
    def shares(self) -> tuple[int, ...]:
        """Shares worth trying for a prefix launch, rising; the last is the whole device."""
        step = -(-self.units // (_STEPS * self.granularity)) * self.granularity
        first = -(-self.units * _LEAST_SHARE // step)
        return (*range(int(first) * step, self.units, step), self.units)


_ALL = (
    Device(
        name="rtx-pro-6000",
        title="RTX PRO 6000 Blackwell",
        peak_tflops=504,
        bandwidth_tbs=1.79,
        units=188,
        granularity=8,
    ),
    Device(
        name="h100",
        title="H100 SXM 80 GB",
        peak_tflops=989,
        bandwidth_tbs=3.35,
        units=132,
        granularity=8,
    ),
    Device(
        name="h200",
        title="H200 SXM",
        peak_tflops=989,
        bandwidth_tbs=4.8,
        units=132,
        granularity=8,
    ),
    Device(
        name="rtx-4090",
        title="GeForce RTX 4090",
        peak_tflops=165,
        bandwidth_tbs=1.01,
        units=128,
        granularity=2,
    ),
    Device(
        name="a100",
        title="A100 SXM 80 GB",
        peak_tflops=312,
        bandwidth_tbs=2.04,
        units=108,
        granularity=2,
        has_fp8=False,
    ),
    Device(
        name="rtx-pro-5000",
        title="RTX PRO 5000 Blackwell 72 GB",
        peak_tflops=295,
        bandwidth_tbs=1.344,
        units=110,
        granularity=8,
    ),
    Device(
        name="rtx-5090",
        title="GeForce RTX 5090",
        peak_tflops=209.5,
        bandwidth_tbs=1.79,
        units=170,
        granularity=8,
    ),
    Device(
        name="l40s",
        title="L40S",
        peak_tflops=362,
        bandwidth_tbs=0.864,
        units=142,
        granularity=2,
    ),
    Device(
        name="l40",
        title="L40",
        peak_tflops=181,
        bandwidth_tbs=0.864,
        units=142,
        granularity=2,
    ),
    Device(
        name="l20",
        title="L20",
        peak_tflops=119.5,
        bandwidth_tbs=0.864,
        units=92,
        granularity=2,
    ),
    Device(
        name="h20",
        title="H20 96 GB",
        peak_tflops=148,
        bandwidth_tbs=4.0,
        units=78,
        granularity=8,
    ),
    Device(
        name="thor",
        title="Jetson AGX Thor",
        peak_tflops=258,
        bandwidth_tbs=0.273,
        units=20,
        granularity=8,
        uncertainty=0.15,
        source="vendor data sheet, quoted second-hand; bf16 as a quarter of the dense 4-bit peak",
    ),
    Device(
        name="rtx-3090",
        title="GeForce RTX 3090",
        peak_tflops=71,
        bandwidth_tbs=0.936,
        units=82,
        granularity=2,
        has_fp8=False,
    ),
    Device(
        name="a6000",
        title="RTX A6000",
        peak_tflops=154.8,
        bandwidth_tbs=0.768,
        units=84,
        granularity=2,
        has_fp8=False,
    ),
    Device(
        name="a30",
        title="A30",
        peak_tflops=165,
        bandwidth_tbs=0.933,
        units=56,
        granularity=2,
        has_fp8=False,
    ),
    Device(
        name="a10g",
        title="A10G",
        peak_tflops=70,
        bandwidth_tbs=0.6,
        units=80,
        granularity=2,
        has_fp8=False,
        uncertainty=0.1,
    ),
)

DEVICES = {device.name: device for device in _ALL}
"""Every device by name."""


def known_devices() -> tuple[str, ...]:
    """Names :func:`device_named` knows."""
    return tuple(DEVICES)


def device_named(name: str) -> Device:
    """The device of that name.

    Raises:
        ConfigError: There is none; the message lists those there are.
    """
    try:
        return DEVICES[name]
    except KeyError:
        raise ConfigError(f"no device {name!r}; known: {', '.join(DEVICES)}") from None
