"""Drawer: hook the fingers behind a drawer's handle and pull it open."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_state import RobotState
from sim import draws
from sim.task import InitialState, StepOutcome
from sim.tasks import checks
from sim.tasks.arms.arm import COST_NAMES, Arm, ArmTaskConfig, standing
from sim.tasks.record import EndRecord
from sim.tasks.terms import closeness

REWARD_NAMES = ("alive", "approach", "open", "opened", *COST_NAMES)
"""Reward terms in order; the first four are gains."""


@dataclass(kw_only=True)
class DrawerConfig(ArmTaskConfig):
    """The drawer task: success is a drawer that is open enough at the end."""

    cabinet_low: list[float] = field(default_factory=lambda: [0.58, -0.08])
    """Corner of the rectangle that the middle of the closed front stands in [m]."""
    cabinet_high: list[float] = field(default_factory=lambda: [0.64, 0.08])
    """Opposite corner [m]."""
    cabinet_yaw: float = 0.15
    """Half-width of the cabinet's turn about the vertical [rad]."""
    opening: float = 0.02
    """Opening of the gripper at the start, as a fraction; it stays so where no action moves it."""
    success_opening: float = 0.2
    """How far the drawer must be out [m]; it ends at 0.25."""
    close: float = 0.05
    """Distance of the hand from its place behind the handle at which `approach` has fallen to one
    half [m]."""

    def __post_init__(self) -> None:
        """Refuse tasks that cannot be judged."""
        super().__post_init__()
        checks.positive(self, "success_opening", "close")
        checks.box(self, "cabinet_low", "cabinet_high", 2)
        checks.reward(self.reward, REWARD_NAMES)


class DrawerTask:
    """Pull a drawer open."""

    begins_anywhere = True
    reward_names = REWARD_NAMES
    metric_names = ("opening", "reach")

    def __init__(
        self,
        config: DrawerConfig,
        *,
        num_worlds: int,
        control_dt: float,
        robot: RobotSpec,
        sensors: Mapping[str, Tensor],
        device: torch.device,
        evaluation: bool,
    ) -> None:
        """Prepare N worlds.

        Args:
            config: The task.
            num_worlds: N.
            control_dt: Control period [s].
            robot: The arm.
            sensors: True sensors of the worlds, those of sim/scenes/drawer.xml among them.
            device: Where the worlds live.
            evaluation: Taken as from every task; training and evaluation draw alike here.
        """
        self.config = config
        self.episode_steps = round(config.episode_length / control_dt)
        self._arm = Arm(config, robot, device)
        self._hand, self._opening = sensors["hand_position"], sensors["drawer_opening"]
        first = self.episode_steps - round(config.success_window / control_dt)
        self._missing = EndRecord(num_worlds, device, first)
        self._weights = [config.reward.get(name, 0.0) for name in REWARD_NAMES]
        self.goal: Mapping[str, Tensor] = {}

    def reward_weights(self, world_steps: int) -> list[float]:
        """Weights of the terms; there is no curriculum."""
        return self._weights

    def start(self, rows: EnvSelection, generator: torch.Generator) -> InitialState:
        """Draw closed cabinets, and poses before and above them."""
        config, count = self.config, rows.count
        self._missing.clear(rows)
        robot = self._arm.start(count, generator, opening=config.opening)
        place = draws.box(count, config.cabinet_low, config.cabinet_high, generator)
        yaw = draws.uniform((count, 1), -config.cabinet_yaw, config.cabinet_yaw, generator)
        front = torch.cat([place, torch.zeros_like(yaw)], dim=-1)
        return InitialState(robot=robot, scene={"cabinet": standing(front, yaw)})

    def advance(self, episode_step: Tensor) -> None:
        """The cabinet stays where it is."""

    def evaluate(
        self, true_state: RobotState, action: Tensor, last_action: Tensor, episode_step: Tensor
    ) -> StepOutcome:
        """Reward the hand's way behind the handle and the drawer's way out."""
        config = self.config
        reach, opening = self._hand.norm(dim=-1), self._opening[:, 0].clone()
        opened = (opening >= config.success_opening).to(opening.dtype)
        terms = [
            torch.ones_like(reach),
            closeness(reach, config.close),
            (opening / config.success_opening).clamp(0.0, 1.0),
            opened,
            *self._arm.costs(true_state, action, last_action),
        ]
        self._missing.add(1 - opened, reach, episode_step)
        return StepOutcome(
            reward_terms=torch.stack(terms, dim=-1),
            terminated=true_state.end_effector_position_b[:, 2] < config.lowest_height,
            success=self._missing.mean_distance == 0,
            metrics={"opening": opening, "reach": reach},
        )

    def state_dict(self) -> dict[str, Any]:
        """Running sums."""
        return {"missing": self._missing.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self._missing.load_state_dict(state["missing"])
