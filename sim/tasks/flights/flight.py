"""Parts of the flight tasks: a config, starts and reward terms."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import ClassVar

import torch
from torch import Tensor

from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import RobotState, TermConfig
from robot_rl.core.robot import RobotKind
from sim import checks, draws
from sim.robots.multirotor_robot import MultirotorRandomization
from sim.task import Task, TaskContext, square_sum

CLOSE = 0.1
"""Distance at which the term `closeness`, 1 on the goal, has fallen to one half [m]."""
PRECISE = 0.02
"""The same of the term `precision` [m]."""


class AttitudeDraw(Enum):
    """Distribution of starting attitudes."""

    tilt_heading = "tilt_heading"
    """Lean uniform in [0, attitude] to any side, heading uniform within +-heading."""
    rotation = "rotation"
    """Uniform among all rotations of at most `attitude` (Eschmann et al. 2024)."""


@dataclass(kw_only=True)
class FlightStartConfig:
    """Distribution of the states that episodes begin from, around the goal."""

    position: float = 0.2
    """Half-width per axis [m]."""
    attitude_deg: float = 60.0
    """Largest lean, or largest rotation angle [deg]."""
    heading_deg: float = 60.0
    """Half-width of the heading [deg]; unused by `rotation`."""
    attitude_draw: AttitudeDraw = AttitudeDraw.tilt_heading
    """Distribution of the attitude."""
    velocity: float = 0.5
    """Half-width per axis [m/s]."""
    angular_velocity: float = 1.0
    """Half-width per axis [rad/s]."""
    at_goal: float = 0.0
    """Share of episodes that begin at rest on the goal."""

    def __post_init__(self) -> None:
        checks.not_negative(self, "position", "velocity", "angular_velocity", of="start")
        for name in ("attitude_deg", "heading_deg"):
            if not 0 <= getattr(self, name) <= 180:
                raise ConfigError(f"start.{name} must lie in [0, 180], got {getattr(self, name)}")
        checks.share(self, "at_goal", of="start")

    def at_rest(self) -> "FlightStartConfig":
        """The same places and headings, level and without motion."""
        return replace(self, attitude_deg=0.0, attitude_draw=AttitudeDraw.tilt_heading,
                       velocity=0.0, angular_velocity=0.0)  # fmt: skip

    def draw(self, count: int, generator: torch.Generator) -> RobotState:
        """States relative to a goal at rest in the origin, fields (count, width)."""
        limit = math.radians(self.attitude_deg)
        if self.attitude_draw is AttitudeDraw.rotation:
            attitude = draws.uniform_rotation(count, limit, generator)
        else:
            attitude = draws.tilted_attitude(
                count, limit, math.radians(self.heading_deg), generator
            )
        widths = (self.position, self.velocity, self.angular_velocity)
        state = draws.symmetric(count, [[width] * 3 for width in widths], generator)
        if self.at_goal > 0:
            keep = draws.uniform((count, 1), 0.0, 1.0, generator) >= self.at_goal
            state = state * keep
            level = draws.constant((1.0, 0.0, 0.0, 0.0), attitude.device)
            attitude = torch.where(keep, attitude, level)
        position, velocity, rates = state.split(3, dim=-1)
        return RobotState(
            {
                "position_w": position,
                "orientation_w": attitude,
                "linear_velocity_w": velocity,
                "angular_velocity_b": rates,
            }
        )


@dataclass(kw_only=True)
class RewardWeightsConfig:
    """Weights of the reward terms at the start, at the end, and the way between."""

    initial: dict[str, float] = field(default_factory=dict)
    """Weight of each term at the start; terms that only `final` names weigh 0 then."""
    final: dict[str, float] = field(default_factory=dict)
    """Weight of each term at the end; terms left out keep their initial weight."""
    ramp: list[float] = field(default_factory=lambda: [0.0, 1.0])
    """World-steps (of all envs together) between which the weights move linearly."""

    def __post_init__(self) -> None:
        if len(self.ramp) != 2 or not 0 <= self.ramp[0] <= self.ramp[1]:
            raise ConfigError(
                f"reward.ramp must be [from, to] in world-steps, rising, got {self.ramp}"
            )

    def at(self, env_steps: float) -> dict[str, float]:
        """Weights after so many steps of all envs together; infinity asks for the final ones."""
        low, high = self.ramp
        if env_steps >= high:  # asked first: a ramp of no length is a jump
            share = 1.0
        else:
            share = 0.0 if env_steps <= low else (env_steps - low) / (high - low)
        weights: dict[str, float] = {}
        for name in (*self.initial, *self.final):
            first = self.initial.get(name, 0.0)
            weights[name] = first + share * (self.final.get(name, first) - first)
        return weights


MULTIROTOR = RobotKind(words="a multirotor", robots=("crazyflie", "x500"), rotors=True)
"""Kind of robot that flies."""


@dataclass(kw_only=True)
class FlightTaskConfig:
    """Fields of every flight task."""

    robot_kind: ClassVar[RobotKind] = MULTIROTOR
    """Kind of robot that the task is for."""

    train_steps: int = 5_000_000
    """World-steps of training that suffice with the default learner."""
    episode_length: float = 5.0
    """Time limit [s]."""
    radius: float = 1.5
    """Distance from the goal beyond which a training episode terminates [m]."""
    evaluation_radius: float = 1.5
    """The same in evaluation [m]."""
    success_distance: float = 0.1
    """Largest position error of a success [m]."""
    start: FlightStartConfig = field(default_factory=FlightStartConfig)
    """Starts of training episodes, relative to the goal's first place."""
    evaluation_start: FlightStartConfig = field(default_factory=FlightStartConfig)
    """Starts of evaluation episodes, likewise."""
    randomization: MultirotorRandomization = field(default_factory=MultirotorRandomization)
    """Physical parameters drawn per episode."""
    reward: RewardWeightsConfig = field(default_factory=RewardWeightsConfig)
    """Weights of the reward terms."""
    actor: list[TermConfig] = field(default_factory=list)
    """Inputs of the policy: only what the robot measures, and the goal."""
    critic: list[TermConfig] = field(default_factory=list)
    """Inputs of the critic: the true state and what only a simulator knows."""

    def __post_init__(self) -> None:
        checks.positive(self, "episode_length", "radius", "evaluation_radius", "success_distance")
        self._check_start(self.start, self.radius, "radius")
        self._check_start(self.evaluation_start, self.evaluation_radius, "evaluation_radius")

    def farthest_start(self, start: FlightStartConfig) -> float:
        """Largest distance from the goal at which an episode begins [m]."""
        return math.sqrt(3) * start.position

    def _check_start(self, start: FlightStartConfig, radius: float, name: str) -> None:
        """Refuse starts at which a flight is lost already."""
        if (farthest := self.farthest_start(start)) >= radius:
            raise ConfigError(
                f"flights may begin {farthest:.3g} m from their goal, beyond task.{name} "
                f"{radius:g} m, where they are lost: raise it, or begin nearer"
            )


