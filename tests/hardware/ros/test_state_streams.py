"""Measurements as bytes: what a template writes and reads is what the long way would."""

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from rosbags.typesys import Stores, get_typestore

from hardware.ros.compat import message, rclpy
from hardware.ros.state_messages import StateTopic, state_topics
from hardware.ros.streams import MessageTemplate, StateReader, StateWriter
from robot_rl.core.errors import SpecMismatchError
from robot_rl.core.robot import RobotSpec
from tests.compositions import composed
from tests.hardware.ros.test_messages import ROBOTS, STAMP, empty_state, some_state
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
