"""Parts of every task with legs: config, joints, starts, checks, and a clock of gaits.

A clock runs through one gait cycle per `period`. Every foot stands for the share `duty` of it and
swings along an arc in the rest; offsets between the feet make a trot, a walk or a bound (as in
Margolis and Agrawal, "Walk These Ways", CoRL 2022). A robot that stands still keeps all feet on
the ground.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from robot_rl.core import quaternion
from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError, SpecMismatchError, unknown_name
from robot_rl.core.mirror import SignedPermutation
from robot_rl.core.observation import RobotState
from robot_rl.core.robot import RobotKind, RobotSpec
from sim import checks, draws
from sim.robots.joint_robot import START_KINDS, JointActionConfig, StartsConfig
from sim.task import square_sum
from sim.tasks.joint_task import JointTaskConfig


@dataclass(kw_only=True)
class LegTaskConfig(JointTaskConfig):
    """Fields of every task for a robot with legs."""

    robot_kind: ClassVar[RobotKind] = RobotKind(
        words="a robot with feet", robots=("go2", "go1", "g1"), least_feet=1
    )
    train_steps: int = 10_000_000
    """World-steps of training: a budget, nobody has measured yet what suffices."""
    episode_length: float = 5.0
    """Time limit [s]."""
    height: float = 0.28
    """Height of the base above the ground where a robot stands or walks as it should [m]."""
    action: JointActionConfig = field(default_factory=JointActionConfig)
    """Action of the legs."""
    pose_weights: dict[str, float] = field(default_factory=dict)
    """Weight of a joint in the reward term `pose`, by a part of its name, such as `waist: 3.0`; the
    last part that fits wins, and a joint that none names counts once."""


class Legs:
    """The joints of a legged robot: where they rest, how far they go, how strong they are."""

    def __init__(
        self,
        robot: RobotSpec,
        device: torch.device,
        pose_weights: Mapping[str, float] | None = None,
    ) -> None:
        """Read a robot's joints.

        Args:
            pose_weights: As of `LegTaskConfig`.

        Raises:
            ConfigError: A part is in no joint's name, or a weight is negative.
        """
        joints = robot.joints
        weights = _joint_weights(robot, pose_weights or {})
        self._pose_weights = torch.tensor(weights, device=device)
        self.default = torch.tensor([joint.default_position for joint in joints], device=device)
        """Default pose, (J,), [rad]."""
        limits = torch.tensor([joint.position_limit for joint in joints], device=device)
        self._lowest, self._highest = limits[:, 0], limits[:, 1]
        self._effort_limit = torch.tensor([joint.effort_limit for joint in joints], device=device)

    def within_limits(self, position: Tensor) -> Tensor:
        """Joint positions cut to what the joints reach, (count, J), [rad]."""
        return torch.clamp(position, self._lowest, self._highest)

    def deviation(self, true_state: RobotState) -> Tensor:
        """From the default pose, (N, J), [rad]."""
        return true_state.joint_position - self.default

    def pose_error(self, true_state: RobotState) -> Tensor:
        """Weighted mean square of the deviation from the default pose, (N,), [rad^2]."""
        weighted = self._pose_weights * self.deviation(true_state).square()
        return weighted.sum(-1) / self._pose_weights.sum().clamp_min(1e-9)

    def exertion(self, true_state: RobotState) -> Tensor:
        """Torques as fractions of their limits, (N, J)."""
        return true_state.joint_effort / self._effort_limit

    def placed(
        self, base: Tensor, orientation: Tensor, speed: Tensor | None, joints: Tensor
    ) -> RobotState:
        """Robots with joints at rest.

        Args:
            base: Position, (count, 3), [m], world axes.
            orientation: Base to world, quaternions wxyz, (count, 4).
            speed: Linear velocity, world axes [m/s], and angular one, base axes [rad/s],
                (count, 6); None for none.
            joints: Positions, (count, J), [rad]; cut to what the joints reach.
        """
        speed = torch.zeros_like(base).repeat(1, 2) if speed is None else speed
        return RobotState(
            {
                "position_w": base,
                "orientation_w": orientation,
                "linear_velocity_w": speed[:, :3],
                "angular_velocity_b": speed[:, 3:],
                "joint_position": self.within_limits(joints),
                "joint_velocity": torch.zeros_like(joints),
            }
        )

    def costs(
        self, true_state: RobotState, rotation: Tensor, height_error: Tensor,
        action: Tensor, last_action: Tensor,
    ) -> dict[str, Tensor]:  # fmt: skip
        """Reward terms that walking costs, (N,) each.

        Args:
            rotation: Base to world, row-major, (N, 9).
            height_error: Of the base, (N,), [m].
            action: Accepted action, (N, A).
            last_action: The one before, (N, A).
        """
        return {
            "sway": square_sum(true_state.angular_velocity_b[:, :2]),  # [rad^2/s^2]
            "tilt": square_sum(rotation[:, 6:8]),  # sine of the tilt, squared
            "height": height_error**2,  # [m^2]
            "effort": square_sum(self.exertion(true_state)),
            "smoothness": square_sum(action - last_action),
            "pose": (self._pose_weights * self.deviation(true_state) ** 2).sum(-1),  # [rad^2]
        }


class MixedStarts:
    """Starts of N envs of which some are crouched, moving or lying."""

    def __init__(
        self, config: StartsConfig, poses: Mapping[str, Tensor], *, num_envs: int,
        device: torch.device, control_dt: float,
    ) -> None:  # fmt: skip
        """Take the poses of every kind that has a share, as of `TaskContext.poses`."""
        self._config = config
        self._poses = {kind: poses[kind].to(device) for kind in START_KINDS if kind in poses}
        self._rise_steps = config.rise_time / control_dt
        self.rising = torch.zeros(num_envs, dtype=torch.bool, device=device)
        """(N,): began lying, and has not risen yet; overwritten in place."""

    @property
    def active(self) -> bool:
        """True where some episodes do not begin standing."""
        return bool(self._poses)

    def mix(
        self, rows: EnvSelection, standing: RobotState, ground: Tensor, generator: torch.Generator
    ) -> RobotState:
        """Starts of the picked envs with the shares of each kind among them.

        Args:
            standing: All of them, standing level; they keep place and heading.
            ground: Height of the ground below each, (count,), [m].
        """
        config, fields = self._config, dict(standing.fields)
        count, size = fields["joint_position"].shape
        share, row = draws.uniform((2, count), 0.0, 1.0, generator)
        unit = draws.uniform((count, size + 3), -1.0, 1.0, generator)
        low, zero = 0.0, torch.zeros_like(unit)
        lies = torch.zeros_like(share, dtype=torch.bool)
        for kind, part in zip(START_KINDS, config.shares, strict=True):
            if kind not in self._poses:
                continue
            chosen = ((share >= low) & (share < low + part))[:, None]
            low += part
            poses = self._poses[kind]
            pose = poses[(row * len(poses)).long()]
            speed = unit if kind == "moving" else zero
            place = fields["position_w"].clone()
            place[:, 2] = ground + pose[:, 2]
            level, turning = config.speed * speed[:, size : size + 2], speed[:, size + 2 :]
            turn = quaternion.multiply(standing.orientation_w, pose[:, 3:7])
            begins = {
                "position_w": place,
                "orientation_w": turn,
                "linear_velocity_w": torch.cat([level, zero[:, :1]], dim=-1),
                "angular_velocity_b": torch.cat([zero[:, :2], config.speed * turning], dim=-1),
                "joint_position": pose[:, 7:],
                "joint_velocity": config.joint_speed * speed[:, :size],
            }
            fields = {name: torch.where(chosen, begins[name], fields[name]) for name in begins}
            if kind == "lying":
                lies = chosen[:, 0]
        rows.put(self.rising, lies)
        return RobotState(fields)

    def excused(self, low: Tensor, episode_step: Tensor) -> Tensor:
        """Robots, (N,) bool, that may be low, as they began lying and still have time to rise.

        Args:
            low: (N,) bool, now.
        """
        self.rising &= low & (episode_step < self._rise_steps)
        return self.rising


def _joint_weights(robot: RobotSpec, by_part: Mapping[str, float]) -> list[float]:
    for part, weight in by_part.items():
        if not weight >= 0:
            raise ConfigError(f"task.pose_weights.{part} is {weight}; expected 0 or more")
    return checks.by_parts(by_part, robot.joint_names, 1.0, of="task.pose_weights")


def check_sensors(
    task: str, robot: RobotSpec, sensors: Collection[str], needed: Iterable[str]
) -> None:
    """Raise `SpecMismatchError` if the model of a robot lacks a sensor that a task reads."""
    for name in needed:
        if name not in sensors:
            told = unknown_name(f"task {task}, robot '{robot.name}': sensor", name, sensors)
            raise SpecMismatchError(f"{told}; declare it in the robot's model")


@dataclass(kw_only=True)
class GaitConfig:
    """A gait; the default is a trot: diagonal feet swing together."""

    period: float = 0.5
    """Time of one cycle [s]."""
    duty: float = 0.55
    """Share of the cycle that a foot stands."""
    offsets: list[float] = field(default_factory=lambda: [0.0, 0.5, 0.5, 0.0])
    """Share of the cycle at which each foot begins, in the foot order of the spec."""
    swing_height: float = 0.08
    """Height of a foot's centre above where it stands, in the middle of its swing [m]."""
    foot_radius: float = 0.022
    """Height of a standing foot's centre above the ground [m]."""
    touch: float = 5.0
    """Normal force from which a foot counts as standing [N]."""

    def __post_init__(self) -> None:
        checks.positive(self, "period", of="gait")
        if not 0 < self.duty < 1:
            raise ConfigError(f"gait.duty must lie in (0, 1), got {self.duty}")
        checks.not_negative(self, "swing_height", "foot_radius", "touch", of="gait")


