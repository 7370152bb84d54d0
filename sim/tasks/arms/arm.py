"""Parts of every task for an arm: a config, poses to begin from, costs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

import torch
from torch import Tensor

from robot_rl.core.observation import RobotState
from robot_rl.core.robot import RobotKind
from sim import checks, draws
from sim.robots.joint_robot import JointActionConfig
from sim.task import TaskContext, square_sum
from sim.tasks.joint_task import JointTaskConfig

END_EFFECTOR = "end_effector_position_b"
_BY_JOINTS = {6: ("ur5e_2f85",), 7: ("panda",)}
"""Arms of ours with a gripper, by the number of their joints."""


class RewardKind(Enum):
    """Kind of reward."""

    sparse = "sparse"
    shaped = "shaped"


@dataclass(kw_only=True)
class ArmTaskConfig(JointTaskConfig):
    """Fields of every task for an arm; lengths in base axes [m]."""

    robot_kind: ClassVar[RobotKind] = RobotKind(
        words="an arm with a gripper, whose end effector is measured",
        robots=("panda", "ur5e_2f85"), gripper=True, sensors=(END_EFFECTOR,),
    )  # fmt: skip
    train_steps: int = 1_000_000
    """World-steps of training that a run takes; not shown to suffice."""
    episode_length: float = 4.0
    """Time limit [s]."""
    start_position: float = 0.1
    """Half-width of the joint positions that episodes begin from, around the task's pose [rad]."""
    lowest_height: float = 0.004
    """Height of the end effector below which the episode terminates [m]; fingers that touch the
    floor hold it at 0.009."""
    success_window: float = 0.4
    """Time at the episode's end over which success is judged [s]."""
    action: JointActionConfig = field(default_factory=JointActionConfig)
    """Action of the arm."""

    @property
    def kinds_by_values(self) -> tuple[RobotKind, ...]:
        """Arms with as many joints as the task's pose, where it has one."""
        joints = len(self.action.pose)
        posed = RobotKind(
            words=f"an arm with {joints} joints, as many as task.action.pose has entries",
            robots=_BY_JOINTS.get(joints, ()), joints=joints,
        )  # fmt: skip
        return (posed,) if joints else ()

    def __post_init__(self) -> None:
        checks.positive(self, "episode_length", "success_window")
        checks.not_negative(self, "start_position")
        checks.window(self.success_window, self.episode_length)


class Arm:
    """The arm of a task: where it begins and what its motion costs."""

    def __init__(self, config: ArmTaskConfig, context: TaskContext) -> None:
        """Read the robot."""
        robot, device = context.robot, context.device
        self._spread = config.start_position
        self._pose = torch.tensor(config.action.middle(robot), device=device)
        limits = torch.tensor([joint.position_limit for joint in robot.joints], device=device)
        self._lowest, self._highest = limits[:, 0], limits[:, 1]
        self._speed_limit = torch.tensor([j.velocity_limit for j in robot.joints], device=device)
        self._effort_limit = torch.tensor([j.effort_limit for j in robot.joints], device=device)

    def start(self, count: int, generator: torch.Generator, opening: float = 1.0) -> RobotState:
        """Arms at rest around the task's pose with the gripper at an opening, (count, ...)."""
        shape = (count, len(self._pose))
        unit = torch.rand(shape, generator=generator, device=generator.device)
        position = self._pose + self._spread * (2 * unit - 1)
        position = torch.clamp(position, self._lowest, self._highest)
        return RobotState({
            "joint_position": position,
            "joint_velocity": torch.zeros_like(position),
            "gripper_opening": torch.full_like(position[:, :1], opening),
        })  # fmt: skip

    def costs(
        self, true_state: RobotState, action: Tensor, last_action: Tensor
    ) -> dict[str, Tensor]:
        """Costs of moving, the last reward terms of every task with an `Arm`."""
        rates = true_state.joint_velocity
        return {
            "speed": square_sum(rates),  # [rad^2/s^2]
            "overspeed": overspeed(rates, self._speed_limit).sum(-1),
            "smoothness": square_sum(action - last_action),
        }

    def exertion(self, true_state: RobotState) -> Tensor:
        """Torques as fractions of their limits, (N, J)."""
        return true_state.joint_effort / self._effort_limit


def overspeed(rates: Tensor, limit: Tensor) -> Tensor:
    """Fraction by which joint rates, (N, J), exceed their limits, (J,), 1 at most."""
    return (rates.abs() / limit - 1).clamp(0.0, 1.0)


def standing(
    count: int, low: Sequence[float], high: Sequence[float], turn: float, height: float,
    generator: torch.Generator,
) -> Tensor:  # fmt: skip
    """Poses of things that stand upright, (count, 7), position and quaternion wxyz, world.

    Args:
        low: Corner of the rectangle that they stand in, (2,), [m].
        high: Opposite corner.
        turn: Half-width of their turn about the vertical [rad].
        height: Of all [m].
        generator: Draws places first, then turns.
    """
    place = draws.box(count, low, high, generator)
    yaw = draws.uniform((count, 1), -turn, turn, generator)
    none = torch.zeros_like(yaw)
    parts = [place, none + height, (0.5 * yaw).cos(), none, none, (0.5 * yaw).sin()]
    return torch.cat(parts, dim=-1)
