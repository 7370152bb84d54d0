"""Landing: come down onto a pad, softly, upright and in its middle.

The simulated envs of multirotors have no ground, so a flight ends at the moment of contact: when
the robot is as low as one that stands on the pad. What counts is how it touches: how fast, how
upright and where. Ground effect is not modelled.
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
from sim.tasks.flights.flight import FlightStartConfig, FlightTask, FlightTaskConfig


@dataclass(kw_only=True)
class LandingConfig(FlightTaskConfig):
    """The landing task: success is a soft contact on the pad; the goal is a robot that stands."""

    train_steps: int = 5_000_000
    """Env-steps of training that suffice with the default learner."""
    episode_length: float = 8.0
    """Time limit [s]; who still flies then has not landed."""
    radius: float = 3.0
    """Distance from the pad beyond which an episode terminates [m]."""
    evaluation_radius: float = 3.0
    """The same in evaluation [m]."""
    height: list[float] = field(default_factory=lambda: [0.7, 1.5])
    """Range of the height over the pad in which episodes begin, whatever `start` says [m]."""
    success_distance: float = 0.1
    """Largest horizontal distance from the middle of the pad at contact [m]."""
    success_speed: float = 0.35
    """Largest downward speed at contact [m/s]."""
    success_drift: float = 0.2
    """Largest horizontal speed at contact [m/s]."""
    success_tilt_deg: float = 10.0
    """Largest tilt at contact [deg]."""
    approach_speed: float = 0.8
    """Horizontal speed towards the pad from afar that is rewarded most [m/s]."""
    descent_speed: float = 0.6
    """Downward speed high over the pad that is rewarded most [m/s]."""
    touch_speed: float = 0.25
    """The same at contact [m/s]."""

    def __post_init__(self) -> None:
        checks.interval(self, "height")
        super().__post_init__()
        checks.positive(
            self, "success_speed", "success_drift", "success_tilt_deg", "approach_speed",
            "descent_speed", "touch_speed",
        )  # fmt: skip
        if self.height[0] <= 0:
            raise ConfigError(
                f"task.height {self.height} begins on the pad or below it; it must be > 0"
            )
        if self.touch_speed >= self.success_speed:
            raise ConfigError(
                f"task.touch_speed {self.touch_speed:g} m/s, which is rewarded most, is no "
                f"success: it must be below task.success_speed {self.success_speed:g} m/s"
            )
        if self.touch_speed > self.descent_speed:
            raise ConfigError(
                f"task.touch_speed {self.touch_speed:g} m/s must not exceed task.descent_speed "
                f"{self.descent_speed:g} m/s: a robot slows down above the pad"
            )

    def farthest_start(self, start: FlightStartConfig) -> float:
        """Largest distance from the pad at which an episode begins [m]."""
        return math.hypot(start.position, start.position, self.height[1])


PAD = "pad_corners_w"
"""Square within the circle in which a robot may touch, four points [m]; drawn, and never seen."""
_APPROACH_GAIN = 1.2
"""Wanted horizontal speed per distance, up to `approach_speed` [1/s]."""
_DESCENT_GAIN = 0.8
"""Wanted downward speed per height, between `touch_speed` and `descent_speed` [1/s]."""
_DESCENT_RADIUS = 0.3
"""Horizontal distance at which only half of that descent is wanted [m]."""
_VELOCITY_SCALE = 0.12
"""Difference from the wanted velocity at which the term `approach` is one half [m/s]."""


class LandingTask(FlightTask):
    """Land in the world's origin."""

    optional_terms = ()

    def __init__(self, config: LandingConfig, context: TaskContext) -> None:
        super().__init__(config, context)
        device, half = context.device, config.success_distance / math.sqrt(2)
        corners = [[half, half, 0], [-half, half, 0], [-half, -half, 0], [half, -half, 0]]
        pad = torch.tensor(corners, dtype=torch.float32, device=device).flatten()
        self.goal = {
            "position_w": torch.zeros(context.num_envs, 3, device=device),
            PAD: pad.repeat(context.num_envs, 1),
        }
        self._never = torch.zeros(context.num_envs, dtype=torch.bool, device=device)

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
        horizontal, height = error[:, :2], error[:, 2:]
        distance = horizontal.norm(dim=-1, keepdim=True)
        limit = config.approach_speed
        share = limit / (_APPROACH_GAIN * distance).clamp_min(limit)
        down = (_DESCENT_GAIN * height).clamp(config.touch_speed, config.descent_speed)
        down = down * closeness(distance, _DESCENT_RADIUS)
        return torch.cat([-_APPROACH_GAIN * share * horizontal, -down], dim=-1)

    def evaluate(
        self, true_state: RobotState, action: Tensor, last_action: Tensor, episode_step: Tensor
    ) -> StepOutcome:
        """Reward the velocity that leads down; contact terminates, softly or not."""
        config = self.config
        error = true_state.position_w - self.goal["position_w"]
        velocity, attitude = true_state.linear_velocity_w, true_state.orientation_w
        distance, drift = error[:, :2].norm(dim=-1), velocity[:, :2].norm(dim=-1)
        descent, tilt = -velocity[:, 2], quaternion.tilt(attitude)
        largest_tilt = math.radians(config.success_tilt_deg)
        touched = error[:, 2] <= 0
        landed = (
            touched
            & (distance < config.success_distance)
            & (descent < config.success_speed)
            & (drift < config.success_drift)
            & (tilt < largest_tilt)
        )
        softness = (
            closeness(distance, config.success_distance)
            * closeness((descent - config.touch_speed).clamp_min(0), config.touch_speed)
            * closeness(drift, config.success_drift)
            * closeness(tilt, largest_tilt)
        )
        lost = error.norm(dim=-1) > self._radius
        velocity_error = (velocity - self.wanted_velocity(error)).norm(dim=-1)
        return StepOutcome(
            reward_terms={
                "approach": closeness(velocity_error, _VELOCITY_SCALE),
                "touchdown": touched * softness,
                "lost": lost.float(),
                "heading": 1 - attitude[:, 0] ** 2,  # as of hover
                "effort": square_sum(action - self._hover_action),
                "smoothness": square_sum(action - last_action),
            },
            terminated=touched | lost,
            achieved=landed,
            success=self._never,  # who still flies has not landed
            metrics={"distance": distance, "descent": descent, "drift": drift, "tilt": tilt},
        )

    def parts(self) -> Mapping[str, Any]:
        """Nothing is remembered from step to step."""
        return {}