@dataclass(frozen=True)
class GaitTarget:
    """Targets of the feet now."""

    stands: Tensor
    """(N, F) bool."""
    height: Tensor
    """Of the feet's centres above the ground, (N, F), [m]; meaningful for swinging feet."""


def walks_by(gait: GaitConfig) -> RobotKind:
    """Kind of robot that has a foot for each of a gait's offsets."""
    feet = len(gait.offsets)
    return RobotKind(
        words=f"a robot with {feet} feet, as many as task.gait.offsets has entries",
        robots={2: ("g1",), 4: ("go2", "go1")}.get(feet, ()), least_feet=feet, most_feet=feet,
    )  # fmt: skip


class Gait:
    """The clock of N robots."""

    def __init__(self, config: GaitConfig, *, num_feet: int, device: torch.device) -> None:
        """Set the clock's constants.

        Raises:
            ConfigError: There are not as many offsets as feet.
        """
        if len(config.offsets) != num_feet:
            raise ConfigError(
                f"gait.offsets: expected one for each of {num_feet} feet, got {config.offsets}"
            )
        self.config = config
        self._offsets = torch.tensor(config.offsets, device=device)

    def begin(self, count: int, generator: torch.Generator, *, evaluation: bool) -> Tensor:
        """Phase of each new episode, (count,), in [0, 1): uniform in training, 0 in evaluation.

        A deployed policy moves its clock on by itself, from 0 (`GoalClock`): what is evaluated is
        what is deployed.

        Args:
            count: Number of episodes.
        """
        phase = draws.uniform((count,), 0.0, 1.0, generator)
        return torch.zeros_like(phase) if evaluation else phase

    def clock(self, phase: Tensor, moving: Tensor) -> Tensor:
        """Clock as a policy sees it: sine and cosine, (N, 2); zeros for robots that stand still.

        Args:
            phase: Share of the cycle that has passed, (N,).
            moving: (N,) bool, who is asked to move.
        """
        angle = (2 * math.pi) * phase
        return torch.stack([angle.sin(), angle.cos()], dim=-1) * moving[:, None]

    def mirror(self, feet: Sequence[int]) -> SignedPermutation:
        """Mirror image of the clock: it stays, or is half a cycle ahead.

        Args:
            feet: For each foot its counterpart.

        Raises:
            ConfigError: The gait with left and right exchanged is not itself at another time.
        """
        own = self.config.offsets
        ahead = [(own[other] - offset) % 1.0 for offset, other in zip(own, feet, strict=True)]
        for shift, sign in ((0.0, 1.0), (0.5, -1.0)):
            if all(abs((a - shift + 0.5) % 1.0 - 0.5) < 1e-6 for a in ahead):
                return SignedPermutation.signs(sign, sign)
        raise ConfigError(
            f"gait.offsets {own} have no mirror: with left and right exchanged, feet are {ahead} "
            "of a cycle ahead; expected 0 for all or 0.5 for all"
        )

    def target(self, phase: Tensor, moving: Tensor) -> GaitTarget:
        """Targets of the feet, arguments as of `clock`."""
        duty = self.config.duty
        share = (phase[:, None] + self._offsets) % 1.0  # (N, F)
        swing = ((share - duty) / (1 - duty)).clamp(min=0.0)  # 0 to 1 through the swing
        rise = self.config.swing_height * (math.pi * swing).sin()
        return GaitTarget(
            stands=(share < duty) | ~moving[:, None], height=self.config.foot_radius + rise
        )


