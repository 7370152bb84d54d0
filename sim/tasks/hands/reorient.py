"""Reorient: turn a cube in a hand that looks up, to one goal after the other.

A goal is the cube's orientation. As soon as it is reached the next one is asked for: the same,
turned about the vertical. Handa et al. (2023, arXiv:2210.13702) count goals likewise, with any
orientation as the next; Qi et al. (2022, arXiv:2210.04887) pay the speed of turning, as here.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.observation import RobotState
from robot_rl.core.robot import RobotKind
from sim import checks, draws
from sim.robots.joint_robot import JointActionConfig
from sim.task import InitialState, StepOutcome, Task, TaskContext, closeness, square_sum
from sim.tasks.arms.arm import overspeed
from sim.tasks.joint_task import JointTaskConfig

_X_AXIS, _Y_AXIS = "cube_x_axis", "cube_y_axis"
"""Goals, and sensors of sim/scenes/hand_cube.xml: the cube's first two axes, world axes."""
_SENSORS = ("cube_position", _X_AXIS, _Y_AXIS)
_PALM = "palm_position"
"""Sensor of the model of a hand that looks up."""
_TURNS = 64
"""Turns that are drawn ahead for an episode; the first follows the last."""


@dataclass(kw_only=True)
class ReorientConfig(JointTaskConfig):
    """The reorient task: success is a cube that reached enough goals and was not dropped."""

    robot_kind: ClassVar[RobotKind] = RobotKind(
        words="a hand that looks up (its model has a sensor palm_position)", robots=("allegro",)
    )
    train_steps: int = 1_500_000
    """World-steps of training that suffice with the default learner."""
    episode_length: float = 20.0
    """Time limit [s]."""
    start_position: float = 0.1
    """Half-width of the joint positions that episodes begin from, around the task's pose [rad]."""
    cube_place: list[float] = field(default_factory=lambda: [-0.003, 0.0, 0.25])
    """Middle of the cube as episodes begin, and where it should stay [m]."""
    cube_spread: float = 0.005
    """Half-width of its places along x and y as episodes begin [m]."""
    cube_yaw: float = 0.2
    """Half-width of its first heading [rad]; which side looks along x is drawn too."""
    turn: list[float] = field(default_factory=lambda: [0.8, 1.6])
    """Turn from a goal to the next one about the vertical, at least and at most [rad]."""
    both_ways: bool = False
    """Turns to either side, drawn for each; else all are counter-clockwise as seen from above."""
    success_angle: float = 0.2
    """Angle to the goal below which it is reached [rad]."""
    goals: int = 5
    """Goals that an episode reaches for a success."""
    fastest: float = 1.0
    """Speed of turning towards the goal that is paid at most, and away that is charged [rad/s]."""
    close_angle: float = 0.4
    """Angle at which `aligned`, 1 at its best, has fallen to one half [rad]."""
    close: float = 0.03
    """Distance at which `centred`, 1 at its best, has fallen to one half [m]."""
    lowest: float = 0.215
    """Height of the cube's middle below which it is dropped: the episode terminates [m]."""
    farthest: float = 0.07
    """Horizontal distance of the cube from its place beyond which it is dropped [m]."""
    action: JointActionConfig = field(default_factory=JointActionConfig)
    """Action of the hand."""

    def __post_init__(self) -> None:
        sizes = ("episode_length", "success_angle", "goals", "fastest", "close_angle", "close")
        checks.positive(self, *sizes, "farthest")
        checks.not_negative(self, "start_position", "cube_spread", "cube_yaw")
        if len(self.cube_place) != 3:
            raise ConfigError(f"task.cube_place must be [x, y, z], got {self.cube_place}")
        if len(self.cube_place) == 3 and not self.lowest < self.cube_place[2]:
            raise ConfigError(
                f"task.lowest {self.lowest:g} m must lie below task.cube_place, at "
                f"{self.cube_place[2]:g} m, or every cube is dropped at once"
            )
        # A cube is up to `success_angle` beside a goal when the next one is asked for.
        least = 2 * self.success_angle
        if len(self.turn) != 2 or not least < self.turn[0] <= self.turn[1] <= math.pi:
            raise ConfigError(
                f"task.turn must be [low, high] with 2 success_angle = {least:g} < low <= high <= "
                f"pi, got {self.turn}"
            )


