"""Drawer: hook the fingers behind a drawer's handle and pull it open."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import RobotState
from sim import checks
from sim.task import (
    EndRecord,
    InitialState,
    StepOutcome,
    Task,
    TaskContext,
    closeness,
    square_sum,
)
from sim.tasks.arms.arm import Arm, ArmTaskConfig, standing

_END = 0.25
"""Way at which the drawer is stopped, as in sim/scenes/drawer.xml [m]."""


@dataclass(kw_only=True)
class DrawerConfig(ArmTaskConfig):
    """The drawer task: success is a drawer that is open enough at the end."""

    train_steps: int = 200_000
    """World-steps of training that suffice beside demonstrations."""

    cabinet_low: list[float] = field(default_factory=lambda: [0.58, -0.08])
    """Corner of the rectangle that the middle of the closed front stands in [m]."""
    cabinet_high: list[float] = field(default_factory=lambda: [0.64, 0.08])
    """Opposite corner [m]."""
    cabinet_yaw: float = 0.15
    """Half-width of the cabinet's turn about the vertical [rad]."""
    opening: float = 0.02
    """Opening of the gripper at the start, as a fraction; it stays so where no action moves it."""
    success_opening: float = 0.2
    """Way that the drawer must be out [m]; it ends at 0.25."""
    close: float = 0.05
    """Distance of the hand from its place behind the handle at which `approach` has fallen to one
    half [m]."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.positive(self, "success_opening", "close")
        checks.not_negative(self, "cabinet_yaw")
        if self.success_opening >= _END:
            raise ConfigError(
                f"task.success_opening {self.success_opening:g} m is never reached: the drawer "
                f"ends at {_END:g} m"
            )
        checks.box(self, "cabinet_low", "cabinet_high", 2)


class DrawerTask(Task):
    """Pull a drawer open."""

    begins_anywhere = True

    def __init__(self, config: DrawerConfig, context: TaskContext) -> None:
        super().__init__(config, context)
        self._arm = Arm(config, context)
        sensors = context.sensors  # those of sim/scenes/drawer.xml among them
        self._hand, self._opening = sensors["hand_position"], sensors["drawer_opening"]
        first = self.episode_steps - context.steps("success_window", config.success_window)
        self._missing = EndRecord(context.num_envs, context.device, first)

    def start(self, rows: EnvSelection, generator: torch.Generator) -> InitialState:
        """Draw closed cabinets, and poses before and above them."""
        config, count = self.config, rows.count
        self._missing.clear(rows)
        robot = self._arm.start(count, generator, opening=config.opening)
        low, high, turn = config.cabinet_low, config.cabinet_high, config.cabinet_yaw
        front = standing(count, low, high, turn, 0.0, generator)
        return InitialState(robot=robot, scene={"cabinet": front})

    def evaluate(
        self, true_state: RobotState, action: Tensor, last_action: Tensor, episode_step: Tensor
    ) -> StepOutcome:
        """Reward the hand's way behind the handle and the drawer's way out."""
        config = self.config
        reach, opening = self._hand.norm(dim=-1), self._opening[:, 0].clone()
        opened = (opening >= config.success_opening).to(opening.dtype)
        terms = {
            "alive": torch.ones_like(reach),
            "approach": closeness(reach, config.close),
            "open": (opening / config.success_opening).clamp(0.0, 1.0),
            "opened": opened,
            "effort": square_sum(self._arm.exertion(true_state)),
            **self._arm.costs(true_state, action, last_action),
        }
        self._missing.add(1 - opened, reach, episode_step)
        return StepOutcome(
            reward_terms=terms,
            terminated=true_state.end_effector_position_b[:, 2] < config.lowest_height,
            success=self._missing.mean_distance == 0,
            metrics={"opening": opening, "reach": reach},
        )

    def parts(self) -> Mapping[str, Any]:
        """Running sums."""
        return {"missing": self._missing.state}
