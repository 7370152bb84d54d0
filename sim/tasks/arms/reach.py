"""Reach: bring the end effector of an arm to a point and hold it there."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.observation import RobotState
from robot_rl.core.robot import RobotKind
from sim import checks
from sim.task import EndRecord, InitialState, StepOutcome, Task, TaskContext, square_sum
from sim.tasks.arms.arm import END_EFFECTOR, ArmTaskConfig, RewardKind, overspeed

GOAL = END_EFFECTOR

_SHAPING = {"alive", "closeness", "distance", "speed", "overspeed", "smoothness"}
"""Terms that a sparse reward does not pay."""


@dataclass(kw_only=True)
class ReachConfig(ArmTaskConfig):
    """The reach task: success is a mean distance over the end of the episode."""

    robot_kind: ClassVar[RobotKind] = RobotKind(
        words="an arm whose end effector is measured", robots=("panda", "ur5e", "ur5e_2f85"),
        sensors=(END_EFFECTOR,),
    )  # fmt: skip
    train_steps: int = 600_000
    """World-steps of training that suffice with the default learner."""
    episode_length: float = 3.0
    """Time limit [s]."""
    start_position: float = 0.3
    """Half-width of the joint positions that episodes begin from, around the default pose [rad]."""
    lowest_height: float = 0.03
    """Height of the end effector below which the episode terminates [m]."""
    success_window: float = 0.5
    """Time at the episode's end over which success is judged [s]."""
    goal_low: list[float] = field(default_factory=lambda: [0.3, -0.3, 0.3])
    """Corner of the box that goals are drawn from, base axes [m]."""
    goal_high: list[float] = field(default_factory=lambda: [0.55, 0.3, 0.6])
    """Opposite corner [m]."""
    kind: RewardKind = RewardKind.shaped
    """sparse adds the term `reached`, 1 within `success_distance`, and pays it alone, 1 a step if
    task.reward does not weigh it; shaped pays all other terms."""
    close: float = 0.05
    """Distance at which the term `closeness`, 1 on the goal, has fallen to one half [m]."""
    success_distance: float = 0.02
    """Largest mean distance within the window [m]."""
    goal_marker: str = ""
    """Fixture of the scene that stands at the goal, for cameras to see it, such as `goal` of
    goal.xml; empty for none. The robot's base stands in the world's origin, unturned."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.positive(self, "close", "success_distance")
        checks.box(self, "goal_low", "goal_high", 3)


class ReachTask(Task):
    """Reach random points with the end effector, in any orientation."""

    begins_anywhere = True

    def __init__(self, config: ReachConfig, context: TaskContext) -> None:
        """Prepare N envs."""
        robot, device, count = context.robot, context.device, context.num_envs
        super().__init__(config, context)
        self.begins_anywhere = not config.goal_marker  # the marker would stand where it stood
        window = context.steps("success_window", config.success_window)
        self._record = EndRecord(count, device, self.episode_steps - window)
        self._speed_limit = torch.tensor([j.velocity_limit for j in robot.joints], device=device)
        limits = torch.tensor([joint.position_limit for joint in robot.joints], device=device)
        default = torch.tensor([joint.default_position for joint in robot.joints], device=device)
        spread = torch.full_like(default, config.start_position)
        # Goal (3), joint positions (J): drawn together, a goal is clipped by its own box.
        low, high = (torch.tensor(c, device=device) for c in (config.goal_low, config.goal_high))
        self._draw_low = torch.cat([low, default - spread])
        self._draw_size = torch.cat([high - low, 2 * spread])
        self._lowest = torch.cat([low, limits[:, 0]])
        self._highest = torch.cat([high, limits[:, 1]])
        self._sharpness = 1 / config.close**2
        self._alive = torch.ones(count, device=device)
        self._still = torch.zeros(count, len(default), device=device)
        self.goal = {GOAL: torch.zeros(count, 3, device=device)}
        self._sparse = config.kind is RewardKind.sparse
        self._weights = dict(config.reward)
        if self._sparse:
            paid = config.reward.get("reached", 1.0)
            silent = dict.fromkeys(self._weights.keys() & _SHAPING, 0.0)
            self._weights |= {**silent, "reached": paid}

    def reward_weights(self, env_steps: int) -> Mapping[str, float]:
        """Weights of the terms; a sparse reward pays `reached`, and what others added."""
        return self._weights

    def start(self, rows: EnvSelection, generator: torch.Generator) -> InitialState:
        """Draw goals in the box, and poses around the default one, at rest."""
        self._record.clear(rows)
        shape = (rows.count, len(self._draw_low))
        unit = torch.rand(shape, generator=generator, device=generator.device)
        drawn = torch.addcmul(self._draw_low, self._draw_size, unit)
        drawn = drawn.clamp_(self._lowest, self._highest)
        rows.put(self.goal[GOAL], drawn[:, :3])
        position, velocity = drawn[:, 3:], self._still[: rows.count]
        scene = {}
        if self.config.goal_marker:
            upright = drawn.new_tensor([1.0, 0.0, 0.0, 0.0]).expand(len(drawn), 4)
            scene = {self.config.goal_marker: torch.cat([drawn[:, :3], upright], dim=-1)}
        return InitialState(
            robot=RobotState({"joint_position": position, "joint_velocity": velocity}), scene=scene
        )

    def evaluate(
        self, true_state: RobotState, action: Tensor, last_action: Tensor, episode_step: Tensor
    ) -> StepOutcome:
        """Reward closeness and calm; terminate near the floor."""
        position, rates = true_state.end_effector_position_b, true_state.joint_velocity
        distance = torch.linalg.vector_norm(position - self.goal[GOAL], dim=-1)
        joint_speed = torch.linalg.vector_norm(rates, dim=-1)
        excess = overspeed(rates, self._speed_limit)
        near = torch.addcmul(self._alive, distance, distance, value=self._sharpness)
        terms = {
            "alive": self._alive,  # an end by the floor must not pay
            "closeness": near.reciprocal(),
            "distance": distance,  # [m]
            "speed": joint_speed * joint_speed,  # [rad^2/s^2]
            "overspeed": excess.sum(-1),
            "smoothness": square_sum(action - last_action),
        }
        if self._sparse:
            terms["reached"] = (distance < self.config.success_distance).to(distance.dtype)
        self._record.add(distance, joint_speed, episode_step)
        mean_distance = self._record.mean_distance
        return StepOutcome(
            reward_terms=terms,
            terminated=position[:, 2] < self.config.lowest_height,
            success=mean_distance < self.config.success_distance,
            metrics={
                "distance": distance,
                "joint_speed": joint_speed,
                "overspeed": excess.amax(-1),
                "mean_distance": mean_distance,
            },
        )

    def parts(self) -> Mapping[str, Any]:
        """Goals and running sums."""
        return {"goal": self.goal[GOAL], "record": self._record.state}
