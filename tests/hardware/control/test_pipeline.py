"""Limiters of setpoints when a robot changes hands."""

from typing import Any

import numpy as np

from hardware.control.limits import make_limiter
from hardware.control.pipeline import CommandPipeline
from robot_rl.cli.control_laws import RotorControl
from robot_rl.core.observation import RobotState
from robot_rl.core.robot_command import CommandKind, PoseCommand, RotorCommand
from tests.compositions import composed


def test_a_person_who_takes_over_again_begins_where_the_drone_is():
    """The limit of the target's speed began where they had led the drone last, metres away."""
    robot = composed(["task=hover", "robot=x500"]).config.robot
    pipeline = CommandPipeline(
        RotorControl.of(robot).controllers(), make_limiter(robot.spec), robot.spec.command,
        CommandKind.body_rates,
    )  # fmt: skip
    level, zero = np.array([[1.0, 0, 0, 0]]), np.zeros((1, 3))

    def state(at):
        return RobotState({
            "position_w": np.array([at]), "orientation_w": level, "linear_velocity_w": zero,
            "angular_velocity_b": zero,
        })  # fmt: skip

    def follow(setpoint: Any, at: list[float]) -> Any:
        pipeline.follow(setpoint, state(at), robot.loop_dt, stops=False, abrupt=False)
        return pipeline.followed

    def pose(at):
        return PoseCommand(position_w=np.array([at]), orientation_w=level)

    first, later = [0.0, 0.0, 1.0], [5.0, 0.0, 1.0]
    pipeline.start(state(first))
    pipeline.switch()
    np.testing.assert_array_equal(follow(pose(first), first).position_w, [first])
    pipeline.switch()
    follow(RotorCommand(speed=np.full((1, 4), 0.7)), later)  # a policy flew on
    pipeline.switch()
    np.testing.assert_array_equal(follow(pose(later), later).position_w, [later])
    further = [6.0, 0.0, 1.0]
    assert follow(pose(further), later).position_w[0, 0] < 5.1, "the limit itself still holds"
