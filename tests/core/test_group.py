"""A group says which devices there are and what is on which."""

import pytest

from takt.core.formations import FORMATIONS
from takt.core.group import ONE_DEVICE, Group, Stepping
from takt.errors import ConfigError


def test_one_device_runs_both_stages() -> None:
    assert ONE_DEVICE.num_physical == 1
    assert ONE_DEVICE.home == (0,)


def test_replicas_are_one_physical_device() -> None:
    assert Group(physical=(0, 0), home=(0, 1)).num_physical == 1


@pytest.mark.parametrize("formation", sorted(FORMATIONS))
def test_every_device_of_a_formation_has_a_home_within_it(formation: str) -> None:
    group = FORMATIONS[formation]().group

    assert len(group.physical) == len(group.home)
    assert set(group.home) <= set(range(len(group.home)))


def test_a_negative_cost_of_a_step_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 0, got -1 and 0"):
        Stepping(inspection=-1)
