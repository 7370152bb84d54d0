"""Hover: recover from a thrown start, return to the goal and hold it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import TermConfig
from robot_rl.core.robot_state import RobotState
from robot_rl.core.rows import Rows
from sim.multirotors.multirotor import MultirotorRandomization
from sim.task import Judgement, Start
from sim.tasks.flights.flight import (
    REWARD_NAMES,
    FlightStartConfig,
    RewardWeightsConfig,
    reward_terms,
)
from sim.tasks.record import EndRecord


@dataclass(kw_only=True)
class HoverConfig:
    """The hover task: success is a mean error and a mean speed over the end of the episode."""

    train_steps: int = 5_000_000
    """World-steps of training that suffice with the default learner."""
    episode_length: float = 5.0
    """Time limit [s]."""
    radius: float = 1.5
    """Distance from the goal beyond which a training episode terminates [m]."""
    evaluation_radius: float = 1.5
    """The same in evaluation [m]."""
    success_window: float = 2.0
    """Time at the episode's end over which success is judged [s]."""
    success_distance: float = 0.1
    """Largest mean position error within the window [m]."""
    success_speed: float = 0.2
    """Largest mean speed within the window [m/s]."""
    start: FlightStartConfig = field(default_factory=FlightStartConfig)
    """Where training episodes begin."""
    evaluation_start: FlightStartConfig = field(default_factory=FlightStartConfig)
    """Where evaluation episodes begin."""
    randomization: MultirotorRandomization = field(default_factory=MultirotorRandomization)
    """Physical parameters drawn per episode."""
    reward: RewardWeightsConfig = field(default_factory=RewardWeightsConfig)
    """Weights of the reward terms."""
    actor: list[TermConfig] = field(default_factory=list)
    """What the policy sees: only what the robot measures."""
    critic: list[TermConfig] = field(default_factory=list)
    """What the critic sees: the true state and what only a simulator knows."""

    def __post_init__(self) -> None:
        """Refuse tasks that cannot be judged."""
        for name in (
            "episode_length",
            "radius",
            "evaluation_radius",
            "success_window",
            "success_distance",
            "success_speed",
        ):
            if getattr(self, name) <= 0:
                raise ConfigError(f"task.{name} must be > 0, got {getattr(self, name)}")
        if self.success_window > self.episode_length:
            raise ConfigError(
                f"task.success_window {self.success_window} s is longer than the episode "
                f"({self.episode_length} s)"
            )


class HoverTask:
    """Hover over the world's origin."""

    reward_names = REWARD_NAMES
    metric_names = ("distance", "speed", "mean_distance", "mean_speed")

    def __init__(
        self,
        config: HoverConfig,
        *,
        num_worlds: int,
        control_dt: float,
        hover_action: float,
        device: torch.device,
        evaluation: bool,
    ) -> None:
        """Prepare N worlds.

        Args:
            config: The task.
            num_worlds: N.
            control_dt: Control period [s].
            hover_action: Action that carries the nominal weight.
            device: Where the worlds live.
            evaluation: Begin at `evaluation_start` instead of `start`.
        """
        self.config = config
        self.episode_steps = round(config.episode_length / control_dt)
        self._evaluation = evaluation
        self._start = config.evaluation_start if evaluation else config.start
        self._radius = config.evaluation_radius if evaluation else config.radius
        self._hover_action = hover_action
        window = round(config.success_window / control_dt)
        self._record = EndRecord(num_worlds, device, self.episode_steps - window)
        self.goal: Mapping[str, Tensor] = {"position_w": torch.zeros(num_worlds, 3, device=device)}

    def reward_weights(self, world_steps: int) -> list[float]:
        """Weights of the terms by the curriculum; evaluation always uses the final ones."""
        return self.config.reward.at(math.inf if self._evaluation else world_steps)

    def start(self, rows: Rows, generator: torch.Generator) -> Start:
        """Draw starts around the goal."""
        self._record.clear(rows)
        return Start(robot=self._start.draw(rows.count, generator))

    def advance(self, episode_step: Tensor) -> None:
        """The goal stays where it is."""

    def judge(
        self, truth: RobotState, action: Tensor, last_action: Tensor, episode_step: Tensor
    ) -> Judgement:
        """Reward closeness and calm; terminate outside the radius."""
        error = truth.position_w - self.goal["position_w"]
        velocity = truth.linear_velocity_w
        terms = reward_terms(error, velocity, truth, action, last_action, self._hover_action)
        distance = terms[:, REWARD_NAMES.index("distance")]
        speed = terms[:, REWARD_NAMES.index("velocity")].sqrt()
        self._record.add(distance, speed, episode_step)
        mean_distance, mean_speed = self._record.mean_distance, self._record.mean_speed
        return Judgement(
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

    def state_dict(self) -> dict[str, Any]:
        """Running sums; the goal is constant."""
        return {"record": self._record.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self._record.load_state_dict(state["record"])
