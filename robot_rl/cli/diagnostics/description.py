"""A robot's URDF beside its YAML: names and limits of joints."""

import math
from collections.abc import Iterator
from xml.etree import ElementTree

from robot_rl.cli.diagnostics.findings import Finding, Level
from robot_rl.core.robot import JointSpec, RobotSpec

_ROUNDING = 1e-3
"""By how much limits of both may differ, in their units."""


def compare_description(text: str, robot: RobotSpec, topic: str) -> Iterator[Finding]:
    """What a URDF says against a robot's YAML.

    Args:
        text: The URDF.
        robot: The robot of bundle and YAML.
        topic: Where the URDF comes from.
    """
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        yield Finding(Level.warning, f"{topic} is no XML: {error}", "look at what publishes it")
        return
    # Only the robot's own: ros2_control and transmissions name the same joints without limits.
    joints = {joint.get("name", ""): joint for joint in root.findall("joint")}
    missing = [name for name in robot.joint_names if name not in joints]
    if missing:
        yield Finding(
            Level.fault, f"{topic} lacks {missing}; it has {sorted(joints)}",
            "compare the names in the robot's YAML with those of the URDF",
        )  # fmt: skip
    wider = [
        words
        for joint in robot.joints if joint.name in joints
        for words in _wider(joints[joint.name], joint)
    ]  # fmt: skip
    if wider:
        yield Finding(
            Level.fault, f"the YAML allows more than {topic}: {'; '.join(wider)}",
            "correct the limits in the robot's YAML, train again if they have changed much",
        )  # fmt: skip
    elif not missing:
        yield Finding(Level.good, f"joints and limits of the YAML lie within {topic}")


def _wider(theirs: ElementTree.Element, joint: JointSpec) -> Iterator[str]:
    """Limits of ours beyond theirs."""
    limit, name = theirs.find("limit"), theirs.get("name")
    if limit is None:
        return
    low, high = joint.position_limit
    if theirs.get("type") != "continuous":
        bounds = (_number(limit, "lower", 0.0), _number(limit, "upper", 0.0))
        if low < bounds[0] - _ROUNDING or high > bounds[1] + _ROUNDING:
            yield f"{name} position [{low:g}, {high:g}] beyond [{bounds[0]:g}, {bounds[1]:g}]"
    for attribute, wanted in (("velocity", joint.velocity_limit), ("effort", joint.effort_limit)):
        allowed = _number(limit, attribute, math.inf)
        if wanted > allowed + _ROUNDING:
            yield f"{name} {attribute} {wanted:g} beyond {allowed:g}"


def _number(limit: ElementTree.Element, attribute: str, absent: float) -> float:
    try:
        return float(limit.get(attribute, absent))
    except ValueError:
        return absent
