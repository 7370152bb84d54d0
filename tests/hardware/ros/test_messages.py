"""Measurements and commands through real messages: exact both ways, by name, or refused."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from hardware.ros.command_messages import CommandMessages, Gains
from hardware.ros.compat import message
from hardware.ros.message_parts import clock_offset, put_stamp, to_nanoseconds
from hardware.ros.state_messages import state_topics
from robot_rl.core.errors import SpecMismatchError
from robot_rl.core.quaternion import normalize
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import BodyRateCommand, CommandKind, JointCommand, RotorCommand
from tests.compositions import composed

ROBOTS = {
    "crazyflie": "hover", "x500": "hover", "panda": "lift", "ur5e": "reach", "go2": "velocity",
    "g1": "velocity",
}  # fmt: skip
STAMP = 1_234_567_890_123_456_789


@pytest.fixture(params=ROBOTS, scope="module")
def robot(request) -> RobotSpec:
    config = composed([f"task={ROBOTS[request.param]}", f"robot={request.param}"]).config
    return config.robot.spec


def some_state(robot: RobotSpec, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    state = {name: rng.standard_normal((1, width)) for name, width in robot.state_widths.items()}
    return {
        name: normalize(value) if name.endswith(("orientation_w", "orientation_b")) else value
        for name, value in state.items()
    }


def empty_state(robot: RobotSpec) -> dict[str, np.ndarray]:
    return {name: np.full((1, width), np.nan) for name, width in robot.state_widths.items()}


def test_every_measured_field_comes_back_exactly_and_no_other_is_carried(robot):
    sent, got = some_state(robot), empty_state(robot)
    for topic in state_topics(robot):
        packed = message(topic.package, topic.message)()
        topic.pack(sent, packed, STAMP)
        assert topic.unpack(packed, got) == STAMP
    for name, value in sent.items():
        np.testing.assert_allclose(got[name], value, rtol=0, atol=1e-12, err_msg=name)
    carried = [field for topic in state_topics(robot) for field in topic.fields]
    assert sorted(carried) == sorted(robot.state_widths)


def test_joints_are_found_by_name_in_any_order(robot):
    if not robot.joints:
        return
    topic = next(topic for topic in state_topics(robot) if topic.name == "joint_states")
    sent, got = some_state(robot), empty_state(robot)
    packed = message("sensor_msgs", "JointState")()
    topic.pack(sent, packed, STAMP)
    shuffled = message("sensor_msgs", "JointState")()
    order = np.random.default_rng(1).permutation(robot.num_joints)
    shuffled.name = [packed.name[i] for i in order] + ["stranger"]
    shuffled.position = [packed.position[i] for i in order] + [99.0]
    topic.unpack(shuffled, got)
    np.testing.assert_array_equal(got["joint_position"], sent["joint_position"])
    assert np.isnan(got["joint_velocity"]).all(), "a list that is not sent changes nothing"


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda m: m.name.__setitem__(0, "elbow"), "lacks"),
        (lambda m: m.name.__setitem__(1, m.name[0]), "lacks"),
        (lambda m: m.name.append(m.name[0]), "values"),
        (lambda m: setattr(m, "name", []), "0 joint names"),
    ],
)
def test_names_that_do_not_fit_are_refused(spoil, told):
    robot = composed(["task=velocity", "robot=go2"]).config.robot.spec
    topic = state_topics(robot)[0]
    packed = message("sensor_msgs", "JointState")()
    topic.pack(some_state(robot), packed, STAMP)
    spoil(packed)
    with pytest.raises(SpecMismatchError, match=told):
        topic.unpack(packed, empty_state(robot))


@pytest.mark.slow
def test_velocity_travels_in_body_axes():
    """A drone that leans by 90 degrees and flies along the world's x flies along its own z."""
    robot = composed(["task=hover"]).config.robot.spec
    state = some_state(robot)
    half = np.sqrt(0.5)
    state["orientation_w"] = np.array([[half, 0.0, half, 0.0]])  # about y: z points to x
    state["linear_velocity_w"] = np.array([[2.0, 0.0, 0.0]])
    topic = next(topic for topic in state_topics(robot) if topic.name == "odom")
    odom = message("nav_msgs", "Odometry")()
    topic.pack(state, odom, STAMP)
    linear = odom.twist.twist.linear
    np.testing.assert_allclose([linear.x, linear.y, linear.z], [0.0, 0.0, 2.0], atol=1e-12)
    assert odom.child_frame_id == "base_link"
    assert odom.pose.pose.orientation.y == pytest.approx(half)


def gain_sets(robot: RobotSpec) -> dict[str, Gains]:
    return {
        "policy": Gains(
            stiffness=np.array([[joint.stiffness for joint in robot.joints]]),
            damping=np.array([[joint.damping for joint in robot.joints]]),
        )
    }


def some_command(robot: RobotSpec):
    rng = np.random.default_rng(3)
    if robot.command is CommandKind.rotors:
        return RotorCommand(speed=rng.uniform(0, 1, (1, len(robot.rotors))))
    gains = gain_sets(robot)["policy"]
    q, dq, tau = rng.standard_normal((3, 1, robot.num_joints))
    opening = np.array([[0.3]]) if robot.gripper else None
    return JointCommand(q=q, dq=dq, tau=tau, kp=gains.stiffness, kd=gains.damping, gripper=opening)


