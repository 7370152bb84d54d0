"""Tracking: follow a moving goal, a lemniscate or a random smooth curve, with a look ahead."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError
from robot_rl.core.robot_state import RobotState
from sim.task import InitialState, StepOutcome, Task, TaskContext
from sim.tasks import checks
from sim.tasks.flights.curves import CurveConfig, Curves
from sim.tasks.flights.flight import FlightTaskConfig, reward_terms
from sim.tasks.record import EndRecord


@dataclass(kw_only=True)
class TrackingConfig(FlightTaskConfig):
    """The tracking task: success is a root-mean-square error over the episode."""

    train_steps: int = 6_000_000
    """World-steps of training that suffice with the default learner."""
    episode_length: float = 5.5
    """Time limit [s]: one lap of the lemniscate."""
    max_rates: float = 40.0
    """Body rate beyond which an episode terminates [rad/s]: who tumbles so is lost, and soon after
    the integration no longer follows; one such flight's rewards would spoil a critic for good."""
    settling_time: float = 0.0
    """Time at the start that is not counted in the error [s]."""
    success_distance: float = 0.15
    """Largest root-mean-square position error [m]."""
    preview: list[float] = field(default_factory=lambda: [0.1, 0.2, 0.4, 0.6])
    """How far ahead the policy sees the goal [s]."""
    curve: CurveConfig = field(default_factory=CurveConfig)
    """Curves flown in training."""
    evaluation_curve: CurveConfig = field(default_factory=lambda: CurveConfig(lemniscate_share=1.0))
    """Curves flown in evaluation."""

    def __post_init__(self) -> None:
        """Refuse tasks that cannot be judged."""
        super().__post_init__()
        checks.positive(self, "max_rates")
        if not 0 <= self.settling_time < self.episode_length:
            raise ConfigError(
                f"task.settling_time must lie in [0, {self.episode_length}) s, "
                f"got {self.settling_time}"
            )
        if not self.preview or min(self.preview) <= 0:
            raise ConfigError(f"task.preview needs times > 0 s, got {self.preview}")


class TrackingTask(Task):
    """Follow one curve per world."""

    def __init__(self, config: TrackingConfig, context: TaskContext) -> None:
        """Prepare N envs."""
        super().__init__(config, context)
        device, dt = context.device, context.control_dt
        self._evaluation = context.evaluation
        self._start = config.evaluation_start if context.evaluation else config.start
        self._radius = config.evaluation_radius if context.evaluation else config.radius
        curve = config.evaluation_curve if context.evaluation else config.curve
        self._curves = Curves(curve, context.num_envs, device)
        self._dt = dt
        self._hover_action = torch.tensor(context.hover_action, device=device)
        self._ahead = torch.tensor([0.0, *config.preview], device=device)  # [s]
        self._record = EndRecord(context.num_envs, device, round(config.settling_time / dt))
        self.goal = self._goal_at(torch.zeros(context.num_envs, dtype=torch.int64, device=device))

    def reward_weights(self, env_steps: int) -> Mapping[str, float]:
        """Weights by the curriculum; evaluation always uses the final ones."""
        return self.config.reward.at(math.inf if self._evaluation else env_steps)

    def start(self, rows: EnvSelection, generator: torch.Generator) -> InitialState:
        """Draw curves, and starts around their first point, moving along."""
        self._record.clear(rows)
        self._curves.draw(rows, generator)
        step = torch.zeros(rows.mask.shape, dtype=torch.int64, device=rows.mask.device)
        fresh = self._goal_at(step)
        for name, values in fresh.items():
            rows.put(self.goal[name], rows.take(values))
        fields = dict(self._start.draw(rows.count, generator).fields)
        fields["position_w"] = fields["position_w"] + rows.take(fresh["position_w"])
        velocity = rows.take(fresh["linear_velocity_w"])
        fields["linear_velocity_w"] = fields["linear_velocity_w"] + velocity
        return InitialState(robot=RobotState(fields))

    def advance(self, episode_step: Tensor) -> None:
        """Move every goal along its curve."""
        self.goal = self._goal_at(episode_step)

    def evaluate(
        self, true_state: RobotState, action: Tensor, last_action: Tensor, episode_step: Tensor
    ) -> StepOutcome:
        """Reward closeness to the moving goal; terminate far from it."""
        error = true_state.position_w - self.goal["position_w"]
        velocity = true_state.linear_velocity_w - self.goal["linear_velocity_w"]
        terms = reward_terms(error, velocity, true_state, action, last_action, self._hover_action)
        distance = terms["distance"]
        tumbles = terms["rates"] > self.config.max_rates**2
        speed = true_state.linear_velocity_w.norm(dim=-1)
        self._record.add(distance, speed, episode_step)
        rms_distance = self._record.rms_distance
        return StepOutcome(
            reward_terms=terms,
            terminated=(distance > self._radius) | tumbles,
            success=rms_distance < self.config.success_distance,
            metrics={"distance": distance, "speed": speed, "rms_distance": rms_distance},
        )

    def state_dict(self) -> dict[str, Any]:
        """Curves, goals and running sums."""
        return {
            "curves": self._curves.state_dict(),
            "record": self._record.state_dict(),
            "goal": {name: value.clone() for name, value in self.goal.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self._curves.load_state_dict(state["curves"])
        self._record.load_state_dict(state["record"])
        self.goal = {
            name: value.to(self.goal[name].device, copy=True)  # a checkpoint's lie on the CPU
            for name, value in state["goal"].items()
        }

    def _goal_at(self, episode_step: Tensor) -> dict[str, Tensor]:
        time = episode_step[:, None] * self._dt  # (N, 1)
        points = self._curves.position(time + self._ahead)  # (N, 1 + K, 3)
        return {
            "position_w": points[:, 0],
            "linear_velocity_w": self._curves.velocity(time)[:, 0],
            "preview_w": points[:, 1:].reshape(points.shape[0], -1),
        }
