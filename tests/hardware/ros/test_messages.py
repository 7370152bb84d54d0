"""Measurements and commands as messages: exact both ways, by a template or not, or refused."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rosbags.typesys import Stores, get_typestore

from hardware.ros.command_messages import CommandMessages, Gains
from hardware.ros.compat import message, rclpy
from hardware.ros.message_parts import clock_offset
from hardware.ros.state_messages import StateTopic, state_topics
from hardware.ros.streams import (
    CommandReader,
    CommandWriter,
    MessageTemplate,
    StateReader,
    StateWriter,
    numbers_of,
)
from robot_rl.core.errors import SpecMismatchError
from robot_rl.core.quaternion import normalize
from robot_rl.core.robot import RobotSpec, SensorSpec
from robot_rl.core.robot_command import (
    BodyRateCommand,
    CommandKind,
    JointCommand,
    RobotCommand,
    RotorCommand,
)
from tests.compositions import composed
from tests.matrices import some

pytestmark = pytest.mark.slow

TASKS = {
    "crazyflie": "hover", "x500": "hover", "panda": "lift", "ur5e": "reach", "go2": "velocity",
    "g1": "velocity", "ur5e_2f85": "lift", "allegro": "reorient",
}  # fmt: skip
STAMP = 1_234_567_890_123_456_789
TYPES = get_typestore(Stores.ROS2_KILTED)  # which takes nothing behind the end of a message


def robot_named(name: str) -> RobotSpec:
    return composed([f"task={TASKS[name]}", f"robot={name}"]).config.robot.spec


@pytest.fixture(
    params=some(["crazyflie", "panda", "go2"], ["x500", "ur5e", "g1", "ur5e_2f85", "allegro"]),
    scope="module",
)
def robot(request) -> RobotSpec:
    spec = robot_named(request.param)
    more = {"wrench_ee": SensorSpec()} if spec.gripper else {}  # which no robot here measures
    return replace(spec, sensors={**spec.sensors, **more})


@pytest.fixture(scope="module")
def go2() -> RobotSpec:
    return robot_named("go2")


class Wire:
    """A publisher and its subscription: what was sent last is heard as bytes."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def publish(self, sent: Any) -> None:
        self.sent.append(sent)

    def take(self) -> bytes | None:
        sent = self.sent.pop() if self.sent else None
        given = sent is None or isinstance(sent, bytes)
        return sent if given else rclpy("serialization").serialize_message(sent)


