"""The driver contract over every driver that needs no robot, and the fake's own bad habits."""

import pytest
import torch

from robot_rl.core.errors import StaleStateError
from robot_rl.core.robot_command import RotorCommand
from tests.contracts.robot_driver import DriverCase, RobotDriverContract
from tests.fakes import FakeDriver


def silence(driver: FakeDriver) -> None:
    driver.lose(FakeDriver.MAX_AGE + 3)


CASES = tuple(
    DriverCase(
        name,
        make=lambda delay=delay: FakeDriver(delay=delay),
        advance=lambda driver: driver.advance(),
        silence=silence,
        command=lambda value: RotorCommand(speed=torch.full((1, 4), value)),
    )
    for name, delay in (("prompt", 0), ("delayed", 2))
)


class TestEveryDriver(RobotDriverContract):
    cases = CASES


def test_a_late_sample_is_read_as_old_as_it_is() -> None:
    driver = FakeDriver(delay=2)
    driver.connect()
    driver.advance(4)
    assert driver.read().position_w[0, 0] == 2


def test_a_lost_sample_leaves_the_one_before_until_it_is_stale() -> None:
    driver = FakeDriver()
    driver.connect()
    driver.advance(3)
    driver.lose(FakeDriver.MAX_AGE)
    assert driver.read().position_w[0, 0] == 3
    driver.lose(1)
    with pytest.raises(StaleStateError, match="6 ticks old, at most 5"):
        driver.read()
    driver.advance()
    assert driver.read().position_w[0, 0] == driver.tick
