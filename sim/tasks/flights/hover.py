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
    success_distance: float = 0.05
    """Largest mean position error within the window [m]."""
    success_speed: float = 0.1
    """Largest mean speed within the window [m/s]."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.positive(self, "success_window", "success_speed")
        checks.window(self.success_window, self.episode_length)


class ActionSwing:
    """Swing of actions around their mean over the last seconds of every env's episode."""

    def __init__(self, num_envs: int, actions: int, device: torch.device, first_step: int) -> None:
        """Start empty; steps of an episode before `first_step` are not counted."""
        self._first_step = first_step
        self._sums = torch.zeros(num_envs, 2, actions, device=device)
        self._count = torch.zeros(num_envs, device=device)
        self.state = {"sums": self._sums, "count": self._count}
        """Sums of actions and of their squares, and the number of steps, live."""

    def add(self, action: Tensor, episode_step: Tensor) -> None:
        """Count one step of all envs: (N, A), (N,)."""
        counts = episode_step > self._first_step
        self._sums += counts[:, None, None] * torch.stack([action, action * action], dim=1)
        self._count += counts

    def clear(self, rows: EnvSelection) -> None:
        """Forget the picked envs."""
        rows.put(self._sums, 0.0)
        rows.put(self._count, 0.0)

    @property
    def deviation(self) -> Tensor:
        """Standard deviation as a share of the action's range, of all entries together, (N,).

        NaN before the first counted step.
        """
        mean, square = (self._sums / self._count[:, None, None]).unbind(1)
        variance = (square - mean * mean).clamp_min(0.0)
        return 0.5 * variance.mean(-1).sqrt()


class HoverTask(FlightTask):
    """Hover over the world's origin."""

    def __init__(self, config: HoverConfig, context: TaskContext) -> None:
        super().__init__(config, context)
        device = context.device
        window = context.steps("success_window", config.success_window)
        first = self.episode_steps - window
        self._record = EndRecord(context.num_envs, device, first)
        self.goal = {"position_w": torch.zeros(context.num_envs, 3, device=device)}
        self._swing: ActionSwing | None = None
        if context.evaluation:  # of no use to training, which would pay for it
            actions = len(context.hover_action)
            self._swing = ActionSwing(context.num_envs, actions, device, first)

    def start(self, rows: EnvSelection, generator: torch.Generator) -> InitialState:
        """Draw starts around the goal."""
        self._record.clear(rows)
        if self._swing is not None:
            self._swing.clear(rows)
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
        calm: dict[str, Tensor] = {}
        if self._swing is not None:
            self._swing.add(action, episode_step)
            calm = {"action_swing": self._swing.deviation}
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
                **calm,
            },
        )

    def parts(self) -> Mapping[str, Any]:
        """Running sums; the goal is constant."""
        swing = {} if self._swing is None else {"swing": self._swing.state}
        return {"record": self._record.state, **swing}