def some_state(robot: RobotSpec, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    state = {name: rng.standard_normal((1, width)) for name, width in robot.state_widths.items()}
    return {
        name: normalize(value) if name.endswith(("orientation_w", "orientation_b")) else value
        for name, value in state.items()
    }


def empty_state(robot: RobotSpec) -> dict[str, np.ndarray]:
    return {name: np.full((1, width), np.nan) for name, width in robot.state_widths.items()}


def packed_state(topic: StateTopic, state: dict[str, np.ndarray]) -> Any:
    packed = message(topic.package, topic.message)()
    topic.pack(state, packed, STAMP)
    return packed


def template_of(robot: RobotSpec, topic: StateTopic) -> MessageTemplate | None:
    kind = message(topic.package, topic.message)
    return MessageTemplate.learn(kind, topic.pack, robot.state_widths, topic.fields)


def test_what_a_template_writes_is_the_message_of_the_long_way(robot):
    deserialize, state = rclpy("serialization").deserialize_message, some_state(robot, 7)
    without = set[str]()
    for topic in state_topics(robot):
        if (template := template_of(robot, topic)) is None:
            without.add(topic.name)
            continue
        expected = packed_state(topic, state)
        for _ in range(2):  # a second message does not remember the first
            raw = template.write(state, STAMP)
            assert deserialize(raw, type(expected)) == expected
            strict: Any = TYPES.deserialize_cdr(raw, f"{topic.package}/msg/{topic.message}")
            assert strict.header.stamp.nanosec == STAMP % 10**9
            template.write(some_state(robot, 8), STAMP + 1)
    assert without <= {"odom"}, "velocities are turned on their way"
    assert len(without) < len(state_topics(robot))


def test_measurements_come_through_exactly_whoever_sends_them(robot):
    """By a template, or as ROS makes them, which leaves in the gaps what was there before."""
    topics = state_topics(robot)
    assert sorted(f for topic in topics for f in topic.fields) == sorted(robot.state_widths)
    for topic in topics:
        wire = Wire()
        reader = StateReader(wire, topic, robot.state_widths)
        writer = StateWriter(wire, topic, robot.state_widths)
        assert reader.read(empty_state(robot)) is None
        for seed in range(3):
            state = some_state(robot, seed)
            state[topic.fields[0]][0, 0] *= np.nan if seed == 2 else 1.0
            ways = short, other, long = [empty_state(robot) for _ in range(3)]
            writer.publish(state, STAMP)
            assert reader.read(short) == STAMP
            wire.publish(packed_state(topic, state))
            assert reader.read(other) == STAMP
            assert topic.unpack(packed_state(topic, state), long) == STAMP
            for name in topic.fields:
                for got in ways:
                    np.testing.assert_allclose(got[name], state[name], rtol=0, atol=1e-12)
                np.testing.assert_array_equal(short[name], other[name])


def test_joints_are_found_by_name_in_any_order_and_template_or_not(go2):
    topic = state_topics(go2)[0]
    wire, sent, got = Wire(), some_state(go2), empty_state(go2)
    reader = StateReader(wire, topic, go2.state_widths)
    packed = packed_state(topic, sent)
    for values in (packed.name, packed.position, packed.velocity):  # the length stays
        values[0], values[1] = values[1], values[0]
    wire.publish(packed)
    assert reader.read(got) == STAMP
    np.testing.assert_array_equal(got["joint_position"], sent["joint_position"])
    shuffled, got = message("sensor_msgs", "JointState")(), empty_state(go2)
    order = np.random.default_rng(1).permutation(go2.num_joints)
    shuffled.name = [packed.name[i] for i in order] + ["stranger"]
    for entry in ("position", "velocity", "effort"):
        setattr(shuffled, entry, [getattr(packed, entry)[i] for i in order] + [99.0])
    topic.unpack(shuffled, got)
    np.testing.assert_array_equal(got["joint_position"], sent["joint_position"])


@pytest.mark.parametrize("entry", ["position", "velocity", "effort"])
def test_a_list_that_is_not_sent_is_not_read_as_at_rest(go2, entry):
    topic = state_topics(go2)[0]
    packed = packed_state(topic, some_state(go2))
    setattr(packed, entry, [])
    state = empty_state(go2)
    with pytest.raises(SpecMismatchError, match=f"has no {entry}, and joint_{entry} is measured"):
        topic.unpack(packed, state)
    assert all(np.isnan(value).all() for value in state.values())


def test_an_imu_without_an_estimate_is_not_read_as_upright(go2):
    topic = next(one for one in state_topics(go2) if "orientation_w" in one.fields)
    packed = packed_state(topic, some_state(go2))
    packed.orientation_covariance[0] = -1.0  # as sensor_msgs/Imu has it
    wire = Wire()
    wire.publish(packed)
    state = empty_state(go2)
    with pytest.raises(SpecMismatchError, match="orientation is no estimate"):
        StateReader(wire, topic, go2.state_widths).read(state)
    assert np.isnan(state["orientation_w"]).all()  # or it would go on with the next joint states


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda m: m.name.__setitem__(0, "x" * len(m.name[0])), "lacks"),
        (lambda m: m.name.__setitem__(1, m.name[0]), "lacks"),
        (lambda m: m.name.append(m.name[0]), "values"),
        (lambda m: setattr(m, "name", []), "0 joint names"),
    ],
)
def test_names_that_do_not_fit_are_refused(go2, spoil, told):
    topic, wire = state_topics(go2)[0], Wire()
    packed = packed_state(topic, some_state(go2))
    spoil(packed)
    wire.publish(packed)
    with pytest.raises(SpecMismatchError, match=told):
        StateReader(wire, topic, go2.state_widths).read(empty_state(go2))


def test_velocity_travels_in_body_axes():
    """A drone that leans by 90 degrees and flies along the world's x flies along its own z."""
    robot = robot_named("crazyflie")
    state = some_state(robot)
    half = np.sqrt(0.5)
    state["orientation_w"] = np.array([[half, 0.0, half, 0.0]])  # about y: z points to x
    state["linear_velocity_w"] = np.array([[2.0, 0.0, 0.0]])
    odom = packed_state(next(one for one in state_topics(robot) if one.name == "odom"), state)
    linear = odom.twist.twist.linear
    np.testing.assert_allclose([linear.x, linear.y, linear.z], [0.0, 0.0, 2.0], atol=1e-12)
    assert odom.child_frame_id == "base_link"
    assert odom.pose.pose.orientation.y == pytest.approx(half)


