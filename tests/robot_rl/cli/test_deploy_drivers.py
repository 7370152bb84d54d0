"""`driver=ros2` and `driver=fake`: the same command, another robot behind it."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pytest

from configs.compose import compose
from hardware.control.safety import SafetyState
from hardware.ros.compat import inspect_environment, message
from hardware.ros.session import RosSession
from robot_rl.core.process import clean_environ
from tests.robot_rl.cli import vendor_node
from tests.robot_rl.cli.deployments import PATIENT, left_behind, within

pytestmark = [
    pytest.mark.skipif(inspect_environment().rclpy is None, reason="ROS 2 is not installed"),
    pytest.mark.slow,
    pytest.mark.timeout(400),
]
TOPICS = dict(vendor_node.TOPICS)
STILL = {"velocity_b": [0, 0, 0]}


def as_option(values: Mapping[str, object]) -> str:
    return "{" + ",".join(f"{k}:{v}" for k, v in values.items()).replace(" ", "") + "}"


@pytest.fixture
def vendor(domain) -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    """Somebody else's node in a process of its own."""
    started: list[subprocess.Popen[bytes]] = []

    def start(form: str) -> subprocess.Popen[bytes]:
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", "tests.robot_rl.cli.vendor_node", str(domain), form],
                env=clean_environ(),
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.terminate()
        process.wait(30)


@pytest.fixture
def outside(domain) -> Iterator[RosSession]:
    session = RosSession("outside", namespace=vendor_node.NAMESPACE, domain=domain)
    yield session
    session.close()


@pytest.mark.parametrize("form", ["trajectory", "positions"])
def test_robot_of_somebody_elses_node_stands(command, go2_bundle, domain, vendor, outside, form):
    vendor(form)
    place = outside.newest("truth", message("geometry_msgs", "PointStamped"))
    motors = outside.newest("motors", message("sensor_msgs", "JointState"))
    names = [] if form == "trajectory" else ["joints=" + str(reversed_joints()).replace("'", "")]
    answer = command(
        "deploy", f"bundle={go2_bundle}", f"patience={PATIENT}", f"domain={domain}", "seconds=2",
        "driver=ros2", f"command={form}", "source=/vendor", f"topics={as_option(TOPICS)}",
        f"goal={as_option(STILL)}", *names,
    )  # fmt: skip
    assert answer.code == 0, answer.err
    told = answer.out.splitlines()
    assert any(line.startswith("policy  ") for line in told)
    assert told[-1] == "stopping softly"
    assert left_behind(domain) == []
    # It goes on holding the pose: its node knows no damping.
    outside.wait_until(lambda: motors.take() is not None, "samples", timeout=30)
    state = motors.wait(outside, "a sample", timeout=30)
    default = {joint.name: joint.default_position for joint in go2().joints}
    q = np.array(
        [p - default[n] for n, p in zip(state.name, state.position, strict=True) if n in default]
    )
    assert abs(q).max() < 0.25, "the pose of a standing robot under its own weight"
    assert place.wait(outside, "its place", timeout=30).point.z > 0.2


def go2():
    return compose(["task=velocity", "robot=go2"]).config.robot.spec


def reversed_joints() -> list[str]:
    return [*reversed(go2().joint_names)]


def test_emergency_stop_reaches_their_node_as_damping(deploying, deployed, domain, vendor, outside):
    vendor("joint_state")
    operator = deployed(driver="ros2", source="/vendor", topics=TOPICS, goal=STILL)
    told = outside.newest(vendor_node.TOPICS["command"], message("sensor_msgs", "JointState"))
    operator.arm()
    operator.hand_over()
    outside.wait_until(
        lambda: (got := told.take()) is not None and got.header.frame_id.startswith("policy:"),
        "commands", timeout=30,
    )  # fmt: skip
    trigger = message("std_srvs", "Trigger")
    somebody = RosSession("somebody", namespace="/go2", domain=domain)
    try:
        somebody.call(trigger, "loop/estop", trigger.Request(), timeout=60)
        outside.wait_until(
            lambda: (got := told.take()) is not None and got.header.frame_id == "damping",
            "damping", timeout=30,
        )  # fmt: skip
    finally:
        somebody.close()
    with pytest.raises(deploying.operator.DeploymentError, match=r"'estop'.*estop_pressed"):
        operator.watch(30.0)  # it was lost before anybody watched


def test_node_that_falls_silent_stops_the_robot(deployed, vendor):
    node = vendor("joint_state")
    operator = deployed(driver="ros2", source="/vendor", topics=TOPICS, goal=STILL)
    operator.arm()
    node.terminate()
    assert within(60, lambda: operator.status.safety is SafetyState.ESTOP)
    assert "state_lost" in operator.status.trip


def test_somebody_else_who_drives_their_node_holds_the_robot(
    deploying, deployed, vendor, outside, monkeypatch
):
    monkeypatch.setattr(deploying.operator, "_ACT_SECONDS", 1.0)  # they will not go away
    vendor("joint_state")
    operator = deployed(driver="ros2", source="/vendor", topics=TOPICS, goal=STILL)
    operator.arm()
    outside.publisher(vendor_node.TOPICS["command"], message("sensor_msgs", "JointState"))
    assert within(60, lambda: "second_publisher" in {c.value for c in operator.status.conditions})
    with pytest.raises(deploying.operator.DeploymentError, match=r"second_publisher .2 send"):
        operator.hand_over()


def test_node_that_is_not_there_is_named(command, go2_bundle, domain):
    answer = command(
        "deploy", f"bundle={go2_bundle}", f"patience={PATIENT}", f"domain={domain}",
        "driver=ros2", "source=/nobody",
    )  # fmt: skip
    assert answer.code == 2
    assert "the process 'link' ended with exit code 2" in answer.err
    assert left_behind(domain) == []


def test_fake_robot_stands_in_for_a_simulated_one(command, go2_bundle, domain):
    answer = command(
        "deploy", f"bundle={go2_bundle}", f"patience={PATIENT}", f"domain={domain}", "seconds=2",
        "driver=fake", "delay=0.005", "noise=1", "dropout=0.1",
    )  # fmt: skip
    assert answer.code == 0, answer.err
    assert any(line.startswith("policy  ") for line in answer.out.splitlines())
    assert left_behind(domain) == []


def test_names_of_gains_are_told_to_who_comes_late(deployed, domain):
    operator = deployed(driver="fake")
    operator.arm()
    somebody = RosSession("somebody", namespace="/go2", domain=domain)
    try:
        newest = somebody.newest("gain_sets", message("std_msgs", "String"), latched=True)
        told = json.loads(newest.wait(somebody, "the gain sets", timeout=60).data)
    finally:
        somebody.close()
    assert [*told] == operator.parts.gain_names
    assert told[operator.parts.gain_names[0]]["stiffness"]["FL_hip_joint"] == 40.0


def test_goal_of_another_width_is_refused(refused, go2_bundle):
    said = refused("deploy", f"bundle={go2_bundle}", "driver=fake", "goal={velocity_b:[1]}")
    assert "goal 'velocity_b' takes 3 numbers, got [1]" in said
    said = refused("deploy", f"bundle={go2_bundle}", "driver=fake", "goal={speed:[1]}")
    assert "goal 'speed' is unknown" in said
