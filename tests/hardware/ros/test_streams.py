"""Measurements as bytes: what a template writes and reads is what the long way would."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rosbags.typesys import Stores, get_typestore

from hardware.ros.command_messages import CommandMessages
from hardware.ros.compat import message, rclpy
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
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import BodyRateCommand, CommandKind, JointCommand, RobotCommand
from tests.compositions import composed
from tests.hardware.ros.test_messages import (
    ROBOTS,
    STAMP,
    empty_state,
    gain_sets,
    some_command,
    some_state,
)
from tests.hardware.ros.wire import Wire

TYPES = get_typestore(Stores.ROS2_KILTED)


@pytest.fixture(params=ROBOTS, scope="module")
def robot(request) -> RobotSpec:
    return composed([f"task={ROBOTS[request.param]}", f"robot={request.param}"]).config.robot.spec


def learnt(robot: RobotSpec, topic: StateTopic) -> MessageTemplate | None:
    kind = message(topic.package, topic.message)
    return MessageTemplate.learn(kind, topic.pack, robot.state_widths, topic.fields)


def test_all_that_travels_as_it_is_has_a_stencil(robot):
    without = {topic.name for topic in state_topics(robot) if learnt(robot, topic) is None}
    assert without <= {"odom"}, "velocities are turned on their way"
    assert without < {topic.name for topic in state_topics(robot)}


def test_what_a_stencil_writes_is_the_message_of_the_long_way(robot):
    deserialize, state = rclpy("serialization").deserialize_message, some_state(robot, 7)
    for topic in state_topics(robot):
        if (template := learnt(robot, topic)) is None:
            continue
        kind = message(topic.package, topic.message)
        expected = kind()
        topic.pack(state, expected, STAMP)
        for _ in range(2):  # a second message does not remember the first
            raw = template.write(state, STAMP)
            assert deserialize(raw, kind) == expected
            strict: Any = TYPES.deserialize_cdr(raw, f"{topic.package}/msg/{topic.message}")
            assert strict.header.stamp.nanosec == STAMP % 10**9, "nothing behind the end"
            template.write(some_state(robot, 8), STAMP + 1)


def test_measurements_come_through_exactly_whoever_sends_them(robot):
    """By a template, or as ROS makes them, which leaves in the gaps what was there before."""
    for topic in state_topics(robot):
        wire, got = Wire(), empty_state(robot)
        reader = StateReader(wire, topic, robot.state_widths)
        writer = StateWriter(wire, topic, robot.state_widths)
        assert reader.read(got) is None
        for seed in range(3):
            state = some_state(robot, seed)
            packed = message(topic.package, topic.message)()
            topic.pack(state, packed, STAMP)
            short, long = empty_state(robot), empty_state(robot)
            writer.publish(state, STAMP)
            assert reader.read(short) == STAMP
            wire.publish(packed)
            assert reader.read(long) == STAMP
            for name in topic.fields:
                np.testing.assert_allclose(short[name], state[name], rtol=0, atol=1e-12)
                np.testing.assert_array_equal(short[name], long[name])


def test_numbers_that_are_none_come_through(robot):
    topic = state_topics(robot)[0]
    wire, state, got = Wire(), some_state(robot), some_state(robot, 1)
    state[topic.fields[0]][0, 0] = np.nan
    StateWriter(wire, topic, robot.state_widths).publish(state, STAMP)
    StateReader(wire, topic, robot.state_widths).read(got)
    assert np.isnan(got[topic.fields[0]][0, 0])


def test_a_message_of_the_same_length_with_other_names_is_read_by_its_names():
    robot = composed(["task=velocity", "robot=go2"]).config.robot.spec
    topic = state_topics(robot)[0]
    wire, state, got = Wire(), some_state(robot), empty_state(robot)
    packed = message(topic.package, topic.message)()
    topic.pack(state, packed, STAMP)
    for values in (packed.name, packed.position, packed.velocity):
        values[0], values[1] = values[1], values[0]
    wire.publish(packed)
    reader = StateReader(wire, topic, robot.state_widths)
    assert reader.read(got) == STAMP
    np.testing.assert_array_equal(got["joint_position"], state["joint_position"])
    packed.name[0] = "x" * len(packed.name[0])
    wire.publish(packed)
    with pytest.raises(SpecMismatchError, match="lacks"):
        reader.read(got)


GARBLED = (b"", b"\x00\x01\x00\x00", b"\x00\x01\x00\x00" + b"\xff" * 60, bytes(500), b"\xff" * 1000)


@pytest.mark.parametrize("garbled", GARBLED, ids=range(len(GARBLED)))
def test_bytes_that_are_no_message_are_as_nothing(robot, garbled):
    for topic in state_topics(robot):
        wire, got = Wire(), empty_state(robot)
        reader = StateReader(wire, topic, robot.state_widths)
        wire.publish(garbled)
        with suppress(SpecMismatchError):  # zeros are a message without names
            assert reader.read(got) in (None, 0)
        StateWriter(wire, topic, robot.state_widths).publish(some_state(robot), STAMP)
        assert reader.read(got) == STAMP, "the next one is heard"


def test_a_torn_message_is_not_read_as_numbers(robot):
    topic = state_topics(robot)[0]
    template = learnt(robot, topic)
    assert template is not None
    got = some_state(robot)
    raw = template.write(some_state(robot, 3), STAMP)
    for torn in (raw[:-8], raw + bytes(8), b"", raw[:4], bytes(len(raw))):
        assert template.read(torn, got) is None
    np.testing.assert_array_equal(got[topic.fields[0]], some_state(robot)[topic.fields[0]])


def same(one: RobotCommand, other: RobotCommand) -> bool:
    pairs = [(value, getattr(other, name)) for name, value in vars(one).items()]
    return type(one) is type(other) and all(
        a is b if a is None or b is None else np.array_equal(a, b) for a, b in pairs
    )


@pytest.mark.parametrize("fingers", [True, False])
def test_a_command_comes_through_exactly_whoever_sends_it(robot, fingers):
    messages, wire, sent = CommandMessages(robot, gain_sets(robot)), Wire(), some_command(robot)
    if isinstance(sent, JointCommand) and not fingers:
        sent = replace(sent, gripper=None)
    gains = "policy" if isinstance(sent, JointCommand) else ""
    reader, writer = CommandReader(wire, messages), CommandWriter(wire, messages, gains)
    assert reader.read() is None
    packed = message(messages.package, messages.message)()
    messages.pack(sent, packed, stamp=STAMP, gains=gains)
    for send in (lambda: writer.publish(sent, STAMP), lambda: wire.publish(packed)):
        for _ in range(2):
            send()
            heard = reader.read()
            assert heard is not None
            command, stamp, name = heard
            assert same(command, sent)
            assert (stamp, name) == (STAMP, gains)
    raw = writer.prepare(sent, STAMP)
    assert isinstance(raw, bytes), "the short way was taken"
    types = get_typestore(Stores.ROS2_KILTED)  # which takes nothing behind the end
    kind = f"{messages.package}/msg/{messages.message}"
    strict: Any = types.deserialize_cdr(raw, kind)
    assert strict.header.stamp.nanosec == STAMP % 10**9


def to_go2() -> tuple[RobotSpec, CommandMessages, Wire, JointCommand]:
    """The robot, its messages, a wire, and a command."""
    robot = composed(["task=velocity", "robot=go2"]).config.robot.spec
    sent = some_command(robot)
    assert isinstance(sent, JointCommand)
    return robot, CommandMessages(robot, gain_sets(robot)), Wire(), sent


def test_single_precision_numbers_are_sent_as_they_are():
    _, messages, wire, sent = to_go2()
    single = replace(sent, **{n: v.astype(np.float32) for n, v in numbers_of(sent).items()})
    CommandWriter(wire, messages, "policy").publish(single, STAMP)
    heard = CommandReader(wire, messages).read()
    assert heard is not None
    assert same(heard[0], single)


def test_body_rates_come_through_exactly():
    robot = replace(composed(["task=hover"]).config.robot.spec, command=CommandKind.body_rates)
    messages, wire = CommandMessages(robot, {}), Wire()
    sent = BodyRateCommand(rates_b=np.array([[0.1, -2.0, 3.0]]), thrust=np.array([[0.4]]))
    writer = CommandWriter(wire, messages, "")
    writer.publish(sent, STAMP)
    heard = CommandReader(wire, messages).read()
    assert heard is not None
    assert same(heard[0], sent)
    with pytest.raises(SpecMismatchError, match="takes 'body_rates' commands"):
        writer.publish(some_command(composed(["task=hover"]).config.robot.spec), STAMP)


def test_gains_are_agreed_on_by_writer_and_reader():
    robot, messages, wire, sent = to_go2()
    writer = CommandWriter(wire, messages, "policy")
    with pytest.raises(SpecMismatchError, match="but the gain set 'policy' has"):
        writer.publish(replace(sent, kp=2 * sent.kp), STAMP)
    with pytest.raises(SpecMismatchError, match="gain set 'polici' is unknown"):
        CommandWriter(wire, messages, "polici")
    others = CommandMessages(robot, {"wild": gain_sets(robot)["policy"]})
    CommandWriter(wire, others, "wild").publish(sent, STAMP)
    with pytest.raises(SpecMismatchError, match="gain set 'wild' is unknown"):
        CommandReader(wire, messages).read()


@pytest.mark.parametrize("garbled", GARBLED, ids=range(len(GARBLED)))
def test_bytes_that_are_no_command_are_as_nothing(robot, garbled):
    messages, wire, sent = CommandMessages(robot, gain_sets(robot)), Wire(), some_command(robot)
    reader = CommandReader(wire, messages)
    wire.publish(garbled)
    with suppress(SpecMismatchError):  # zeros are a message without names, and without numbers
        heard = reader.read()
        assert heard is None or all(np.isnan(v).all() for v in numbers_of(heard[0]).values())
    CommandWriter(wire, messages, messages.gain_names[0]).publish(sent, STAMP)
    assert reader.read() is not None, "the next one is heard"


def test_a_frame_is_no_gain_set_where_there_are_no_joints():
    robot = composed(["task=hover"]).config.robot.spec
    messages, wire, sent = CommandMessages(robot, {}), Wire(), some_command(robot)
    packed = message(messages.package, messages.message)()
    messages.pack(sent, packed, stamp=STAMP)
    packed.header.frame_id = "base_link"
    wire.publish(packed)
    heard = CommandReader(wire, messages).read()
    assert heard is not None
    assert same(heard[0], sent)
    assert heard[2] == ""


def test_a_command_of_a_wrong_width_does_not_fill_the_others():
    _, messages, wire, sent = to_go2()
    CommandWriter(wire, messages, "policy").publish(replace(sent, q=sent.q[:, :1]), STAMP)
    with pytest.raises(SpecMismatchError, match="1 values"):
        CommandReader(wire, messages).read()


def test_joints_in_another_order_are_found_by_their_names():
    _, messages, wire, sent = to_go2()
    packed = message(messages.package, messages.message)()
    messages.pack(sent, packed, stamp=STAMP, gains="policy")
    for values in (packed.name, packed.position, packed.velocity, packed.effort):
        values[0], values[-1] = values[-1], values[0]
    wire.publish(packed)
    heard = CommandReader(wire, messages).read()
    assert heard is not None
    assert same(heard[0], sent)
