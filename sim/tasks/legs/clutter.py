"""Clutter: go through a corridor with obstacles to its other end, led by a potential field.

The field is the sensor `potential_field` of the scene (`sim/scenes/potential_field.py`): the idea
is that of HumanoidPF and Click-and-Traverse, terms and numbers are ours.
"""

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
from sim.scenes.corridor import CorridorConfig, Corridors
from sim.scenes.potential_field import COLUMNS, FIELD, FORCES, OBSTACLES, WAY, Pull, pull
from sim.scenes.scene import SceneConfig
from sim.task import (
    EndRecord,
    InitialState,
    StepOutcome,
    Task,
    TaskContext,
    TouchCount,
    closeness,
)
from sim.tasks.legs.gait import (
    Gait,
    GaitConfig,
    Legs,
    LegTaskConfig,
    check_sensors,
    slip,
    swing_error,
    walks_by,
)

TRAVERSE, CLOCK, PLACE = "traverse", "clock", "preview_w"
"""Goals of a policy: 1 on the way and 0 near the goal, where it is to stand; sine and
cosine of the gait's clock, zeros for standing still; and the next place of its way."""
_SHORTEST = 0.5
"""Collisions are divided by no shorter way [m]."""


@dataclass(kw_only=True)
class ClutterConfig(LegTaskConfig):
    """The clutter task: success is to stand near the goal when the time is up, without a fall."""

    episode_length: float = 16.0
    """Time limit [s]."""
    pace: float = 0.5
    """Speed along the way up to which progress pays [m/s]."""
    close: float = 0.5
    """Distance from the goal at which the term `arrived` has fallen to one half [m]."""
    radius: float = 0.4
    """Mean distance from the goal at the end, below which the episode is a success [m]."""
    success_window: float = 1.0
    """Time at the episode's end over which that mean is taken [s]."""
    start_height: float = 0.32
    """Height of the base at an episode's start [m]."""
    start_place: float = 0.1
    """Half-width of the base's place at the start, along and across the corridor [m]."""
    start_turn: float = 0.3
    """Half-width of its heading, from the corridor's direction [rad]."""
    start_position: float = 0.1
    """Half-width of the joint positions that episodes begin from, around the default pose [rad]."""
    start_velocity: float = 0.2
    """Half-width of the base's velocity at the start, per axis [m/s] and [rad/s]."""
    max_tilt: float = 1.0
    """Angle between the base's and the world's vertical beyond which it has fallen [rad]."""
    lowest_height: float = 0.14
    """Height of the base below which it has fallen [m]."""
    touch: float = 5.0
    """Force between robot and obstacles from which on they touch [N]."""
    hard_touch: float = 100.0
    """Force at which the term `collision` is 1, its largest value [N]."""
    gait: GaitConfig = field(default_factory=GaitConfig)
    """When feet should stand and swing on the way."""
    scene: SceneConfig = field(default_factory=lambda: SceneConfig(clutter=CorridorConfig()))
    """The corridor."""

    @property
    def kinds_by_values(self) -> tuple[RobotKind, ...]:
        """Robots on as many feet as the gait has offsets."""
        return (walks_by(self.gait),)

    def __post_init__(self) -> None:
        checks.positive(
            self, "episode_length", "pace", "close", "radius", "success_window", "hard_touch"
        )
        checks.angle(self, "max_tilt")
        checks.not_negative(
            self, "start_place", "start_turn", "start_position", "start_velocity", "touch"
        )
        checks.window(self.success_window, self.episode_length)
        if self.scene.clutter is None or self.scene.terrain is not None:
            raise ConfigError(
                "task clutter goes through a corridor on a level floor; give task.scene.clutter "
                "and leave task.scene.terrain out"
            )


