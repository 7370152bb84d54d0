"""Velocity: walk forward, sideways and turn as fast as asked, pushed now and then."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from robot_rl.core import quaternion
from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.episodic import ClockSpec
from robot_rl.core.mirror import RobotMirror, SignedPermutation
from robot_rl.core.observation import Mirrored, RobotState
from sim import checks, draws
from sim.task import EndRecord, InitialState, StepOutcome, Task, TaskContext, closeness
from sim.tasks.legs.gait import (
    Gait,
    GaitConfig,
    Legs,
    LegTaskConfig,
    check_feet,
    check_sensors,
    heading_velocity,
    slip,
    swing_error,
)
from sim.tasks.legs.ground import make_ground

GOAL, CLOCK = "velocity_b", "clock"
"""Goals of a policy: forward and lateral velocity [m/s] and turning rate [rad/s] in the
heading frame; and sine and cosine of the gait's clock, zeros for standing still."""
NEEDED = ("foot_velocity_w", "foot_position_w", "body_contact")
"""Sensors of the robot's model that the task reads."""


@dataclass(kw_only=True)
class VelocityConfig(LegTaskConfig):
    """The velocity task: success is small mean errors of velocity and turning rate, and no fall."""

    train_steps: int = 3_000_000
    """World-steps of training that suffice with the default learner."""
    episode_length: float = 10.0
    """Time limit [s]."""
    goal_time: float = 5.0
    """Time after which another goal is asked for [s]."""
    forward: list[float] = field(default_factory=lambda: [-0.6, 0.6])
    """Range of the forward velocity [m/s]."""
    lateral: list[float] = field(default_factory=lambda: [-0.3, 0.3])
    """Range of the velocity to the left [m/s]."""
    turn: list[float] = field(default_factory=lambda: [-0.6, 0.6])
    """Range of the turning rate [rad/s], positive to the left."""
    standing: float = 0.1
    """Share of goals that ask to stand still."""
    start_height: float = 0.32
    """Height of the base above the ground at an episode's start [m]."""
    start_position: float = 0.1
    """Half-width of the joint positions that episodes begin from, around the default pose [rad]."""
    start_velocity: float = 0.3
    """Half-width of the base's velocity at the start, per axis [m/s] and [rad/s]."""
    max_tilt: float = 1.0
    """Angle between the base's and the world's vertical beyond which it has fallen [rad]."""
    lowest_height: float = 0.14
    """Height of the base above the ground below at which it has fallen [m]."""
    close: float = 0.25
    """Error at which the terms `velocity` [m/s] and `turn` [rad/s] have fallen to one half."""
    gait: GaitConfig = field(default_factory=GaitConfig)
    """When feet should stand and swing."""
    success_error: float = 0.15
    """Largest mean error of the horizontal velocity over the episode [m/s]."""
    success_turn_error: float = 0.2
    """Largest mean error of the turning rate over the episode [rad/s]."""

    def __post_init__(self) -> None:
        """Refuse tasks that cannot be judged."""
        times, errors = ("episode_length", "goal_time"), ("success_error", "success_turn_error")
        checks.positive(self, *times, "max_tilt", "close", *errors)
        checks.not_negative(self, "start_position", "start_velocity")
        checks.share(self, "standing")
        checks.interval(self, "forward", "lateral", "turn")


