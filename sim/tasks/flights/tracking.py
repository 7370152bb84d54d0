"""Tracking: follow a moving goal, a lemniscate or a random smooth curve, with a look ahead.

Reference curves are sums of sines: one description for all envs, with derivatives.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import RobotState
from sim import checks, draws
from sim.task import EndRecord, InitialState, StepOutcome, TaskContext
from sim.tasks.flights.flight import FlightTask, FlightTaskConfig, reward_terms

HARMONICS = 3
"""Sines per axis."""


@dataclass(kw_only=True)
class CurveConfig:
    """Mixture of lemniscates and random smooth curves."""

    lemniscate_share: float = 0.5
    """Share of episodes that fly the lemniscate; the others fly a random smooth curve."""
    lemniscate_size: float = 1.0
    """Half the lemniscate's extent along x [m]."""
    lemniscate_period: float = 5.5
    """Time of one lap [s]."""
    random_size: float = 1.0
    """Largest amplitude of a random curve per axis [m]."""
    random_speed: float = 1.5
    """Largest speed of a random curve per axis [m/s]."""

    def __post_init__(self) -> None:
        checks.share(self, "lemniscate_share", of="curve")
        sizes = ("lemniscate_size", "lemniscate_period", "random_size", "random_speed")
        checks.positive(self, *sizes, of="curve")


class Curves:
    """One curve per env: position(t) = sum over h of A_h sin(w_h t + phi_h), per axis.

    Random curves are shifted so that they begin in the origin, as the lemniscate does.
    """

    def __init__(self, config: CurveConfig, num_envs: int, device: torch.device) -> None:
        """Start with every env's curve resting in the origin."""
        self.config = config
        # amplitude [m], angular frequency [rad/s], phase [rad]
        self._sines = torch.zeros(num_envs, 3, 3, HARMONICS, device=device)
        self._offset = torch.zeros(num_envs, 3, device=device)
        self.state = {"sines": self._sines, "offset": self._offset}
        """All curves, live."""

    def draw(self, rows: EnvSelection, generator: torch.Generator) -> None:
        """Draw new curves for the picked envs."""
        count = rows.count
        shape = (count, 3, HARMONICS)
        pick = draws.uniform((count, 1, 1), 0.0, 1.0, generator) < self.config.lemniscate_share
        # Frequencies of 1, 2 and 3 laps per 4 to 12 s; amplitudes bounded in size and in speed.
        base = 2 * torch.pi / draws.uniform((count, 1, 1), 4.0, 12.0, generator)
        frequency = base * torch.arange(1, HARMONICS + 1, device=generator.device).expand(shape)
        reach = torch.minimum(
            torch.full_like(frequency, self.config.random_size),
            self.config.random_speed / frequency,
        )
        amplitude = draws.uniform(shape, -1.0, 1.0, generator) * reach / HARMONICS
        phase = draws.uniform(shape, -torch.pi, torch.pi, generator)
        sines = torch.stack([amplitude, frequency, phase], dim=1)
        sines = torch.where(pick[:, None], self._lemniscate(generator.device), sines)
        rows.put(self._sines, sines)
        start = (sines[:, 0] * sines[:, 2].sin()).sum(-1)  # (count, 3)
        rows.put(self._offset, start)

    def position(self, time: Tensor) -> Tensor:
        """Points at times since an episode's start, (N, T) [s] -> (N, T, 3), [m], world axes."""
        amplitude, angle = self._angles(time)
        return (amplitude * angle.sin()).sum(-1) - self._offset[:, None]

    def velocity(self, time: Tensor) -> Tensor:
        """Velocities along the curves, (N, T) -> (N, T, 3), [m/s], world axes."""
        amplitude, angle = self._angles(time)
        frequency = self._sines[:, None, 1]
        return (amplitude * frequency * angle.cos()).sum(-1)

    def _angles(self, time: Tensor) -> tuple[Tensor, Tensor]:
        sines = self._sines[:, None]  # (N, 1, 3, 3 axes, H)
        angle = torch.addcmul(sines[:, :, 2], sines[:, :, 1], time[:, :, None, None])
        return sines[:, :, 0], angle  # (N, 1, 3, H), (N, T, 3, H)

    def _lemniscate(self, device: torch.device) -> Tensor:
        """Figure of eight in the horizontal plane: x = s sin(w t), y = s/2 sin(2 w t)."""
        size, w = self.config.lemniscate_size, 2 * torch.pi / self.config.lemniscate_period
        sines = torch.zeros(3, 3, HARMONICS, device=device)
        sines[0, 0, 0], sines[1, 0, 0] = size, w
        sines[0, 1, 0], sines[1, 1, 0] = 0.5 * size, 2 * w
        return sines


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
    """Times ahead at which the policy sees the goal [s]."""
    curve: CurveConfig = field(default_factory=CurveConfig)
    """Curves flown in training."""
    evaluation_curve: CurveConfig = field(default_factory=lambda: CurveConfig(lemniscate_share=1.0))
    """Curves flown in evaluation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.positive(self, "max_rates")
        if not 0 <= self.settling_time < self.episode_length:
            raise ConfigError(
                f"task.settling_time must lie in [0, {self.episode_length}) s, "
                f"got {self.settling_time}"
            )
        if not self.preview or min(self.preview) <= 0:
            raise ConfigError(f"task.preview needs times > 0 s, got {self.preview}")


class TrackingTask(FlightTask):
    """Follow one curve per env."""

    def __init__(self, config: TrackingConfig, context: TaskContext) -> None:
        super().__init__(config, context)
        device, dt = context.device, context.control_dt
        curve = config.evaluation_curve if context.evaluation else config.curve
        self._curves = Curves(curve, context.num_envs, device)
        self._dt = dt
        self._ahead = torch.tensor([0.0, *config.preview], device=device)  # [s]
        self._record = EndRecord(context.num_envs, device, round(config.settling_time / dt))
        self.goal = self._goal_at(torch.zeros(context.num_envs, dtype=torch.int64, device=device))

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

    def parts(self) -> Mapping[str, Any]:
        """Curves, goals and running sums."""
        return {"curves": self._curves.state, "record": self._record.state, "goal": self.goal}

    def _goal_at(self, episode_step: Tensor) -> dict[str, Tensor]:
        time = episode_step[:, None] * self._dt  # (N, 1)
        points = self._curves.position(time + self._ahead)  # (N, 1 + K, 3)
        return {
            "position_w": points[:, 0],
            "linear_velocity_w": self._curves.velocity(time)[:, 0],
            "preview_w": points[:, 1:].reshape(points.shape[0], -1),
        }
