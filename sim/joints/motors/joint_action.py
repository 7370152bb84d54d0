"""How a task wants a robot with joints to be moved."""

from dataclasses import dataclass, field, replace

from robot_rl.core.action import ActionMap
from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.robot import RobotSpec


@dataclass(kw_only=True)
class JointActionConfig:
    """Joint position targets around a pose, and the gripper where a task needs it."""

    pose: list[float] = field(default_factory=list)
    """Joint positions that an action of 0 asks for, and around which episodes begin [rad]; empty
    for the robot's default pose."""
    scale: float | None = None
    """What an action of 1 adds to a joint's position [rad]; null for the robot's own scale."""
    gripper: bool = False
    """Whether one more entry moves the gripper, closed at -1, open at 1."""

    def __post_init__(self) -> None:
        """Refuse scales without extent."""
        if self.scale is not None and not self.scale > 0:
            raise ConfigError(f"task.action.scale must be > 0, got {self.scale}")

    def middle(self, robot: RobotSpec) -> list[float]:
        """Joint positions in the middle of the range, one per joint, [rad].

        Raises:
            SpecMismatchError: The pose is of another robot.
        """
        pose = self.pose or [joint.default_position for joint in robot.joints]
        if len(pose) != robot.num_joints:
            raise SpecMismatchError(
                f"task.action.pose has {len(pose)} entries, but robot '{robot.name}' has "
                f"{robot.num_joints} joints; give one for each, or [] for its default pose"
            )
        return pose

    def action_map(self, robot: RobotSpec, scale: float) -> ActionMap:
        """The map from actions to commands.

        Args:
            robot: The robot.
            scale: Its own scale [rad].

        Raises:
            SpecMismatchError: The pose is of another robot, or it lacks a gripper.
        """
        if self.gripper and robot.gripper is None:
            raise SpecMismatchError(
                f"the task moves a gripper (task.action.gripper), but robot '{robot.name}' has none"
            )
        middle = zip(robot.joints, self.middle(robot), strict=True)
        joints = [replace(joint, default_position=position) for joint, position in middle]
        around = replace(robot, joints=joints)
        return ActionMap.joint_positions(around, self.scale or scale, gripper=self.gripper)