class VelocityTask(Task):
    """Follow velocities in the heading frame: x where the robot looks, level with the ground."""

    def __init__(self, config: VelocityConfig, context: TaskContext) -> None:
        """Prepare N envs.

        In evaluation kinds and levels of a terrain are drawn uniformly; otherwise levels follow
        success. On the floor training and evaluation draw alike.

        Raises:
            SpecMismatchError: The robot has no feet, or its model lacks a sensor of `NEEDED`.
        """
        robot, device, count = context.robot, context.device, context.num_envs
        check_feet("velocity", robot)
        check_sensors("velocity", robot, context.sensors, NEEDED)
        super().__init__(config, context)
        self._goal_steps = round(config.goal_time / context.control_dt)
        self._sensors = context.sensors
        self.ground = make_ground(config.scene.terrain, context)
        self.curriculum = self.ground
        self._legs = Legs(robot, device)
        ranges = torch.tensor([config.forward, config.lateral, config.turn], device=device)
        self._goal_low, self._goal_size = ranges[:, 0], ranges[:, 1] - ranges[:, 0]
        parts = math.ceil(self.episode_steps / self._goal_steps)
        self._goals = torch.zeros(count, parts, 3, device=device)
        self._all = torch.arange(count, device=device)
        self._gait = Gait(config.gait, num_feet=len(robot.feet), device=device)
        self._phase_step = context.control_dt / config.gait.period
        self._first_phase = torch.zeros(count, device=device)
        self._phase = torch.zeros(count, device=device)
        self.goal = {
            GOAL: torch.zeros(count, 3, device=device),
            CLOCK: torch.zeros(count, 2, device=device),
        }
        self._record = EndRecord(count, device, first_step=0)

    def goal_mirrors(self, robot: RobotMirror) -> Mapping[str, SignedPermutation]:
        """Mirror images of the goal and the clock."""
        goal = robot.kind(Mirrored.ground_motion, 3)
        return {GOAL: goal, CLOCK: self._gait.mirror(robot.feet.source)}

    def start(self, rows: EnvSelection, generator: torch.Generator) -> InitialState:
        """Draw the episode's goals, and poses around the default one, looking anywhere."""
        config, count, size = self.config, rows.count, len(self._legs.default)
        self._record.clear(rows)
        goals = draws.uniform((count, self._goals.shape[1], 4), 0.0, 1.0, generator)
        moving = (goals[..., 3:] >= config.standing).float()
        rows.put(self._goals, (self._goal_low + self._goal_size * goals[..., :3]) * moving)
        rows.put(self.goal[GOAL], rows.take(self._goals)[:, 0])
        phase = draws.uniform((count,), 0.0, 1.0, generator)
        rows.put(self._first_phase, phase)
        rows.put(self._phase, phase)
        clock = self._gait.clock(phase, rows.take(self._moving))
        rows.put(self.goal[CLOCK], clock)
        unit = draws.uniform((count, size + 7), -1.0, 1.0, generator)
        position = self._legs.default + config.start_position * unit[:, :size]
        base = self.ground.place(rows, generator)
        base[:, 2] += config.start_height
        speed = config.start_velocity * unit[:, size : size + 6]
        turn = quaternion.from_yaw(torch.pi * unit[:, size + 6])
        return InitialState(robot=self._legs.placed(base, turn, speed, position))

    @property
    def clocks(self) -> Mapping[str, ClockSpec]:
        """The gait's: a robot's own side moves it on."""
        return {CLOCK: ClockSpec(period=self.config.gait.period, moves=GOAL)}

    def advance(self, episode_step: Tensor) -> None:
        """Ask for the goal of this part of the episode, and move the clock on."""
        part = (episode_step // self._goal_steps).clamp(max=self._goals.shape[1] - 1)
        self.goal[GOAL].copy_(self._goals[self._all, part])
        self._phase.copy_((self._first_phase + episode_step * self._phase_step) % 1.0)
        self.goal[CLOCK].copy_(self._gait.clock(self._phase, self._moving))

    def evaluate(
        self, true_state: RobotState, action: Tensor, last_action: Tensor, episode_step: Tensor
    ) -> StepOutcome:
        """Reward the right velocity and a calm gait; a fall terminates."""
        config, goal = self.config, self.goal[GOAL]
        rotation = quaternion.rotation_matrix(true_state.orientation_w)  # (N, 9), row-major
        error = (heading_velocity(rotation, true_state.linear_velocity_w) - goal[:, :2]).norm(
            dim=-1
        )
        rates = true_state.angular_velocity_b
        turn_error = (rates[:, 2] - goal[:, 2]).abs()
        self._record.add(error, turn_error, episode_step)
        target = self._gait.target(self._phase, self._moving)
        contact = self._gait.contact(true_state.foot_force)
        kept = (contact == target.stands).float().mean(-1)
        foot_height = self.ground.clearance(self._sensors["foot_position_w"])  # (N, F)
        height = self.ground.altitude(true_state)
        vertical = true_state.linear_velocity_w[:, 2]
        terms = {
            "alive": torch.ones_like(error),
            "velocity": closeness(error, config.close),
            "turn": closeness(turn_error, config.close),
            "gait": kept,
            "swing": swing_error(target, foot_height),
            "slip": slip(contact, self._sensors["foot_velocity_w"]),
            "bounce": vertical * vertical,  # [m^2/s^2]
            **self._legs.costs(true_state, rotation, height - config.height, action, last_action),
            "collision": (self._sensors["body_contact"] > 0).float().sum(-1),
        }
        mean_error, mean_turn_error = self._record.mean_distance, self._record.mean_second
        fallen = (rotation[:, 8] < math.cos(config.max_tilt)) | (height < config.lowest_height)
        fallen |= self.ground.lost(true_state)
        return StepOutcome(
            reward_terms=terms,
            terminated=fallen,
            success=(mean_error < config.success_error)
            & (mean_turn_error < config.success_turn_error),
            metrics={
                "velocity_error": error,
                "turn_error": turn_error,
                "mean_velocity_error": mean_error,
                "mean_turn_error": mean_turn_error,
                "gait_kept": kept,
                **self.ground.metrics(),
            },
        )

    def parts(self) -> Mapping[str, Any]:
        """Goals, running sums and feet."""
        return {
            "goal": self.goal[GOAL],
            "goals": self._goals,
            "first_phase": self._first_phase,
            "phase": self._phase,
            "record": self._record.state,
            "ground": self.ground,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`, and what follows from it."""
        super().load_state_dict(state)
        self.goal[CLOCK].copy_(self._gait.clock(self._phase, self._moving))

    @property
    def _moving(self) -> Tensor:
        """(N,) bool: asked to move."""
        return self.goal[GOAL].abs().amax(-1) > 0
