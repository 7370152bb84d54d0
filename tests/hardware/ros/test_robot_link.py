"""Topics of somebody else's node: what cannot be meant is refused in words."""

import os
import re
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from hardware.control.clock import MonotonicClock
from hardware.control.process import RobotChannels
from hardware.control.robot_loop import StampedDriver
from hardware.drivers.ipc_driver import IpcDriver
from hardware.ros.compat import message
from hardware.ros.foreign_commands import COMMAND, DAMPING, FORMS, JointForm, Wiring
from hardware.ros.robot_link import RobotLink
from hardware.ros.session import Newest, RosSession
from hardware.ros.state_messages import state_topics
from robot_rl.core.errors import ConfigError, StaleStateError
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import JointCommand, RotorCommand
from tests.hardware.ros.test_messages import gain_sets, robot_named, some_command, some_state


@pytest.mark.parametrize(
    ("robot", "wiring", "told"),
    [
        ("go2", {"form": "trajectori"}, r"form of commands 'trajectori' is unknown .*'trajectory'"),
        ("go2", {"topics": {"joints": "x"}}, r"topic 'joints' is unknown .*'joint_states'"),
        ("go2", {"source": "/go2"}, "/go2/joint_states was given .* choose another namespace="),
        ("go2", {"source": "a b"}, "topic '/a b/joint_states' is no name in ROS"),
        ("go2", {"topics": {"imu/data": "/2nd"}}, "topic '/2nd' is no name in ROS"),
        ("go2", {"topics": {"imu/data": "joint_states"}}, "were both given the name /joint_states"),
        ("go2", {"topics": {"command": "joint_states"}}, "'joint_states' and 'command' were both"),
        ("go2", {"order": ["elbow"]}, "joint 'elbow' is unknown"),
        ("go2", {"order": ["FL_hip_joint"]}, "must name each of .* missing: .'FL_thigh_joint'"),
        (
            "panda",
            {"form": "positions"},
            r"no place for the gripper .*,gripper\]",
        ),
        ("panda", {"form": "positions", "order": ["joint1"]}, "missing: .'joint2'"),
        ("panda", {"form": "efforts", "grips": False, "order": ["gripper"]}, "torques do not say"),
        ("panda", {"form": "efforts"}, "torques do not say how far the gripper of robot 'panda'"),
        ("crazyflie", {"form": "positions"}, "known: native"),
    ],
)
def test_wiring_that_cannot_be_meant_is_refused(robot, wiring, told):
    spec = robot_named(robot)
    with pytest.raises(ConfigError, match=told):
        Wiring(**wiring).check(spec, f"/{robot}")


@pytest.mark.parametrize("form", ["trajectory", "positions", "efforts"])
def test_a_gripper_that_nobody_moves_is_left_out(form):
    """A policy that moves none could not be sent to a controller of the joints alone."""
    spec = robot_named("panda")
    wired = Wiring(form=form, grips=False).check(spec, "/panda")
    assert wired.order == spec.joint_names
    packed: Any = JointForm(spec, wired, {}, PERIOD).pack(command(spec), some_state(spec), 0)
    sent = packed.points[0].positions if form == "trajectory" else packed.data
    assert len(sent) == spec.num_joints
    both = Wiring(form="joint_state", grips=False).check(spec, "/panda").order
    assert both == [*spec.joint_names, "gripper"], "by name, so that nobody misses it"


@pytest.mark.parametrize("source", ["/arm", "arm", "arm/"])
def test_names_lie_below_the_source_and_messages_of_one_kind_may_share_one(source):
    topics = {"foot_forces": "joint_states", "imu/data": "/imu"}
    found = Wiring(source=source, topics=topics).check(robot_named("go2"), "/go2").topics
    expected = {"joint_states": "/arm/joint_states", "foot_forces": "/arm/joint_states"}
    assert found == {**expected, "imu/data": "/imu", "command": "/arm/joint_command"}


def test_torques_need_a_measured_speed():
    spec = robot_named("go2")
    sensors = {name: s for name, s in spec.sensors.items() if name != "joint_velocity"}
    with pytest.raises(ConfigError, match=r"\['joint_velocity'\], which robot 'go2' does not"):
        Wiring(form="efforts").check(replace(spec, sensors=sensors), "/go2")