def slip(contact: Tensor, foot_velocity_w: Tensor) -> Tensor:
    """Squared horizontal speed of standing feet, summed, (N,), [m^2/s^2].

    Args:
        contact: (N, F) bool, the foot stands.
        foot_velocity_w: (N, F * 3), [m/s], world axes.
    """
    velocity = foot_velocity_w.unflatten(-1, (-1, 3))[..., :2]  # (N, F, 2)
    return (square_sum(velocity) * contact).sum(-1)


def swing_error(target: GaitTarget, foot_height: Tensor) -> Tensor:
    """Squared height error of feet that should swing, summed, (N,), [m^2].

    Args:
        foot_height: Of their centres above the ground, (N, F), [m].
    """
    error = foot_height - target.height
    return (error * error * ~target.stands).sum(-1)


def heading_velocity(rotation: Tensor, linear_velocity_w: Tensor) -> Tensor:
    """Horizontal velocity along and across where the robot looks, (N, 2), [m/s].

    Args:
        rotation: Body to world, row-major, (N, 9).
        linear_velocity_w: (N, 3), [m/s], world axes.
    """
    ahead = quaternion.heading(rotation)
    vx, vy = linear_velocity_w[:, 0], linear_velocity_w[:, 1]
    return torch.stack(
        [ahead[:, 0] * vx + ahead[:, 1] * vy, ahead[:, 0] * vy - ahead[:, 1] * vx], dim=-1
    )
