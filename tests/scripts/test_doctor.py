"""`scripts/doctor.py`: every finding with its remedy, and an exit code that can be relied on."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hardware.ros.compat import look_around, message
from hardware.ros.session import RosSession
from hardware.ros.stamps import put_stamp

pytestmark = [
    pytest.mark.skipif(look_around().rclpy is None, reason="ROS 2 is not installed"),
]


@pytest.fixture
def publishing(domain) -> Iterator[Callable[[str, Callable[[RosSession], Any]], None]]:
    """Publish on a topic of /go2, 100 times a second, until the test is over."""
    session, over = RosSession("driver", namespace="/go2", domain=domain), threading.Event()
    threads: list[threading.Thread] = []

    def start(topic: str, make: Callable[[RosSession], Any]) -> None:
        publisher = session.publisher(topic, message("sensor_msgs", "JointState"))

        def work() -> None:
            while not over.wait(0.01):
                publisher.publish(make(session))

        threads.append(threading.Thread(target=work))
        threads[-1].start()

    yield start
    over.set()
    for thread in threads:
        thread.join()
    session.close()


def joints(names: list[str], late: float = 0.0) -> Callable[[RosSession], Any]:
    def make(session: RosSession) -> Any:
        packed = message("sensor_msgs", "JointState")()
        packed.name = names
        packed.position = [0.0] * len(names)
        put_stamp(packed.header, session.now() - round(late * 1e9))
        return packed

    return make


def test_machine_alone_is_examined_without_a_bundle(command):
    answer = command("doctor")
    assert answer.code == 0, answer.out
    for word in ("ROS 2", "SCHED_FIFO", "no bundle was named"):
        assert word in answer.out


def test_rmw_that_is_not_installed_is_a_fault(command, monkeypatch):
    monkeypatch.setenv("RMW_IMPLEMENTATION", "rmw_of_somebody_cpp")
    answer = command("doctor")
    assert answer.code == 1
    assert "FAULT    ROS 2: RMW_IMPLEMENTATION=rmw_of_somebody_cpp is not installed" in answer.out


@pytest.mark.slow
def test_bundle_of_another_robot_is_a_fault_and_ends_the_examination(command, go2_bundle):
    answer = command("doctor", f"bundle={go2_bundle}", "robot=go1")
    assert answer.code == 1
    assert "FAULT    bundle: the policy was made for robot 'go2'" in answer.out
    assert "joint_command" not in answer.out


@pytest.mark.slow
def test_robot_that_nobody_drives_is_fit_for_its_twin(command, go2_bundle, domain):
    answer = command("doctor", f"bundle={go2_bundle}", f"domain={domain}", "listen=0.5")
    assert answer.code == 0, answer.out
    assert "ok       nobody else sends commands on /go2/joint_command" in answer.out
    assert "nothing comes on /go2/joint_states: the twin will fill it" in answer.out


@pytest.mark.slow
def test_second_sender_of_commands_is_a_fault(command, go2_bundle, domain, publishing):
    publishing("joint_command", joints([]))
    answer = command("doctor", f"bundle={go2_bundle}", f"domain={domain}", "listen=3")
    assert answer.code == 1, answer.out
    assert "FAULT    1 publish on /go2/joint_command already" in answer.out
    assert "-> stop them: ros2 topic info -v /go2/joint_command" in answer.out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "late", "told"),
    [
        (["elbow"], 0.0, "FAULT    /go2/joint_states: a message lacks"),
        (None, 5.0, "FAULT    stamps on /go2/joint_states differ from this clock by 5."),
    ],
)
def test_topics_that_do_not_fit_are_faults(
    command, go2_bundle, domain, publishing, names, late, told
):
    from configs.compose import compose

    robot = compose(["task=velocity", "robot=go2"]).config.robot.spec
    publishing("joint_states", joints(names or robot.joint_names, late))
    answer = command("doctor", f"bundle={go2_bundle}", f"domain={domain}", "listen=3")
    assert answer.code == 1, answer.out
    assert told in answer.out
    assert "Hz, declared are 500 Hz" in answer.out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["mode=shadow"], "option 'mode' is unknown"),
        (["driver=ros"], "driver 'ros' is unknown; known: twin"),
    ],
)
def test_what_cannot_be_examined_is_refused_in_a_sentence(refused, arguments, told):
    assert told in refused("doctor", *arguments)
