"""Declarations of cameras: poses, crops, and what is refused in a sentence."""

import math
from typing import Any

import numpy as np
import pytest

from robot_rl.core.errors import ConfigError
from sim.cameras.config import CameraConfig, chosen_cameras
from tests.compositions import composed


def test_a_camera_that_looks_along_x_has_its_right_at_minus_y_and_its_up_at_z():
    camera = CameraConfig(position=[1.0, 2.0, 3.0], target=[5.0, 2.0, 3.0])
    expected = np.array([[0, 0, -1], [-1, 0, 0], [0, 1, 0]])  # columns: right, up, back
    np.testing.assert_allclose(camera.axes(), expected, atol=1e-12)


def test_a_calibrated_orientation_says_x_right_y_down_z_forward():
    half = math.sqrt(0.5)
    # z forward is the body's x, x right is its -y, y down its -z: a turn about (1, -1, 1).
    camera = CameraConfig(orientation=[0.5, -0.5, 0.5, -0.5])
    looking = CameraConfig(target=[1.0, 0.0, 0.0])
    np.testing.assert_allclose(camera.axes(), looking.axes(), atol=1e-12)
    with pytest.raises(ConfigError, match="unit quaternion"):
        CameraConfig(orientation=[half, half, half, 0.0])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"width": 0}, "camera.width"),
        ({"field_of_view": 60.0}, r"\[rad\]"),
        ({"dropout": 1.0}, "camera.dropout"),
        ({"crop": [0, 0, 65, 64]}, "leaves the picture of 64 x 64"),
        ({"crop": [0, 0, 5]}, "top, left, height, width"),
        ({"target": [0.0, 0.0, 1.0], "up": [0.0, 0.0, 1.0]}, "how the picture lies"),
        ({"near": 1.0, "far": 0.5}, "must exceed near"),
        ({"stack": 0}, "camera.stack"),
    ],
)
def test_what_no_camera_can_be_is_refused_in_a_sentence(changes: dict[str, Any], words: str):
    base: dict[str, Any] = {"target": [1.0, 0.0, 0.0]}
    with pytest.raises(ConfigError, match=words):
        CameraConfig(**(base | changes))


def test_unknown_cameras_are_refused_in_a_sentence():
    cart = composed(["task=cartpole_swingup"]).config
    with pytest.raises(ConfigError, match=r"'sied' is unknown \(did you mean 'side'"):
        chosen_cameras(["sied"], cart.robot, cart.task)
    with pytest.raises(ConfigError, match="twice"):
        chosen_cameras(["side", "side"], cart.robot, cart.task)
    assert chosen_cameras([], cart.robot, cart.task) == {}
    flight = composed(["task=hover"]).config
    with pytest.raises(ConfigError, match=r"known: down, front"):
        chosen_cameras(["side"], flight.robot, flight.task)


def test_one_override_gives_a_task_a_camera_and_its_fields_can_be_set():
    config = composed(
        ["task=peg", "env.cameras=[wrist]", "robot.cameras.wrist.width=84",
         "robot.cameras.wrist.height=84", "robot.cameras.wrist.stack=1"]
    ).config  # fmt: skip
    assert config.env.cameras == ["wrist"]
    assert chosen_cameras(["wrist"], config.robot, config.task)["wrist"].shape == (84, 84, 3)
