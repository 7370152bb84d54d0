"""Inverse kinematics against the model's own forward kinematics."""

# pyright: reportAttributeAccessIssue=false
# The bindings of MuJoCo 4 carry no types.

import mujoco
import numpy as np
import pytest

from sim.physics.kinematics import ArmKinematics
from tests.sim.arms import arms


@pytest.mark.parametrize("seed", range(3))
def test_a_pose_that_an_arm_was_in_is_reached_from_its_default_pose(seed: int) -> None:
    simulation = arms(1)
    model, layout = simulation.engine.model, simulation.layout
    rest = np.array([joint.default_position for joint in simulation.robot.joints])
    data = mujoco.MjData(model)
    data.qpos[layout.position] = rest + np.random.default_rng(seed).uniform(-0.4, 0.4, 7)
    mujoco.mj_forward(model, data)
    place, turn = data.site("end_effector").xpos.copy(), np.zeros(4)
    mujoco.mju_mat2Quat(turn, data.site("end_effector").xmat)
    solved = ArmKinematics(model, layout, "end_effector", rest).solve(rest, place, turn, 60)
    data.qpos[layout.position] = solved
    mujoco.mj_forward(model, data)
    # Homing pulls at every iteration: a part of its damped way remains.
    np.testing.assert_allclose(data.site("end_effector").xpos, place, atol=1e-3)
    again = np.zeros(4)
    mujoco.mju_mat2Quat(again, data.site("end_effector").xmat)
    assert abs(float(again @ turn)) == pytest.approx(1.0, abs=1e-5)


def test_joint_limits_are_kept_where_a_pose_is_out_of_reach() -> None:
    simulation = arms(1)
    rest = np.array([joint.default_position for joint in simulation.robot.joints])
    hand = ArmKinematics(simulation.engine.model, simulation.layout, "end_effector", rest)
    solved = hand.solve(rest, np.array([3.0, 0.0, 0.1]), np.array([0.0, 1.0, 0.0, 0.0]), 50)
    for value, joint in zip(solved, simulation.robot.joints, strict=True):
        assert joint.position_limit[0] <= value <= joint.position_limit[1]
