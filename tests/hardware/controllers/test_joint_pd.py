"""The law of MIT-mode motors: its numbers, its limits, and that it gives no energy away."""

import numpy as np
import pytest

from hardware.controllers.joint_pd import JointPd, torque
from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.robot_command import PoseCommand
from tests.hardware.controllers import joints

LIMIT = [10.0, 20.0]


def test_the_law_by_hand():
    command = joints.command([1.0, 0.0], dq=[0.5, 0.0], tau=[0.25, -1.0], kp=[4.0, 3.0], kd=2.0)
    q, dq = np.array([[0.5, 1.0]]), np.array([[0.0, -1.0]])
    np.testing.assert_allclose(torque(command, q, dq), [[2.0 + 1.0 + 0.25, -3.0 + 2.0 - 1.0]])


def test_a_driver_of_torques_gets_the_law_and_no_gains():
    law = JointPd(LIMIT, in_firmware=False)
    now = joints.state([0.5, 1.0], [0.0, -1.0])
    out = law.update(joints.command([1.0, 0.0], tau=0.25, kp=4.0, kd=2.0), now, 0.002)
    np.testing.assert_allclose(out.tau, [[2.25, -4.0 + 2.0 + 0.25]])
    np.testing.assert_array_equal(out.kp, [[0, 0]])
    np.testing.assert_array_equal(out.kd, [[0, 0]])
    np.testing.assert_array_equal(out.q, now.joint_position)


@pytest.mark.parametrize("in_firmware", [True, False])
def test_at_the_target_and_at_rest_only_the_feed_forward_is_left(in_firmware):
    law = JointPd(LIMIT, in_firmware=in_firmware)
    now = joints.state([0.3, -0.2])
    out = law.update(joints.command([0.3, -0.2], tau=[1.5, -0.5], kp=600, kd=50), now, 0.002)
    effort = torque(out, now.joint_position, now.joint_velocity)
    np.testing.assert_array_equal(effort, [[1.5, -0.5]])


def test_torques_are_clipped_to_the_limits_of_each_joint():
    law = JointPd(LIMIT, in_firmware=False)
    out = law.update(joints.command([5.0, -5.0], kp=600.0), joints.state([0, 0]), 0.002)
    np.testing.assert_array_equal(out.tau, [[10, -20]])


def test_firmware_gets_a_clipped_feed_forward_and_the_gains_of_the_robot():
    law = JointPd(LIMIT, stiffness=[7, 8], damping=[1, 2])
    out = law.update(joints.command([1, 2], tau=[99, -99], kp=5), joints.state([0, 0]), 0.002)
    np.testing.assert_array_equal(out.tau, [[10, -20]])
    np.testing.assert_array_equal(out.kp, [[7, 8]])
    np.testing.assert_array_equal(out.kd, [[1, 2]])
    np.testing.assert_array_equal(out.q, [[1, 2]])


def test_gains_of_the_setpoint_stay_where_the_robot_has_none_of_its_own():
    setpoint = joints.command([1, 2], kp=[5, 6], kd=[0.5, 0.6])
    out = JointPd(LIMIT).update(setpoint, joints.state([0, 0]), 0.002)
    np.testing.assert_array_equal(out.kp, setpoint.kp)
    np.testing.assert_array_equal(out.kd, setpoint.kd)


def test_energy_of_masses_on_a_resting_target_only_falls():
    law = JointPd([1e3, 1e3], in_firmware=False)
    setpoint = joints.command([0.0, 0.0], kp=[600.0, 20.0], kd=[20.0, 3.0])
    mass, dt = np.array([[1.2, 0.3]]), 2e-4
    q, dq = np.array([[0.8, -1.0]]), np.array([[0.0, 2.0]])
    energies = []
    for _ in range(7_500):
        out = law.update(setpoint, joints.state(q, dq), dt)
        dq = dq + dt * out.tau / mass
        q = q + dt * dq
        energies.append(0.5 * float(np.sum(mass * dq**2 + setpoint.kp * q**2)))
    energies = np.array(energies)
    # The integrator's own ripple is of the order dt; damping wins over every hundredth of a second.
    assert (np.diff(energies[::50]) < 0).all()
    assert energies[-1] < 1e-3 * energies[0]


def test_a_pose_is_refused_in_words():
    pose = PoseCommand(position_w=np.zeros((1, 3)), orientation_w=np.array([[1.0, 0, 0, 0]]))
    with pytest.raises(SpecMismatchError, match="JointCommand setpoints got a PoseCommand"):
        JointPd(LIMIT).update(pose, joints.state([0, 0]), 0.002)


def test_a_negative_gain_is_refused():
    with pytest.raises(ConfigError, match="kd must be >= 0"):
        JointPd(LIMIT, damping=[1.0, -1.0])
