"""Devices are described consistently, and their candidate shares can be set on them."""

import pytest

from takt.errors import ConfigError
from takt.hardware.devices import device_named, known_devices


@pytest.mark.parametrize("name", known_devices())
def test_candidate_shares_rise_in_multiples_of_the_granularity_to_the_whole_device(
    name: str,
) -> None:
    device = device_named(name)

    *parts, whole = device.shares

    assert whole == device.units
    assert list(device.shares) == sorted(set(device.shares))
    assert all(share % device.granularity == 0 for share in parts)
    assert all(share >= device.units / 4 for share in device.shares)
    assert len(device.shares) <= 12


def test_the_rtx_pro_6000_is_swept_in_steps_of_sixteen_sms() -> None:
    assert device_named("rtx-pro-6000").shares == (*range(48, 188, 16), 188)


def test_every_device_the_command_shows_first_is_known() -> None:
    assert {"rtx-pro-6000", "h100", "h200", "rtx-4090", "a100"} <= set(known_devices())


@pytest.mark.parametrize("name", known_devices())
def test_every_device_states_its_source_and_uncertainty(name: str) -> None:
    assert device_named(name).source
    assert 0 < device_named(name).uncertainty < 0.5


def test_an_unknown_device_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"no device 'tpu'; known: rtx-pro-6000, h100, h200"):
        device_named("tpu")
