"""A model that is loaded is warm, entered by both lanes, and measured."""

from collections.abc import Callable

import pytest

from takt.core.profile import Work
from takt.core.request import Stage
from takt.errors import ConfigError
from takt.policies.interface import Placement
from takt.runtime.models import LoadedModel, load_model, measured_profile, num_units
from takt.schema.serving import ServedModel
from takt.testing.clock import ManualClock
from takt.units import MILLISECOND

PLACEMENT = Placement(kv_slots=16, prefix_cores=(0,), denoise_cores=(1, 2))


class Lanes:
    """Run functions at once and remember where; each takes 1 ms of the clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.called: list[Stage] = []

    def call(self, stage: Stage, function: Callable[[], object]) -> None:
        self.called.append(stage)
        function()


def loaded(name: str = "echo", placement: Placement = PLACEMENT, **options: object) -> LoadedModel:
    lanes = Lanes()
    served = ServedModel(name=name, policy="echo", options=options, slo_ms=80.0)
    ticks = iter(range(0, 10**12, MILLISECOND))
    return load_model(served, placement, lanes.call, lambda: next(ticks))


def test_a_loaded_model_is_scheduled_as_the_operator_and_its_card_say() -> None:
    model = loaded("left", latency_ms=5.0)

    assert model.model.name == "left"
    assert model.model.slo == 80 * MILLISECOND
    assert model.model.prefix_sizes == (1, 2, 4, 8, 16)
    assert model.kv_slots == 16
    assert model.max_state_dim == 2048
    assert [field.name for field in model.slot_layout.fields] == ["state"]


def test_every_captured_shape_of_both_stages_is_measured_in_its_lane() -> None:
    lanes = Lanes()
    served = ServedModel(name="echo", policy="echo")
    ticks = iter(range(0, 10**12, MILLISECOND))

    model = load_model(served, PLACEMENT, lanes.call, lambda: next(ticks))

    assert model.solo == {
        Work("echo", stage, 0, size, 3): MILLISECOND for stage in Stage for size in (1, 2, 4, 8, 16)
    }
    assert lanes.called[:2] == [Stage.PREFIX, Stage.DENOISE], "entered before it is measured"
    assert lanes.called.count(Stage.DENOISE) == 1 + 5 * 3


def test_a_launch_that_takes_long_is_measured_once() -> None:
    lanes = Lanes()
    ticks = iter(range(0, 10**15, 250 * MILLISECOND))

    model = load_model(
        ServedModel(name="echo", policy="echo"), PLACEMENT, lanes.call, lambda: next(ticks)
    )

    assert set(model.solo.values()) == {250 * MILLISECOND}
    assert lanes.called.count(Stage.DENOISE) == 1 + 5


def test_a_policy_that_waits_is_measured_without_waiting() -> None:
    model = loaded(latency_ms=100.0, latency_per_row_ms=1.0, prefix_share=0.25)

    assert model.solo[Work("echo", Stage.PREFIX, 0, 4, 3)] == 26 * MILLISECOND
    assert model.solo[Work("echo", Stage.DENOISE, 0, 4, 3)] == 78 * MILLISECOND


def test_two_models_of_one_architecture_are_measured_each_by_itself() -> None:
    slow, fast = loaded("slow", latency_ms=100.0), loaded("fast", latency_ms=10.0)

    profile = measured_profile([slow, fast], PLACEMENT)

    assert profile.solo(Work("slow", Stage.PREFIX, 0, 1, 3)) == 50 * MILLISECOND
    assert profile.solo(Work("fast", Stage.PREFIX, 0, 1, 3)) == 5 * MILLISECOND


@pytest.mark.parametrize(
    ("prefix_cores", "denoise_cores", "speed"),
    [((0,), (1,), 1_000_000), ((), (), 1_000_000), ((0, 1), (0, 1), 500_000)],
    ids=["disjoint", "any", "same"],
)
def test_lanes_slow_each_other_down_only_on_the_same_cores(
    prefix_cores: tuple[int, ...], denoise_cores: tuple[int, ...], speed: int
) -> None:
    placement = Placement(kv_slots=16, prefix_cores=prefix_cores, denoise_cores=denoise_cores)
    units = num_units(placement)
    models = [loaded("a", placement), loaded("b", placement)]

    profile = measured_profile(models, placement)

    prefix = Work("a", Stage.PREFIX, 0, 16, units)
    denoise = Work("b", Stage.DENOISE, 0, 1, units)
    assert profile.speed(prefix, denoise) == profile.speed(denoise, prefix) == speed


def test_fewer_cache_slots_than_the_largest_batch_are_refused_before_loading() -> None:
    with pytest.raises(ConfigError, match="max_requests must be at least 16"):
        loaded(placement=Placement(kv_slots=8))
