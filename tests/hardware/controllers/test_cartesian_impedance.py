"""The end effector on a spring: its laws, its guards, and an arm of MuJoCo that hangs on it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hardware.controllers import rotations
from hardware.controllers.cartesian_impedance import CartesianImpedance, CartesianImpedanceConfig
from hardware.controllers.joint_pd import torque
from robot_rl.core import quaternion
from robot_rl.core.robot_command import PoseCommand
from tests.hardware.controllers import joints
from tests.hardware.controllers.arms import EFFORT, READY, ArmOfMujoco, panda_chain

CHAIN = panda_chain()
AT_READY = CHAIN.at(READY)
FREE: dict[str, Any] = {"attractor_time": 0.0, "torque_rate": np.inf, "position_clip": np.inf}
FREE |= {"rotation_clip": np.inf}
STRONG = [1e4] * 7


def law(effort: Any = STRONG, chain: Any = CHAIN, rest: Any = None, **changes: Any):
    return CartesianImpedance(chain, effort, CartesianImpedanceConfig(**changes), rest)


def pose(position=None, orientation=None, *, gripper=None):
    position = AT_READY.tip_position_b if position is None else position
    orientation = AT_READY.tip_orientation_b if orientation is None else orientation
    return PoseCommand(
        position_w=np.array([position]), orientation_w=np.array([orientation]), gripper=gripper
    )


def beside(x: float, y: float, z: float) -> np.ndarray:
    """A position that far from where the tip is in the default pose."""
    return AT_READY.tip_position_b + np.array([x, y, z])


def twisted(x: float, y: float, z: float):
    """The tip's orientation in the default pose, turned about the base's axes."""
    turn = rotations.from_rotation_vector((x, y, z))
    return rotations.multiply(turn, AT_READY.tip_orientation_b)


def first_torque(controller, setpoint, now, dt=0.001):
    controller.start(joints.state(READY), None)
    return controller.update(setpoint, now, dt).tau[0]


def test_at_the_target_and_at_rest_only_the_feed_forward_is_left():
    tau = first_torque(law(), pose(), joints.state(READY))
    np.testing.assert_allclose(tau, AT_READY.gravity_torque, atol=1e-9)
    weightless = first_torque(law(gravity=False), pose(), joints.state(READY))
    np.testing.assert_allclose(weightless, 0.0, atol=1e-9)


def test_the_feed_forward_holds_velocities_too():
    dq = 0.5 * np.ones(7)
    names = ("translational_damping", "rotational_damping", "null_stiffness")
    still: dict[str, Any] = dict.fromkeys(names, 0) | FREE
    now = joints.state(READY, dq)
    for gravity in (True, False):
        tau = first_torque(law(gravity=gravity, **still), pose(), now)
        expected = AT_READY.coriolis_torque(dq) + gravity * AT_READY.gravity_torque
        np.testing.assert_allclose(tau, expected, atol=1e-9)


def test_a_target_pulls_and_twists_with_the_stiffness():
    free = law(gravity=False, **FREE)
    tau = first_torque(free, pose(beside(0, 0, 0.01)), joints.state(READY))
    expected = AT_READY.jacobian.T @ np.array([0, 0, 20.0, 0, 0, 0])
    np.testing.assert_allclose(tau, expected, atol=1e-9)
    turned = twisted(0.1, 0, 0)
    tau = first_torque(law(gravity=False, **FREE), pose(None, turned), joints.state(READY))
    expected = AT_READY.jacobian.T @ np.array([0, 0, 0, 15.0, 0, 0])
    np.testing.assert_allclose(tau, expected, atol=1e-9)


def test_however_far_the_target_the_pull_is_bounded_by_the_clip():
    loose = law(gravity=False, **FREE | {"position_clip": 0.01})
    for far in (0.05, 5.0):
        tau = first_torque(loose, pose(beside(far, 0, 0)), joints.state(READY))
        expected = AT_READY.jacobian.T @ np.array([20.0, 0, 0, 0, 0, 0])
        np.testing.assert_allclose(tau, expected, atol=1e-9)


def test_a_turned_base_gives_the_same_torques():
    """The world turned about the arm: its base, its target and gravity together."""
    turn = quaternion.normalize(np.array([0.8, 0.3, -0.4, 0.2]))
    shift = np.array([0.3, -0.5, 0.2])
    position, orientation = CHAIN.position.copy(), CHAIN.orientation.copy()
    position[0] = quaternion.rotate(turn, position[0]) + shift
    orientation[0] = quaternion.multiply(turn, orientation[0])
    gravity = quaternion.rotate(turn, CHAIN.gravity_b)
    turned = replace(CHAIN, position=position, orientation=orientation, gravity_b=gravity)

    goal = beside(0.1, -0.2, 0.3)
    attitude = quaternion.normalize(np.array([0.1, 0.9, 0.3, -0.2]))
    now = joints.state(READY + 0.02, 0.1 * np.arange(7))
    one = first_torque(law(), pose(goal, attitude), now)
    moved = pose(quaternion.rotate(turn, goal) + shift, quaternion.multiply(turn, attitude))
    np.testing.assert_allclose(first_torque(law(chain=turned), moved, now), one, atol=1e-9)


@pytest.mark.parametrize("dt", [0.001, 0.002, 0.01])
def test_torques_change_no_faster_than_the_rate(dt):
    guarded = law(torque_rate=100.0, position_clip=1.0, attractor_time=0.0)
    guarded.start(joints.state(READY), None)
    far = pose(beside(0.0, 0.0, 0.3))
    before = AT_READY.gravity_torque
    for _ in range(5):
        tau = guarded.update(far, joints.state(READY), dt).tau[0]
        assert np.abs(tau - before).max() == pytest.approx(100.0 * dt)
        before = tau


def test_torques_go_on_from_those_of_the_command_sent_last():
    now = joints.state(READY)
    last = joints.command(READY, tau=[1, 2, 3, 4, 5, 6, 7])
    controller = law(gravity=False)
    controller.start(now, last)
    tau = controller.update(pose(), now, 0.001).tau
    # 1000 N m/s for a millisecond, towards zero.
    np.testing.assert_allclose(tau, last.tau - 1.0, atol=1e-12)


def test_torques_are_clipped_to_the_limits_of_the_joints():
    rough = law(EFFORT, **FREE)
    tau = first_torque(rough, pose(AT_READY.tip_position_b + 5.0), joints.state(READY))
    assert (np.abs(tau) <= EFFORT).all()
    assert (np.abs(tau) == EFFORT).any()


@pytest.mark.parametrize("ticks", [10, 20, 100])
def test_the_attractor_is_where_it_is_after_a_time_whatever_the_rate_of_ticks(ticks):
    """exp(-1) of the way is left after one time constant."""
    lagging = law(gravity=False, **FREE | {"attractor_time": 0.2})
    lagging.start(joints.state(READY), None)
    turned = twisted(0.5, 0, 0)
    goal = pose(beside(0.0, 0.1, 0.0), turned)
    for _ in range(ticks - 1):
        lagging.update(goal, joints.state(READY), 0.2 / ticks)
    tau = lagging.update(goal, joints.state(READY), 0.2 / ticks).tau[0]
    gone = 1 - np.exp(-1)
    expected = AT_READY.jacobian.T @ np.array([0, 200.0 * gone, 0, 75.0 * gone, 0, 0])
    np.testing.assert_allclose(tau, expected, atol=1e-9)


def test_the_resting_pose_is_not_felt_at_the_tip():
    """The tip at its target, the elbow elsewhere: torques that no force at the tip balances."""
    sharp = law(
        gravity=False, null_stiffness=20.0, pseudo_inverse_damping=1e-5, rest=[0.5] * 7, **FREE
    )
    tau = first_torque(sharp, pose(), joints.state(READY))
    assert np.abs(tau).max() > 0.1
    np.testing.assert_allclose(AT_READY.jacobian @ tau, 0.0, atol=1e-6)


@pytest.mark.slow
def test_an_arm_reaches_a_pose_with_the_default_guards():
    arm = ArmOfMujoco()
    spring = law(EFFORT)
    spring.start(joints.state(arm.q), None)
    turned = twisted(0, 0, 0.3)
    goal = beside(0.05, 0.1, -0.05)
    for _ in range(4000):
        arm.step(spring.update(pose(goal, turned), joints.state(arm.q, arm.dq), 0.001).tau[0])
    end = CHAIN.at(arm.q)
    np.testing.assert_allclose(end.tip_position_b, goal, atol=1e-3)
    left = rotations.multiply(turned, rotations.conjugate(end.tip_orientation_b))
    np.testing.assert_allclose(rotations.rotation_vector(left), 0.0, atol=0.01)


def test_the_grippers_opening_passes_through_and_the_firmware_adds_nothing():
    half, now = np.array([[0.5]]), joints.state(READY, 0.1 * np.ones(7))
    spring = law()
    spring.start(now, None)
    out = spring.update(pose(gripper=half), now, 0.001)
    assert out.gripper is half
    effort = torque(out, now.joint_position, now.joint_velocity)
    np.testing.assert_array_equal(effort, out.tau)


def test_a_wall_pushes_a_joint_back_from_its_limit_and_damps_the_way_outward():
    limits = [(-2.9, 2.9)] * 7
    limits[4] = (READY[4] - 2.0, READY[4] + 0.05)  # READY is half a margin inside
    calm: dict[str, Any] = FREE | {"rotational_damping": 0.0, "translational_damping": 0.0}
    config = CartesianImpedanceConfig(**calm, null_stiffness=0.0)
    walled = CartesianImpedance(CHAIN, EFFORT, config, position_limit=limits)
    free = CartesianImpedance(CHAIN, EFFORT, config)
    for speed, expected in ((0.0, -6.0), (-0.5, -6.0), (0.2, -6.0 - 120.0 * 0.1 * 0.2)):
        now = joints.state(READY, speed * np.eye(7)[4])
        more = first_torque(walled, pose(), now) - first_torque(free, pose(), now)
        np.testing.assert_allclose(more, expected * np.eye(7)[4], atol=1e-9)


def test_an_arm_that_is_led_beyond_a_joints_limit_stays_inside():
    limits = [(-2.9, 2.9)] * 7
    limits[6] = (-2.9, READY[6] + 0.3)
    turned = twisted(0, 0, -1.5)
    ends = {}
    for walls in (limits, None):
        arm = ArmOfMujoco()
        led = CartesianImpedance(CHAIN, EFFORT, CartesianImpedanceConfig(), position_limit=walls)
        led.start(joints.state(arm.q, arm.dq), None)
        far = []
        for _ in range(1200):
            now = joints.state(arm.q, arm.dq)
            arm.step(led.update(pose(None, turned), now, 0.001).tau[0])
            far.append(arm.q[6])
        ends[walls is None] = max(far)
    assert ends[True] > limits[6][1] + 0.1, "without a wall the joint would have gone further"
    assert ends[False] < limits[6][1]


def test_a_tip_that_is_pushed_and_pulled_outward_leaves_a_joint_inside_its_limit():
    """A wrist that its surroundings turn while its own pull turns it the same way."""
    limits = [(-2.9, 2.9)] * 7
    limits[6] = (-2.9, READY[6] + 0.3)
    pushed, turned, far = 6.0 * np.eye(7)[6], twisted(0, 0, -1.5), []
    arm, config = ArmOfMujoco(), CartesianImpedanceConfig(rotation_clip=0.2)
    led = CartesianImpedance(CHAIN, EFFORT, config, position_limit=limits, velocity_limit=[2.6] * 7)
    led.start(joints.state(arm.q, arm.dq), None)
    for _ in range(1200):
        now = joints.state(arm.q, arm.dq)
        arm.step(led.update(pose(None, turned), now, 0.001).tau[0] + pushed)
        far.append(arm.q[6])
    assert limits[6][1] - 0.1 < max(far) < limits[6][1], "it came near, and stayed inside"


def test_a_joint_that_nears_its_largest_speed_is_braked():
    undamped: dict[str, Any] = FREE | {"rotational_damping": 0.0, "translational_damping": 0.0}
    config = CartesianImpedanceConfig(**undamped, null_stiffness=0.0, speed_margin=0.5)
    braked = CartesianImpedance(CHAIN, EFFORT, config, velocity_limit=[2.0] * 7)
    free = CartesianImpedance(CHAIN, EFFORT, config)
    for speed, expected in ((0.9, 0.0), (1.5, -0.5 * 12.0), (-2.0, 12.0)):
        now = joints.state(READY, speed * np.eye(7)[6])
        more = first_torque(braked, pose(), now) - first_torque(free, pose(), now)
        np.testing.assert_allclose(more, expected * np.eye(7)[6], atol=1e-9)


def test_a_pull_leaves_a_joint_to_its_brake_at_the_largest_speed():
    """However strong the pull is: a tip that pivots on something turned a wrist at 1.3 of it."""
    config = CartesianImpedanceConfig(
        **FREE, null_stiffness=0.0, translational_stiffness=0.0, translational_damping=0.0,
        rotational_damping=0.0, speed_margin=0.5,
    )  # fmt: skip
    braked = CartesianImpedance(CHAIN, [1e3] * 7, config, velocity_limit=[2.0] * 7)
    free = CartesianImpedance(CHAIN, [1e3] * 7, config)
    ahead = pose(None, twisted(0, 0, -0.3))
    pull = first_torque(free, ahead, joints.state(READY, np.zeros(7)))[6]
    pull -= first_torque(free, pose(), joints.state(READY, np.zeros(7)))[6]
    assert abs(pull) > 10
    for speed, left, brake in ((0.5, 1.0, 0.0), (1.5, 0.5, 500.0), (1.9, 0.1, 900.0)):
        along = np.sign(pull) * speed * np.eye(7)[6]
        for dq, share in ((along, left), (-along, 1.0)):
            now = joints.state(READY, dq)
            more = first_torque(braked, ahead, now)[6] - first_torque(free, ahead, now)[6]
            assert more == pytest.approx((share - 1) * pull - np.sign(dq[6]) * brake, abs=1e-6)


def test_a_wrist_near_its_largest_speed_lets_the_pull_of_all_joints_fade():
    """A hand that pivots on something: other joints turn its wrist against all of its brake."""
    config = CartesianImpedanceConfig(
        **FREE, null_stiffness=0.0, translational_damping=0.0, rotational_damping=0.0,
        speed_margin=0.5,
    )  # fmt: skip
    led = CartesianImpedance(CHAIN, [1e3] * 7, config, velocity_limit=[2.0] * 7)

    def pull(dq: Any) -> np.ndarray:
        """Torques of the spring alone."""
        now = joints.state(READY, dq)
        return first_torque(led, pose(beside(0, 0, -0.01)), now) - first_torque(led, pose(), now)

    still = pull(np.zeros(7))
    assert abs(still[[1, 3]]).min() > 1.0
    against = -np.sign(still[5]) * np.eye(7)[5]
    for speed, left in ((0.9, 1.0), (1.5, 0.5), (2.0, 0.0)):
        expected = left * still
        expected[5] = still[5]  # slows the wrist
        np.testing.assert_allclose(pull(speed * against), expected, atol=1e-9)
        np.testing.assert_allclose(pull(-speed * against), left * still, atol=1e-9)


def test_the_spring_fades_without_a_leap():
    config = CartesianImpedanceConfig(
        **FREE, null_stiffness=0.0, translational_damping=0.0, rotational_damping=0.0,
    )  # fmt: skip
    limits = [(q - 1.0, q + 1.0) for q in READY]
    led = CartesianImpedance(
        CHAIN, EFFORT, config, position_limit=limits, velocity_limit=[2.0] * 7
    )  # fmt: skip
    ahead = pose(beside(0, 0, -0.005))
    for joint, edge in ((1, 1.4), (3, 1.4), (5, 1.4)):
        dq = 1.9 * np.eye(7)[0]  # another joint sets how much of the spring is left
        for sign in (-1, 1):
            near = [
                first_torque(led, ahead, joints.state(READY, dq + sign * speed * np.eye(7)[joint]))
                for speed in (edge - 1e-6, edge + 1e-6)
            ]
            np.testing.assert_allclose(*near, atol=0.02)
    for joint in (1, 3, 5):
        for place in (READY[joint] - 0.9, READY[joint] + 0.9):
            near = []
            for beyond in (-1e-6, 1e-6):
                q = READY.copy()
                q[joint] = place + beyond
                near.append(first_torque(led, ahead, joints.state(q, 1.9 * np.eye(7)[0])))
            np.testing.assert_allclose(*near, atol=0.02)


def test_a_joint_without_limits_leaves_the_others_theirs():
    """A robot's file may leave them out: they are infinite then."""
    speeds, efforts = [2.0] * 6 + [np.inf], [87.0] * 6 + [np.inf]
    limits = [(-2.9, 2.9)] * 6 + [(-np.inf, np.inf)]
    led = CartesianImpedance(CHAIN, efforts, position_limit=limits, velocity_limit=speeds)
    whole = CartesianImpedance(CHAIN, EFFORT, position_limit=limits, velocity_limit=[2.0] * 7)
    now = joints.state(READY, 1.9 * np.eye(7)[5])
    torques = first_torque(led, pose(), now)
    assert np.isfinite(torques).all()
    np.testing.assert_allclose(torques[:5], first_torque(whole, pose(), now)[:5])


def test_a_joint_that_something_pushes_stays_below_its_largest_speed():
    """A tip that is held by its surroundings turns a wrist faster than it moves itself."""
    push, fastest = 9.0 * np.eye(7)[5], {}
    for limits in ([2.61] * 7, None):
        arm = ArmOfMujoco()
        led = CartesianImpedance(
            CHAIN, EFFORT, CartesianImpedanceConfig(rotational_stiffness=0.0,
                                                    rotational_damping=0.0),
            velocity_limit=limits,
        )  # fmt: skip
        led.start(joints.state(arm.q, arm.dq), None)
        seen = []
        for _ in range(250):
            now = joints.state(arm.q, arm.dq)
            arm.step(led.update(pose(), now, 0.001).tau[0] + push)
            seen.append(abs(arm.dq[5]))
        fastest[limits is None] = max(seen)
    assert fastest[True] > 2.61, "without a brake the joint would have been too fast"
    assert fastest[False] < 2.61
