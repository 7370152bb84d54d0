"""The law of MIT-mode motors: its numbers, its limits, and that it gives no energy away."""

import numpy as np
import pytest

from hardware.controllers.joint_pd import JointImpedance, JointPd, torque
from tests.hardware.controllers import joints
from tests.hardware.controllers.arms import EFFORT, READY, ArmOfMujoco, panda_chain

LIMIT = [10.0, 20.0]


def test_the_law_by_hand_which_a_driver_of_torques_gets_without_gains():
    command = joints.command([1.0, 0.0], dq=[0.5, 0.0], tau=[0.25, -1.0], kp=[4.0, 3.0], kd=2.0)
    q, dq = np.array([[0.5, 1.0]]), np.array([[0.0, -1.0]])
    np.testing.assert_allclose(torque(command, q, dq), [[2.0 + 1.0 + 0.25, -3.0 + 2.0 - 1.0]])
    law = JointPd(LIMIT, in_firmware=False)
    now = joints.state([0.5, 1.0], [0.0, -1.0])
    out = law.update(joints.command([1.0, 0.0], tau=0.25, kp=4.0, kd=2.0), now, 0.002)
    np.testing.assert_allclose(out.tau, [[2.25, -4.0 + 2.0 + 0.25]])
    np.testing.assert_array_equal(out.kp, [[0, 0]])
    np.testing.assert_array_equal(out.kd, [[0, 0]])
    np.testing.assert_array_equal(out.q, now.joint_position)


def test_torques_are_clipped_to_the_limits_of_each_joint_also_as_feed_forward():
    law = JointPd(LIMIT, in_firmware=False)
    out = law.update(joints.command([5.0, -5.0], kp=600.0), joints.state([0, 0]), 0.002)
    np.testing.assert_array_equal(out.tau, [[10, -20]])
    law = JointPd(LIMIT, stiffness=[7, 8], damping=[1, 2])
    out = law.update(joints.command([1, 2], tau=[99, -99], kp=5), joints.state([0, 0]), 0.002)
    np.testing.assert_array_equal(out.tau, [[10, -20]])
    np.testing.assert_array_equal(out.kp, [[7, 8]])
    np.testing.assert_array_equal(out.kd, [[1, 2]])
    np.testing.assert_array_equal(out.q, [[1, 2]])
    setpoint = joints.command([1, 2], kp=[5, 6], kd=[0.5, 0.6])
    out = JointPd(LIMIT).update(setpoint, joints.state([0, 0]), 0.002)
    np.testing.assert_array_equal(out.kp, setpoint.kp)
    np.testing.assert_array_equal(out.kd, setpoint.kd)


CHAIN = panda_chain()
STIFFNESS = [600, 600, 600, 600, 250, 150, 50]


def bias(q, dq):
    return CHAIN.at(q).bias_torque(dq)


@pytest.mark.parametrize("in_firmware", [True, False])
def test_at_the_target_and_at_rest_the_torque_is_gravitys(in_firmware):
    law = JointImpedance(EFFORT, bias, in_firmware=in_firmware)
    now = joints.state(READY)
    out = law.update(joints.command(READY, kp=STIFFNESS, kd=20.0), now, 0.001)
    effort = torque(out, now.joint_position, now.joint_velocity)
    np.testing.assert_allclose(effort[0], CHAIN.at(READY).gravity_torque, rtol=1e-12)


@pytest.mark.slow
def test_a_displaced_arm_springs_back_and_its_energy_only_falls():
    arm = ArmOfMujoco(READY + np.array([0.2, -0.2, 0.2, 0.2, -0.2, 0.2, 0.3]), dt=0.0005)
    law = JointImpedance([1e3] * 7, bias)
    setpoint = joints.command(READY, kp=STIFFNESS, kd=[50, 50, 50, 50, 10, 10, 5])
    energies = []
    for _ in range(1000):
        now = joints.state(arm.q, arm.dq)
        stretch = arm.q - READY
        kinetic = 0.5 * arm.dq @ CHAIN.at(arm.q).mass_matrix @ arm.dq
        energies.append(kinetic + 0.5 * stretch @ np.diag(STIFFNESS) @ stretch)
        arm.step(law.update(setpoint, now, 0.0005).tau[0])
    energies = np.array(energies)
    # Steps of half a millisecond: the energy may ripple within a few steps, not over ten.
    assert (np.diff(energies[::10]) < 1e-6 * energies[0]).all()
    assert energies[-1] < 1e-3 * energies[0]


def test_torques_are_clipped_after_the_feed_forward_is_added():
    law = JointImpedance([5.0], lambda q, dq: np.array([100.0]))
    out = law.update(joints.command([0.0]), joints.state([0.0]), 0.001)
    np.testing.assert_array_equal(out.tau, [[5.0]])
    firmware = JointImpedance([5.0], lambda q, dq: np.array([100.0]), in_firmware=True)
    out = firmware.update(joints.command([0.0]), joints.state([0.0]), 0.001)
    np.testing.assert_array_equal(out.tau, [[5.0]])
