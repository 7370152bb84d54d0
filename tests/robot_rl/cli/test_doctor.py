"""`robot-rl doctor`: every finding with its remedy, and an exit code that can be relied on."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from hardware.control.ipc import StatusPublisher, channel_path
from hardware.control.process import RobotChannels
from hardware.control.request_socket import RequestSocket
from hardware.control.robot_loop import OperatorRequests, RobotStatus
from hardware.control.safety import SafetyState
from hardware.ros.compat import message
from hardware.ros.message_parts import put_stamp
from hardware.ros.session import RosSession
from robot_rl.cli.deployment import diagnostics
from tests.compositions import composed
from tests.robot_rl.cli.deployments import WITHOUT_ROS, session
from tests.robot_rl.cli.tiny_run import output_of

pytestmark = [pytest.mark.skipif(WITHOUT_ROS, reason="ROS 2 is not installed"), pytest.mark.slow]


def go2():
    return composed(["task=velocity", "robot=go2"]).config.robot.spec


@contextlib.contextmanager
def publishing(domain: int) -> Iterator[Callable[..., None]]:
    """Publish on a topic of /go2, so many times a second, until the end."""
    threads: list[threading.Thread] = []
    over = threading.Event()
    with session("driver", domain) as node:

        def start(topic: str, kind: str, rate: float, make: Callable[[RosSession], Any]) -> None:
            publisher = node.publisher(topic, message("sensor_msgs", kind))

            def work() -> None:
                while not over.wait(1 / rate):
                    publisher.publish(make(node))

            threads.append(threading.Thread(target=work))
            threads[-1].start()

        try:
            yield start
        finally:
            over.set()
            for thread in threads:
                thread.join()


def joints(names: list[str], late: float = 0.0) -> Callable[[RosSession], Any]:
    def make(node: RosSession) -> Any:
        packed = message("sensor_msgs", "JointState")()
        packed.name = names
        packed.effort = [0.0] * len(names)
        put_stamp(packed.header, node.now() - round(late * 1e9))
        return packed

    return make


@pytest.fixture(scope="module")
def troubled(go2_bundle, domain) -> str:
    """Output of a doctor who finds everything wrong at once."""
    with publishing(domain) as start, session("describer", domain, "") as somebody:
        start("joint_command", "JointState", 100.0, joints([]))
        start("joint_states", "JointState", 100.0, joints(["elbow"]))
        start("foot_forces", "JointState", 100.0, joints([*go2().feet], late=5.0))
        image = message("sensor_msgs", "CompressedImage")
        start("front/image", "CompressedImage", 20.0, lambda _: image())
        text = message("std_msgs", "String")()
        text.data = urdf(effort="5")
        somebody.publisher("/robot_description", type(text), latched=True).publish(text)
        return output_of("doctor", f"bundle={go2_bundle}", f"domain={domain}", "listen=4", exits=1)


@pytest.fixture
def nobody_to_find(monkeypatch) -> None:
    monkeypatch.setattr(diagnostics, "_DISCOVERY_SECONDS", 0.5)


def test_machine_alone_is_examined_without_a_bundle(command, monkeypatch):
    answer = command("doctor")
    for word in ("ROS 2", "the kernel is", "SCHED_FIFO", "no bundle was named"):
        assert word in answer.out
    monkeypatch.setenv("RMW_IMPLEMENTATION", "rmw_of_somebody_cpp")
    answer = command("doctor", exits=1)
    assert "FAULT    ROS 2: RMW_IMPLEMENTATION=rmw_of_somebody_cpp is not installed" in answer.out


def test_bundle_of_another_robot_is_a_fault_and_ends_the_examination(command, go2_bundle):
    answer = command("doctor", f"bundle={go2_bundle}", "robot=go1", exits=1)
    assert "FAULT    bundle: the policy was made for robot 'go2'" in answer.out
    assert "joint_command" not in answer.out


def test_robot_that_nobody_drives_is_fit_for_its_twin(command, go2_bundle, domain, nobody_to_find):
    answer = command("doctor", f"bundle={go2_bundle}", f"domain={domain}", "listen=0.5")
    assert "ok       nobody else sends commands on /go2/joint_command" in answer.out
    assert "nothing comes on /go2/joint_states: the twin will fill it" in answer.out


def test_what_stands_in_the_way_is_a_fault_with_its_remedy(troubled):
    for told in (
        "FAULT    1 publish on /go2/joint_command already",
        "-> stop them: ros2 topic info -v /go2/joint_command",
        "FAULT    /go2/joint_states: a message of joints has no position, and joint_position is m",
        "Hz, declared are 500 Hz",
        "FAULT    stamps on /go2/foot_forces differ from this clock by 5.",
        "FAULT    the YAML allows more than /robot_description: FL_hip_joint effort",
    ):
        assert told in troubled
    assert 5 < float(troubled.split("camera /go2/front/image: ")[1].split()[0]) < 25


def urdf(**changes: str) -> str:
    """A go2 with the limits of the YAML, but for those of its first joint that are changed."""
    robot = go2()
    joints = []
    for joint in robot.joints:
        low, high = joint.position_limit
        limit: dict[str, Any] = {"lower": low, "upper": high}
        limit |= {"velocity": joint.velocity_limit, "effort": joint.effort_limit}
        limit |= changes if joint is robot.joints[0] else {}
        written = " ".join(f'{name}="{value}"' for name, value in limit.items())
        joints.append(f'<joint name="{joint.name}" type="revolute"><limit {written}/></joint>')
    return f"<robot name='go2'>{''.join(joints)}</robot>"


CONTROL = '<ros2_control><joint name="FL_hip_joint"/></ros2_control>'
"""What a URDF says of the same joint elsewhere, without limits."""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (urdf(), "ok       joints and limits of the YAML lie within /d"),
        (urdf(effort="5"), "FAULT    the YAML allows more than /d: FL_hip_joint effort 23.7 bey"),
        (urdf(upper="0.5"), "FL_hip_joint position [-1.0472, 1.0472] beyond [-1.0472, 0.5]"),
        (urdf().replace("RR_calf_joint", "tail"), "FAULT    /d lacks ['RR_calf_joint']; it has"),
        (
            urdf(effort="5").replace("</robot>", f"{CONTROL}</robot>"),
            "FL_hip_joint effort 23.7 bey",
        ),
        ("<robot>", "warning  /d is no XML"),
    ],
)
def test_limits_beyond_those_of_the_urdf_are_faults(monkeypatch, text, told):
    found = list(diagnostics.compare_description(text, go2(), "/d"))
    assert told in "\n".join(one.line for one in found)
    assert all(one.remedy for one in found if one.level.name != "good")


def test_node_that_is_not_there_is_a_fault_of_driver_ros2(
    command, go2_bundle, domain, nobody_to_find
):
    answer = command(
        "doctor", f"bundle={go2_bundle}", f"domain={domain}", "listen=0.5", "driver=ros2",
        "source=/vendor", "topics={imu/data:imu}", exits=1,
    )  # fmt: skip
    assert "FAULT    nothing comes on /vendor/joint_states" in answer.out
    assert "FAULT    nothing comes on /vendor/imu\n         -> start the robot's node" in answer.out
    assert "FAULT    nobody listens to commands on /vendor/joint_command" in answer.out


def test_topics_of_a_robot_are_examined_before_there_is_a_policy(command, domain, nobody_to_find):
    """It ended with a warning and exit code 0, though nobody was there."""
    line = (f"domain={domain}", "listen=0.5", "driver=ros2", "source=/vendor")
    answer = command("doctor", "robot=panda", *line, exits=1)
    assert "commands go to /vendor/joint_command as joint_state" in answer.out
    assert "FAULT    nothing comes on /vendor/ee_pose" in answer.out
    assert "FAULT    nobody listens to commands on /vendor/joint_command" in answer.out
    answer = command("doctor", *line, exits=1)
    assert "FAULT    topics: whose topics? name the robot: robot=<name>" in answer.out
    answer = command("doctor", "robot=pando", *line, exits=1)
    assert "robot 'pando' is unknown (did you mean 'panda'?)" in answer.out


def test_what_cannot_be_examined_is_refused_in_a_sentence(refused):
    told = "listen must be a number of seconds > 0, got 0.0"
    assert told in refused("doctor", "listen=0")


@pytest.mark.parametrize(
    ("age", "alive", "told"),
    [
        (0.1, True, "FAULT    a robot process runs this robot already, in 'hold'"),
        (8.0, True, "FAULT    a robot process runs this robot, but has not answered for 8 s"),
        (8.0, False, "warning  a robot process died 8 s ago without tidying up"),
    ],
)
def test_robot_process_that_does_not_answer_is_told_from_one_that_died(age, alive, told):
    channels = RobotChannels(f"test-doctor-{os.getpid()}")
    status = StatusPublisher(channels.status)
    status.send(
        RobotStatus(
            time=time.monotonic() - age, ticks=1, safety=SafetyState.HOLD, conditions=frozenset(),
            trip="", refused="", state_age=0.0, clamped=0, replaced=0, missed=0,
        )
    )  # fmt: skip
    path = channel_path(channels.status)
    left = path.read_bytes()
    socket = RequestSocket(channels.operator, OperatorRequests())
    if not alive:
        status.close()
        socket.close()
        path.write_bytes(left)  # as by a writer that was killed
    plan: Any = SimpleNamespace(channels=channels)
    try:
        assert diagnostics._process(plan).line.splitlines()[0] == told
    finally:
        status.close()
        socket.close()
        path.unlink(missing_ok=True)
