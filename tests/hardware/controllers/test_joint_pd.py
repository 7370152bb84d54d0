"""The law of MIT-mode motors, by hand."""

import numpy as np

from hardware.controllers.joint_pd import pure_torque, torque
from tests.hardware.controllers import joints


def test_the_law_by_hand():
    command = joints.command([1.0, 0.0], dq=[0.5, 0.0], tau=[0.25, -1.0], kp=[4.0, 3.0], kd=2.0)
    q, dq = np.array([[0.5, 1.0]]), np.array([[0.0, -1.0]])
    np.testing.assert_allclose(torque(command, q, dq), [[2.0 + 1.0 + 0.25, -3.0 + 2.0 - 1.0]])


def test_a_driver_of_torques_gets_no_gains_and_the_measured_pose():
    now = joints.state([0.5, 1.0], [0.0, -1.0])
    out = pure_torque(np.array([[2.25, -1.75]]), now)
    np.testing.assert_array_equal(out.tau, [[2.25, -1.75]])
    np.testing.assert_array_equal(out.kp, [[0, 0]])
    np.testing.assert_array_equal(out.kd, [[0, 0]])
    np.testing.assert_array_equal(out.q, now.joint_position)
    np.testing.assert_array_equal(out.dq, now.joint_velocity)