class ClutterTask(Task):
    """Go through a corridor from x = 0 to its other end, or to where a person moves the goal."""

    takes_places = True

    def __init__(self, config: ClutterConfig, context: TaskContext) -> None:
        """Prepare N envs; in evaluation levels are drawn uniformly, otherwise they follow success.

        Raises:
            SpecMismatchError: The model lacks a sensor.
        """
        robot, device, count = context.robot, context.device, context.num_envs
        needed = ("foot_velocity_w", "foot_position_w", FIELD, FORCES, WAY)
        check_sensors("clutter", robot, context.sensors, needed)
        corridor = config.scene.clutter
        assert corridor is not None  # the config was checked
        super().__init__(config, context)
        self._field, self._sensors = corridor.field, context.sensors
        self._legs = Legs(robot, device, config.pose_weights)
        self._corridors = Corridors(
            corridor, num_envs=count, device=device, evaluation=context.evaluation
        )
        self.curriculum = self._corridors.levels
        self._gait = Gait(config.gait, num_feet=len(robot.feet), device=device)
        self._phase_step = context.control_dt / config.gait.period
        self._evaluation = context.evaluation
        window = context.steps("success_window", config.success_window)
        self._record = EndRecord(count, device, first_step=self.episode_steps - window)
        self._touches = TouchCount(count, device)
        self._first_phase, self._phase, self._whole_way = torch.zeros(3, count, device=device)
        self.goal = {
            TRAVERSE: torch.ones(count, 1, device=device),
            CLOCK: torch.zeros(count, 2, device=device),
            PLACE: torch.zeros(count, 3, device=device),
        }

    @property
    def clocks(self) -> Mapping[str, ClockSpec]:
        """The gait's: a robot's own side moves it on."""
        return {CLOCK: ClockSpec(period=self.config.gait.period, moves=TRAVERSE)}

    def goal_mirrors(self, robot: RobotMirror) -> Mapping[str, SignedPermutation]:
        """Mirror images of the goals."""
        return {
            TRAVERSE: robot.kind(Mirrored.same, 1),
            CLOCK: self._gait.mirror(robot.feet.source),
            PLACE: robot.kind(Mirrored.vector, 3),
        }

    def start(self, rows: EnvSelection, generator: torch.Generator) -> InitialState:
        """Draw corridors, and robots at their beginning that look along them."""
        config, count, size = self.config, rows.count, len(self._legs.default)
        self._record.clear(rows)
        self._touches.clear(rows)
        layout = self._corridors.begin(rows, generator)
        unit = draws.uniform((count, size + 10), -1.0, 1.0, generator)
        joints = self._legs.default + config.start_position * unit[:, :size]
        speed = config.start_velocity * unit[:, size : size + 6]
        base = config.start_place * unit[:, size + 6 : size + 9]
        base[:, 2] = config.start_height
        phase = self._gait.begin(count, generator, evaluation=self._evaluation)
        pulled = self._pull(base, layout.way)
        for kept, values in (
            (self._first_phase, phase), (self._phase, phase), (self._whole_way, pulled.left[:, 0]),
            (self.goal[TRAVERSE], 1.0), (self.goal[PLACE][:, :2], pulled.place[:, 0]),
        ):  # fmt: skip
            rows.put(kept, values)
        self._set_clock()
        turn = quaternion.from_yaw(config.start_turn * unit[:, size + 9])
        robot = self._legs.placed(base, turn, speed, joints)
        return InitialState(robot=robot, scene=self._corridors.placed(layout))

    def move_goal(self, env: int, place: Tensor, true_state: RobotState) -> Mapping[str, Tensor]:
        """Lead a robot to another place of its corridor, back too; all is counted from here on."""
        base = true_state.position_w[env]
        obstacles = self._sensors[OBSTACLES][env].unflatten(-1, (-1, 3))
        poses = self._corridors.way_to(place.to(obstacles), base, obstacles)
        way = torch.stack([poses[name][:3] for name in self._corridors.config.way])
        pulled = self._pull(base[None], way[None].to(base))
        chosen = torch.zeros_like(self._moving)
        chosen[env] = True
        rows = EnvSelection(chosen)
        self._record.clear(rows)
        self._touches.clear(rows)
        left = float(pulled.left)
        self._whole_way[env] = max(left, _SHORTEST)
        self._first_phase[env] = self._phase[env]  # the gait goes on as steps are counted anew
        self.goal[TRAVERSE][env] = float(left > 0.5 * self.config.radius)
        self.goal[PLACE][env, :2] = pulled.place[0, 0]
        self._set_clock()
        return poses

    def advance(self, episode_step: Tensor) -> None:
        """Move the clock on."""
        self._phase.copy_((self._first_phase + episode_step * self._phase_step) % 1.0)
        self._set_clock()

    def evaluate(
        self, true_state: RobotState, action: Tensor, last_action: Tensor, episode_step: Tensor
    ) -> StepOutcome:
        """Reward the way along the field and a calm gait that touches nothing; a fall ends it."""
        config, sensors = self.config, self._sensors
        way = sensors[WAY].unflatten(-1, (-1, 3))
        pulled = self._pull(true_state.position_w, way)
        left, ahead = pulled.left[:, 0], pulled.force[:, 0]
        speed = (true_state.linear_velocity_w * ahead).sum(-1)
        away = (true_state.position_w - way[:, -1])[:, :2].norm(dim=-1)
        self._record.add(away, speed, episode_step)
        target = self._gait.target(self._phase, self._moving)
        contact = true_state.foot_force > config.gait.touch
        kept = (contact == target.stands).float().mean(-1)
        force = sensors[FORCES].unflatten(-1, (-1, 3)).norm(dim=-1).sum(-1)
        touching = force > config.touch
        self._touches.add(touching)
        rotation = quaternion.rotation_matrix(true_state.orientation_w)  # (N, 9), row-major
        height = true_state.position_w[:, 2]
        terms = {
            "alive": torch.ones_like(left),
            "progress": speed.clamp(-config.pace, config.pace),  # [m/s]
            "arrived": closeness(away, config.close),
            "gait": kept,
            "swing": swing_error(target, sensors["foot_position_w"][:, 2::3]),
            "slip": slip(contact, sensors["foot_velocity_w"]),
            "near": self._nearness(),
            "collision": (force / config.hard_touch).clamp(max=1.0),
            **self._legs.costs(true_state, rotation, height - config.height, action, last_action),
        }
        # What the next observation asks for.
        self.goal[PLACE][:, :2].copy_(pulled.place[:, 0])
        self.goal[TRAVERSE].copy_((left > 0.5 * config.radius)[:, None])
        self._set_clock()
        covered = self._whole_way - left
        return StepOutcome(
            reward_terms=terms,
            terminated=(rotation[:, 8] < math.cos(config.max_tilt))
            | (height < config.lowest_height),
            success=self._record.mean_distance < config.radius,
            metrics={
                "progress": covered / self._whole_way,
                "way_left": left,
                "touching": touching.float(),
                "collisions_per_metre": self._touches.count / covered.clamp_min(_SHORTEST),
                "level": self._corridors.levels.level.float(),
            },
        )

    def parts(self) -> Mapping[str, Any]:
        """Goals, clocks, levels and what is counted; the corridors are the engine's."""
        return {
            "first_phase": self._first_phase,
            "phase": self._phase,
            "whole_way": self._whole_way,
            "touches": self._touches.state,
            "record": self._record.state,
            "levels": self._corridors.levels,
            "goal": self.goal,
        }

    @property
    def _moving(self) -> Tensor:
        """(N,) bool: asked to go on."""
        return self.goal[TRAVERSE][:, 0] > 0

    def _set_clock(self) -> None:
        self.goal[CLOCK].copy_(self._gait.clock(self._phase, self._moving))

    def _pull(self, base: Tensor, way: Tensor) -> Pull:
        """Pull on bases, (N, 3), along a way, (N, W, 3)."""
        return pull(base[:, None], way, near=self._field.near)

    def _nearness(self) -> Tensor:
        """Mean square of how deep the body's places are in the reach of obstacles, (N,)."""
        clearance = self._sensors[FIELD][:, COLUMNS - 1 :: COLUMNS]  # (N, P)
        share = (1 - clearance / self._field.reach).clamp(min=0)
        return (share * share).mean(-1)
