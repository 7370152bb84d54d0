"""Stand up: from wherever it came to lie, on its back too, a robot gets up and stands."""

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
from sim.robots.joint_robot import FallenConfig
from sim.task import InitialState, StepOutcome, Task, TaskContext, closeness
from sim.tasks.legs.gait import Legs, LegTaskConfig

_EVALUATED = 4
"""One in so many fallen robots is kept for evaluation."""
_FARTHEST = 15.0
"""Deviation from the default pose, in `close`, and speed of the joints, in `calm`, at which `pose`
and `calmness` pay nothing."""


@dataclass(kw_only=True)
class StandUpConfig(LegTaskConfig):
    """The stand-up task: success is standing upright, high and calm through the last moments."""

    success_window: float = 0.5
    """Time at the end of an episode through which the robot must stand [s]."""
    height_tolerance: float = 0.05
    """Largest deviation from `height` while standing [m]."""
    max_tilt: float = 0.25
    """Largest angle between the base's and the world's vertical while standing [rad]."""
    calm: float = 0.5
    """Largest root mean square of the joints' speeds while standing [rad/s]."""
    close: float = 0.1
    """Root mean square deviation from the default pose up to which `pose` pays nearly all [rad];
    from there on every tenfold costs alike."""
    fallen: FallenConfig = field(default_factory=FallenConfig)
    """Falls of the robots that episodes begin with."""
    upright_starts: float = 0.25
    """Share of training's episodes that begin upright in the default pose: what standing is worth
    is known before anybody has got up. Evaluation has none."""

    def __post_init__(self) -> None:
        checks.positive(self, "episode_length", "success_window", "height", "height_tolerance")
        checks.positive(self, "calm", "close")
        checks.angle(self, "max_tilt")
        checks.share(self, "upright_starts")
        checks.window(self.success_window, self.episode_length)
        if self.scene.terrain is not None:
            raise ConfigError("task stand_up has a level floor; leave task.scene.terrain out")


class StandUpTask(Task):
    """Nothing ends an episode before its time: who falls again may get up again."""

    begins_anywhere = True

    def __init__(self, config: StandUpConfig, context: TaskContext) -> None:
        super().__init__(config, context)
        assert context.fallen is not None  # the config begins in them
        self._window_steps = context.steps("success_window", config.success_window)
        self._control_dt = context.control_dt
        kept = torch.arange(len(context.fallen)) % _EVALUATED == 0
        chosen = context.fallen[kept if context.evaluation else ~kept]
        self._fallen = chosen.to(context.device)
        self._upright_starts = 0.0 if context.evaluation else config.upright_starts
        self._legs = Legs(context.robot, context.device, config.pose_weights)
        pose = torch.tensor([0.0, 0.0, config.height, 1.0, 0.0, 0.0, 0.0], device=context.device)
        self._upright = torch.cat([pose, self._legs.default])
        """Base and joints of a robot that stands, as rows of `_fallen`."""
        self._stood = torch.zeros(context.num_envs, dtype=torch.int64, device=context.device)

    def start(self, rows: EnvSelection, generator: torch.Generator) -> InitialState:
        """Pick fallen robots and, in training, standing ones, turned to any heading."""
        rows.put(self._stood, 0)
        unit = draws.uniform((rows.count, 3), 0.0, 1.0, generator)
        begins = self._fallen[(unit[:, 0] * len(self._fallen)).long()]
        begins = torch.where(unit[:, 2:] < self._upright_starts, self._upright, begins)
        position = begins[:, :3].clone()
        position[:, :2] = 0.0
        turn = quaternion.from_yaw(2 * torch.pi * unit[:, 1])
        turn = quaternion.multiply(turn, begins[:, 3:7])
        return InitialState(robot=self._legs.placed(position, turn, None, begins[:, 7:]))

    def evaluate(
        self, true_state: RobotState, action: Tensor, last_action: Tensor, episode_step: Tensor
    ) -> StepOutcome:
        """Pay for being upright, then high, then in the default pose; count who stands."""
        config = self.config
        vertical = quaternion.rotation_matrix(true_state.orientation_w)[:, 8]  # cosine of the tilt
        height, speeds = true_state.position_w[:, 2], true_state.joint_velocity
        speed = (speeds * speeds).mean(-1)
        standing = (
            (vertical > math.cos(config.max_tilt))
            & ((height - config.height).abs() < config.height_tolerance)
            & (speed < config.calm**2)
        )
        self._stood = (self._stood + 1) * standing
        upright = 0.5 * (1 + vertical)
        haste = upright**2  # share of what haste costs
        pose = self._legs.pose_error(true_state)
        effort = self._legs.exertion(true_state)
        # Nearly standing pays nearly as much: who leans or trembles feels which way is better.
        nearly = closeness(vertical.clamp(-1.0, 1.0).acos(), config.max_tilt) * closeness(
            height - config.height, config.height_tolerance
        )
        # Height and pose pay only to the degree that the robot is upright: a robot on its back
        # would otherwise learn to hold its legs like a standing one. Half the height pays a quarter
        # and the pose pays from afar: robots were content to sit with their legs apart. Haste costs
        # to the degree that it is upright, too: where it costs at once, and a roll pays later,
        # robots stayed on their backs.
        terms = {
            "upright": upright,
            "height": upright**4 * (height / config.height).clamp(0.0, 1.0) ** 2,
            "pose": upright**4 * _nearness(pose, config.close),
            "stand": nearly * (0.5 + 0.5 * closeness(speed.sqrt(), config.calm)),
            # A decade of speed costs alike: from getting up at 10 rad/s to trembling at 1.
            "speed": haste * (speed / config.calm**2).log1p(),
            "effort": haste * (effort * effort).mean(-1),
            "smoothness": haste * (action - last_action).square().mean(-1),
        }
        if "calmness" in config.reward:  # for robots that stand and tremble: it pays from afar
            terms["calmness"] = nearly * _nearness(speed, config.calm)
        return StepOutcome(
            reward_terms=terms,
            terminated=torch.zeros_like(standing),
            success=self._stood >= self._window_steps,
            metrics={
                "tilt": vertical.clamp(-1.0, 1.0).acos(),
                "height": height.clone(),  # the truth is a live view
                "joint_speed": speed.sqrt(),
                "stood": self._stood * self._control_dt,
            },
        )

    def parts(self) -> Mapping[str, Any]:
        """Time that each robot has stood."""
        return {"stood": self._stood}


def _nearness(square: Tensor, near: float) -> Tensor:
    """1 near zero and 0 at `_FARTHEST`, between which every decade counts alike.

    Args:
        square: Mean square of something, (N,).
        near: Root mean square up to which it is nearly 1.
    """
    return (1 - (square / near**2).log1p() / math.log1p(_FARTHEST**2)).clamp(0.0)