class ReorientTask(Task):
    """Turn a cube to one goal after the other."""

    def __init__(self, config: ReorientConfig, context: TaskContext) -> None:
        """Prepare N envs.

        Raises:
            SpecMismatchError: The robot is no hand, or the scene has no cube.
        """
        super().__init__(config, context)
        if _PALM not in context.sensors:
            raise config.robot_kind.refusal("reorient", context.robot)
        for name in _SENSORS:
            if name not in context.sensors:
                raise SpecMismatchError(
                    f"task reorient asks the scene for a sensor '{name}'; there are "
                    f"{sorted(context.sensors) or 'none'}; choose task.scene.file=hand_cube.xml"
                )
        self._place, *self._axes = (context.sensors[name] for name in _SENSORS)
        count, device, joints = context.num_envs, context.device, context.robot.joints
        self._dt = context.control_dt
        self._pose = torch.tensor(config.action.middle(context.robot), device=device)
        limits = torch.tensor([joint.position_limit for joint in joints], device=device)
        self._lowest, self._highest = limits[:, 0], limits[:, 1]
        self._effort = torch.tensor([joint.effort_limit for joint in joints], device=device)
        self._fastest = torch.tensor([joint.velocity_limit for joint in joints], device=device)
        self._middle = torch.tensor(config.cube_place, device=device)
        self._turns = torch.zeros(count, _TURNS, device=device)
        self._heading = torch.zeros(count, device=device)  # of the goal about the vertical [rad]
        self._angle = torch.full((count,), torch.nan, device=device)  # to the goal, a step ago
        self._reached = torch.zeros(count, dtype=torch.int64, device=device)
        self._envs = torch.arange(count, device=device)
        axes = torch.zeros(count, 3, device=device)
        self.goal = {_X_AXIS: axes, _Y_AXIS: axes.clone()}

    def start(self, rows: EnvSelection, generator: torch.Generator) -> InitialState:
        """Draw hands around the task's pose, cubes upright in them, and turns to ask for."""
        config, count = self.config, rows.count
        unit = draws.uniform((count, len(self._pose)), -1.0, 1.0, generator)
        position = self._pose + config.start_position * unit
        position = torch.clamp(position, self._lowest, self._highest)
        side = draws.uniform((count, 3), -1.0, 1.0, generator)
        quarter = 0.5 * math.pi * torch.floor(2 * side[:, :1])  # -2, -1, 0 or 1 quarter turns
        yaw = quarter + draws.uniform((count, 1), -config.cube_yaw, config.cube_yaw, generator)
        place = self._middle.repeat(count, 1)
        place[:, :2] += config.cube_spread * side[:, 1:]
        none = torch.zeros_like(yaw)
        cube = torch.cat([place, (0.5 * yaw).cos(), none, none, (0.5 * yaw).sin()], dim=-1)
        turns = draws.uniform((count, _TURNS), config.turn[0], config.turn[1], generator)
        if config.both_ways:
            turns *= draws.uniform(turns.shape, -1.0, 1.0, generator).sign()
        rows.put(self._turns, turns)
        rows.put(self._reached, 0)
        rows.put(self._angle, torch.nan)
        heading = yaw[:, 0] + turns[:, 0]
        rows.put(self._heading, heading)
        for name, axis in _upright(heading).items():
            rows.put(self.goal[name], axis)
        still = torch.zeros_like(position)
        robot = RobotState({"joint_position": position, "joint_velocity": still})
        return InitialState(robot=robot, scene={"cube": cube})

    def evaluate(
        self, true_state: RobotState, action: Tensor, last_action: Tensor, episode_step: Tensor
    ) -> StepOutcome:
        """Reward turning towards the goal; a cube that leaves the hand terminates."""
        config = self.config
        angle = self._to_goal()
        speed = (self._angle - angle) / self._dt  # [rad/s]
        speed = torch.where(self._angle.isnan(), 0.0, speed)
        reached = angle < config.success_angle
        way = self._place - self._middle
        away = way[:, :2].norm(dim=-1)
        dropped = (self._place[:, 2] < config.lowest) | (away > config.farthest)
        terms = {
            "alive": torch.ones_like(angle),
            # Charged in full, a cube that slips back outweighs all turning: nobody learned so.
            "turning": speed.clamp(-config.fastest, config.fastest),
            "aligned": closeness(angle, config.close_angle),
            "reached": reached.float(),
            "centred": closeness(way.norm(dim=-1), config.close),
            "dropped": dropped.float(),
            "pose": square_sum(true_state.joint_position - self._pose),  # [rad^2]
            "speed": square_sum(true_state.joint_velocity),  # [rad^2/s^2]
            "overspeed": overspeed(true_state.joint_velocity, self._fastest).sum(-1),
            "effort": square_sum(true_state.joint_effort / self._effort),
            "smoothness": square_sum(action - last_action),
        }
        self._reached += reached
        turn = self._turns[self._envs, self._reached % _TURNS]
        self._heading += torch.where(reached, turn, 0.0)
        for name, axis in _upright(self._heading).items():
            self.goal[name].copy_(axis)
        self._angle.copy_(self._to_goal())
        return StepOutcome(
            reward_terms=terms,
            terminated=dropped,
            success=self._reached >= config.goals,
            metrics={"goals_reached": self._reached.float(), "angle": angle},
        )

    def parts(self) -> Mapping[str, Any]:
        """Goals, what comes after them, and how many were reached."""
        return {
            "goal": self.goal,
            "turns": self._turns,
            "heading": self._heading,
            "angle": self._angle,
            "reached": self._reached,
        }

    def _to_goal(self) -> Tensor:
        """Angle of the rotation from the cube to its goal, (N,), [rad]."""
        (x, y), (goal_x, goal_y) = self._axes, self.goal.values()
        z, goal_z = torch.linalg.cross(x, y), torch.linalg.cross(goal_x, goal_y)
        trace = (x * goal_x + y * goal_y + z * goal_z).sum(-1)
        return (0.5 * (trace - 1)).clamp(-1.0, 1.0).acos()


def _upright(heading: Tensor) -> dict[str, Tensor]:
    """First two axes of a cube that stands upright with a heading (N,), by goal, (N, 3)."""
    ahead, left, none = heading.cos(), heading.sin(), torch.zeros_like(heading)
    return {
        _X_AXIS: torch.stack([ahead, left, none], dim=-1),
        _Y_AXIS: torch.stack([-left, ahead, none], dim=-1),
    }
