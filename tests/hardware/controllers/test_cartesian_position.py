"""Cartesian position control of the Panda: poses are reached, no joint is faster than it may."""

import math

import numpy as np

from hardware.controllers import rotations
from hardware.controllers.cartesian_position import CartesianPosition
from robot_rl.core.observation import RobotState
from robot_rl.core.robot_command import PoseCommand
from tests.hardware.controllers import joints
from tests.hardware.controllers.arms import READY, panda_chain
from tests.hardware.controllers.every_controller import PANDA

DT = 0.005
CHAIN = panda_chain()
STILL = joints.state(READY, np.zeros(7))


def law(*, rests: bool = True) -> CartesianPosition:
    made = CartesianPosition(PANDA, CHAIN, rest=READY.tolist() if rests else None)
    made.start(STILL, None)
    return made


def following(command) -> RobotState:
    """Joints that are where they were told to be."""
    return joints.state(command.q[0], np.zeros(7))


def pose(way=(0.0, 0.0, 0.0), turn=(0.0, 0.0, 0.0)) -> PoseCommand:
    start = CHAIN.at(READY)
    turned = rotations.multiply(rotations.from_rotation_vector(turn), start.tip_orientation_b)
    return PoseCommand(
        position_w=(start.tip_position_b + np.array(way))[None], orientation_w=np.array([turned])
    )


def test_a_pose_in_motion_is_followed_to_a_tenth_of_a_millimetre():
    controller, target = law(), pose()
    command = controller.update(target, STILL, DT)
    for tick in range(200):  # 5 cm in a second, and a turn
        share = (tick + 1) / 200
        target = pose((0.05 * share, 0.0, -0.02 * share), (0.0, 0.0, 0.2 * share))
        command = controller.update(target, following(command), DT)
    found = CHAIN.at(command.q[0])
    np.testing.assert_allclose(found.tip_position_b, target.position_w[0], atol=1e-4)
    back = rotations.conjugate(found.tip_orientation_b)
    left = rotations.multiply(rotations.quaternion(target.orientation_w), back)
    assert math.hypot(*rotations.rotation_vector(left)) < 1e-3
    assert command.kp.tolist() == [[600, 600, 600, 600, 250, 150, 50]]


def test_a_pose_far_away_is_reached_no_faster_than_the_joints_may_move():
    controller = law()
    speed = np.array([joint.velocity_limit for joint in PANDA.joints])
    before, fastest, state = READY, 0.0, STILL
    for _ in range(800):
        command = controller.update(pose((-0.1, 0.3, 0.1)), state, DT)
        q, state = command.q[0], following(command)
        fastest = max(fastest, float((abs(q - before) / DT / speed).max()))
        before = q
    assert 0.3 < fastest <= 1 + 1e-9
    np.testing.assert_allclose(
        CHAIN.at(before).tip_position_b, pose((-0.1, 0.3, 0.1)).position_w[0], atol=1e-3
    )


def test_an_arm_that_is_held_back_is_pushed_no_harder_however_far_the_pose_is():
    """Its springs are stretched by no more than the clip: 3 cm here."""
    for way in (0.05, 0.5):
        controller, q = law(), READY
        for _ in range(400):
            q = controller.update(pose((way, 0.0, 0.0)), STILL, DT).q[0]
        pulled = CHAIN.at(q).tip_position_b - CHAIN.at(READY).tip_position_b
        np.testing.assert_allclose(pulled, [0.03, 0.0, 0.0], atol=1e-3)


def test_the_feed_forward_is_the_speed_of_the_targets():
    controller = law()
    first = controller.update(pose((0.001, 0.0, 0.0)), STILL, DT)
    second = controller.update(pose((0.002, 0.0, 0.0)), STILL, DT)
    np.testing.assert_allclose(second.dq, (second.q - first.q) / DT)


def test_it_goes_on_from_the_targets_that_hold_the_arm():
    controller, held = law(), joints.command(READY + 0.02, kp=[100.0] * 7, kd=[1.0] * 7)
    controller.start(STILL, held)
    place = CHAIN.at(READY + 0.02)
    there = PoseCommand(
        position_w=place.tip_position_b[None], orientation_w=np.array([place.tip_orientation_b])
    )
    moved = controller.update(there, STILL, DT).q[0] - (READY + 0.02)
    assert float(abs(moved).max()) < 1e-3


def test_spare_joints_come_back_to_the_pose_that_episodes_begin_in():
    """Without a rest, elbow and wrist drift to the middle of their ranges while the hand moves."""
    away = {}
    for rests in (True, False):
        controller, q = law(rests=rests), READY
        for tick in range(400):
            way = 0.05 * np.sin(2 * np.pi * (tick + 1) / 400)
            state = joints.state(q, np.zeros(7))
            q = controller.update(pose((way, 0.0, 0.0)), state, DT).q[0]
        away[rests] = float(abs(q - READY).max())
    assert away[True] < 0.01
    assert away[False] > 0.1
