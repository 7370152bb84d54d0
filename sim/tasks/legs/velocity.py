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
from robot_rl.core.errors import ConfigError
from robot_rl.core.mirror import RobotMirror, SignedPermutation
from robot_rl.core.observation import Mirrored, RobotState
from robot_rl.core.robot import RobotKind
from sim import checks, draws
from sim.randomization import WorldLevels
from sim.robots.joint_robot import StartsConfig
from sim.scenes.terrain import SCAN, Terrain, TerrainConfig, scan_points
from sim.task import EndRecord, InitialState, StepOutcome, Task, TaskContext, closeness
from sim.tasks.legs.gait import (
    Gait,
    GaitConfig,
    Legs,
    LegTaskConfig,
    MixedStarts,
    check_sensors,
    heading_velocity,
    slip,
    swing_error,
    walks_by,
)

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
    starts: StartsConfig = field(default_factory=StartsConfig)
    """Shares of the episodes that begin crouched, moving or lying; the others begin standing."""
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

    @property
    def kinds_by_values(self) -> tuple[RobotKind, ...]:
        """Robots on as many feet as the gait has offsets."""
        return (walks_by(self.gait),)

    def __post_init__(self) -> None:
        times, errors = ("episode_length", "goal_time"), ("success_error", "success_turn_error")
        checks.positive(self, *times, "close", *errors)
        checks.angle(self, "max_tilt")
        checks.not_negative(self, "start_position", "start_velocity")
        checks.share(self, "standing")
        checks.interval(self, "forward", "lateral", "turn")
        terrain = self.scene.terrain
        if terrain is not None and self.height >= terrain.scan.depth:
            raise ConfigError(
                f"task.scene.terrain.scan.depth {terrain.scan.depth:g} m must exceed task.height "
                f"{self.height:g} m: the scan of a robot so tall ends above the ground"
            )


EDGE = 1.0
"""Distance from the edge of the terrain at which a robot is lost [m]."""
_SCAN_RADIUS = 0.3
"""The ground below a robot is the mean of the scan so near to its base [m]."""


