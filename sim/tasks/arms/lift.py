"""Lift: pick a cube up from the floor, bring it to a point and hold it there."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from robot_rl.core import quaternion
from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.observation import RobotState
from sim import checks, draws
from sim.task import EndRecord, InitialState, StepOutcome, Task, TaskContext, closeness
from sim.tasks.arms.arm import Arm, ArmTaskConfig, standing

GOAL = "cube_position"
HALF_EDGE = 0.0225
"""Half the cube's edge, as in sim/scenes/cube.xml [m]."""
HELD = 0.03
"""Farthest that the end effector is from the middle of a cube that it holds [m]."""


@dataclass(kw_only=True)
class LiftConfig(ArmTaskConfig):
    """The lift task: success is a cube that is up, held, and on average near its goal."""

    cube_low: list[float] = field(default_factory=lambda: [0.40, -0.12])
    """Corner of the rectangle that the cube begins in [m]."""
    cube_high: list[float] = field(default_factory=lambda: [0.54, 0.12])
    """Opposite corner [m]."""
    cube_yaw: float = math.pi / 4
    """Half-width of the cube's first heading [rad]; a quarter turn in all is every heading."""
    goal_low: list[float] = field(default_factory=lambda: [0.42, -0.1, 0.15])
    """Corner of the box that goals for the cube's middle are drawn from [m]."""
    goal_high: list[float] = field(default_factory=lambda: [0.52, 0.1, 0.25])
    """Opposite corner [m]."""
    line: float = 0.1
    """Height of the cube's middle above which it counts as lifted [m]."""
    success_distance: float = 0.05
    """Largest mean distance of the cube from its goal within the window [m]."""
    farthest: float = 0.3
    """Horizontal distance from the middle of the rectangle beyond which a cube is lost: the
    episode terminates [m]."""
    close: float = 0.05
    """Distance at which `approach` and `hold`, 1 at their best, have fallen to one half [m]."""
    far: float = 0.2
    """Distance at which `carry`, 1 at its best, has fallen to one half [m]."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.positive(self, "line", "success_distance", "farthest", "close", "far")
        checks.not_negative(self, "cube_yaw")
        checks.box(self, "cube_low", "cube_high", 2)
        checks.box(self, "goal_low", "goal_high", 3)


class LiftTask(Task):
    """Pick a cube up and hold it at a point."""

    begins_anywhere = True

    def __init__(self, config: LiftConfig, context: TaskContext) -> None:
        super().__init__(config, context)
        device, count = context.device, context.num_envs
        self._arm = Arm(config, context)
        self._cube = context.sensors["cube_position"]  # of sim/scenes/cube.xml
        # A hand that comes down askew pushes the cube away: for configs that pay for the turn.
        self._face = context.sensors["cube_axis"] if "align" in config.reward else None
        first = self.episode_steps - context.steps("success_window", config.success_window)
        self._distance = EndRecord(count, device, first)
        self._loose = EndRecord(count, device, first)
        corners = torch.tensor([config.cube_low, config.cube_high], device=device)
        self._middle = corners.mean(0)
        self.goal = {GOAL: torch.zeros(count, 3, device=device)}

    def start(self, rows: EnvSelection, generator: torch.Generator) -> InitialState:
        """Draw goals, cubes on the floor, and poses above them with an open gripper."""
        config, count = self.config, rows.count
        for record in (self._distance, self._loose):
            record.clear(rows)
        robot = self._arm.start(count, generator)
        rows.put(self.goal[GOAL], draws.box(count, config.goal_low, config.goal_high, generator))
        low, high, turn = config.cube_low, config.cube_high, config.cube_yaw
        cube = standing(count, low, high, turn, HALF_EDGE, generator)
        return InitialState(robot=robot, scene={"cube": cube})

    def evaluate(
        self, true_state: RobotState, action: Tensor, last_action: Tensor, episode_step: Tensor
    ) -> StepOutcome:
        """Reward the way from the hand at the cube to the cube at its goal."""
        config, hand = self.config, true_state.end_effector_position_b
        reach = (self._cube - hand).norm(dim=-1)
        distance = (self._cube - self.goal[GOAL]).norm(dim=-1)
        height = self._cube[:, 2].clone()  # a view, which the next episode overwrites
        held = ((reach < HELD) & (height > config.line)).to(reach.dtype)
        between = (reach < HELD).to(reach.dtype)  # the cube is where the fingers can hold it
        raised = ((height - HALF_EDGE) / (config.line - HALF_EDGE)).clamp(0.0, 1.0)
        terms = {
            "alive": torch.ones_like(reach),
            "approach": closeness(reach, config.close),
            "grasp": between * (1 - true_state.gripper_opening[:, 0]).clamp(0.0, 1.0),
            "lift": between * raised,
            "carry": held * closeness(distance, config.far),
            "hold": held * closeness(distance, config.close),
            **self._arm.costs(true_state, action, last_action),
        }
        if self._face is not None:
            turn = quaternion.yaw(quaternion.rotation_matrix(true_state.end_effector_orientation_b))
            face = torch.atan2(self._face[:, 1], self._face[:, 0])
            fits = 0.5 + 0.5 * (4 * (turn - face)).cos()  # 1 at every quarter turn
            terms["align"] = closeness(reach, config.far) * fits
        self._distance.add(distance, reach, episode_step)
        self._loose.add(1 - held, reach, episode_step)
        mean = self._distance.mean_distance
        away = (self._cube[:, :2] - self._middle).norm(dim=-1)
        low = hand[:, 2] < config.lowest_height
        return StepOutcome(
            reward_terms=terms,
            terminated=low | (away > config.farthest),
            success=(mean < config.success_distance) & (self._loose.mean_distance == 0),
            metrics={"distance": distance, "height": height, "held": held, "mean_distance": mean},
        )

    def parts(self) -> Mapping[str, Any]:
        """Goals and running sums."""
        return {
            "goal": self.goal[GOAL],
            "distance": self._distance.state,
            "loose": self._loose.state,
        }
