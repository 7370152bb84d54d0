"""The loop's side of a neighbour process: what it does alone."""

import os

import numpy as np
import pytest

from hardware.control.clock import MonotonicClock
from hardware.control.process import RobotChannels
from hardware.drivers.ipc_driver import IpcDriver
from robot_rl.core.errors import SpecMismatchError, StaleStateError
from robot_rl.core.robot_command import RotorCommand
from tests.compositions import composed


def test_mailbox_takes_only_the_robots_kind_of_command():
    spec = composed(["task=velocity", "robot=go2"]).config.robot.spec
    boxes = RobotChannels(f"kind.{os.getpid()}")
    driver = IpcDriver(spec, MonotonicClock(), measured=boxes.measured, sent=boxes.sent)
    try:
        with pytest.raises(SpecMismatchError, match="takes JointCommand, got RotorCommand"):
            driver.write(RotorCommand(speed=np.zeros((1, 4))))
    finally:
        driver.close()


def test_driver_waits_for_a_first_sample_and_not_for_ever():
    spec = composed(["task=velocity", "robot=go2"]).config.robot.spec
    boxes = RobotChannels(f"wait.{os.getpid()}")
    driver = IpcDriver(
        spec, MonotonicClock(), measured=boxes.measured, sent=boxes.sent, patience=0.05
    )
    try:
        with pytest.raises(StaleStateError, match=r"waited 0.05 s for a first sample .* 'go2'"):
            driver.connect()
    finally:
        driver.close()
