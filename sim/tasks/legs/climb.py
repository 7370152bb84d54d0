"""Climb: get up onto a step as high as the hips, and stand there on all feet.

The step is a fixture of the scene, with the sensors `edge_position_w` and `goal_position_w`. Its
width is taken to be wider than any way around it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from robot_rl.core import quaternion
from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import RobotState
from robot_rl.core.robot import RobotKind
from sim import checks, draws
from sim.randomization import WorldLevels
from sim.task import InitialState, StepOutcome, Task, TaskContext, closeness
from sim.tasks.legs.gait import Legs, LegTaskConfig, check_sensors, slip

STEP, EDGE, GOAL = "step", "edge_position_w", "goal_position_w"
"""Fixture of the scene, whose origin is the middle of its upper edge, and its sensors."""
NEEDED = ("foot_velocity_w", "foot_position_w", "body_contact", EDGE, GOAL)
"""Sensors that the task reads."""
_HALF_TRUNK = 0.25
"""Half the length of the ground below a robot whose mean its height is measured from [m]."""
HIGHEST_STEP = 0.6
"""Height of the fixture itself: a higher step would hang in the air [m]."""
_LOWEST_STEP = 0.05
"""The term `rise` divides by no lower step [m]."""


@dataclass(kw_only=True)
class ClimbConfig(LegTaskConfig):
    """The climb task: success is standing on top, upright and still, through the last moments."""

    robot_kind: ClassVar[RobotKind] = RobotKind(
        words="a robot with four feet or more", robots=("go2", "go1"), least_feet=4
    )
    episode_length: float = 6.0
    """Time limit [s]."""
    step_height: list[float] = field(default_factory=lambda: [0.1, 0.35])
    """Range of the step's height [m]. Training draws from bands of it, see `levels`."""
    levels: int = 7
    """Bands of heights: in training level k of L draws from k / L to (k + 1) / L of the highest
    step, so that it begins on nearly level ground. Evaluation draws from the whole range."""
    distance: list[float] = field(default_factory=lambda: [0.6, 1.0])
    """Range of the way from the base to the step's edge at the start [m]."""
    pace: float = 0.6
    """Speed towards the goal up to which progress pays [m/s]."""
    near: float = 0.3
    """Way from the goal below which less and less speed pays [m]."""
    success_window: float = 0.5
    """Time at the end of an episode through which the robot must stand on top [s]."""
    standing_tilt: float = 0.3
    """Largest angle between the base's and the world's vertical while standing [rad]."""
    height_tolerance: float = 0.08
    """Largest deviation from `height` while standing [m]."""
    calm: float = 0.3
    """Largest speed of the base while standing [m/s]."""
    foot_height: float = 0.1
    """A foot's centre no higher than this above the top, and behind the edge, is on top [m]."""
    start_height: float = 0.32
    """Height of the base at an episode's start [m]."""
    start_side: float = 0.2
    """Half-width of the base's place at the start, across the way [m]."""
    start_turn: float = 0.3
    """Half-width of its heading, from the way straight to the step [rad]."""
    start_position: float = 0.1
    """Half-width of the joint positions that episodes begin from, around the default pose [rad]."""
    start_velocity: float = 0.2
    """Half-width of the base's velocity at the start, per axis [m/s] and [rad/s]."""
    max_tilt: float = 1.3
    """Angle between the base's and the world's vertical beyond which it has fallen [rad]."""
    lowest_height: float = 0.1
    """Height of the base above the mean of the ground below at which it has fallen [m]."""
    touch: float = 5.0
    """Normal force from which a foot counts as standing [N]."""

    def __post_init__(self) -> None:
        checks.positive(
            self, "episode_length", "levels", "pace", "near", "success_window", "height_tolerance",
            "calm", "foot_height", "start_height", "lowest_height",
        )  # fmt: skip
        checks.angle(self, "standing_tilt", "max_tilt")
        checks.not_negative(
            self, "start_side", "start_turn", "start_position", "start_velocity", "touch"
        )
        checks.interval(self, "step_height", "distance")
        checks.window(self.success_window, self.episode_length)
        if self.start_height <= self.lowest_height:
            raise ConfigError(
                f"task.start_height {self.start_height:g} m must exceed task.lowest_height "
                f"{self.lowest_height:g} m, below which a robot has fallen"
            )
        if self.distance[0] <= 0:
            raise ConfigError(f"task.distance must lie above 0 m, got {self.distance}")
        if not 0 < self.step_height[0] <= self.step_height[1] <= HIGHEST_STEP:
            raise ConfigError(
                f"task.step_height must lie above 0 m and up to {HIGHEST_STEP:g} m, got "
                f"{self.step_height}"
            )
        if self.scene.terrain is not None or self.scene.clutter is not None:
            raise ConfigError(
                "task climb has a step on a level floor; leave task.scene.terrain and "
                "task.scene.clutter out"
            )