TOPICS = {"joint_states": "motors/state", "imu/data": "/vendor/imu"}
PERIOD = 0.002


@dataclass
class Joined:
    """Somebody else's node, the link, and the loop's driver, in one process."""

    spec: RobotSpec
    vendor: RosSession
    link: RobotLink
    driver: IpcDriver
    commands: Newest
    wiring: Wiring

    def __post_init__(self) -> None:
        self.topics = state_topics(self.spec)
        self.publishers = {
            topic.name: self.vendor.publisher(
                self.wiring.topics[topic.name], message(topic.package, topic.message)
            )
            for topic in self.topics
        }
        self.vendor.wait_until(
            lambda: (
                all(one.get_subscription_count() for one in self.publishers.values())
                and self.commands.publishers == 1
            ),
            "the link",
        )

    def publish(
        self, fields: dict[str, np.ndarray], stamp: int,
        change: Callable[[Any], None] = lambda packed: None,
    ) -> None:  # fmt: skip
        """Publish a sample, the first topic last and changed; that is the one which counts."""
        for topic in reversed(self.topics):
            packed = message(topic.package, topic.message)()
            topic.pack(fields, packed, stamp)
            if topic is self.topics[0]:
                change(packed)
            self.publishers[topic.name].publish(packed)

    def until(self, ready: Callable[[], bool], again: Callable[[], None] = lambda: None) -> None:
        """Let both sides work; streams may lose a sample, so `again` repeats what was sent."""

        def looked() -> bool:
            again()
            self.link.poll()
            return ready()

        self.vendor.wait_until(looked, "the other side")

    def hear(self, fields: dict[str, np.ndarray], *change: Callable[[Any], None]) -> None:
        """Publish until the link has heard it."""
        self.until(
            lambda: self.link.heard, lambda: self.publish(fields, self.vendor.now(), *change)
        )

    def told(self, command: Any) -> Any:
        """The message that their node gets for a command."""
        got: list[Any] = []

        def came() -> bool:
            got.extend(filter(None, [self.commands.take()]))
            return bool(got)

        self.until(came, lambda: self.driver.write(command) and None)
        return got[-1]


@pytest.fixture
def join(sessions) -> Iterator[Callable[..., Joined]]:
    made: list[Joined] = []

    def make(robot: str = "go2", form: str = "", **wiring: Any) -> Joined:
        spec, clock = robot_named(robot), MonotonicClock()
        known = {topic.name for topic in state_topics(spec)}
        named = {name: topic for name, topic in TOPICS.items() if name in known}
        wired = Wiring(source="/theirs", form=form, topics=named, **wiring).check(spec, "/ours")
        boxes = RobotChannels(f"link.{os.getpid()}.{len(made)}")
        driver = IpcDriver(spec, clock, measured=boxes.measured, sent=boxes.sent, max_age=5.0)
        gains = {"policy:1": gain_sets(spec)["policy"]}
        link = RobotLink(
            sessions("link", "/ours"), spec, name=boxes.robot, clock=clock, wiring=wired,
            period=PERIOD, gain_sets=gains if spec.joints else {},
        )  # fmt: skip
        vendor = sessions("vendor", "/theirs")
        commands = vendor.newest(wired.topics[COMMAND], link._commands.kind)
        made.append(Joined(spec, vendor, link, driver, commands, wired))
        return made[-1]

    yield make
    for one in made:
        one.driver.close()
        one.link.close()


def command(spec: RobotSpec, stiffness: float = 1.0) -> JointCommand:
    sent = some_command(spec)
    return replace(sent, kp=stiffness * sent.kp)


