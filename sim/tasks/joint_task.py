"""Fields of every task for a robot with joints."""

from dataclasses import dataclass, field
from typing import ClassVar

from robot_rl.core.observation import TermConfig
from robot_rl.core.robot import RobotKind
from sim.robots.joint_robot import JointRandomization
from sim.scenes.scene import SceneConfig


@dataclass(kw_only=True)
class JointTaskConfig:
    """Fields of every task for a robot with joints; a task adds its action and its own."""

    robot_kind: ClassVar[RobotKind] = RobotKind(words="a robot with joints", robots=())
    """Kind of robot that the task is for."""

    train_steps: int
    """World-steps of training."""
    episode_length: float
    """Time limit [s]."""
    randomization: JointRandomization = field(default_factory=JointRandomization)
    """Physical parameters and looks drawn per episode, and pushes."""
    scene: SceneConfig = field(default_factory=SceneConfig)
    """Things around the robot, the ground below it, and what is measured of them."""
    reward: dict[str, float] = field(default_factory=dict[str, float])
    """Weight of each reward term by its name; 0 only records it."""
    actor: list[TermConfig] = field(default_factory=list[TermConfig])
    """Inputs of the policy: only what the robot and a camera measure, and the goal."""
    critic: list[TermConfig] = field(default_factory=list[TermConfig])
    """Inputs of the critic: the true state and what only a simulator knows."""
