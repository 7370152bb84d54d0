"""Says why tests of ROS 2 are missing, where they are."""

import pytest

from hardware.ros.compat import inspect_environment, require_ros


def test_ros_can_be_used() -> None:
    if inspect_environment().rclpy is None:
        pytest.skip("ROS 2 is not installed here: nothing of tests/hardware/ros was run")
    assert require_ros().implementations
