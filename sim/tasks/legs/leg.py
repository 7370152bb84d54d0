"""What the tasks of legged robots share: a config, and the joints that legs are made of."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from robot_rl.core.errors import SpecMismatchError, unknown_name
from robot_rl.core.observation import TermConfig
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_state import RobotState
from sim.robots.joint_robot import JointActionConfig, JointRandomization
from sim.scenes.scene import SceneConfig


@dataclass(kw_only=True)
class LegTaskConfig:
    """Fields of every task for a robot with legs."""

    train_steps: int = 10_000_000
    """World-steps of training: a budget, nobody has measured yet what suffices."""
    episode_length: float = 5.0
    """Time limit [s]."""
    height: float = 0.28
    """Height of the base above the ground where a robot stands or walks as it should [m]."""
    action: JointActionConfig = field(default_factory=JointActionConfig)
    """How the legs are moved."""
    randomization: JointRandomization = field(default_factory=JointRandomization)
    """Physical parameters drawn per episode, and pushes."""
    scene: SceneConfig = field(default_factory=SceneConfig)
    """What stands around the robot, and the ground below it."""
    reward: dict[str, float] = field(default_factory=dict)
    """Weight of each reward term; terms left out weigh 0."""
    actor: list[TermConfig] = field(default_factory=list)
    """What the policy sees: only what the robot measures, and the goal where there is one."""
    critic: list[TermConfig] = field(default_factory=list)
    """What the critic sees: the true state and what only a simulator knows."""


class Legs:
    """The joints of a legged robot: where they rest, how far they go, how strong they are."""

    def __init__(self, robot: RobotSpec, device: torch.device) -> None:
        """Read the robot's J joints."""
        joints = robot.joints
        self.default = torch.tensor([joint.default_position for joint in joints], device=device)
        """Default pose, (J,), [rad]."""
        limits = torch.tensor([joint.position_limit for joint in joints], device=device)
        self._lowest, self._highest = limits[:, 0], limits[:, 1]
        self._effort_limit = torch.tensor([joint.effort_limit for joint in joints], device=device)

    def within_limits(self, position: Tensor) -> Tensor:
        """Joint positions cut to what the joints reach, (count, J), [rad]."""
        return torch.clamp(position, self._lowest, self._highest)

    def deviation(self, true_state: RobotState) -> Tensor:
        """From the default pose, (N, J), [rad]."""
        return true_state.joint_position - self.default

    def exertion(self, true_state: RobotState) -> Tensor:
        """Torques as fractions of their limits, (N, J)."""
        return true_state.joint_effort / self._effort_limit


def check_feet(task: str, robot: RobotSpec) -> None:
    """Raise `SpecMismatchError` if a robot has no feet."""
    if not robot.feet:
        raise SpecMismatchError(
            f"task {task} needs a robot with feet, robot '{robot.name}' has none; "
            "name them in its spec (feet: [...]) or choose robot=go2"
        )


def check_sensors(
    task: str, robot: RobotSpec, sensors: Collection[str], needed: Iterable[str]
) -> None:
    """Raise `SpecMismatchError` if the model of a robot lacks a sensor that a task reads."""
    for name in needed:
        if name not in sensors:
            told = unknown_name(f"task {task}, robot '{robot.name}': sensor", name, sensors)
            raise SpecMismatchError(f"{told}; declare it in the robot's model")
