"""How far two plans lie apart where one takes over."""

import numpy as np
import pytest

from takt.errors import ConfigError
from takt.robot.action_queue import ActionQueue, ChunkOrigin
from takt.robot.blending import MergeName, merge_rule
from takt.robot.joints import Vector
from takt.robot.splices import SpliceMeter


def queue_with(meter: SpliceMeter, name: MergeName = "latest_only") -> ActionQueue[Vector]:
    return ActionQueue(merge_rule(name), on_splice=meter)


def test_the_first_plan_joins_nothing() -> None:
    meter = SpliceMeter()
    queue_with(meter).merge(0, np.zeros((2, 1)))

    splice = meter.latest

    assert splice is not None
    assert (splice.timestep, splice.overlap) == (0, 0)
    assert (splice.step, splice.shift, splice.disagreement) == (None, None, None)


def test_a_splice_is_measured_per_joint() -> None:
    meter = SpliceMeter()
    queue = queue_with(meter)
    queue.merge(0, np.array([[0, 0], [1, 1], [2, 2], [3, 3.0]]))
    queue.advance(2)
    queue.merge(0, np.array([[0, 0], [0, 0], [5, 1], [3, 9.0]]), ChunkOrigin(4, 0))

    splice = meter.latest

    assert splice is not None
    assert (splice.timestep, splice.overlap, splice.origin) == (2, 2, ChunkOrigin(4, 0))
    np.testing.assert_array_equal(splice.step, [4, 0])  # from (1, 1) to (5, 1)
    np.testing.assert_array_equal(splice.shift, [3, 1])  # from (2, 2) to (5, 1)
    np.testing.assert_array_equal(splice.disagreement, [3, 6])


def test_a_blend_halves_what_the_robot_feels_and_not_what_the_plans_disagree_by() -> None:
    meter = SpliceMeter()
    queue = queue_with(meter, "average")
    queue.merge(0, np.zeros((3, 1)))
    queue.advance(1)
    queue.merge(1, np.ones((3, 1)))

    splice = meter.latest

    assert splice is not None
    values = (splice.step, splice.shift, splice.disagreement)
    assert [float(value[0]) for value in values if value is not None] == [0.5, 0.5, 1.0]


def test_after_a_dry_queue_the_step_from_the_last_action_is_known() -> None:
    meter = SpliceMeter()
    queue = queue_with(meter)
    queue.merge(0, np.array([[1.0]]))
    queue.advance(4)
    queue.merge(1, np.array([[8.0]]))

    splice = meter.latest

    assert splice is not None
    assert (splice.shift, splice.overlap) == (None, 0)
    np.testing.assert_array_equal(splice.step, [7])


def test_unsigned_actions_are_subtracted_without_wrapping() -> None:
    meter = SpliceMeter()
    queue = queue_with(meter)
    queue.merge(0, np.array([[3], [3]], np.uint8))
    queue.merge(0, np.array([[1], [1]], np.uint8))

    assert meter.latest is not None
    np.testing.assert_array_equal(meter.latest.shift, [2])


def test_all_are_counted_and_the_latest_remembered() -> None:
    meter = SpliceMeter(keep=2)
    queue = queue_with(meter)
    for first_timestep in range(5):
        queue.merge(first_timestep, np.zeros((3, 1)))

    assert meter.count == 5
    assert [splice.timestep for splice in meter.splices] == [3, 4]


def test_a_meter_remembers_at_least_one() -> None:
    assert SpliceMeter().latest is None
    with pytest.raises(ConfigError, match="keep must be at least 1"):
        SpliceMeter(keep=0)
