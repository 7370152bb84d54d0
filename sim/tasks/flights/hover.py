"""Hover: recover from a thrown start, return to the goal and hold it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.observation import RobotState
from sim import checks
from sim.task import EndRecord, InitialState, StepOutcome, TaskContext
from sim.tasks.flights.flight import FlightTask, FlightTaskConfig, reward_terms


@dataclass(kw_only=True)
class HoverConfig(FlightTaskConfig):
    """The hover task: success is a mean error and a mean speed over the end of the episode."""

    success_window: float = 2.0
    """Time at the episode's end over which success is judged [s]."""
    success_distance: float = 0.1
    """Largest mean position error within the window [m]."""
    success_speed: float = 0.2
    """Largest mean speed within the window [m/s]."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.positive(self, "success_window", "success_speed")
        checks.window(self.success_window, self.episode_length)


class HoverTask(FlightTask):
    """Hover over the world's origin."""

    def __init__(self, config: HoverConfig, context: TaskContext) -> None:
        super().__init__(config, context)
        device = context.device
        window = round(config.success_window / context.control_dt)
        self._record = EndRecord(context.num_envs, device, self.episode_steps - window)
        self.goal = {"position_w": torch.zeros(context.num_envs, 3, device=device)}

    def start(self, rows: EnvSelection, generator: torch.Generator) -> InitialState:
        """Draw starts around the goal."""
        self._record.clear(rows)
        return InitialState(robot=self._start.draw(rows.count, generator))

    def evaluate(
        self, true_state: RobotState, action: Tensor, last_action: Tensor, episode_step: Tensor
    ) -> StepOutcome:
        """Reward closeness and calm; terminate outside the radius."""
        error = true_state.position_w - self.goal["position_w"]
        velocity = true_state.linear_velocity_w
        terms = reward_terms(error, velocity, true_state, action, last_action, self._hover_action)
        distance, speed = terms["distance"], terms["velocity"].sqrt()
        self._record.add(distance, speed, episode_step)
        mean_distance, mean_speed = self._record.mean_distance, self._record.mean_second
        return StepOutcome(
            reward_terms=terms,
            terminated=distance > self._radius,
            success=(mean_distance < self.config.success_distance)
            & (mean_speed < self.config.success_speed),
            metrics={
                "distance": distance,
                "speed": speed,
                "mean_distance": mean_distance,
                "mean_speed": mean_speed,
            },
        )

    def parts(self) -> Mapping[str, Any]:
        """Running sums; the goal is constant."""
        return {"record": self._record.state}
