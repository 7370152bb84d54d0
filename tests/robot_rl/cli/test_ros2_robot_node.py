"""`examples/ros2_robot_node.py`, driven as its docstring says, and what ROS tools see meanwhile."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import numpy as np
import pytest

from hardware.control.safety import SafetyState
from hardware.ros.compat import message
from robot_rl.cli.deployment.operator import Operator
from robot_rl.core.process import clean_environ
from scripts.bench.deployment.scripted import write_reaching_policy
from tests.robot_rl.cli.deployments import (
    WITHOUT_ROS,
    bring_to_policy,
    running,
    session,
    status_of,
    within,
)

pytestmark = [
    pytest.mark.skipif(WITHOUT_ROS, reason="ROS 2 is not installed"),
    pytest.mark.slow,
    pytest.mark.timeout(400),
]
ROOT = Path(__file__).resolve().parents[3]
GOAL = [0.4, 0.1, 0.4]
"""Place that the hand is sent to [m]."""


@pytest.fixture(scope="module")
def panda(domain, tmp_path_factory) -> Iterator[Operator]:
    """The example's robot, with a policy that pulls its hand to the goal."""
    bundle = write_reaching_policy(tmp_path_factory.mktemp("arm") / "bundle", gain=0.3)
    environ = clean_environ({"PYTHONPATH": str(ROOT), "ROS_DOMAIN_ID": str(domain)})
    node = subprocess.Popen([sys.executable, ROOT / "examples" / "ros2_robot_node.py"], env=environ)
    try:
        with session("awaiting", domain, "/panda_node") as waiting:
            newest = waiting.newest("joint_states", message("sensor_msgs", "JointState"))
            newest.wait(waiting, "the example", timeout=60.0)
        options: dict[str, Any] = {"driver": "ros2", "source": "/panda_node", "namespace": "/arm"}
        goal = {"end_effector_position_b": GOAL}
        with running(domain, bundle=bundle, goal=goal, **options) as operator:
            yield bring_to_policy(operator)
    finally:
        node.terminate()
        assert node.wait(30) in (0, -15)


def test_the_hand_comes_to_the_goal(panda, domain):
    with session("watching", domain, "/panda_node") as watching:
        hand = watching.newest("ee_pose", message("geometry_msgs", "PoseStamped"))

        def there() -> bool:
            place = hand.wait(watching, "the hand").pose.position
            return (
                float(np.linalg.norm([place.x - GOAL[0], place.y - GOAL[1], place.z - GOAL[2]]))
                < 0.01
            )

        assert within(30, there), status_of(panda).trip
    assert status_of(panda).safety is SafetyState.POLICY


def test_tools_read_lifecycle_parameters_and_description(panda, domain):
    bring_to_policy(panda)

    def answer(node: Any, package: str, kind: str, name: str, **fields: Any) -> Any:
        service: Any = message(package, kind)
        return node.call(service, f"loop/{name}", service.Request(**fields))

    with session("tools", domain, "/arm") as tools:
        state = answer(tools, "lifecycle_msgs", "GetState", "get_state").current_state
        assert state.label == "active", status_of(panda).trip
        names = ["driver", "namespace", "limits.tilt"]
        values = answer(tools, "rcl_interfaces", "GetParameters", "get_parameters", names=names)
        driver, namespace, tilt = values.values
        assert (driver.string_value, namespace.string_value) == ("ros2", "/arm")
        assert tilt.double_value == panda.parts.limits.tilt
        shown = answer(
            tools, "rcl_interfaces", "DescribeParameters", "describe_parameters", names=names
        )
        assert "[rad]" in shown.descriptors[2].description
        heard = tools.newest("robot_description", message("std_msgs", "String"), latched=True)
        robot = Xml.fromstring(heard.wait(tools, "the description").data)
        joints = {str(joint.get("name")) for joint in robot.findall("joint")}
        assert {*panda.parts.robot.joint_names} <= joints
        sent = tools.newest("joint_states", message("sensor_msgs", "JointState"))
        assert sent.wait(tools, "joints").header.frame_id == "arm/base_link"