@pytest.mark.slow
@pytest.mark.parametrize("robot", ["go2", "panda", "crazyflie"])
def test_sample_arrives_with_the_time_of_its_measurement(join, robot):
    joined = join(robot)
    assert isinstance(joined.driver, StampedDriver)
    fields = some_state(joined.spec)
    clock, before, measured = MonotonicClock(), joined.driver.stamp, list[float]()

    def publish() -> None:
        measured.append(clock.now() - 0.03)
        joined.publish(fields, joined.vendor.now() - 30_000_000)

    def arrived() -> bool:
        try:
            return joined.driver.read() is not None
        except StaleStateError:
            return False

    joined.until(arrived, publish)
    assert before == -np.inf
    assert min(abs(joined.driver.stamp - moment) for moment in measured) < 5e-3
    for name, value in joined.driver.read().fields.items():
        np.testing.assert_allclose(value, fields[name], atol=1e-9, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda packed: packed.name.__setitem__(0, "wheel"), r"lacks \['FL_hip_joint'\]"),
        (lambda packed: setattr(packed, "position", array("d", [0.0])), "12 joint names and 1 val"),
        (lambda packed: setattr(packed.header.stamp, "sec", 2_000_000_000), "in the future"),
        (
            lambda packed: setattr(packed.header.stamp, "sec", 0),
            r"too old: .*joint_states \(\d{9,}",
        ),
    ],
)
def test_sample_that_does_not_fit_goes_nowhere_and_is_named(join, change, told):
    joined = join()
    joined.link.poll()
    assert "nothing has come yet on joint_states, imu/data" in joined.link.trouble
    fields = some_state(joined.spec)
    joined.until(
        lambda: bool(joined.link.trouble) and "nothing has come" not in joined.link.trouble,
        lambda: joined.publish(fields, joined.vendor.now(), change),
    )
    assert not joined.link.heard
    assert re.search(told, joined.link.trouble), joined.link.trouble
    with pytest.raises(StaleStateError, match="a sample of robot 'go2' was asked for"):
        joined.driver.read()


@pytest.mark.slow
def test_stamps_of_the_future_go_nowhere_on_whichever_topic_they_come(join):
    """An IMU with such a clock counted as fresh after its end, until its clock was reached."""
    joined = join()
    fields = some_state(joined.spec)
    imu = next(topic for topic in joined.topics if topic.name == "imu/data")
    early = message(imu.package, imu.message)()
    imu.pack(fields, early, joined.vendor.now() + 3_600_000_000_000)

    def publish() -> None:
        joined.publish(fields, joined.vendor.now())
        joined.publishers[imu.name].publish(early)

    joined.until(lambda: "in the future: imu/data (" in joined.link.trouble, publish)
    with pytest.raises(StaleStateError, match="a sample of robot 'go2' was asked for"):
        joined.driver.read()


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_joint_command_leaves_in_the_form_of_their_node_and_a_loop_that_dies_leaves_a_stop(
    join, form
):
    spec = robot_named("go2")
    order = [*reversed(spec.joint_names)]
    joined = join(form=form, order=order)
    fields, sent = some_state(spec), command(spec)
    joined.hear(fields)
    got, expected = joined.told(sent), sent.q[0, ::-1]
    match form:
        case "joint_state":
            assert (got.name, got.header.frame_id) == (order, "policy:1")
            np.testing.assert_array_equal(got.position, expected)
            np.testing.assert_array_equal(got.velocity, sent.dq[0, ::-1])
            np.testing.assert_array_equal(got.effort, sent.tau[0, ::-1])
        case "trajectory":
            assert got.joint_names == order
            (point,) = got.points
            np.testing.assert_array_equal(point.positions, expected)
            assert point.time_from_start.nanosec == 4_000_000
            assert not len(point.velocities)
        case "positions":
            np.testing.assert_array_equal(got.data, expected)
        case _:
            error = sent.q - fields["joint_position"]
            law = sent.tau + sent.kp * error + sent.kd * (sent.dq - fields["joint_velocity"])
            limit = np.array([joint.effort_limit for joint in spec.joints])
            np.testing.assert_allclose(got.data, np.clip(law[0], -limit, limit)[::-1])
    if form not in ("positions", "efforts"):
        return
    assert joined.link.driving
    heard: list[Any] = []

    def stopped() -> bool:
        heard.extend(filter(None, [joined.commands.take()]))
        return not joined.link.driving and bool(heard)

    joined.until(stopped, lambda: joined.publish(fields, joined.vendor.now()))
    last = fields["joint_position"][0, ::-1] if form == "positions" else np.zeros(12)
    np.testing.assert_array_equal(heard[-1].data, last)


