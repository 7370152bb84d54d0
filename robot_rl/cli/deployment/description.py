"""Description of a deployment for other programs: the robot's URDF, and parameters of its nodes."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from configs.catalog import walk_fields
from hardware.control.monitors import SafetyLimits
from hardware.ros.introspection import NodeParameter

if TYPE_CHECKING:
    from robot_rl.cli.deployment.options import DeployOptions

_POSITIVE = (0.0, math.inf)


def urdf_of(robot: Any) -> str:
    """URDF of a configured robot.

    Args:
        robot: Config of the robot, with joints or rotors.

    Raises:
        ConfigError: Its model cannot be compiled.
        ModuleNotFoundError: There is no MuJoCo.
    """
    from sim.physics.mujoco_model import load_model
    from sim.physics.urdf import joint_urdf, multirotor_urdf

    if robot.spec.rotors:
        return multirotor_urdf(robot.spec, robot.model)
    model = load_model(
        robot.model, robot.spec, physics_dt=robot.physics_dt, menagerie=robot.menagerie,
        gripper=robot.gripper_model, passive_joints=robot.passive_joints,
    )  # fmt: skip
    return joint_urdf(model, robot.spec)


def node_parameters(
    options: "DeployOptions", limits: SafetyLimits, *, robot: str, namespace: str, domain: int,
    period: float, control_dt: float,
) -> tuple[NodeParameter, ...]:  # fmt: skip
    """Options in force and limits, as read-only parameters of the nodes of a deployment.

    Args:
        options: As they were given.
        limits: As they hold, patience included.
        robot: Its name.
        namespace: Of all topics.
        domain: ROS_DOMAIN_ID.
        period: Of the robot's loop [s].
        control_dt: Of the policy [s].
    """
    return (
        NodeParameter(name="bundle", value=options.bundle, description="Folder of the policy."),
        NodeParameter(name="robot", value=robot, description="Name of the robot."),
        NodeParameter(name="driver", value=options.driver, description="Driver of the robot."),
        NodeParameter(name="mode", value=options.mode, description="policy or shadow."),
        NodeParameter(name="namespace", value=namespace, description="Of all topics."),
        NodeParameter(
            name="domain", value=domain, description="ROS_DOMAIN_ID.", bounds=(0, 232)
        ),
        NodeParameter(
            name="period", value=period, description="Of the loop [s].", bounds=_POSITIVE
        ),
        NodeParameter(
            name="control_dt", value=control_dt, description="Of the policy [s].", bounds=_POSITIVE
        ),
        NodeParameter(
            name="patience", value=float(options.patience), bounds=_POSITIVE,
            description="Factor on the times that the robot waits.",
        ),
        *_limits(limits),
    )  # fmt: skip


def _limits(limits: SafetyLimits) -> Iterator[NodeParameter]:
    for entry in walk_fields(limits, "limits."):
        if entry.value is None:  # nothing is bounded joint by joint
            continue
        if isinstance(entry.value, tuple):
            corner = [float(value) for value in entry.value]
            yield NodeParameter(name=entry.path, value=corner, description=entry.meaning)
        else:
            bounds = (0.0, 1.0) if entry.path.endswith("_share") else _POSITIVE
            yield NodeParameter(
                name=entry.path, value=float(entry.value), description=entry.meaning, bounds=bounds
            )