class ClimbTask(Task):
    """Go along x to a step and up onto it."""

    def __init__(self, config: ClimbConfig, context: TaskContext) -> None:
        """Prepare N envs; in evaluation heights are drawn uniformly, else levels follow success.

        Raises:
            SpecMismatchError: The robot's model or the scene lacks a sensor.
        """
        robot, device, count = context.robot, context.device, context.num_envs
        check_sensors("climb", robot, context.sensors, NEEDED)
        super().__init__(config, context)
        self._sensors = context.sensors
        self._legs = Legs(robot, device, config.pose_weights)
        self._window_steps = context.steps("success_window", config.success_window)
        self._control_dt, self._evaluation = context.control_dt, context.evaluation
        self._levels = WorldLevels(count, config.levels, device)
        self.curriculum = self._levels
        self._stood = torch.zeros(count, dtype=torch.int64, device=device)

    def start(self, rows: EnvSelection, generator: torch.Generator) -> InitialState:
        """Draw steps, and robots before them that look towards them."""
        config, count, size = self.config, rows.count, len(self._legs.default)
        rows.put(self._stood, 0)
        self._levels.begin(rows, generator)
        unit = draws.uniform((count, size + 10), -1.0, 1.0, generator)
        joints = self._legs.default + config.start_position * unit[:, :size]
        speed = config.start_velocity * unit[:, size : size + 6]
        side, turn, ahead, height = unit[:, size + 6 :].unbind(-1)
        base = torch.zeros(count, 3, device=unit.device)
        base[:, 1] = config.start_side * side
        base[:, 2] = config.start_height
        step = torch.zeros(count, 7, device=unit.device)
        step[:, 0] = _between(config.distance, ahead)
        step[:, 2] = self._height(rows, height)
        step[:, 3] = 1.0
        facing = quaternion.from_yaw(config.start_turn * turn)
        return InitialState(
            robot=self._legs.placed(base, facing, speed, joints), scene={STEP: step}
        )

    def evaluate(
        self, true_state: RobotState, action: Tensor, last_action: Tensor, episode_step: Tensor
    ) -> StepOutcome:
        """Reward the way, height and feet on top, and standing there; a fall ends it."""
        config, sensors = self.config, self._sensors
        edge, top = sensors[EDGE][:, 0], sensors[EDGE][:, 2]
        rotation = quaternion.rotation_matrix(true_state.orientation_w)  # (N, 9), row-major
        vertical = rotation[:, 8]  # cosine of the tilt
        base, velocity = true_state.position_w, true_state.linear_velocity_w
        way = (sensors[GOAL] - base)[:, :2]
        away = way.norm(dim=-1)
        towards = (velocity[:, :2] * way).sum(-1) / away.clamp_min(config.near)
        over = ((base[:, 0] - edge) / (2 * _HALF_TRUNK) + 0.5).clamp(0.0, 1.0)
        height = base[:, 2] - over * top
        feet = sensors["foot_position_w"].unflatten(-1, (-1, 3))  # (N, F, 3)
        above = feet[..., 2] - top[:, None]
        on_top = (feet[..., 0] > edge[:, None]) & (above > 0) & (above < config.foot_height)
        whole = on_top.all(-1)
        speed, tilt = velocity.norm(dim=-1), vertical.clamp(-1.0, 1.0).acos()
        risen = base[:, 2] - config.height
        height_error = risen - top
        standing = (
            whole
            & (tilt < config.standing_tilt)
            & (height_error.abs() < config.height_tolerance)
            & (speed < config.calm)
        )
        self._stood = (self._stood + 1) * standing
        contact = true_state.foot_force > config.touch
        costs = self._legs.costs(true_state, rotation, height - config.height, action, last_action)
        # Half way up a robot may lean and spread its legs. Elsewhere it shall be as on the floor:
        # robots sat down on top like dogs, with their noses up.
        away_from_edge = (2 * over - 1) ** 2
        for name in ("tilt", "pose"):
            costs[name] = costs[name] * away_from_edge
        terms = {
            "alive": torch.ones_like(away),
            "progress": towards.clamp(-config.pace, config.pace),  # [m/s]
            # As far as the trunk is over the step: robots stood on their toes before low ones.
            "rise": over * (risen / top.clamp_min(_LOWEST_STEP)).clamp(0.0, 1.0),
            "on_top": on_top.float().mean(-1),
            "stand": whole
            * closeness(tilt, config.standing_tilt)
            * closeness(height_error, config.height_tolerance)
            * (0.5 + 0.5 * closeness(speed, config.calm)),
            "slip": slip(contact, sensors["foot_velocity_w"]),
            **costs,
            "collision": (sensors["body_contact"] > 0).float().sum(-1),
        }
        return StepOutcome(
            reward_terms=terms,
            terminated=(tilt > config.max_tilt) | (height < config.lowest_height),
            success=self._stood >= self._window_steps,
            metrics={
                "step_height": top.clone(),  # the truth is a live view
                "feet_on_top": on_top.float().sum(-1),
                "way_left": away,
                "tilt": tilt,
                "speed": speed,
                "stood": self._stood * self._control_dt,
                "level": self._levels.level.float(),
            },
        )

    def parts(self) -> Mapping[str, Any]:
        """Time that each robot has stood, and levels; the steps are the engine's."""
        return {"stood": self._stood, "levels": self._levels}

    def _height(self, rows: EnvSelection, unit: Tensor) -> Tensor:
        """Heights of new steps, (count,), [m], of numbers in [-1, 1)."""
        if self._evaluation:
            return _between(self.config.step_height, unit)
        share = rows.take(self._levels.level) + 0.5 * (unit + 1)
        return self.config.step_height[1] * share / self.config.levels


def _between(ends: list[float], unit: Tensor) -> Tensor:
    """From the lower end at -1 to the upper one at 1."""
    return ends[0] + (ends[1] - ends[0]) * 0.5 * (unit + 1)
