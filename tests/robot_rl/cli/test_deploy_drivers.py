"""`driver=ros2`: the same command, and somebody else's node behind it."""

import multiprocessing
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hardware.control.safety import SafetyState
from hardware.ros.compat import message
from hardware.ros.session import RosSession
from robot_rl.cli.deployment import operator as operator_module
from robot_rl.cli.deployment.operator import DeploymentError, Operator
from robot_rl.cli.deployment.options import DeployOptions
from robot_rl.cli.deployment.plan import Deployment
from robot_rl.core.errors import ConfigError
from robot_rl.core.process import clean_environ
from tests.compositions import composed
from tests.robot_rl.cli import vendor_node
from tests.robot_rl.cli.deployments import (
    PATIENT,
    WITHOUT_ROS,
    bring_to_policy,
    call,
    impatient_link,
    left_behind,
    running,
    session,
    within,
)

pytestmark = [
    pytest.mark.skipif(WITHOUT_ROS, reason="ROS 2 is not installed"),
    pytest.mark.slow,
    pytest.mark.timeout(400),
]
TOPICS = dict(vendor_node.TOPICS)
STILL = {"velocity_b": [0, 0, 0]}
Vendor = subprocess.Popen[bytes]


def as_option(values: Mapping[str, object]) -> str:
    return "{" + ",".join(f"{k}:{v}" for k, v in values.items()).replace(" ", "") + "}"


@pytest.fixture(scope="module")
def vendor(domain) -> Iterator[Callable[[str], Vendor]]:
    """A vendor's node in a process of its own; one at a time."""
    started: list[Vendor] = []

    def stop() -> None:
        for process in started:
            process.terminate()
            process.wait(30)

    def start(form: str) -> Vendor:
        stop()
        arguments = [sys.executable, "-m", "tests.robot_rl.cli.vendor_node", str(domain), form]
        started.append(subprocess.Popen(arguments, env=clean_environ()))
        with session("awaiting", domain, vendor_node.NAMESPACE) as node:
            newest = node.newest(TOPICS["joint_states"], message("sensor_msgs", "JointState"))
            newest.wait(node, "their node", timeout=120.0)
        return started[-1]

    yield start
    stop()


@pytest.fixture
def outside(domain) -> Iterator[RosSession]:
    with session("outside", domain, vendor_node.NAMESPACE) as made:
        yield made


@pytest.fixture(scope="class")
def node(vendor) -> Vendor:
    return vendor("joint_state")


@pytest.fixture(scope="class")
def deployment(node, go2_bundle, domain) -> Iterator[Operator]:
    options = {"driver": "ros2", "source": "/vendor", "topics": TOPICS, "goal": STILL}
    with running(domain, bundle=go2_bundle, **options) as operator:
        yield operator


class TestOneDeployment:
    """One deployment on somebody else's node, to which one thing after the other happens."""

    def test_emergency_stop_reaches_their_node_as_damping(self, deployment, domain, outside):
        told = outside.newest(TOPICS["command"], message("sensor_msgs", "JointState"))
        bring_to_policy(deployment)
        outside.wait_until(
            lambda: (got := told.take()) is not None and got.header.frame_id.startswith("policy:"),
            "commands", timeout=30,
        )  # fmt: skip
        call(domain, "estop")
        outside.wait_until(
            lambda: (got := told.take()) is not None and got.header.frame_id == "damping",
            "damping", timeout=30,
        )  # fmt: skip
        assert not deployment.watch(1.0)
        assert deployment.status.safety is SafetyState.ESTOP

    def test_somebody_else_who_drives_their_node_holds_the_robot(
        self, deployment, outside, monkeypatch
    ):
        bring_to_policy(deployment)
        monkeypatch.setattr(operator_module, "_ACT_SECONDS", 1.0)  # they will not go away
        outside.publisher(TOPICS["command"], message("sensor_msgs", "JointState"))
        with pytest.raises(DeploymentError, match=r"second_publisher .2 send"):
            deployment.watch(60.0)
        with pytest.raises(DeploymentError, match=r"second_publisher .2 send"):
            deployment.arm()

    def test_node_that_falls_silent_stops_the_robot(self, deployment, node):  # the last
        bring_to_policy(deployment)
        node.terminate()
        assert within(60, lambda: deployment.status.safety is SafetyState.ESTOP)
        assert "state_lost" in deployment.status.trip


@pytest.mark.parametrize("form", ["positions", pytest.param("trajectory", marks=pytest.mark.full)])
def test_robot_of_somebody_elses_node_stands(command, go2_bundle, domain, vendor, outside, form):
    vendor(form)
    robot = composed(["task=velocity", "robot=go2"]).config.robot.spec
    place = outside.newest("truth", message("geometry_msgs", "PointStamped"))
    motors = outside.newest("motors", message("sensor_msgs", "JointState"))
    order = str([*reversed(robot.joint_names)]).replace("'", "")
    answer = command(
        "deploy", f"bundle={go2_bundle}", f"patience={PATIENT}", f"domain={domain}", "seconds=2",
        "driver=ros2", f"command={form}", "source=/vendor", f"topics={as_option(TOPICS)}",
        f"goal={as_option(STILL)}", *([f"joints={order}"] if form == "positions" else []),
    )  # fmt: skip
    told = answer.out.splitlines()
    assert any(line.startswith("policy  ") for line in told)
    assert told[-1] == "stopping softly"
    assert left_behind(domain) == []
    # It goes on holding the pose: its node knows no damping.
    outside.wait_until(lambda: motors.take() is not None, "samples", timeout=30)
    state = motors.wait(outside, "a sample", timeout=30)
    default = {joint.name: joint.default_position for joint in robot.joints}
    q = np.array(
        [p - default[n] for n, p in zip(state.name, state.position, strict=True) if n in default]
    )
    assert abs(q).max() < 0.25, "the pose of a standing robot under its own weight"
    assert place.wait(outside, "its place", timeout=30).point.z > 0.2


def test_node_that_is_not_there_ends_the_link_with_a_sentence(go2_bundle, domain, capfd):
    options = DeployOptions(bundle=str(go2_bundle), driver="ros2", source="/nobody", domain=domain)
    parts = Deployment(options).parts()
    link = multiprocessing.get_context("spawn").Process(target=impatient_link, args=(parts,))
    link.start()
    link.join(120)
    assert link.exitcode == 2
    assert "error: the robot's topics do not serve: " in capfd.readouterr().err


@pytest.mark.parametrize("gripper", [True, False])
def test_torques_and_a_gripper_have_no_form_of_commands_and_no_circle_of_advice(gripper):
    """Other forms asked for efforts, and efforts for another form."""
    runner = SimpleNamespace(spec=SimpleNamespace(action_map=SimpleNamespace(gripper=gripper)))
    options = DeployOptions(
        bundle="zoo:panda-reach", driver="ros2", source="/arm", command="positions"
    )
    plan: Any = SimpleNamespace(
        runner=runner, led=SimpleNamespace(torques=True), robot_file=None, options=options,
        robot=composed(["task=reach", "robot=panda"]).config.robot.spec, namespace="/panda",
    )  # fmt: skip
    wiring: Any = Deployment.wiring.fget
    told = "robot-rl learn driver=ros2, which is" if gripper else "take command=efforts, or a"
    with pytest.raises(ConfigError, match=told):
        wiring(plan)
    if not gripper:
        options.command = "efforts"
        assert wiring(plan).form == "efforts"
