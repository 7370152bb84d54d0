"""A robot computer has numpy and onnxruntime, no torch, no ROS, no yaml: the loop runs there."""

import os
import subprocess
import sys

import pytest

from robot_rl.core.process import clean_environ

CODE = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "rclpy", "yaml", "mujoco", "omegaconf", "hydra"}:
            raise ImportError(f"{name} is not on a robot computer")

sys.meta_path.insert(0, Blocked())

from hardware.control.limits import make_limiter
from hardware.control import ipc, realtime
from hardware.control.clock import LogicalClock
from hardware.control.monitors import SafetyLimits, SafetyMonitor
from hardware.control.robot_loop import RobotLoop
from hardware.control.safety import Condition, SafetyState
from hardware.control.stopping import make_stopping
from hardware.drivers.fake_driver import FakeDriver
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import CommandKind
from robot_rl.core.robot import JointSpec, SensorSpec

spec = RobotSpec(name="one", command=CommandKind.joint, joints=[JointSpec(name="j", stiffness=1.0)],
                 sensors={"joint_position": SensorSpec()})
clock = LogicalClock()
driver = FakeDriver(spec, clock)
driver.connect()
loop = RobotLoop(driver, clock=clock, period=0.002, limiter=make_limiter(spec),
                 monitor=SafetyMonitor(spec, SafetyLimits(), 0.002), stopping=make_stopping(spec))
loop.requests.ask(Condition.ARM)
loop.run(until=lambda: clock.now() > 0.1)
assert loop.safety is SafetyState.SAFE_STOP, loop.status.trip
assert "torch" not in sys.modules
"""


@pytest.mark.slow
def test_the_loop_runs_where_torch_and_ros_are_missing():
    environ = clean_environ({"PYTHONPATH": os.pathsep.join(sys.path)})
    subprocess.run([sys.executable, "-c", CODE], check=True, env=environ)
