"""Limiters of setpoints when a robot changes hands."""

from typing import Any

import numpy as np
import pytest

from hardware.control.limits import make_limiter
from hardware.control.pipeline import CommandPipeline, ControllerSet
from robot_rl.cli.control_laws import RotorControl
from robot_rl.core.observation import RobotState
from robot_rl.core.robot_command import CommandKind, JointCommand, PoseCommand, RotorCommand
from tests.compositions import composed
from tests.hardware.control.loops import to
from tests.hardware.control.robots import two_joints


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


class Planar:
    """Turns the joints to x and y of a pose."""

    setpoint, command = CommandKind.pose, CommandKind.joint

    def start(self, state: RobotState, last: Any) -> None:
        pass

    def update(self, setpoint: Any, state: RobotState, dt: float) -> JointCommand:
        self.got = float(setpoint.position_w[0, 0])
        return to(*setpoint.position_w[0, :2])


def test_a_setpoint_on_the_way_from_another_senders_is_told_as_it_was_followed():
    """The law's own setpoint is learned from, not the one that the new sender asked for."""
    law, dt, zero = Planar(), 0.02, np.zeros((1, 2))
    laws = ControllerSet(by_kind={CommandKind.pose: law}, blend_time=0.4)
    arm = two_joints()
    pipeline = CommandPipeline(laws, make_limiter(arm), arm.command, arm.command)
    here = RobotState({"joint_position": zero, "joint_velocity": zero, "joint_effort": zero})

    def follow(x: float) -> float:
        pose = PoseCommand(position_w=np.array([[x, 0.0, 0.0]]), orientation_w=np.eye(1, 4))
        pipeline.follow(pose, here, dt, stops=False, abrupt=False)
        told: Any = pipeline.followed
        assert told.position_w[0, 0] == law.got
        return law.got

    pipeline.start(here)
    follow(0.0)
    pipeline.switch()
    way = [follow(0.1) for _ in range(25)]
    assert way[0] == 0.0
    assert way[10] == pytest.approx(0.05)  # half of the time, half of the way
    assert way[-1] == 0.1
