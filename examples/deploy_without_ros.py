"""Fly an exported policy through the safety layer, without ROS: here by a robot that is not there.

`robot-rl deploy` does the same with processes of their own, a person's requests and a real clock.
"""

import sys
from pathlib import Path

import numpy as np

from hardware.control.clock import LogicalClock
from hardware.control.limits import make_limiter
from hardware.control.monitors import SafetyLimits, SafetyMonitor, StampedCommand
from hardware.control.pipeline import ControllerSet
from hardware.control.robot_loop import RobotLoop
from hardware.control.safety import Condition, SafetyState
from hardware.control.stopping import StopConfig, make_stopping
from hardware.controllers.body_rates import BodyRates, BodyRatesConfig, RotorLayout
from hardware.drivers.fake_driver import FakeDriver
from policies.bundle import load_bundle
from policies.runner import PolicyRunner
from policies.zoo.catalog import bundle_folder

PERIOD = 0.002
"""Of the loop [s]."""
CRAZYFLIE = RotorLayout(  # the plant `measured` of configs/robot/crazyflie.yaml
    rotor_position=[[0.028, -0.028], [-0.028, -0.028], [-0.028, 0.028], [0.028, 0.028]],
    rotor_yaw_sign=[-1.0, 1.0, -1.0, 1.0],
    thrust_curve=[0.00352526, 0.01437313, 0.09223048], torque_per_thrust=4.665e-3,
)  # fmt: skip
INERTIA = [9.4166e-6, 9.6441e-6, 1.74595e-5]
"""[kg m^2]"""


class PolicySource:
    """Commands of a policy, which observes once per control period of its own."""

    def __init__(self, runner: PolicyRunner, driver: FakeDriver) -> None:
        """Wait for the first sample."""
        self._runner, self._driver, self._newest = runner, driver, None
        self._goal = {n: np.zeros((1, w), np.float32) for n, w in runner.spec.goal_widths.items()}
        runner.reset()

    def newest(self) -> StampedCommand | None:
        """The newest command, with the stamp of what it was made from."""
        last, stamp = self._newest, self._driver.stamp
        if np.isfinite(stamp) and (
            last is None or stamp - last.stamp >= self._runner.spec.control_dt
        ):
            command = self._runner.act(self._driver.read(), self._goal)
            self._newest = StampedCommand(command=command, stamp=stamp)
        return self._newest


if __name__ == "__main__":
    trained = Path("runs").glob("*_hover_crazyflie_*/bundle")
    shipped = bundle_folder("crazyflie-hover")
    newest = max(trained, key=lambda path: path.stat().st_mtime, default=shipped)
    runner = load_bundle(newest, ramp=False)  # the loop's range limiter ramps targets already
    robot = runner.spec.robot
    # 1. A robot of yours has a driver with these six methods, and a `MonotonicClock`.
    clock = LogicalClock()
    driver = FakeDriver(robot, clock)
    driver.connect()
    # 2. Everything is monitored and limited, whoever commands; a drone is stopped by a controller.
    stop = BodyRates(CRAZYFLIE, BodyRatesConfig(inertia=INERTIA))
    loop = RobotLoop(
        driver, clock=clock, period=PERIOD,
        monitor=SafetyMonitor(robot, SafetyLimits.for_flight(), PERIOD),
        limiter=make_limiter(robot), stopping=make_stopping(robot, StopConfig(hover_thrust=0.68)),
        controllers=ControllerSet(stop=stop, blend_time=0.0),
        sources={SafetyState.POLICY: PolicySource(runner, driver)},
    )  # fmt: skip
    loop.tick()
    deadline = clock.now()
    # 3. A person arms the robot, arms it again and hands it over; silence or a fault stops it.
    requests = {0: Condition.ARM, 500: Condition.ARM, 510: Condition.ENABLE_POLICY}
    seen = []
    for tick in range(800):
        if tick in requests:
            loop.requests.ask(requests[tick])
        deadline = loop.tick_after(deadline)
        if not seen or loop.safety is not seen[-1]:
            seen.append(loop.safety)
            print(f"{clock.now():.2f} s: {loop.safety.value} {loop.status.trip or ''}")
    assert SafetyState.POLICY in seen, loop.status.refused
    loop.run(until=lambda: True)  # ends with a stopped robot
    print(f"ends in {loop.safety.value}")
    assert "torch" not in sys.modules