def test_a_robot_without_an_attitude_sensor_turns_velocities_by_their_own_message():
    """It took the velocity in somebody's body axes for one in world axes."""
    measured = {name: SensorSpec() for name in ("position_w", "linear_velocity_w")}
    robot = RobotSpec(name="blind", rotors=["m1"], sensors=measured)
    (topic,) = state_topics(robot)
    sent, got = some_state(robot), empty_state(robot)
    odom = packed_state(topic, sent)
    topic.unpack(odom, got)
    np.testing.assert_allclose(got["linear_velocity_w"], sent["linear_velocity_w"], atol=1e-12)
    turn, linear = odom.pose.pose.orientation, odom.twist.twist.linear
    turn.z = turn.w = np.sqrt(0.5)  # to the left: x points to the world's y
    linear.x, linear.y, linear.z = 1.0, 0.0, 0.0
    wire = Wire()
    wire.publish(odom)
    StateReader(wire, topic, robot.state_widths).read(got)
    np.testing.assert_allclose(got["linear_velocity_w"], [[0.0, 1.0, 0.0]], atol=1e-12)


GARBLED = (b"", b"\x00\x01\x00\x00", b"\x00\x01\x00\x00" + b"\xff" * 60, bytes(500), b"\xff" * 1000)


def test_bytes_that_are_no_message_are_as_nothing(robot):
    wire, state = Wire(), some_state(robot)
    for topic in state_topics(robot):
        reader = StateReader(wire, topic, robot.state_widths)
        writer = StateWriter(wire, topic, robot.state_widths)
        for garbled in GARBLED:
            got = empty_state(robot)
            wire.publish(garbled)
            with suppress(SpecMismatchError):  # zeros are a message without names
                assert reader.read(got) in (None, 0)
            writer.publish(state, STAMP)
            assert reader.read(got) == STAMP, "the next one is heard"
    messages, sent = CommandMessages(robot, gain_sets(robot)), some_command(robot)
    orders, writer = CommandReader(wire, messages), CommandWriter(wire, messages, "policy")
    for garbled in GARBLED:
        wire.publish(garbled)
        with suppress(SpecMismatchError):  # zeros are a message without names and numbers
            heard = orders.read()
            assert heard is None or all(np.isnan(v).all() for v in numbers_of(heard[0]).values())
        writer.publish(sent, STAMP)
        assert orders.read() is not None, "the next one is heard"


def test_a_torn_message_is_not_read_as_numbers(robot):
    topic = state_topics(robot)[0]
    template = template_of(robot, topic)
    assert template is not None
    got = some_state(robot)
    raw = template.write(some_state(robot, 3), STAMP)
    for torn in (raw[:-8], raw + bytes(8), b"", raw[:4], bytes(len(raw))):
        assert template.read(torn, got) is None
    np.testing.assert_array_equal(got[topic.fields[0]], some_state(robot)[topic.fields[0]])


def gain_sets(robot: RobotSpec) -> dict[str, Gains]:
    kp, kd = ([[getattr(j, n) for j in robot.joints]] for n in ("stiffness", "damping"))
    return {"policy": Gains(stiffness=np.array(kp), damping=np.array(kd))}


def some_command(robot: RobotSpec) -> Any:
    rng = np.random.default_rng(3)
    if robot.command is CommandKind.body_rates:
        return BodyRateCommand(rates_b=rng.standard_normal((1, 3)), thrust=np.array([[0.4]]))
    if robot.command is CommandKind.rotors:
        return RotorCommand(speed=rng.uniform(0, 1, (1, len(robot.rotors))))
    gains = gain_sets(robot)["policy"]
    q, dq, tau = rng.standard_normal((3, 1, robot.num_joints))
    opening = np.array([[0.3]]) if robot.gripper else None
    return JointCommand(q=q, dq=dq, tau=tau, kp=gains.stiffness, kd=gains.damping, gripper=opening)


def same(one: RobotCommand, other: RobotCommand) -> bool:
    pairs = [(value, getattr(other, name)) for name, value in vars(one).items()]
    return type(one) is type(other) and all(
        a is b if a is None or b is None else np.array_equal(a, b) for a, b in pairs
    )


def test_a_command_comes_through_exactly_whoever_sends_it(robot):
    rates = [replace(robot, command=CommandKind.body_rates)] if robot.rotors else []
    for spec, bare in ((robot, False), (robot, True), *((one, False) for one in rates)):
        messages, wire, sent = CommandMessages(spec, gain_sets(spec)), Wire(), some_command(spec)
        gains = "policy" if isinstance(sent, JointCommand) else ""
        if gains and bare:
            sent = replace(sent, gripper=None)
            sent = replace(sent, **{n: v.astype(np.float32) for n, v in numbers_of(sent).items()})
        reader, writer = CommandReader(wire, messages), CommandWriter(wire, messages, gains)
        assert reader.read() is None
        packed = message(messages.package, messages.message)()
        messages.pack(sent, packed, stamp=STAMP, gains=gains)
        got, stamp = messages.unpack(packed)
        assert same(got, sent)
        assert stamp == STAMP
        for send in (lambda: writer.publish(sent, STAMP), lambda: wire.publish(packed)):  # noqa: B023
            for _ in range(2):
                send()
                heard = reader.read()
                assert heard is not None
                assert same(heard[0], sent)
                assert heard[1:] == (STAMP, gains)
        raw = writer.prepare(sent, STAMP)
        assert isinstance(raw, bytes), "the short way was taken"
        strict: Any = TYPES.deserialize_cdr(raw, f"{messages.package}/msg/{messages.message}")
        assert strict.header.stamp.nanosec == STAMP % 10**9


