from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from tests.client.robots.test_described import card, model

from takt.client.robots.described import Axis, RobotMismatchError, check_fit
from takt.client.robots.lerobot import LeRobotRobot, camera_reader, lerobot_units
from takt.errors import UsageError

MOTORS = ("shoulder_pan.pos", "gripper.pos")
PICTURE = np.zeros((4, 6, 3), np.uint8)


class Follower:
    """What a LeRobot robot is to its users: features, an observation, an action."""

    def __init__(self, *, cameras: tuple[str, ...] = ("front",)) -> None:
        self.is_connected = True
        self.action_features: Mapping[str, Any] = dict.fromkeys(MOTORS, float)
        self.observation_features: Mapping[str, Any] = {
            **self.action_features,
            **dict.fromkeys(cameras, PICTURE.shape),
        }
        self.seen: dict[str, Any] = {
            "gripper.pos": 50.0,  # in another order than the features
            "shoulder_pan.pos": np.float32(-12.5),
            **dict.fromkeys(cameras, PICTURE),
        }
        self.sent: list[dict[str, Any]] = []

    def get_observation(self) -> Mapping[str, Any]:
        return self.seen

    def send_action(self, action: dict[str, Any], /) -> object:
        self.sent.append(action)
        return action


class Camera:
    def __init__(self, value: int) -> None:
        self.frame = np.full((2, 2, 3), value, np.uint8)

    def async_read(self) -> Any:  # noqa: ANN401
        return self.frame


def test_the_state_is_in_the_order_of_the_features() -> None:
    seen = LeRobotRobot(Follower(), task="pick it up").observe()

    state = np.asarray(seen["observation/state"])
    np.testing.assert_array_equal(state, [-12.5, 50.0])
    assert state.dtype == np.float32
    assert seen["prompt"] == "pick it up"


def test_a_command_reaches_the_robot_by_name_as_plain_numbers() -> None:
    follower = Follower()

    LeRobotRobot(follower, task="").act(np.array([1.5, 20.0], np.float32))

    assert follower.sent == [{"shoulder_pan.pos": 1.5, "gripper.pos": 20.0}]
    assert {type(value) for value in follower.sent[0].values()} == {float}


def test_cameras_have_the_policys_names() -> None:
    follower = Follower(cameras=("front", "wrist"))

    usual = LeRobotRobot(follower, task="").observe()
    renamed = LeRobotRobot(follower, task="", cameras={"front": "observation/image"}).observe()

    assert {"observation/images/front", "observation/images/wrist"} <= set(usual)
    assert set(renamed) == {"prompt", "observation/state", "observation/image"}


def test_a_picture_does_not_change_when_the_driver_fills_its_buffer_again() -> None:
    follower = Follower()
    follower.seen["front"] = frame = np.zeros((2, 2, 3), np.uint8)

    seen = LeRobotRobot(follower, task="").observe()
    frame[:] = 9

    assert not np.asarray(seen["observation/images/front"]).any()


def test_it_tells_the_features_names_and_the_units_it_was_told() -> None:
    units = lerobot_units(MOTORS, use_degrees=True)

    told = LeRobotRobot(Follower(), task="", units=units).describe()

    assert told.action == (Axis("shoulder_pan.pos", "deg"), Axis("gripper.pos", "0..100"))
    assert told.state == told.action
    assert LeRobotRobot(Follower(), task="", units="rad").describe().action[0].unit == "rad"


def test_units_follow_lerobots_convention() -> None:
    assert lerobot_units(["gripper.pos", "wrist.pos"], use_degrees=False) == {
        "gripper.pos": "0..100",
        "wrist.pos": "-100..100",
    }


def test_it_fits_a_model_that_names_the_same_and_no_other() -> None:
    told = LeRobotRobot(Follower(), task="").describe()

    check_fit(told, card(model(*MOTORS), model(*MOTORS)))
    with pytest.raises(RobotMismatchError, match=r"'shoulder_pan\.pos' at place 0"):
        check_fit(told, card(model(*reversed(MOTORS))))


def test_the_pose_is_in_the_order_of_the_actions() -> None:
    follower = Follower()
    follower.action_features = dict.fromkeys(reversed(MOTORS), float)
    robot = LeRobotRobot(follower, task="")

    pose = robot.pose(robot.observe())

    np.testing.assert_array_equal(pose, [50.0, -12.5])


def test_a_pose_needs_the_state_of_every_action() -> None:
    follower = Follower()
    follower.action_features = {"wheel.vel": float}
    robot = LeRobotRobot(follower, task="")

    with pytest.raises(UsageError, match=r"no 'wheel\.vel'"):
        robot.pose(robot.observe())


def test_a_robot_that_is_not_connected_is_refused_and_not_connected() -> None:
    follower = Follower()
    follower.is_connected = False

    with pytest.raises(UsageError, match=r"connect\(\) the robot"):
        LeRobotRobot(follower, task="")


def test_a_robot_without_actions_is_refused() -> None:
    follower = Follower()
    follower.action_features = {}

    with pytest.raises(UsageError, match="no action_features"):
        LeRobotRobot(follower, task="")


def test_a_camera_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match="no camera 'top'; there are: front"):
        LeRobotRobot(Follower(), task="", cameras={"top": "observation/image"})


@pytest.mark.parametrize(
    ("value", "said"),
    [(None, "expected a number, got NoneType"), (float("nan"), "finite number, got nan")],
)
def test_a_motor_that_reads_no_number_is_named(value: object, said: str) -> None:
    follower = Follower()
    follower.seen["gripper.pos"] = value

    with pytest.raises(UsageError, match=rf"gripper\.pos: .*{said}"):
        LeRobotRobot(follower, task="").observe()


def test_a_motor_that_is_missing_is_named() -> None:
    follower = Follower()
    del follower.seen["gripper.pos"]

    with pytest.raises(UsageError, match=r"gripper\.pos: get_observation"):
        LeRobotRobot(follower, task="").observe()


def test_an_action_of_another_size_is_refused_and_not_sent() -> None:
    follower = Follower()

    with pytest.raises(UsageError, match="expected 2 components"):
        LeRobotRobot(follower, task="").act(np.zeros(3))

    assert not follower.sent


def test_cameras_are_read_beside_the_robot_by_the_policys_keys() -> None:
    cameras = {"front": Camera(1), "wrist": Camera(2)}

    usual = camera_reader(cameras)()
    renamed = camera_reader(cameras, keys={"wrist": "observation/image"})()
    cameras["wrist"].frame[:] = 0

    assert set(usual) == {"observation/images/front", "observation/images/wrist"}
    assert np.asarray(renamed["observation/image"]).min() == 2
    with pytest.raises(UsageError, match="no camera 'top'"):
        camera_reader(cameras, keys={"top": "observation/image"})
