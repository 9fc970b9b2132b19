"""Stage times obey what is true of every GPU, whatever the constants."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.core.request import Stage
from takt.errors import ConfigError, UsageError
from takt.hardware.architectures import (
    Architecture,
    Layout,
    architecture_named,
    known_architectures,
)
from takt.hardware.calibration import CALIBRATION, STACKS, STRETCH, Stack
from takt.hardware.devices import Device, device_named, known_devices
from takt.hardware.published import Published
from takt.hardware.roofline import floor_seconds, predicted_ms, stage_seconds, stretch


class Case(NamedTuple):
    """A stage of a network on a device that can run it."""

    network: Architecture
    stage: Stage
    device: Device
    stack: Stack

    def seconds(self, layout: Layout, size: int = 1, share: float = 1.0) -> float:
        network, stage, device, stack = self
        return stage_seconds(network, stage, layout, device, stack, size=size, share=share)


cases = st.builds(
    Case,
    st.sampled_from(known_architectures()).map(architecture_named),
    st.sampled_from(list(Stage)),
    st.sampled_from(known_devices()).map(device_named),
    st.sampled_from(list(STACKS.values())),
).filter(lambda case: case.device.has_fp8 or case.stack.weight_bytes == 2)
layouts = st.builds(Layout, st.integers(1, 4), st.integers(0, 300))
sizes = st.integers(1, 64)
shares = st.floats(0.01, 1.0)


@given(cases, layouts, st.lists(sizes, min_size=2, max_size=2).map(sorted), shares)
def test_times_grow_with_batch_but_no_faster_than_it(
    case: Case, layout: Layout, pair: list[int], share: float
) -> None:
    small, large = (case.seconds(layout, size, share) for size in pair)

    assert small <= large <= small * pair[1] / pair[0] * (1 + 1e-9)


@given(cases, layouts, layouts, sizes, shares)
def test_times_grow_with_layout(
    case: Case, one: Layout, other: Layout, size: int, share: float
) -> None:
    larger = Layout(*map(max, one, other))

    assert case.seconds(one, size, share) <= case.seconds(larger, size, share)


@given(cases, layouts, sizes, st.lists(shares, min_size=2, max_size=2).map(sorted))
def test_times_fall_with_share(case: Case, layout: Layout, size: int, pair: list[float]) -> None:
    small, large = (case.seconds(layout, size, share) for share in pair)

    assert small >= large


@given(cases, layouts, sizes, shares)
def test_no_time_lies_under_the_physical_floor(
    case: Case, layout: Layout, size: int, share: float
) -> None:
    cost = case.network.cost(case.stage, layout)

    floor = floor_seconds(cost, case.device, case.stack, size=size, share=share)

    assert case.seconds(layout, size, share) > floor


@given(cases, layouts, sizes)
def test_the_floor_is_operations_over_peak_or_bytes_over_bandwidth(
    case: Case, layout: Layout, size: int
) -> None:
    cost = case.network.cost(case.stage, layout)
    rate = case.device.peak_tflops * (2 if case.stack.name == "fp8" else 1)

    floor = floor_seconds(cost, case.device, case.stack, size=size)

    assert floor >= size * cost.flops / (rate * 1e12)
    assert floor >= cost.weights * case.stack.weight_bytes / (case.device.bandwidth_tbs * 1e12)


def test_a_batch_of_denoise_rows_is_nearly_free_and_a_batch_of_prefix_rows_is_not() -> None:
    def growth(stage: Stage) -> float:
        pi0, device = architecture_named("pi0"), device_named("rtx-pro-6000")
        one, four = (
            stage_seconds(pi0, stage, pi0.layouts[-1], device, STACKS["graph"], size=size)
            for size in (1, 4)
        )
        return four / one

    assert growth(Stage.DENOISE) < 1.1
    assert growth(Stage.PREFIX) > 2.5


def test_the_stretch_of_a_share_goes_through_the_published_points_and_on_below_them() -> None:
    assert [stretch(share) for share, _ in STRETCH] == [slowdown for _, slowdown in STRETCH]
    assert stretch(0.12) == pytest.approx(2 * 1.33)


def test_eight_bit_weights_halve_traffic_and_double_the_rate() -> None:
    pi0, device = architecture_named("pi0"), device_named("h100")
    cost = pi0.cost(Stage.PREFIX, pi0.layouts[-1])

    assert floor_seconds(cost, device, STACKS["fp8"]) * 2 == pytest.approx(
        floor_seconds(cost, device, STACKS["tuned"])
    )


def test_a_figure_of_both_stages_is_the_sum_of_the_two() -> None:
    def predicted(prefix: str, denoise: str) -> float:
        return predicted_ms(
            Published("test", "pi0", "h100", prefix, denoise, Layout(3, 48), 1, 1.0), CALIBRATION
        )

    assert predicted("eager", "graph") == pytest.approx(
        predicted("eager", "") + predicted("", "graph")
    )


def test_an_a100_is_refused_eight_bit_weights() -> None:
    pi0 = architecture_named("pi0")

    with pytest.raises(ConfigError, match="A100 SXM 80 GB cannot multiply 8-bit numbers"):
        stage_seconds(pi0, Stage.PREFIX, pi0.layouts[0], device_named("a100"), STACKS["fp8"])


@pytest.mark.parametrize(
    ("size", "share", "says"),
    [(0, 1.0, "size must be at least 1, got 0"), (1, 0.0, "got 0.0"), (1, 1.1, "got 1.1")],
)
def test_an_impossible_launch_is_refused(size: int, share: float, says: str) -> None:
    pi0, device = architecture_named("pi0"), device_named("h100")

    with pytest.raises(UsageError, match=says):
        stage_seconds(
            pi0, Stage.PREFIX, pi0.layouts[0], device, STACKS["graph"], size=size, share=share
        )
