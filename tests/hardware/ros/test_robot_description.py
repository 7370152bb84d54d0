"""The URDF of a robot, and where its base is, as viewers read them."""

import os
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hardware.control.clock import MonotonicClock
from hardware.control.ipc import ArrayPublisher
from hardware.control.process import RobotChannels
from hardware.ros import robot_description
from hardware.ros.compat import message
from hardware.ros.message_parts import to_nanoseconds
from hardware.ros.robot_bridge import RobotBridge
from hardware.ros.robot_description import RobotDescription, base_transform
from tests.compositions import composed

QUARTER = np.array([[np.sqrt(0.5), 0.0, 0.0, np.sqrt(0.5)]])


def drone():
    return composed(["task=hover", "robot=crazyflie"]).config.robot.spec


def test_the_base_stands_in_odom_behind_the_namespace():
    fields = {"position_w": np.array([[1.0, 2.0, 3.0]]), "orientation_w": QUARTER}
    packed = base_transform(fields, 1_500_000_002, "robot/")
    assert (packed.header.frame_id, packed.child_frame_id) == ("robot/odom", "robot/base_link")
    assert to_nanoseconds(packed.header.stamp) == 1_500_000_002
    place, turn = packed.transform.translation, packed.transform.rotation
    assert (place.x, place.y, place.z) == (1.0, 2.0, 3.0)
    assert [turn.x, turn.y, turn.z, turn.w] == pytest.approx([0, 0, np.sqrt(0.5), np.sqrt(0.5)])


def test_transforms_are_sent_fifty_times_a_second_at_most(sessions, monkeypatch):
    """With a stand-in for tf2_msgs, of which there are no wheels."""
    sent: list[Any] = []
    real = robot_description.message

    def kinds(package: str, name: str) -> Any:
        if package != "tf2_msgs":
            return real(package, name)
        return lambda transforms: SimpleNamespace(transforms=transforms)

    session = sessions("loop")
    topics: dict[str, dict[str, Any]] = {}

    def publisher(topic: str, kind: Any, **qos: Any) -> Any:
        topics[topic] = qos
        return SimpleNamespace(publish=sent.append)

    monkeypatch.setattr(robot_description, "message", kinds)
    monkeypatch.setattr(session, "publisher", publisher)
    description = RobotDescription(session, drone(), "")
    fields = {"position_w": np.zeros((1, 3)), "orientation_w": QUARTER}
    for tick in range(500):  # a second of a loop at 500 Hz
        description.publish(fields, 1_000_000_000 + 2_000_000 * tick)
    assert len(sent) == 50
    assert topics == {"/tf": {"reliable": True, "depth": 100}}, "tf2 listens reliably"
    assert sent[0].transforms[0].child_frame_id == "robot/base_link"


@pytest.mark.slow
def test_the_bridge_tells_the_urdf_to_who_comes_later_and_names_frames(sessions):
    spec, name = drone(), f"test-description-{os.getpid()}"
    channels, clock = RobotChannels(name), MonotonicClock()
    fields = {field: np.full((1, width), 0.5) for field, width in spec.state_widths.items()}
    with (
        closing(ArrayPublisher(channels.state, spec.state_widths)) as state,
        closing(RobotBridge(sessions("loop"), spec, name=name, clock=clock, gain_sets={},
                            urdf="<robot/>")) as bridge,
    ):  # fmt: skip
        late = sessions("viewer")
        heard = late.newest("robot_description", message("std_msgs", "String"), latched=True)
        assert heard.wait(late, "the description").data == "<robot/>"
        topics = {
            "odom": ("nav_msgs", "Odometry", "robot/odom"),
            "imu/data": ("sensor_msgs", "Imu", "robot/imu_link"),
        }
        ears = {topic: late.listen(topic, *kind[:2]) for topic, kind in topics.items()}
        late.wait_until(lambda: all(ear.publishers for ear in ears.values()), "the bridge")
        found: dict[str, Any] = {}

        def came() -> bool:
            state.send(fields, clock.now())
            bridge.poll()
            found.update({n: got for n, ear in ears.items() if (got := ear.take()) is not None})
            return len(found) == len(ears)

        late.wait_until(came, "measurements")
        for topic, (_, _, frame) in topics.items():
            assert found[topic].header.frame_id == frame
        assert found["odom"].child_frame_id == "robot/base_link"
