"""The fake robot keeps the contract of drivers and misbehaves on demand; one of another process."""

import math
import os
from contextlib import closing

import numpy as np
import pytest

from hardware.control.clock import LogicalClock, MonotonicClock
from hardware.control.process import RobotChannels
from hardware.control.robot_loop import StampedDriver
from hardware.drivers.fake_driver import FakeDriver, FaultInjection
from hardware.drivers.ipc_driver import IpcDriver
from robot_rl.core.errors import ConfigError, ShapeError, SpecMismatchError, StaleStateError
from robot_rl.core.robot_command import CommandKind, RotorCommand
from tests.contracts.robot_driver import DriverCase, RobotDriverContract
from tests.hardware.control.robots import multirotor, two_joints


class WithClock(FakeDriver):
    """A fake whose clock a test moves."""

    def __init__(self, spec, **faults):
        self.clock = LogicalClock()
        super().__init__(spec, self.clock, faults=FaultInjection(**faults))
        self.connect()

    def after(self, seconds):
        self.clock.advance(seconds)
        return self.read()


def unconnected(**faults):
    driver = WithClock(multirotor(CommandKind.rotors), **faults)
    driver.close()
    return driver


def silence(driver):
    driver.faults.frozen = True
    driver.clock.advance(1.0)


CASES = tuple(
    DriverCase(
        name,
        make=lambda faults=faults: unconnected(**faults),
        advance=lambda driver: driver.clock.advance(0.01),
        silence=silence,
        command=lambda value: RotorCommand(speed=np.full((1, 4), value)),
    )
    for name, faults in (("prompt", {}), ("delayed", {"delay": 0.01}), ("noisy", {"noise": 1.0}))
)


class TestFakes(RobotDriverContract):
    cases = CASES

    def test_it_says_when_its_sample_was_measured(self, case):
        assert isinstance(case.make(), StampedDriver)
        assert case.make().stamp == -math.inf


class TestHabits:
    def test_frozen_it_repeats_then_goes_stale(self):
        driver = WithClock(two_joints())
        first = driver.after(0.01)
        driver.faults.frozen = True
        assert driver.after(0.1) is first
        with pytest.raises(StaleStateError, match=r"0\.210 s old"):
            driver.after(0.11)

    def test_a_command_of_another_kind_is_refused(self):
        with pytest.raises(ShapeError, match="takes JointCommand"):
            WithClock(two_joints()).write(RotorCommand(speed=np.zeros((1, 4))))
        with pytest.raises(ShapeError, match="4 rotors"):
            WithClock(multirotor(CommandKind.rotors)).write(RotorCommand(speed=np.zeros((1, 3))))
        with pytest.raises(ConfigError, match="pose"):
            WithClock(multirotor(CommandKind.pose))


def test_ipc_driver_waits_for_a_first_sample_and_not_for_ever():
    boxes = RobotChannels(f"wait.{os.getpid()}")
    driver = IpcDriver(
        two_joints(), MonotonicClock(), measured=boxes.measured, sent=boxes.sent, patience=0.05
    )
    with closing(driver):
        with pytest.raises(StaleStateError, match=r"waited 0.05 s for a first sample .* 'two_j"):
            driver.connect()
        with pytest.raises(SpecMismatchError, match="takes JointCommand, got RotorCommand"):
            driver.write(RotorCommand(speed=np.zeros((1, 4))))
