"""Peg: put a square peg that the hand holds into a hole half a millimetre wider on every side."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import RobotState
from sim import checks
from sim.task import EndRecord, InitialState, StepOutcome, Task, TaskContext, closeness
from sim.tasks.arms.arm import Arm, ArmTaskConfig, RewardKind, standing

HOLE_DEPTH = 0.04
"""Depth of the hole, as in sim/scenes/hole.xml [m]."""
GRIP = 0.253
"""Opening of the gripper whose fingers lie at a peg of 20 mm."""
_INSIDE = 0.0015
"""Farthest that a tip within the hole is from its middle, per axis [m]: three times the clearance.
"""
_NEAR_MOUTH = 0.01
"""Height over the hole's mouth below which the tip's alignment pays [m]."""

_SHAPING = {"approach", "align", "insert", "speed", "overspeed", "smoothness"}
"""Terms that a sparse reward does not pay."""


@dataclass(kw_only=True)
class PegConfig(ArmTaskConfig):
    """The peg task: success is a tip that stays deep enough in the hole until the end."""

    hole_low: list[float] = field(default_factory=lambda: [0.48, -0.03])
    """Corner of the rectangle that the hole stands in [m]."""
    hole_high: list[float] = field(default_factory=lambda: [0.52, 0.03])
    """Opposite corner [m]."""
    hole_height: float = 0.1
    """Height of the hole's mouth [m]."""
    hole_yaw: float = 0.15
    """Half-width of the hole's turn about the vertical [rad]."""
    kind: RewardKind = RewardKind.shaped
    """sparse pays the term `inserted` alone, as task.reward weighs it; shaped pays all terms."""
    success_depth: float = 0.03
    """Depth of the tip below the mouth from which the peg counts as inserted [m]."""
    close: float = 0.03
    """Distance of the tip from the hole's ground at which `approach` has fallen to one half [m]."""
    aligned: float = 0.002
    """Distance of the tip from the hole's axis at which `align` has fallen to one half [m]."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.positive(self, "success_depth", "close", "aligned", "hole_height")
        checks.not_negative(self, "hole_yaw")
        if self.success_depth >= HOLE_DEPTH:
            raise ConfigError(
                f"task.success_depth {self.success_depth:g} m is never reached: the hole is "
                f"{HOLE_DEPTH:g} m deep"
            )
        checks.box(self, "hole_low", "hole_high", 2)


class PegTask(Task):
    """Put a peg into a hole."""

    begins_anywhere = True

    def __init__(self, config: PegConfig, context: TaskContext) -> None:
        super().__init__(config, context)
        self._arm = Arm(config, context)
        self._tip = context.sensors["peg_position"]  # of sim/scenes/hole.xml
        first = self.episode_steps - context.steps("success_window", config.success_window)
        self._outside = EndRecord(context.num_envs, context.device, first)
        self._ground = torch.tensor([0.0, 0.0, -HOLE_DEPTH], device=context.device)
        self._weights = dict(config.reward)
        if config.kind is RewardKind.sparse:
            self._weights |= dict.fromkeys(self._weights.keys() & _SHAPING, 0.0)

    def reward_weights(self, env_steps: int) -> Mapping[str, float]:
        """Weights of the terms; a sparse reward pays `inserted`, and what others added."""
        return self._weights

    def start(self, rows: EnvSelection, generator: torch.Generator) -> InitialState:
        """Draw holes, and poses above them with the fingers at the peg."""
        config, count = self.config, rows.count
        self._outside.clear(rows)
        robot = self._arm.start(count, generator, opening=GRIP)
        low, high, turn = config.hole_low, config.hole_high, config.hole_yaw
        hole = standing(count, low, high, turn, config.hole_height, generator)
        return InitialState(robot=robot, scene={"hole": hole})

    def evaluate(
        self, true_state: RobotState, action: Tensor, last_action: Tensor, episode_step: Tensor
    ) -> StepOutcome:
        """Reward the way of the tip to the hole, over its mouth, and into it."""
        config, tip = self.config, self._tip
        beside = tip[:, :2].norm(dim=-1)
        inside = (tip[:, :2].abs() < _INSIDE).all(-1)
        depth = torch.where(inside, -tip[:, 2], 0.0).clamp_min(0.0)
        inserted = (depth >= config.success_depth).to(depth.dtype)
        low = (tip[:, 2] < _NEAR_MOUTH).to(depth.dtype)
        terms = {
            "inserted": inserted,
            "approach": closeness((tip - self._ground).norm(dim=-1), config.close),
            "align": low * closeness(beside, config.aligned),
            "insert": (depth / config.success_depth).clamp_max(1.0),
            **self._arm.costs(true_state, action, last_action),
        }
        self._outside.add(1 - inserted, beside, episode_step)
        return StepOutcome(
            reward_terms=terms,
            terminated=true_state.end_effector_position_b[:, 2] < config.lowest_height,
            success=self._outside.mean_distance == 0,
            metrics={"depth": depth, "beside": beside, "inserted": inserted},
        )

    def parts(self) -> Mapping[str, Any]:
        """Running sums."""
        return {"outside": self._outside.state}
