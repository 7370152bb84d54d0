"""Motion: follow a clip with the whole body, as in BeyondMimic (Liao et al. 2025).

The robot's base is the anchor: bodies are compared where they would be if the motion went through
the robot's own place and heading, at the motion's height. Terms and their widths are those of the
authors' whole_body_tracking (arXiv:2508.08241), whose anchor is the torso.

Episodes begin rather where robots fail (adaptive sampling): the motion is cut into bins, failures
of each are counted with a slow decay, and a bin is drawn in proportion to its count plus a share
that all bins have.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from robot_rl.core import quaternion
from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError, unknown_name
from robot_rl.core.observation import RobotState
from robot_rl.core.playback import PlaybackSpec
from robot_rl.core.robot import RobotKind
from sim import checks, draws
from sim.motions.reference import BODY_FIELDS, MotionConfig
from sim.task import EndRecord, InitialState, StepOutcome, Task, TaskContext, square_sum
from sim.tasks.legs.gait import Legs, LegTaskConfig, check_sensors


@dataclass(kw_only=True)
class PhaseConfig:
    """Distribution of starts in training; evaluation draws them uniformly."""

    bin: float = 1.0
    """Length of a bin [s]."""
    decay: float = 0.001
    """Share of a bin's count that a control step replaces (the authors' `adaptive_alpha`)."""
    uniform: float = 0.1
    """Weight that all bins share (the authors' `adaptive_uniform_ratio`); counts are failures of a
    control step in all envs."""

    def __post_init__(self) -> None:
        checks.positive(self, "bin", "uniform", of="phases")
        checks.below_one(self, "decay", of="phases")


class Phases:
    """Draws the frames that episodes begin in."""

    def __init__(
        self, config: PhaseConfig, *, starts: int, control_dt: float, adaptive: bool,
        device: torch.device, repeats: bool = True,
    ) -> None:  # fmt: skip
        """Begin with all bins alike.

        Args:
            starts: Frames to choose from.
            adaptive: Follow failures; else draw uniformly.
            repeats: Frames behind those to choose from are the first ones again; else the last one
                is held.
        """
        self.config, self._adaptive = config, adaptive
        self._starts, self._repeats = starts, repeats
        self._width = min(starts, max(1, round(config.bin / control_dt)))  # frames of a bin
        self._failures = torch.zeros(-(-starts // self._width), device=device)
        self.state = {"failures": self._failures}
        """Counts, live."""

    @property
    def chances(self) -> Tensor:
        """Of each bin, (bins,)."""
        weight = self._failures + self.config.uniform / len(self._failures)
        return weight / weight.sum()

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Frames to begin in, (count,) int64."""
        unit = draws.uniform((2, count), 0.0, 1.0, generator)
        if not self._adaptive:
            return (unit[0] * self._starts).long().clamp(max=self._starts - 1)
        bins = torch.searchsorted(self.chances.cumsum(0), unit[0].contiguous())
        bins = bins.clamp(max=len(self._failures) - 1)
        frame = bins * self._width + (unit[1] * self._width).long()
        return frame.clamp(max=self._starts - 1)  # the last bin may be shorter

    def follow(self, frame: Tensor, failed: Tensor) -> None:
        """Count the failures of a step, (N,) bool, where every env's motion is, (N,) int64."""
        if not self._adaptive:
            return
        now = torch.zeros_like(self._failures)
        at = frame % self._starts if self._repeats else frame.clamp(max=self._starts - 1)
        now.index_add_(0, at // self._width, failed.float())
        self._failures.lerp_(now, self.config.decay)


@dataclass(frozen=True)
class BodyErrors:
    """Differences of the watched bodies from the motion."""

    distance: Tensor
    """(N, B), [m]."""
    height: Tensor
    """(N, B), [m], positive where the robot's is higher."""
    errors: dict[str, Tensor]
    """Mean squares over the bodies by the name of their reward term, (N,) each."""


def compare(
    sensors: Mapping[str, Tensor], true_state: RobotState, asked: Mapping[str, Tensor]
) -> BodyErrors:
    """The watched bodies beside the motion's, in the robot's place and heading.

    Args:
        sensors: True `BODY_FIELDS` of the envs, (N, B * width) each.
        asked: The motion now: fields of a `Reference`, (N, ...) each.
    """
    found = {name: sensors[name].unflatten(-1, (-1, width)) for name, width in BODY_FIELDS.items()}
    ahead = _yaw(true_state.orientation_w) - _yaw(asked["orientation_w"])
    turn = quaternion.from_yaw(ahead)[:, None]
    arm = asked["body_position_w"] - asked["position_w"][:, None]
    anchor = torch.cat([true_state.position_w[:, :2], asked["position_w"][:, 2:]], dim=-1)
    place = anchor[:, None] + quaternion.rotate(turn, arm)
    facing = quaternion.multiply(turn.expand_as(asked["body_orientation_w"]),
                                 asked["body_orientation_w"])  # fmt: skip
    way = found["body_position_w"] - place  # (N, B, 3)
    return BodyErrors(
        distance=way.norm(dim=-1),
        height=way[..., 2],
        errors={
            "body_position": square_sum(way).mean(-1),
            "body_orientation": angle(found["body_orientation_w"], facing).square().mean(-1),
            "body_velocity": square_sum(found["body_velocity_w"] - asked["body_velocity_w"]).mean(
                -1
            ),
            "body_rates": square_sum(found["body_rates_w"] - asked["body_rates_w"]).mean(-1),
        },
    )


def angle(one: Tensor, other: Tensor) -> Tensor:
    """Angle of the rotation between unit quaternions, (..., 4) -> (...), [rad]."""
    return 2 * (one * other).sum(-1).abs().clamp(max=1.0).acos()


def amplitudes(asked: Mapping[str, Tensor], frames: int) -> tuple[float, float]:
    """Mean errors of a robot that holds the motion's mean pose in its place.

    Args:
        asked: Fields of a `Reference`, (T, ...) each.
        frames: The first of them, which make up the motion.

    Returns:
        Distance of the bodies [m] and error of the base's velocity [m/s].
    """
    fields = {name: values[:frames] for name, values in asked.items()}
    base = fields["position_w"].clone()
    base[:, 2] = 0.0  # heights count
    back = quaternion.from_yaw(-_yaw(fields["orientation_w"]))[:, None]
    place = quaternion.rotate(back, fields["body_position_w"] - base[:, None])  # (T, B, 3)
    distance = (place - place.mean(0)).norm(dim=-1).mean()
    return float(distance), float(fields["linear_velocity_w"].norm(dim=-1).mean())


def _yaw(orientation: Tensor) -> Tensor:
    """Heading of a base, (N, 4) -> (N,), [rad]."""
    return quaternion.yaw(quaternion.rotation_matrix(orientation))


@dataclass(kw_only=True)
class WidthsConfig:
    """Root mean square errors at which a paid term has fallen to 1/e (the authors' `std`)."""

    anchor_position: float = 0.3
    """[m]."""
    anchor_orientation: float = 0.4
    """[rad]."""
    body_position: float = 0.3
    """[m]."""
    body_orientation: float = 0.4
    """[rad]."""
    body_velocity: float = 1.0
    """[m/s]."""
    body_rates: float = 3.14
    """[rad/s]."""

    def __post_init__(self) -> None:
        checks.positive(self, *vars(self), of="widths")


@dataclass(kw_only=True)
class MotionTaskConfig(LegTaskConfig):
    """The motion task: success is mean errors of bodies and velocity over the episode."""

    robot_kind: ClassVar[RobotKind] = RobotKind(
        words="a robot with a floating base whose attitude is measured",
        robots=("go2", "go1", "g1"), sensors=("orientation_w",),
    )  # fmt: skip
    motion: MotionConfig = field(default_factory=MotionConfig)
    """Clip to follow."""
    phases: PhaseConfig = field(default_factory=PhaseConfig)
    """Distribution of the frames that training episodes begin in."""
    start_position: float = 0.1
    """Half-width of the joints' deviation from the motion at the start [rad]."""
    start_velocity: float = 0.2
    """Half-width of the base's deviation at the start, per axis [m/s] and [rad/s]."""
    widths: WidthsConfig = field(default_factory=WidthsConfig)
    """Widths of the paid terms."""
    max_height_error: float = 0.25
    """Difference of the base's height beyond which an episode terminates [m]."""
    max_gravity_error: float = 0.8
    """Difference of the base's cosine of tilt beyond which it terminates."""
    ends: list[str] = field(default_factory=list)
    """Watched bodies, such as hands and feet, whose height may differ by `max_end_error`."""
    max_end_error: float = 0.25
    """Difference of their height beyond which an episode terminates [m]."""
    soft_limit: float = 0.9
    """Share of a joint's range outside of which `joint_limit` costs."""
    success_error: float = 0.1
    """Largest mean distance of the bodies from where they should be, over the episode [m]."""
    success_velocity: float = 0.2
    """Largest mean error of the base's velocity over the episode [m/s]: bodies are compared where
    the robot is, and somebody may follow all of them and stay where he is."""

    def __post_init__(self) -> None:
        checks.positive(
            self, "episode_length", "max_height_error", "max_gravity_error", "max_end_error",
            "soft_limit", "success_error", "success_velocity",
        )  # fmt: skip
        checks.not_negative(self, "start_position", "start_velocity")
        checks.share(self, "soft_limit")
        if self.pose_weights:
            raise ConfigError(
                "task.pose_weights weighs a reward term `pose`, and task motion has none: "
                f"leave it out, got {self.pose_weights}"
            )
        if self.scene.terrain is not None:
            raise ConfigError("task motion has a level floor; leave task.scene.terrain out")


class MotionTask(Task):
    """Follow one clip, each env from a frame of its own."""

    def __init__(self, config: MotionTaskConfig, context: TaskContext) -> None:
        """Prepare N envs; in evaluation episodes begin anywhere in the motion alike.

        Raises:
            ConfigError: No body is watched, or an end that is not.
            SpecMismatchError: The model lacks a sensor.
        """
        robot, device, count = context.robot, context.device, context.num_envs
        reference = context.reference
        assert reference is not None  # the config follows it
        if not config.scene.bodies:
            raise ConfigError("task.scene.bodies is empty; name the bodies that follow the motion")
        for name in config.ends:
            if name not in config.scene.bodies:
                raise ConfigError(
                    unknown_name("task.ends: watched body", name, config.scene.bodies)
                )
        check_sensors("motion", robot, context.sensors, (*BODY_FIELDS, "body_contact"))
        super().__init__(config, context)
        _check_motion(config, *amplitudes(reference.fields, reference.starts))
        self._sensors = context.sensors
        self._starts = reference.starts
        self._reference = {name: value.to(device) for name, value in reference.fields.items()}
        self._widths = torch.tensor(list(vars(config.widths).values()), device=device)
        ends = [config.scene.bodies.index(name) for name in config.ends]
        self._ends = torch.tensor(ends, dtype=torch.int64, device=device)
        self._legs = Legs(robot, device)
        self._phases = Phases(
            config.phases, starts=reference.starts, control_dt=context.control_dt,
            adaptive=not context.evaluation, repeats=config.motion.repeat, device=device,
        )  # fmt: skip
        limits = torch.tensor([joint.position_limit for joint in robot.joints], device=device)
        half = 0.5 * config.soft_limit * (limits[:, 1] - limits[:, 0])
        self._soft = limits.mean(dim=1) - half, limits.mean(dim=1) + half
        self._first = torch.zeros(count, dtype=torch.int64, device=device)
        self._frame = torch.zeros(count, dtype=torch.int64, device=device)
        self._record = EndRecord(count, device, first_step=0)
        self.goal = self._look()

    def goal_mirrors(self, robot: Any) -> Mapping[str, Any]:
        """Mirror images of the joints' goals; a motion need not be symmetric."""
        return {"reference_joints": robot.joints, "reference_joint_speeds": robot.joints}

    @property
    def playback(self) -> PlaybackSpec:
        """The clip for a robot: one round of it, or all of it and the pose that is held.

        A policy sees joints, their speeds and the attitude; goals for critics and drawings are 0.
        """
        repeats = self.config.motion.repeat
        facing = self._reference["orientation_w"]
        # Behind the end of a clip that is held a joint is at rest from the second row on.
        count = self._starts if repeats else min(self._starts + 3, len(facing))
        seen = {
            "reference_joints": self._reference["joint_position"],
            "reference_joint_speeds": self._reference["joint_velocity"],
            "orientation_matrix_w": quaternion.rotation_matrix(facing),
        }
        goals = {name: [[0.0] * goal.shape[1]] for name, goal in self.goal.items()}
        if repeats:  # the first frame's own speeds are a difference of one side
            seen["reference_joint_speeds"] = seen["reference_joint_speeds"].clone()
            seen["reference_joint_speeds"][0] = seen["reference_joint_speeds"][self._starts]
        for name, values in seen.items():
            goals[name] = values[:count].double().cpu().numpy().round(6).tolist()
        ends = _yaw(facing[[0, self._starts if repeats else 0]])
        return PlaybackSpec(
            goals=goals, facing="orientation_matrix_w", repeats=repeats,
            turn=float(ends[1] - ends[0]),
        )  # fmt: skip

    def start(self, rows: EnvSelection, generator: torch.Generator) -> InitialState:
        """Draw frames, and put the robots near to where the motion is in them."""
        config, count = self.config, rows.count
        self._record.clear(rows)
        frame = self._phases.draw(count, generator)
        rows.put(self._first, frame)
        rows.put(self._frame, frame)
        for name, values in self._look().items():
            rows.put(self.goal[name], rows.take(values))
        fields = {name: self._reference[name][frame] for name in _STATE_FIELDS}
        size = fields["joint_position"].shape[1]
        unit = draws.uniform((count, size + 6), -1.0, 1.0, generator)
        joints = fields["joint_position"] + config.start_position * unit[:, :size]
        speed = config.start_velocity * unit[:, size:]
        fields["joint_position"] = self._legs.within_limits(joints)
        fields["linear_velocity_w"] = fields["linear_velocity_w"] + speed[:, :3]
        fields["angular_velocity_b"] = fields["angular_velocity_b"] + speed[:, 3:]
        return InitialState(robot=RobotState(fields))

    def advance(self, episode_step: Tensor) -> None:
        """Let the motion go on by a frame; behind its end, where only a twin comes, it stands."""
        last = len(self._reference["position_w"]) - 1
        self._frame.copy_((self._first + episode_step).clamp(max=last))
        for name, values in self._look().items():
            self.goal[name].copy_(values)

    def evaluate(
        self, true_state: RobotState, action: Tensor, last_action: Tensor, episode_step: Tensor
    ) -> StepOutcome:
        """Pay for being where the motion is; terminate where base or ends have lost it."""
        config, asked = self.config, self._asked()
        bodies = compare(self._sensors, true_state, asked)
        position_error = true_state.position_w - asked["position_w"]
        errors = {
            "anchor_position": square_sum(position_error),
            "anchor_orientation": angle(true_state.orientation_w, asked["orientation_w"]) ** 2,
            **bodies.errors,
        }  # squared
        joints = true_state.joint_position
        beyond = (self._soft[0] - joints).clamp(min=0) + (joints - self._soft[1]).clamp(min=0)
        joint_error = (joints - asked["joint_position"]).square().mean(-1)  # [rad^2]
        terms = {
            **self._closeness(errors),
            "joint_limit": beyond.sum(-1),  # [rad]
            "smoothness": square_sum(action - last_action),
            "collision": (self._sensors["body_contact"] > 0).float().sum(-1),
        }
        if "joints" in config.reward:  # for robots whose paid terms lead limbs nowhere
            terms["joints"] = joint_error
        body_error = bodies.distance.mean(-1)
        velocity_error = (true_state.linear_velocity_w - asked["linear_velocity_w"]).norm(dim=-1)
        self._record.add(body_error, velocity_error, episode_step)
        vertical = quaternion.rotation_matrix(true_state.orientation_w)[:, 8]
        expected = quaternion.rotation_matrix(asked["orientation_w"])[:, 8]
        lost = position_error[:, 2].abs() > config.max_height_error
        lost |= (vertical - expected).abs() > config.max_gravity_error
        if len(self._ends):
            lost |= (bodies.height[:, self._ends].abs() > config.max_end_error).any(-1)
        self._phases.follow(self._frame, lost)
        mean_error, mean_velocity_error = self._record.mean_distance, self._record.mean_second
        return StepOutcome(
            reward_terms=terms,
            terminated=lost,
            success=(mean_error < config.success_error)
            & (mean_velocity_error < config.success_velocity),
            metrics={
                "anchor_error": position_error.norm(dim=-1),
                "body_error": body_error,
                "joint_error": joint_error.sqrt(),
                "mean_body_error": mean_error,
                "mean_velocity_error": mean_velocity_error,
            },
        )

    def _closeness(self, errors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Reward of each error: exp(-error^2 / width^2), 1 at most (Liao et al. 2025).

        Args:
            errors: Squared, by the name of their width, (N,) each.
        """
        names = tuple(vars(self.config.widths))
        squared = torch.stack([errors[name] for name in names], dim=-1)
        close = (-squared / self._widths**2).exp()
        return dict(zip(names, close.unbind(-1), strict=True))

    def parts(self) -> Mapping[str, Any]:
        """Frame of every motion, and the distribution of starts."""
        return {
            "first": self._first,
            "frame": self._frame,
            "record": self._record.state,
            "phases": self._phases.state,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`, and what follows from it."""
        super().load_state_dict(state)
        for name, values in self._look().items():
            self.goal[name].copy_(values)

    def _asked(self) -> dict[str, Tensor]:
        """The motion now, (N, ...) each."""
        return {name: value[self._frame] for name, value in self._reference.items()}

    def _look(self) -> dict[str, Tensor]:
        """Goals of a robot that follows the motion, and what is drawn of it."""
        asked = self._asked()
        return {
            "reference_joints": asked["joint_position"],
            "reference_joint_speeds": asked["joint_velocity"],
            "orientation_matrix_w": quaternion.rotation_matrix(asked["orientation_w"]),
            "position_w": asked["position_w"],
            "linear_velocity_w": asked["linear_velocity_w"],
            "body_preview_w": asked["body_position_w"].flatten(1),  # to be drawn
        }


def _check_motion(config: MotionTaskConfig, distance: float, speed: float) -> None:
    """Refuse limits that a robot which does not move keeps."""
    if distance < config.success_error and speed < config.success_velocity:
        raise ConfigError(
            f"a robot that holds still would follow this motion: it is {distance:.3g} m and "
            f"{speed:.3g} m/s off on average, and success allows {config.success_error:g} m and "
            f"{config.success_velocity:g} m/s. Lower task.success_error or task.success_velocity, "
            "or take a livelier motion"
        )


_STATE_FIELDS = (
    "position_w", "orientation_w", "linear_velocity_w", "angular_velocity_b", "joint_position",
    "joint_velocity",
)  # fmt: skip
