import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from takt.doors.limits import DoorLimits, RateLimit, door_limits
from takt.errors import ConfigError, LimitError
from takt.policies.catalog import open_policy
from takt.schema.spec import (
    ActionSpec,
    CameraSpec,
    ObservationSpec,
    PolicySpec,
    TensorSpec,
)
from takt.units import SECOND, ms
from takt.wire.limits import Limits


def spec(num_cameras: int, *, side: int = 224, control_hz: float | None = None) -> PolicySpec:
    return PolicySpec(
        name="p",
        architecture="p",
        observation=ObservationSpec(
            cameras=tuple(
                CameraSpec(name=f"c{n}", height=side, width=side, resize="pad_center")
                for n in range(num_cameras)
            ),
            state_dim=6,
        ),
        action=ActionSpec(
            action_dim=6,
            model_action_dim=6,
            horizon=8,
            execution_horizon=8,
            control_hz=control_hz,
        ),
        prefix_inputs=(TensorSpec(name="state", shape=(6,)),),
    )


def test_a_model_with_one_camera_allows_less_than_the_default() -> None:
    limits = door_limits([spec(1)]).message

    # Its own camera and two more, in floats at 1280 x 720, and a little.
    assert limits.max_message_bytes == 3 * 1280 * 720 * 12 + 2**20
    assert limits.max_decoded_bytes == limits.max_message_bytes < Limits().max_message_bytes


def test_the_largest_model_decides_and_the_default_is_the_most() -> None:
    assert door_limits([spec(1), spec(2)]) == door_limits([spec(2)])
    assert door_limits([spec(12, side=4096)]).message.max_message_bytes == 64 * 2**20


def test_a_model_without_declared_cameras_may_be_sent_any() -> None:
    assert door_limits([open_policy("echo").spec, spec(1)]).message == Limits()


def test_a_fast_robot_may_call_more_often() -> None:
    assert door_limits([spec(1)]).max_calls_hz == DoorLimits().max_calls_hz
    assert door_limits([spec(1, control_hz=500)]).max_calls_hz == 2000


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(DoorLimits)][1:])
def test_a_limit_of_nothing_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        DoorLimits(**{name: 0})  # type: ignore[arg-type]


def test_a_burst_is_let_through_and_then_the_rate() -> None:
    rate = RateLimit(10.0, 0.5, now=0)
    for _ in range(5):
        rate.charge(0)
    with pytest.raises(LimitError, match="at most 10 messages a second"):
        rate.charge(0)

    rate.charge(ms(100))
    with pytest.raises(LimitError):
        rate.charge(ms(150))


def test_what_is_read_too_fast_is_read_later() -> None:
    rate = RateLimit(1000.0, 1.0, now=0)

    assert rate.pause(1000, 0) == 0
    assert rate.pause(500, 0) == ms(500)
    assert rate.pause(500, ms(500)) == ms(500)
    assert rate.pause(500, ms(5000)) == 0


@given(
    rate_hz=st.floats(1, 1000),
    burst_s=st.floats(0.01, 3),
    pauses=st.lists(st.integers(0, SECOND), max_size=200),
)
def test_no_one_gets_more_than_burst_and_rate(
    rate_hz: float, burst_s: float, pauses: list[int]
) -> None:
    rate, now, passed = RateLimit(rate_hz, burst_s, now=0), 0, 0
    for pause in pauses:
        now += pause
        try:
            rate.charge(now)
        except LimitError:
            continue
        passed += 1

    assert passed <= max(1.0, rate_hz * burst_s) + rate_hz * now / SECOND + 1e-6