@pytest.mark.slow
@pytest.mark.parametrize("faded", [False, True])
def test_node_that_knows_only_poses_keeps_one_when_the_stiffness_ends(join, faded):
    """The measured one in an emergency; after a soft stop the one that it holds already."""
    joined = join()
    fields, soft = some_state(joined.spec), command(joined.spec, stiffness=0.0)
    joined.hear(fields)
    for _ in range(20):
        joined.driver.write(soft)
        joined.link.poll()
    assert joined.commands.take() is None, "it was never driven: it is left alone"
    joined.told(command(joined.spec))
    joined.told(command(joined.spec, stiffness=0.01 if faded else 1.0))
    joined.until(lambda: True, lambda: joined.publish(fields, joined.vendor.now()))
    joined.commands.take()
    got = joined.told(soft)
    kept = soft.q if faded else fields["joint_position"]
    assert got.header.frame_id == DAMPING
    assert not any(got.velocity)
    np.testing.assert_array_equal(got.position, kept[0])
    moved = {**fields, "joint_position": fields["joint_position"] - 0.1}
    joined.until(lambda: True, lambda: joined.publish(moved, joined.vendor.now()))
    np.testing.assert_array_equal(joined.told(soft).position, got.position)


@pytest.mark.slow
def test_link_that_ends_waits_until_its_stop_was_heard(join):
    joined = join(form="positions")
    fields = some_state(joined.spec)
    reliable = joined.vendor.every(
        joined.wiring.topics[COMMAND], joined.link._commands.kind, reliable=True
    )
    joined.hear(fields)
    joined.told(command(joined.spec))
    joined.until(lambda: reliable.count > 0, lambda: [*reliable.take()] and None)
    before = reliable.count
    joined.link.close()
    assert [*reliable.take()], "it is here when `close` returns, not a moment later"
    assert reliable.count > before


@pytest.mark.slow
def test_gripper_and_rotors_travel_too(join):
    joined = join("panda")
    fields = some_state(joined.spec)
    joined.hear(fields)
    got = joined.told(command(joined.spec))
    assert got.name[-1] == "gripper"
    assert got.position[-1] == 0.3
    drone = join("crazyflie")
    speed = np.array([[0.1, 0.2, 0.3, 0.4]])
    got = drone.told(RotorCommand(speed=speed))
    assert got.name == drone.spec.rotors
    np.testing.assert_array_equal(got.position, speed[0])


@pytest.mark.slow
def test_others_who_command_are_counted(join):
    joined = join()
    other = joined.vendor.publisher(joined.wiring.topics[COMMAND], joined.link._commands.kind)
    assert other
    joined.until(lambda: joined.link.others == 1)
    joined.hear(some_state(joined.spec))
    joined.driver.read()
    assert joined.driver.publishers == 2


@pytest.mark.slow
def test_a_second_sender_of_measurements_is_told_to_the_loop_in_words(join):
    joined = join()
    fields = some_state(joined.spec)
    joined.hear(fields)
    assert joined.link.doubled == ""
    topic = joined.topics[0]
    other = joined.vendor.publisher(
        joined.wiring.topics[topic.name], message(topic.package, topic.message)
    )
    assert other
    joined.until(lambda: bool(joined.link.doubled))
    told = "2 publish /theirs/motors/state: ros2 topic info -v /theirs/motors/state names them"
    assert joined.link.doubled == told

    def arrived() -> bool:
        joined.driver.read()
        return joined.driver.doubled == told

    joined.until(arrived, lambda: joined.publish(fields, joined.vendor.now()))


@pytest.mark.slow
def test_stamps_that_go_back_are_said(join):
    joined = join()
    fields = some_state(joined.spec)
    joined.hear(fields)
    joined.until(
        lambda: "stamps went back (0." in joined.link.trouble,
        lambda: joined.publish(fields, joined.vendor.now() - 40_000_000),
    )