def test_gains_are_agreed_on_by_writer_and_reader(go2):
    messages, wire, sent = CommandMessages(go2, gain_sets(go2)), Wire(), some_command(go2)
    writer = CommandWriter(wire, messages, "policy")
    with pytest.raises(SpecMismatchError, match="but the gain set 'policy' has"):
        writer.publish(replace(sent, kp=2 * sent.kp), STAMP)
    with pytest.raises(SpecMismatchError, match=r"gain set 'polici' is unknown .*'policy'"):
        CommandWriter(wire, messages, "polici")
    others = CommandMessages(go2, {"wild": gain_sets(go2)["policy"]})
    CommandWriter(wire, others, "wild").publish(sent, STAMP)
    with pytest.raises(SpecMismatchError, match="gain set 'wild' is unknown"):
        CommandReader(wire, messages).read()


def test_command_of_another_kind_or_width_is_refused(go2):
    drone = robot_named("crazyflie")
    messages, wire = CommandMessages(drone, {}), Wire()
    with pytest.raises(SpecMismatchError, match="takes 'rotors' commands, got JointCommand"):
        CommandWriter(wire, messages, "").publish(some_command(go2), STAMP)
    messages, sent = CommandMessages(go2, gain_sets(go2)), some_command(go2)
    CommandWriter(wire, messages, "policy").publish(replace(sent, q=sent.q[:, :1]), STAMP)
    with pytest.raises(SpecMismatchError, match="1 values"):
        CommandReader(wire, messages).read()


def test_a_frame_is_no_gain_set_where_there_are_no_joints():
    robot = robot_named("crazyflie")
    messages, wire, sent = CommandMessages(robot, {}), Wire(), some_command(robot)
    packed = message(messages.package, messages.message)()
    messages.pack(sent, packed, stamp=STAMP)
    packed.header.frame_id = "base_link"
    wire.publish(packed)
    heard = CommandReader(wire, messages).read()
    assert heard is not None
    assert same(heard[0], sent)
    assert heard[2] == ""


def test_commands_are_read_by_name_and_absent_lists_never_mean_a_position(go2):
    messages, wire, sent = CommandMessages(go2, gain_sets(go2)), Wire(), some_command(go2)
    packed = message(messages.package, messages.message)()
    messages.pack(sent, packed, stamp=STAMP, gains="policy")
    for values in (packed.name, packed.position, packed.velocity, packed.effort):
        values[0], values[-1] = values[-1], values[0]
    wire.publish(packed)
    heard = CommandReader(wire, messages).read()
    assert heard is not None
    assert same(heard[0], sent)
    bare = message("sensor_msgs", "JointState")()
    bare.header.frame_id, bare.name = "policy", go2.joint_names
    got, _ = messages.unpack(bare)
    assert isinstance(got, JointCommand)
    assert np.isnan(got.q).all()
    assert not got.dq.any()
    assert not got.tau.any()


def clocks(offset: int, waits: list[float]) -> tuple[Callable[[], int], Callable[[], float]]:
    """Clocks a known time apart [ns]; whoever reads one has to wait now and then [s]."""
    passed = 100.0

    def loop() -> float:
        nonlocal passed
        passed += 1e-6 + (waits.pop(0) if waits else 0.0)
        return passed

    return lambda: round(loop() * 1e9) + offset, loop


def test_waiting_between_the_clocks_does_not_move_them_apart():
    for waits in ([], [0.1], [0.0, 0.1], [0.0, 0.0, 0.1], [0.1, 0.1, 0.1, 0.1]):
        assert abs(clock_offset(*clocks(7_000_000_000, waits)) - 7_000_000_000) < 5_000
    # A machine that never lets go: the narrowest try counts.
    waits = [0.0, 0.02, 0.0] * 2 + [0.0, 0.001, 0.0] + [0.0, 0.02, 0.0] * 2
    assert abs(clock_offset(*clocks(0, waits))) < 1_000_000
