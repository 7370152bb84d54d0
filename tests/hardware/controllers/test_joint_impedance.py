"""An arm under joint impedance weighs nothing, springs back and gives no energy away."""

import numpy as np
import pytest

from hardware.controllers.joint_pd import JointImpedance, torque
from tests.hardware.controllers import joints
from tests.hardware.controllers.arms import EFFORT, READY, ArmOfMujoco, panda_chain

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


def test_an_arm_without_springs_floats_where_it_is():
    arm = ArmOfMujoco()
    law = JointImpedance(EFFORT, bias)
    for _ in range(500):
        setpoint = joints.command(READY)
        arm.step(law.update(setpoint, joints.state(arm.q, arm.dq), 0.001).tau[0])
    np.testing.assert_allclose(arm.q, READY, atol=1e-6)


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