class FlightTask(Task):
    """Base of tasks whose goal is a place to be near to."""

    optional_terms: tuple[str, ...] = ("precision", "position", "rates", "calm")
    """Reward terms that a configuration may leave unweighted."""

    def __init__(self, config: FlightTaskConfig, context: TaskContext) -> None:
        """Choose the starts, the radius and the weights of training or of evaluation."""
        super().__init__(config, context)
        self._evaluation = context.evaluation
        self._start = config.evaluation_start if context.evaluation else config.start
        self._radius = config.evaluation_radius if context.evaluation else config.radius
        self._hover_action = torch.tensor(context.hover_action, device=context.device)

    def reward_weights(self, env_steps: int) -> Mapping[str, float]:
        """Weights by the curriculum; evaluation always uses the final ones."""
        weights = self.config.reward.at(math.inf if self._evaluation else env_steps)
        return {**dict.fromkeys(self.optional_terms, 0.0), **weights}


def reward_terms(
    error: Tensor,
    velocity_error: Tensor,
    true_state: RobotState,
    action: Tensor,
    last_action: Tensor,
    hover_action: Tensor,
) -> dict[str, Tensor]:
    """Unweighted terms of hover and tracking; all but the first three are costs.

    Args:
        error: Position relative to the goal, (N, 3), [m].
        velocity_error: Velocity relative to the goal's, (N, 3), [m/s].
        action: Accepted action, (N, 4).
        last_action: The one before, (N, 4).
        hover_action: Action that carries the nominal weight, (4,).
    """
    square = square_sum(error)
    q_w = true_state.orientation_w[:, 0]
    near, change = 1 / (1 + square / CLOSE**2), square_sum(action - last_action)
    return {
        "alive": torch.ones_like(square),
        "closeness": near,
        "precision": 1 / (1 + square / PRECISE**2),
        "position": square,  # [m^2]
        "distance": square.sqrt(),  # [m]
        "heading": 1 - q_w * q_w,  # sin^2 of half the angle to level and heading 0
        "velocity": square_sum(velocity_error),  # [m^2/s^2]
        "rates": square_sum(true_state.angular_velocity_b),  # [rad^2/s^2]
        "effort": square_sum(action - hover_action),
        "smoothness": change,
        "calm": near * change,  # asks for calm rotors where nothing has to be recovered from
    }