def test_every_command_comes_back_exactly(robot):
    messages = CommandMessages(robot, gain_sets(robot))
    sent = some_command(robot)
    packed = message(messages.package, messages.message)()
    messages.pack(sent, packed, stamp=STAMP, gains="policy")
    got, stamp = messages.unpack(packed)
    assert stamp == STAMP
    assert type(got) is type(sent)
    for name, value in vars(sent).items():
        if value is None:
            assert getattr(got, name) is None
        else:
            np.testing.assert_array_equal(getattr(got, name), value)


def test_body_rates_come_back_exactly():
    robot = replace(composed(["task=hover"]).config.robot.spec, command=CommandKind.body_rates)
    messages = CommandMessages(robot, {})
    sent = BodyRateCommand(rates_b=np.array([[0.1, -2.0, 3.0]]), thrust=np.array([[0.4]]))
    packed = message(messages.package, messages.message)()
    messages.pack(sent, packed, stamp=STAMP)
    got, _ = messages.unpack(packed)
    assert isinstance(got, BodyRateCommand)
    np.testing.assert_array_equal(got.rates_b, sent.rates_b)
    np.testing.assert_array_equal(got.thrust, sent.thrust)


def test_gains_are_agreed_on_beforehand():
    robot = composed(["task=velocity", "robot=go2"]).config.robot.spec
    messages = CommandMessages(robot, gain_sets(robot))
    packed = message("sensor_msgs", "JointState")()
    with pytest.raises(SpecMismatchError, match=r"gain set 'polici' is unknown .*'policy'"):
        messages.pack(some_command(robot), packed, stamp=STAMP, gains="polici")
    stiffer = some_command(robot)
    assert isinstance(stiffer, JointCommand)
    stiffer = replace(stiffer, kp=2 * stiffer.kp)
    with pytest.raises(SpecMismatchError, match="but the gain set 'policy' has"):
        messages.pack(stiffer, packed, stamp=STAMP, gains="policy")
    messages.pack(some_command(robot), packed, stamp=STAMP, gains="policy")
    packed.header.frame_id = "wild"
    with pytest.raises(SpecMismatchError, match="gain set 'wild' is unknown"):
        messages.unpack(packed)


def test_command_of_another_kind_is_refused():
    quadruped = composed(["task=velocity", "robot=go2"]).config.robot.spec
    drone = composed(["task=hover"]).config.robot.spec
    messages = CommandMessages(drone, {})
    with pytest.raises(SpecMismatchError, match="takes 'rotors' commands, got JointCommand"):
        messages.pack(some_command(quadruped), message("sensor_msgs", "JointState")(), stamp=0)
    with pytest.raises(SpecMismatchError, match="no message here"):
        CommandMessages(replace(quadruped, command=CommandKind.twist), {})


def test_absent_lists_mean_no_speed_and_no_torque_but_never_a_position():
    robot = composed(["task=velocity", "robot=go2"]).config.robot.spec
    messages = CommandMessages(robot, gain_sets(robot))
    packed = message("sensor_msgs", "JointState")()
    packed.header.frame_id = "policy"
    packed.name = robot.joint_names
    got, _ = messages.unpack(packed)
    assert isinstance(got, JointCommand)
    assert np.isnan(got.q).all()
    assert not got.dq.any()
    assert not got.tau.any()


class TwoClocks:
    """Clocks that are a known time apart; now and then whoever reads one has to wait."""

    def __init__(self, offset: int, waits: list[float]) -> None:
        self._offset, self._waits, self._time = offset, waits, 100.0

    def ros(self) -> int:
        self._pass()
        return round(self._time * 1e9) + self._offset

    def loop(self) -> float:
        self._pass()
        return self._time

    def _pass(self) -> None:
        self._time += 1e-6 + (self._waits.pop(0) if self._waits else 0.0)


def test_waiting_between_the_clocks_does_not_move_them_apart():
    for waits in ([], [0.1], [0.0, 0.1], [0.0, 0.0, 0.1], [0.1, 0.1, 0.1, 0.1]):
        clocks = TwoClocks(7_000_000_000, waits)
        assert abs(clock_offset(clocks.ros, clocks.loop) - 7_000_000_000) < 5_000


def test_on_a_machine_that_never_lets_go_the_narrowest_try_counts():
    clocks = TwoClocks(0, [0.0, 0.02, 0.0] * 2 + [0.0, 0.001, 0.0] + [0.0, 0.02, 0.0] * 2)
    assert abs(clock_offset(clocks.ros, clocks.loop)) < 1_000_000


def test_stamps_are_whole_nanoseconds():
    header = SimpleNamespace(stamp=SimpleNamespace(sec=0, nanosec=0))
    put_stamp(header, 3_000_000_007)
    assert (header.stamp.sec, header.stamp.nanosec) == (3, 7)
    assert to_nanoseconds(header.stamp) == 3_000_000_007
