"""Commands as bytes: what is heard is what was sent, and what does not fit is refused."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rosbags.typesys import Stores, get_typestore

from hardware.ros.command_messages import CommandMessages
from hardware.ros.compat import message
from hardware.ros.streams import CommandReader, CommandWriter, numbers_of
from robot_rl.core.errors import SpecMismatchError
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import BodyRateCommand, CommandKind, JointCommand, RobotCommand
from tests.compositions import composed
from tests.hardware.ros.test_messages import ROBOTS, STAMP, gain_sets, some_command
from tests.hardware.ros.test_state_streams import GARBLED
from tests.hardware.ros.wire import Wire


@pytest.fixture(params=ROBOTS, scope="module")
def robot(request) -> RobotSpec:
    return composed([f"task={ROBOTS[request.param]}", f"robot={request.param}"]).config.robot.spec


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


def test_single_precision_numbers_are_sent_as_they_are():
    robot = composed(["task=velocity", "robot=go2"]).config.robot.spec
    messages, wire, sent = CommandMessages(robot, gain_sets(robot)), Wire(), some_command(robot)
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
    robot = composed(["task=velocity", "robot=go2"]).config.robot.spec
    messages, wire, sent = CommandMessages(robot, gain_sets(robot)), Wire(), some_command(robot)
    assert isinstance(sent, JointCommand)
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
    robot = composed(["task=velocity", "robot=go2"]).config.robot.spec
    messages, wire, sent = CommandMessages(robot, gain_sets(robot)), Wire(), some_command(robot)
    assert isinstance(sent, JointCommand)
    CommandWriter(wire, messages, "policy").publish(replace(sent, q=sent.q[:, :1]), STAMP)
    with pytest.raises(SpecMismatchError, match="1 values"):
        CommandReader(wire, messages).read()


def test_joints_in_another_order_are_found_by_their_names():
    robot = composed(["task=velocity", "robot=go2"]).config.robot.spec
    messages, wire, sent = CommandMessages(robot, gain_sets(robot)), Wire(), some_command(robot)
    packed = message(messages.package, messages.message)()
    messages.pack(sent, packed, stamp=STAMP, gains="policy")
    for values in (packed.name, packed.position, packed.velocity, packed.effort):
        values[0], values[-1] = values[-1], values[0]
    wire.publish(packed)
    heard = CommandReader(wire, messages).read()
    assert heard is not None
    assert same(heard[0], sent)
