"""Landing: come down onto a pad, softly, upright and in its middle.

The simulated sky has no ground, so a flight ends at the moment of contact: when the robot is as
low as one that stands on the pad. What counts is how it touches: how fast, how upright and where.
Cushions of air near the ground are left out.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from robot_rl.core import quaternion
from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import RobotState
from sim import checks, draws
from sim.task import InitialState, StepOutcome, TaskContext, closeness, square_sum
from sim.tasks.flights.flight import FlightTask, FlightTaskConfig


@dataclass(kw_only=True)
class LandingConfig(FlightTaskConfig):
    """The landing task: success is a soft contact on the pad; the goal is a robot that stands."""

    train_steps: int = 5_000_000
    """World-steps of training that suffice with the default learner."""
    episode_length: float = 8.0
    """Time limit [s]; who still flies then has not landed."""
    radius: float = 3.0
    """Distance from the pad beyond which an episode terminates [m]."""
    evaluation_radius: float = 3.0
    """The same in evaluation [m]."""
    height: list[float] = field(default_factory=lambda: [0.7, 1.5])
    """Range of the height over the pad in which episodes begin, whatever `start` says [m]."""
    success_distance: float = 0.1
    """Largest level distance from the middle of the pad at contact [m]."""
    success_speed: float = 0.35
    """Largest downward speed at contact [m/s]."""
    success_drift: float = 0.2
    """Largest level speed at contact [m/s]."""
    success_tilt_deg: float = 10.0
    """Largest lean at contact [deg]."""
    approach_speed: float = 0.8
    """Level speed towards the pad from afar that is paid best [m/s]."""
    descent_speed: float = 0.6
    """Downward speed high over the pad that is paid best [m/s]."""
    touch_speed: float = 0.25
    """The same at contact [m/s]."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.positive(
            self, "success_speed", "success_drift", "success_tilt_deg", "approach_speed",
            "descent_speed", "touch_speed",
        )  # fmt: skip
        checks.interval(self, "height")
        if self.touch_speed >= self.success_speed:
            raise ConfigError(
                f"task.touch_speed {self.touch_speed:g} m/s, which is paid best, is no success: "
                f"it must be below task.success_speed {self.success_speed:g} m/s"
            )
        farthest = min(self.radius, self.evaluation_radius)
        if self.height[1] >= farthest:
            raise ConfigError(
                f"task.height {self.height} begins beyond task.radius {farthest:g} m, where a "
                "flight is lost"
            )


PAD = "pad_corners_w"
"""Square on which the middle of a landed robot may lie, four points [m]; drawn, and never seen."""
_LEAD = 1.2
"""Wanted level speed per level distance, up to the speed of the approach [1/s]."""
_SINK = 0.8
"""Wanted downward speed per height, between those at contact and high up [1/s]."""
_OVER = 0.3
"""Level distance at which only half of that descent is wanted [m]."""
_ASTRAY = 0.12
"""Difference from the wanted velocity that is paid one half [m/s]."""


class LandingTask(FlightTask):
    """Land in the world's origin."""

    optional_terms = ()

    def __init__(self, config: LandingConfig, context: TaskContext) -> None:
        super().__init__(config, context)
        device, half = context.device, config.success_distance
        corners = [[half, half, 0], [-half, half, 0], [-half, -half, 0], [half, -half, 0]]
        pad = torch.tensor(corners, dtype=torch.float32, device=device).flatten()
        self.goal = {
            "position_w": torch.zeros(context.num_envs, 3, device=device),
            PAD: pad.repeat(context.num_envs, 1),
        }

    def start(self, rows: EnvSelection, generator: torch.Generator) -> InitialState:
        """Draw starts over the pad and around it."""
        fields = dict(self._start.draw(rows.count, generator).fields)
        low, high = self.config.height
        place = fields["position_w"].clone()
        place[:, 2:] = draws.uniform((rows.count, 1), low, high, generator)
        return InitialState(robot=RobotState({**fields, "position_w": place}))

    def wanted_velocity(self, error: Tensor) -> Tensor:
        """Velocity that leads over the pad and down, (N, 3), [m/s], world axes.

        Args:
            error: Position relative to the place on the pad, (N, 3), [m].
        """
        config = self.config
        level, height = error[:, :2], error[:, 2:]
        beside = level.norm(dim=-1, keepdim=True)
        fast = config.approach_speed / (_LEAD * beside).clamp_min(config.approach_speed)
        sink = (_SINK * height).clamp(config.touch_speed, config.descent_speed)
        return torch.cat([-_LEAD * fast * level, -sink * closeness(beside, _OVER)], dim=-1)

    def evaluate(
        self, true_state: RobotState, action: Tensor, last_action: Tensor, episode_step: Tensor
    ) -> StepOutcome:
        """Pay for the velocity that leads down; contact terminates, and is soft or a crash."""
        config = self.config
        error = true_state.position_w - self.goal["position_w"]
        velocity, attitude = true_state.linear_velocity_w, true_state.orientation_w
        beside, drift = error[:, :2].norm(dim=-1), velocity[:, :2].norm(dim=-1)
        tilt = quaternion.tilt(attitude)
        touched = error[:, 2] <= 0
        landed = (
            touched
            & (beside < config.success_distance)
            & (velocity[:, 2] > -config.success_speed)
            & (drift < config.success_drift)
            & (tilt < math.radians(config.success_tilt_deg))
        )
        softness = (
            closeness(beside, config.success_distance)
            * closeness((-velocity[:, 2] - config.touch_speed).clamp_min(0), config.touch_speed)
            * closeness(drift, config.success_drift)
            * closeness(tilt, math.radians(config.success_tilt_deg))
        )
        lost = error.norm(dim=-1) > self._radius
        astray = (velocity - self.wanted_velocity(error)).norm(dim=-1)
        return StepOutcome(
            reward_terms={
                "way": closeness(astray, _ASTRAY),
                "softness": touched * softness,
                "lost": lost.float(),
                "heading": 1 - attitude[:, 0] ** 2,  # as of hover
                "effort": square_sum(action - self._hover_action),
                "smoothness": square_sum(action - last_action),
            },
            terminated=touched | lost,
            achieved=landed,
            success=landed,
            metrics={
                "distance": beside, "descent": -velocity[:, 2], "drift": drift, "tilt": tilt,
            },
        )  # fmt: skip

    def parts(self) -> Mapping[str, Any]:
        """Nothing is remembered from step to step."""
        return {}