class Floor:
    """The level floor, endless at height 0; its methods are those of any ground."""

    def place(self, rows: EnvSelection, generator: torch.Generator) -> Tensor:
        """Starts of the picked envs: points on the ground, (count, 3), [m]."""
        return torch.zeros(rows.count, 3, device=generator.device)

    def altitude(self, true_state: RobotState) -> Tensor:
        """Height of the bases above the ground below, (N,), [m]."""
        return true_state.position_w[:, 2]

    def clearance(self, foot_position_w: Tensor) -> Tensor:
        """Height of the feet's centres, (N, F * 3), above the ground below each, (N, F), [m]."""
        return foot_position_w[:, 2::3]

    def lost(self, true_state: RobotState) -> Tensor | bool:
        """Robots about to leave the ground, (N,) bool."""
        return False

    def metrics(self) -> dict[str, Tensor]:
        """For logs, (N,) each."""
        return {}

    def follow(self, ended: Tensor, success: Tensor) -> None:
        """Take note of episodes that ended, (N,) bool, and of those that succeeded."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides the future."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""


class Hills(Floor):
    """A terrain with a kind for every env, and levels that follow its successes.

    In training an env keeps its kind, or where there are fewer envs than kinds draws it anew, and
    climbs its levels; in evaluation both are drawn uniformly for every episode.
    """

    def __init__(
        self, config: TerrainConfig, scan: Tensor, *, num_envs: int, device: torch.device,
        evaluation: bool,
    ) -> None:  # fmt: skip
        """Put every env on its lowest level; the scan, (N, K), [m], is read live."""
        self._config = config
        self._evaluation = evaluation
        self._scan = scan
        self.terrain = Terrain(config, device)
        self.levels = WorldLevels(num_envs, config.levels, device)
        self.kind = torch.arange(num_envs, device=device) % len(config.kinds)
        """(N,) int64, columns of the terrain."""
        away = scan_points(config.scan).norm(dim=-1)
        below = away <= max(_SCAN_RADIUS, float(away.min()) + 1e-6)
        self._below = torch.nonzero(below)[:, 0].to(device)

    def place(self, rows: EnvSelection, generator: torch.Generator) -> Tensor:
        """Centres of the envs' tiles, as high as the ground around them."""
        if self._evaluation:
            unit = torch.rand((rows.count, 2), generator=generator, device=generator.device)
            rows.put(self.levels.level, (unit[:, 0] * self._config.levels).long())
            rows.put(self.kind, (unit[:, 1] * len(self._config.kinds)).long())
        else:
            self.levels.begin(rows, generator)
            kinds = len(self._config.kinds)
            if len(self.kind) < kinds:  # else some would never be seen
                drawn = torch.randint(kinds, (rows.count,), generator=generator,
                                      device=generator.device)  # fmt: skip
                rows.put(self.kind, drawn)
        return self.terrain.origin(rows.take(self.levels.level), rows.take(self.kind))

    def altitude(self, true_state: RobotState) -> Tensor:
        """Height above the mean of the ground below the trunk."""
        return -self._scan[:, self._below].mean(-1)

    def clearance(self, foot_position_w: Tensor) -> Tensor:
        """Height of every foot above the ground right below its centre."""
        feet = foot_position_w.unflatten(-1, (-1, 3))  # (N, F, 3)
        return feet[..., 2] - self.terrain.height(feet[..., :2])

    def lost(self, true_state: RobotState) -> Tensor:
        """Robots near the edge, behind which there is nothing to stand on."""
        return self.terrain.outside(true_state.position_w[:, :2], EDGE)

    def metrics(self) -> dict[str, Tensor]:
        """The level that each env is on, from 0."""
        return {"level": self.levels.level.float()}

    def follow(self, ended: Tensor, success: Tensor) -> None:
        """Send envs up a level after a success, down after a failure."""
        self.levels.follow(ended, success)

    def state_dict(self) -> dict[str, Any]:
        """Levels and kinds."""
        return {"levels": self.levels.state_dict(), "kind": self.kind.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self.levels.load_state_dict(state["levels"])
        self.kind.copy_(state["kind"])


def make_ground(config: TerrainConfig | None, context: TaskContext) -> Floor:
    """The ground that a scene asks for: hills, or the floor where it asks for none."""
    if config is None:
        return Floor()
    return Hills(
        config, context.sensors[SCAN], num_envs=context.num_envs, device=context.device,
        evaluation=context.evaluation,
    )  # fmt: skip


class VelocityTask(Task):
    """Follow velocities in the heading frame: x where the robot looks, level with the ground."""

    def __init__(self, config: VelocityConfig, context: TaskContext) -> None:
        """Prepare N envs.

        In evaluation kinds and levels of a terrain are drawn uniformly; otherwise levels follow
        success. On the floor training and evaluation draw alike, but for the phase of the gait
        (`Gait.begin`).

        Raises:
            SpecMismatchError: The model lacks a sensor of `NEEDED`.
        """
        robot, device, count = context.robot, context.device, context.num_envs
        check_sensors("velocity", robot, context.sensors, NEEDED)
        super().__init__(config, context)
        self._goal_steps = context.steps("goal_time", config.goal_time)
        self._sensors = context.sensors
        self.ground = make_ground(config.scene.terrain, context)
        self.curriculum = self.ground
        self._legs = Legs(robot, device, config.pose_weights)
        ranges = torch.tensor([config.forward, config.lateral, config.turn], device=device)
        self._goal_low, self._goal_size = ranges[:, 0], ranges[:, 1] - ranges[:, 0]
        parts = math.ceil(self.episode_steps / self._goal_steps)
        self._goals = torch.zeros(count, parts, 3, device=device)
        self._all = torch.arange(count, device=device)
        self._gait = Gait(config.gait, num_feet=len(robot.feet), device=device)
        self._phase_step = context.control_dt / config.gait.period
        self._evaluation = context.evaluation
        self._first_phase = torch.zeros(count, device=device)
        self._phase = torch.zeros(count, device=device)
        self.goal = {
            GOAL: torch.zeros(count, 3, device=device),
            CLOCK: torch.zeros(count, 2, device=device),
        }
        self._followed = torch.zeros(count, 3, device=device)
        self._record = EndRecord(count, device, first_step=0)
        self._starts = MixedStarts(
            config.starts, context.poses, num_envs=count, device=device,
            control_dt=context.control_dt,
        )  # fmt: skip
        self._kept = torch.zeros(count, device=device)  # sums over the episode
        self._work, self._way = torch.zeros(count, device=device), torch.zeros(count, device=device)

    def goal_mirrors(self, robot: RobotMirror) -> Mapping[str, SignedPermutation]:
        """Mirror images of the goal and the clock."""
        goal = robot.kind(Mirrored.ground_motion, 3)
        return {GOAL: goal, CLOCK: self._gait.mirror(robot.feet.source)}

    def start(self, rows: EnvSelection, generator: torch.Generator) -> InitialState:
        """Draw the episode's goals, and poses around the default one, looking anywhere."""
        config, count, size = self.config, rows.count, len(self._legs.default)
        self._record.clear(rows)
        for total in (self._kept, self._work, self._way):
            rows.put(total, 0.0)
        goals = draws.uniform((count, self._goals.shape[1], 4), 0.0, 1.0, generator)
        moving = (goals[..., 3:] >= config.standing).float()
        rows.put(self._goals, (self._goal_low + self._goal_size * goals[..., :3]) * moving)
        rows.put(self.goal[GOAL], rows.take(self._goals)[:, 0])
        phase = self._gait.begin(count, generator, evaluation=self._evaluation)
        rows.put(self._first_phase, phase)
        rows.put(self._phase, phase)
        clock = self._gait.clock(phase, rows.take(self._moving))
        rows.put(self.goal[CLOCK], clock)
        unit = draws.uniform((count, size + 7), -1.0, 1.0, generator)
        position = self._legs.default + config.start_position * unit[:, :size]
        base = self.ground.place(rows, generator)
        ground = base[:, 2].clone()
        base[:, 2] += config.start_height
        speed = config.start_velocity * unit[:, size : size + 6]
        turn = quaternion.from_yaw(torch.pi * unit[:, size + 6])
        robot = self._legs.placed(base, turn, speed, position)
        if self._starts.active:
            robot = self._starts.mix(rows, robot, ground, generator)
        return InitialState(robot=robot)

    @property
    def clocks(self) -> Mapping[str, ClockSpec]:
        """The gait's: a robot's own side moves it on."""
        return {CLOCK: ClockSpec(period=self.config.gait.period, moves=GOAL)}

    def advance(self, episode_step: Tensor) -> None:
        """Ask for the goal of this part of the episode, and move the clock on."""
        self._followed.copy_(self.goal[GOAL])  # what the step was meant to follow
        part = (episode_step // self._goal_steps).clamp(max=self._goals.shape[1] - 1)
        self.goal[GOAL].copy_(self._goals[self._all, part])
        self._phase.copy_((self._first_phase + episode_step * self._phase_step) % 1.0)
        self.goals_changed()

    def goals_changed(self) -> None:
        """Let the clock run where the goal asks to move, and there alone."""
        self.goal[CLOCK].copy_(self._gait.clock(self._phase, self._moving))

    def evaluate(
        self, true_state: RobotState, action: Tensor, last_action: Tensor, episode_step: Tensor
    ) -> StepOutcome:
        """Reward the right velocity and a calm gait; a fall terminates."""
        config, goal = self.config, self._followed
        rotation = quaternion.rotation_matrix(true_state.orientation_w)  # (N, 9), row-major
        velocity = heading_velocity(rotation, true_state.linear_velocity_w)
        error = (velocity - goal[:, :2]).norm(dim=-1)
        rates = true_state.angular_velocity_b
        turn_error = (rates[:, 2] - goal[:, 2]).abs()
        self._record.add(error, turn_error, episode_step)
        target = self._gait.target(self._phase, _is_moving(goal))
        contact = true_state.foot_force > config.gait.touch
        kept = (contact == target.stands).float().mean(-1)
        self._kept += kept
        self._work += (true_state.joint_effort * true_state.joint_velocity).abs().sum(-1)
        self._way += velocity.norm(dim=-1)
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
        low = height < config.lowest_height
        if self._starts.active:
            low = low & ~self._starts.excused(low, episode_step)
        fallen = (rotation[:, 8] < math.cos(config.max_tilt)) | low
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
                "gait_kept": self._kept / episode_step,
                "mean_power": self._work / episode_step,  # mechanical, its size at each joint [W]
                "mean_speed": self._way / episode_step,
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
            "kept": self._kept,
            "work": self._work,
            "way": self._way,
            "ground": self.ground,
            "rising": self._starts.rising,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`, and what follows from it."""
        none = torch.zeros_like(self._kept)  # old ones lack some
        older = {"kept": none, "work": none, "way": none, "rising": none.bool()}
        super().load_state_dict({**older, **state})
        self.goals_changed()

    @property
    def _moving(self) -> Tensor:
        """(N,) bool: asked to move."""
        return _is_moving(self.goal[GOAL])


def _is_moving(goal: Tensor) -> Tensor:
    """(N,) bool of goals (N, 3): other than to stand."""
    return goal.abs().amax(-1) > 0
