"""What every `RobotDriver` must keep: the suite, run over all of them by subclassing."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from robot_rl.core.errors import StaleStateError
from robot_rl.core.robot_command import RobotCommand, RotorCommand
from robot_rl.core.robot_driver import RobotDriver

READ_SECONDS = 0.05
"""A read that waits for a sample of a slow robot takes longer; the median of a free one takes
microseconds even on a loaded machine."""


@dataclass(frozen=True)
class DriverCase:
    """One driver under test."""

    name: str
    make: Callable[[], Any]
    """A driver that is not connected."""
    advance: Callable[[Any], None]
    """Lets time pass until a new sample can have arrived."""
    silence: Callable[[Any], None]
    """Lets time pass without a sample, beyond the maximum age."""
    command: Callable[[float], RobotCommand]
    """A command, all entries of which are a number; its limits are 0 and 1."""


class RobotDriverContract:
    """Laws of `robot_rl.core.robot_driver.RobotDriver`; `cases` is the subclass's."""

    cases: tuple[DriverCase, ...] = ()

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        metafunc.parametrize("case", self.cases, ids=[case.name for case in self.cases])

    def connected(self, case: DriverCase) -> RobotDriver:
        driver = case.make()
        driver.connect()
        case.advance(driver)
        return driver

    def test_it_has_every_method_of_the_contract(self, case: DriverCase) -> None:
        assert isinstance(case.make(), RobotDriver)

    def test_a_sample_has_the_fields_and_widths_of_the_spec(self, case: DriverCase) -> None:
        driver = self.connected(case)
        fields = driver.read().fields
        assert {n: v.shape for n, v in fields.items()} == {
            name: (1, width) for name, width in driver.spec.state_widths.items()
        }

    def test_reading_never_waits(self, case: DriverCase) -> None:
        driver = self.connected(case)
        seconds = []
        for _ in range(20):
            start = time.perf_counter()
            driver.read()
            seconds.append(time.perf_counter() - start)
        assert np.median(seconds) < READ_SECONDS

    def test_a_silent_robot_is_a_stale_state(self, case: DriverCase) -> None:
        driver = self.connected(case)
        case.silence(driver)
        with pytest.raises(StaleStateError):
            driver.read()

    def test_reading_before_connecting_is_a_stale_state(self, case: DriverCase) -> None:
        with pytest.raises(StaleStateError):
            case.make().read()

    @pytest.mark.parametrize(("asked", "sent"), [(0.5, 0.5), (1.5, 1.0), (-3.0, 0.0)])
    def test_writing_tells_what_was_really_sent(
        self, case: DriverCase, asked: float, sent: float
    ) -> None:
        command = self.connected(case).write(case.command(asked))
        assert isinstance(command, RotorCommand)
        np.testing.assert_array_equal(command.speed, np.full_like(command.speed, sent))

    def test_stopping_is_allowed_in_any_state_any_number_of_times(self, case: DriverCase) -> None:
        driver = case.make()
        for change in (lambda: None, driver.connect, driver.close):
            change()
            driver.stop()
            driver.stop()

    def test_closing_twice_is_allowed_and_connecting_again_too(self, case: DriverCase) -> None:
        driver = self.connected(case)
        driver.close()
        driver.close()
        driver.connect()
        case.advance(driver)
        driver.read()
