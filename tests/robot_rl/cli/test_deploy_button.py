"""A deployed robot whose file names a stop button of this computer."""

import os
import struct

import pytest

from hardware.control.safety import SafetyState
from robot_rl.cli.deployment.operator import DeploymentError
from tests.hardware.console.running import wait_for
from tests.robot_rl.cli.deployments import (
    WITHOUT_ROS,
    bring_to_policy,
    running,
    status_of,
)

pytestmark = [
    pytest.mark.skipif(WITHOUT_ROS, reason="ROS 2 is not installed"),
    pytest.mark.slow,
    pytest.mark.timeout(400),
]


def test_the_button_stops_the_robot_and_so_does_the_end_of_its_process(
    go2_bundle, domain, tmp_path
):
    device = tmp_path / "button"
    os.mkfifo(device)
    kernel = os.open(device, os.O_RDWR | os.O_NONBLOCK)  # both ends, so that nobody waits
    file = tmp_path / "go2.yaml"
    file.write_text(f"robot: go2\nestop: {{device: {device}, button: KEY_ENTER}}\n")

    def press(down):
        os.write(kernel, struct.pack("@llHHi", 0, 0, 1, 28, down))

    try:
        with running(
            domain, bundle=go2_bundle, driver="fake", robot_file=str(file),
            goal={"velocity_b": [0, 0, 0]},
        ) as deployment:  # fmt: skip
            bring_to_policy(deployment)
            assert status_of(deployment).safety is SafetyState.POLICY
            press(1)
            wait_for(lambda: status_of(deployment).safety is SafetyState.ESTOP, 2.0)
            press(0)
            bring_to_policy(deployment)  # reset and armed, by a person
            deployment.processes["estop"].kill()
            wait_for(lambda: status_of(deployment).safety is SafetyState.ESTOP, 2.0)
        with running(
            domain, bundle=go2_bundle, driver="fake", robot_file=str(file),
            goal={"velocity_b": [0, 0, 0]},
        ) as deployment:  # fmt: skip
            press(1)
            press(0)  # tapped while the robot starts
            with pytest.raises(DeploymentError, match="the stop button was pressed while"):
                deployment.arm()
            wait_for(lambda: status_of(deployment).safety is SafetyState.ESTOP, 2.0)
    finally:
        os.close(kernel)
