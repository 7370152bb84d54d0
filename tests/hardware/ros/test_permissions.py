"""The permissions that are shipped name what the nodes really offer and hear."""

import os
from collections.abc import Iterable, Mapping
from contextlib import closing
from fnmatch import fnmatchcase
from importlib.resources import files
from xml.etree import ElementTree as Xml

import pytest

from hardware.control.clock import MonotonicClock
from hardware.ros.introspection import offer_parameters
from hardware.ros.policy_node import PolicyNode
from hardware.ros.robot_bridge import RobotBridge
from hardware.ros.session import RosSession
from policies.bundle import load_bundle
from scripts.bench.deployment.scripted import write_standing_policy
from tests.compositions import composed

RIGHTS = {
    "publish": ("topics", "get_publisher_names_and_types_by_node"),
    "subscribe": ("topics", "get_subscriber_names_and_types_by_node"),
    "reply": ("services", "get_service_names_and_types_by_node"),
    "request": ("services", "get_client_names_and_types_by_node"),
}


def allowed(node: str) -> Mapping[str, set[str]]:
    """Absolute names that a node of `/robot` may use, by right."""
    root = Xml.fromstring(files("hardware.ros").joinpath("package", "policy.xml").read_text())
    found: dict[str, set[str]] = {right: set() for right in RIGHTS}
    for profile in root.iter("profile"):
        if profile.get("node") != node:
            continue
        for group in profile:
            for right in group.attrib:
                assert group.get(right) == "ALLOW"
                names = [str(entry.text) for entry in group]
                assert names == sorted(names)
                found[right] |= {name if name[0] == "/" else f"/robot/{name}" for name in names}
    return found


def used(session: RosSession, node: str) -> Mapping[str, set[str]]:
    return {
        right: {name for name, _ in getattr(session.node, look)(node, "/robot")}
        for right, (_, look) in RIGHTS.items()
    }


def beyond(names: Iterable[str], patterns: Iterable[str]) -> list[str]:
    return [name for name in names if not any(fnmatchcase(name, one) for one in patterns)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "robot"), [("velocity", "go2"), ("reach", "panda"), ("hover", "crazyflie")]
)
def test_the_bridge_offers_nothing_that_the_permissions_leave_out(sessions, task, robot):
    spec = composed([f"task={task}", f"robot={robot}"]).config.robot.spec
    session = sessions("loop")
    with closing(
        RobotBridge(
            session, spec, name=f"test-permissions-{os.getpid()}", clock=MonotonicClock(),
            gain_sets={}, world={"goal/velocity_b": 3, "sensed/handle": 2}, urdf="<robot/>",
        )
    ):  # fmt: skip
        offer_parameters(session, ())
        rights, names = allowed("loop"), used(session, "loop")
        assert "/robot/loop/estop" in names["reply"]
        assert names["publish"] > {"/robot/robot_description", "/robot/safety/state"}
        assert {right: beyond(names[right], rights[right]) for right in RIGHTS} == {
            right: [] for right in RIGHTS
        }


@pytest.mark.slow
def test_the_policy_hears_and_says_what_the_permissions_name(sessions, tmp_path):
    session = sessions("policy")
    write_standing_policy(tmp_path / "bundle")
    PolicyNode(session, load_bundle(tmp_path / "bundle"))
    rights, names = allowed("policy"), used(session, "policy")
    assert "/robot/policy/step" in names["publish"]
    assert {right: beyond(names[right], rights[right]) for right in RIGHTS} == {
        right: [] for right in RIGHTS
    }


def test_a_forbidden_name_is_found():
    assert beyond(["/robot/odom", "/robot/secret"], allowed("loop")["publish"]) == ["/robot/secret"]
