"""Reach: bring the end effector to a point of the plane and hold it there."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.observation import RobotState, TermConfig
from sim import checks
from sim.robots.joint_robot import JointActionConfig, JointRandomization
from sim.scenes.scene import SceneConfig
from sim.task import EndRecord, InitialState, StepOutcome, Task, TaskContext, square_sum

GOAL = "end_effector_position_b"


@dataclass(kw_only=True)
class ReachConfig:
    """Settings of the task; my_project_reach.yaml says what differs, commands may change each."""

    train_steps: int = 60_000
    """World-steps of training."""
    episode_length: float = 2.0
    """Time limit [s]."""
    start_position: float = 0.5
    """Half-width of the joint positions that episodes begin from [rad]."""
    success_window: float = 0.5
    """Time at the episode's end over which success is judged [s]."""
    goal_distance: list[float] = field(default_factory=lambda: [0.25, 0.5])
    """Nearest and farthest goal from the base [m]."""
    goal_angle: float = 1.0
    """Largest angle of a goal from straight ahead [rad]."""
    success_distance: float = 0.02
    """Largest mean distance within the window [m]."""
    action: JointActionConfig = field(default_factory=JointActionConfig)
    """Joint position targets around a pose."""
    randomization: JointRandomization = field(default_factory=JointRandomization)
    """Physical parameters drawn per episode."""
    scene: SceneConfig = field(default_factory=SceneConfig)
    """Things around the arm."""
    reward: dict[str, float] = field(default_factory=dict[str, float])
    """Weight of each reward term by its name; 0 only records it."""
    actor: list[TermConfig] = field(default_factory=list[TermConfig])
    """Inputs of the policy."""
    critic: list[TermConfig] = field(default_factory=list[TermConfig])
    """Inputs of the critic."""

    def __post_init__(self) -> None:
        checks.positive(self, "episode_length", "success_window", "goal_angle", "success_distance")
        checks.not_negative(self, "start_position")
        checks.interval(self, "goal_distance")
        checks.window(self.success_window, self.episode_length)


class ReachTask(Task):
    """Goals on a ring around the base; they stay where they are."""

    begins_anywhere = True

    def __init__(self, config: ReachConfig, context: TaskContext) -> None:
        """Prepare N envs."""
        super().__init__(config, context)
        count, device = context.num_envs, context.device
        window = round(config.success_window / context.control_dt)
        self._record = EndRecord(count, device, self.episode_steps - window)
        self._never = torch.zeros(count, dtype=torch.bool, device=device)
        self._pose = torch.tensor(config.action.middle(context.robot), device=device)
        self.goal = {GOAL: torch.zeros(count, 3, device=device)}

    def start(self, rows: EnvSelection, generator: torch.Generator) -> InitialState:
        """Draw goals, and arms at rest around the task's pose."""
        self._record.clear(rows)
        unit = torch.rand(
            (rows.count, 2 + len(self._pose)), generator=generator, device=generator.device
        )
        low, high = self.config.goal_distance
        distance = low + (high - low) * unit[:, 0]
        angle = self.config.goal_angle * (2 * unit[:, 1] - 1)
        goal = [distance * angle.cos(), distance * angle.sin(), torch.zeros_like(angle)]
        rows.put(self.goal[GOAL], torch.stack(goal, dim=-1))
        position = self._pose + self.config.start_position * (2 * unit[:, 2:] - 1)
        at_rest = {"joint_position": position, "joint_velocity": torch.zeros_like(position)}
        return InitialState(robot=RobotState(at_rest))

    def evaluate(
        self, true_state: RobotState, action: Tensor, last_action: Tensor, episode_step: Tensor
    ) -> StepOutcome:
        """Reward terms by name, which meet their weights in the YAML file; success; metrics."""
        way = true_state.end_effector_position_b - self.goal[GOAL]
        distance = torch.linalg.vector_norm(way, dim=-1)
        speed = square_sum(true_state.joint_velocity)
        self._record.add(distance, speed, episode_step)
        return StepOutcome(
            reward_terms={
                "closeness": torch.exp(-((distance / 0.05) ** 2)),  # 1 on the goal
                "distance": distance,  # [m]
                "speed": speed,  # [rad^2/s^2]
                "smoothness": square_sum(action - last_action),
            },
            terminated=self._never,
            success=self._record.mean_distance < self.config.success_distance,
            metrics={"distance": distance, "mean_distance": self._record.mean_distance},
        )

    def parts(self) -> Mapping[str, Any]:
        """All that decides the future: a run resumes from it bit for bit."""
        return {"goal": self.goal[GOAL], "record": self._record.state}
