"""Our rigid-body chain against MuJoCo on the Panda, and the laws that any chain obeys."""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

import math
from dataclasses import replace

import mujoco
import numpy as np
import pytest

from hardware.controllers.chain import KinematicChain
from robot_rl.core.errors import ConfigError, ShapeError
from tests.hardware.controllers.arms import chain_of, panda

J = 7
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def model():
    return panda()


@pytest.fixture(scope="module")
def chain(model):
    return chain_of(model, "end_effector", J)


@pytest.fixture(params=range(8))
def moving(request, model):
    """The Panda in a random pose, moving, its fingers closed."""
    rng = np.random.default_rng(request.param)
    data = mujoco.MjData(model)
    low, high = model.jnt_range[:J].T
    data.qpos[:J] = rng.uniform(low, high)
    data.qvel[:J] = rng.standard_normal(J)
    mujoco.mj_forward(model, data)
    return data


def test_the_end_effector_and_its_jacobian_are_where_mujoco_has_them(model, chain, moving):
    pose = chain.at(moving.qpos[:J])
    site = model.site("end_effector").id
    expected = np.zeros(4)
    mujoco.mju_mat2Quat(expected, moving.site_xmat[site])
    np.testing.assert_allclose(pose.tip_position_b, moving.site_xpos[site], atol=1e-9)
    assert abs(expected @ pose.tip_orientation_b) == pytest.approx(1.0, abs=1e-9)
    expected = np.zeros((6, model.nv))
    mujoco.mj_jacSite(model, moving, expected[:3], expected[3:], model.site("end_effector").id)
    np.testing.assert_allclose(chain.at(moving.qpos[:J]).jacobian, expected[:, :J], atol=1e-9)


def test_gravity_and_coriolis_torques_add_up_to_mujocos_bias(model, chain, moving):
    pose = chain.at(moving.qpos[:J])
    bias = pose.gravity_torque + pose.coriolis_torque(moving.qvel[:J])
    np.testing.assert_allclose(bias, moving.qfrc_bias[:J], atol=1e-9)
    moving.qvel[:] = 0
    mujoco.mj_forward(model, moving)
    np.testing.assert_allclose(pose.gravity_torque, moving.qfrc_bias[:J], atol=1e-9)
    np.testing.assert_array_equal(pose.coriolis_torque(np.zeros(J)), 0)


def test_a_pendulum_by_hand():
    length, mass, inertia = 0.5, 2.0, 0.03
    chain = KinematicChain(
        axis=np.array([[0.0, 1.0, 0.0]]),
        position=np.zeros((1, 3)),
        orientation=np.array([[1.0, 0, 0, 0]]),
        mass=np.array([mass]),
        center=np.array([[length, 0.0, 0.0]]),
        inertia=inertia * np.eye(3)[None],
        tip_position=np.array([2 * length, 0.0, 0.0]),
    )
    angle = 0.3  # about y: the rod sinks below the horizontal
    pose = chain.at(np.array([angle]))
    tip = [2 * length * math.cos(angle), 0, -2 * length * math.sin(angle)]
    np.testing.assert_allclose(pose.tip_position_b, tip)
    holding = -mass * 9.81 * length * math.cos(angle)
    np.testing.assert_allclose(pose.gravity_torque, [holding])


def test_sliding_joints_are_mujocos_too():
    text = """
    <mujoco><compiler angle="radian"/><worldbody>
      <body pos="0.1 0 0.2" euler="0.3 0 0"><joint name="a" type="slide" axis="0 0.6 0.8"/>
        <geom type="box" size="0.1 0.2 0.3" pos="0.1 0.2 0" mass="2"/>
        <body pos="0 0.3 0" euler="0 0.5 0"><joint name="b" axis="1 0 0"/>
          <geom type="box" size="0.1 0.05 0.3" pos="0 0 0.3" mass="1"/>
          <body pos="0 0 0.4"><joint name="c" type="slide" axis="0 0 1"/>
            <geom type="sphere" size="0.1" mass="0.5"/><site name="tip" pos="0 0 0.1"/>
    </body></body></body></worldbody></mujoco>"""
    model = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = [0.2, -0.7, 0.1], [0.5, 2.0, -1.0]
    mujoco.mj_forward(model, data)
    pose = chain_of(model, "tip", 3).at(data.qpos)
    jacobian = np.zeros((6, 3))
    mujoco.mj_jacSite(model, data, jacobian[:3], jacobian[3:], 0)
    np.testing.assert_allclose(pose.tip_position_b, data.site_xpos[0], atol=1e-12)
    np.testing.assert_allclose(pose.jacobian, jacobian, atol=1e-12)
    bias = pose.gravity_torque + pose.coriolis_torque(data.qvel)
    np.testing.assert_allclose(bias, data.qfrc_bias, atol=1e-12)


TWO_LINKS = """
<mujoco><compiler angle="radian"/><worldbody><body name="base" euler="0.4 0.7 0">
  <body name="first" pos="0 0 0.3"><joint name="a" axis="0 0 1" {}/>
    <geom type="sphere" size="0.03" mass="1" pos="0.1 0 0"/>
    <body pos="0.3 0 0"><joint name="b" axis="0 1 0"/>
      <geom type="sphere" size="0.03" mass="1" pos="0.1 0 0"/><site name="tip" pos="0.2 0 0"/>
</body></body></body></worldbody></mujoco>"""


def test_gravity_pulls_down_on_a_tilted_base_too():
    """It pulled along the base's own axis: an arm on a wall was told to carry itself wrongly."""
    model = mujoco.MjModel.from_xml_string(TWO_LINKS.format(""))
    data = mujoco.MjData(model)
    data.qpos[:] = [0.4, 0.7]
    mujoco.mj_forward(model, data)
    torque = chain_of(model, "tip", 2).at(data.qpos).gravity_torque
    np.testing.assert_allclose(torque, data.qfrc_bias, atol=1e-12)
    assert abs(torque[0]) > 0.1  # upright, nothing pulls about the vertical


@pytest.mark.parametrize(
    ("joint", "told"),
    [('pos="0 0.1 0"', r"'a' turns about the point \[0.0, 0.1, 0.0\]"), ('ref="0.5"', "reads 0.5")],
)
def test_joints_that_a_chain_cannot_describe_are_refused(joint, told):
    """Their tip was somewhere else than MuJoCo's, without a word."""
    model = mujoco.MjModel.from_xml_string(TWO_LINKS.format(joint))
    with pytest.raises(ConfigError, match=told):
        chain_of(model, "tip", 2)


def test_chains_of_mismatched_shapes_and_axes_without_unit_length_are_refused(chain):
    with pytest.raises(ShapeError, match=r"center has shape \(6, 3\), expected \(7, 3\)"):
        replace(chain, center=chain.center[:-1])
    with pytest.raises(ConfigError, match="each axis needs length 1"):
        replace(chain, axis=2 * chain.axis)
