"""Robots to control in tests: two joints with limits by hand, and a multirotor."""

import numpy as np

from robot_rl.core.observation import RobotState
from robot_rl.core.quaternion import from_rotation_vector
from robot_rl.core.robot import JointSpec, RobotSpec, SensorSpec
from robot_rl.core.robot_command import CommandKind


def two_joints() -> RobotSpec:
    """Position in [-1, 1] and [-2, 0.5], 2 and 4 rad/s, 10 and 5 N m."""
    return RobotSpec(
        name="two_joints",
        command=CommandKind.joint,
        joints=[
            JointSpec(name="hip", position_limit=[-1.0, 1.0], velocity_limit=2.0,
                      effort_limit=10.0, default_position=0.2, stiffness=40.0, damping=4.0),
            JointSpec(name="knee", position_limit=[-2.0, 0.5], velocity_limit=4.0,
                      effort_limit=5.0, default_position=-0.5, stiffness=20.0, damping=2.0),
        ],
        sensors={name: SensorSpec() for name in
                 ("joint_position", "joint_velocity", "joint_effort")},
    )  # fmt: skip


def multirotor(command: CommandKind = CommandKind.body_rates) -> RobotSpec:
    """Four rotors; measures its pose and velocities."""
    return RobotSpec(
        name="multirotor",
        command=command,
        rotors=["m1", "m2", "m3", "m4"],
        sensors={name: SensorSpec() for name in
                 ("position_w", "orientation_w", "linear_velocity_w", "angular_velocity_b")},
    )  # fmt: skip


def flying(turn=(0.0, 0, 0), position=(0, 0, 1), climb=0.0) -> RobotState:
    """A multirotor that is turned by a vector [rad] and climbs [m/s]."""
    return RobotState({
        "position_w": np.array([position], float),
        "orientation_w": from_rotation_vector(np.array([turn], float)),
        "linear_velocity_w": np.array([[0, 0, climb]], float),
        "angular_velocity_b": np.zeros((1, 3)),
    })  # fmt: skip
