"""A clip as a task compares it with a robot: every quantity in every control step.

Base and joints come from the clip; poses and velocities of the bodies that the task watches are
what the sensors of the robot's own model say in those states. A clip that is repeated goes on
where it ended; one that is not holds its last pose.

Clips of our own are squats, steps on the spot and walks, made from a robot's kinematics: legs bend
so that their feet stay below their hips; the lowest foot is put on the ground, and the base moves
so that feet on the ground stay where they are. Nothing here knows of forces: a policy has to find
those, and may find that it cannot follow exactly.
"""

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from robot_rl.core import quaternion
from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.robot import RobotSpec
from sim.motions.clip import Clip, Floats, checked, load_clip

if TYPE_CHECKING:  # MuJoCo: a config does without
    from sim.physics.kinematics import Mechanism

_BENDS = (
    {"thigh_joint": (1.0, 1.0), "calf_joint": (-2.0, 0.0)},
    {"hip_pitch_joint": (-1.0, 1.0), "knee_joint": (2.0, 0.0), "ankle_pitch_joint": (-1.0, -1.0)},
)
"""Bends that shorten a leg, and swing it back, by the ends of its joints' names: a quadruped's,
a humanoid's, whose sole stays level."""
_FRAME_RATE = 50.0


class Script(Enum):
    """Motion of a clip of our own."""

    squat = "squat"
    """All legs bend and stretch together."""
    step = "step"
    """Legs are lifted in turn, on the spot; of four legs those of a diagonal together."""
    walk = "walk"
    """The same, forward; a quadruped trots."""


@dataclass(kw_only=True)
class ScriptConfig:
    """Measures of a clip of our own, one cycle of which is made."""

    kind: Script = Script.squat
    """Motion that it shows."""
    period: float = 2.0
    """Time of a cycle [s]."""
    bend: float = 0.4
    """Largest angle by which the hip bends a leg; the knee bends twice as far [rad]."""
    stride: float = 0.2
    """Largest angle by which a leg swings forward and back in a walk [rad]."""

    def __post_init__(self) -> None:
        if not 0.1 <= self.period <= 60:
            raise ConfigError(f"motion.script.period must be 0.1 to 60 s, got {self.period}")
        for name in ("bend", "stride"):
            if not 0 < getattr(self, name) < 1.5:
                raise ConfigError(
                    f"motion.script.{name} must lie in (0, 1.5) rad, got {getattr(self, name)}"
                )


def scripted(config: ScriptConfig, robot: RobotSpec, mechanism: "Mechanism") -> Clip:
    """One cycle of a script.

    Args:
        robot: With feet whose names, or the parts before a `_`, begin those of its legs' joints.

    Raises:
        ConfigError: Its legs are not of a kind that is known, or bend beyond their limits.
    """
    phase = np.linspace(0.0, 1.0, max(2, round(config.period * _FRAME_RATE)) + 1)
    joints = np.tile([joint.default_position for joint in robot.joints], (len(phase), 1))
    for number, foot in enumerate(robot.feet):
        leg, bends = _leg(robot, foot)
        turn = 0.0 if config.kind is Script.squat else _offset(number, len(robot.feet))
        bend, swing = _course(config, (phase + turn) % 1.0)
        for joint, (shorter, back) in bends.items():
            column = robot.joint_names.index(f"{leg}_{joint}")
            joints[:, column] += shorter * bend + back * swing
    clip = Clip(
        fps=(len(phase) - 1) / config.period,
        root_position=mechanism.base_path(joints),
        root_orientation=np.tile([1.0, 0.0, 0.0, 0.0], (len(phase), 1)),
        joint_position=joints,
    )
    return checked(clip, robot, owner=f"script '{config.kind.value}'")


def _course(config: ScriptConfig, phase: Floats) -> tuple[Floats, Floats]:
    """Bend of a leg, and its swing back [rad]; lifted in the first half."""
    if config.kind is Script.squat:
        return 0.5 * config.bend * (1 - np.cos(2 * np.pi * phase)), np.zeros_like(phase)
    lift = np.where(phase < 0.5, np.sin(2 * np.pi * phase) ** 2, 0.0)
    # Evenly on the ground, where the base would otherwise stop between two steps, which no weight
    # does; through the air by a cubic that leaves the ground and meets it at the same speed.
    u = 2 * phase
    swing = np.where(phase < 0.5, 1 + u * (2 + u * (8 * u - 12)), 2 * u - 3)
    return config.bend * lift, config.stride * swing * (config.kind is Script.walk)


def _offset(foot: int, feet: int) -> float:
    """Phase of a foot: left and right, or the diagonals of the order front, front, rear, rear."""
    return 0.5 * (foot % 2) if feet == 2 else 0.5 * (foot in (1, 2))


def _leg(robot: RobotSpec, foot: str) -> tuple[str, dict[str, tuple[float, float]]]:
    leg = foot.split("_")[0]
    for bends in _BENDS:
        if all(f"{leg}_{joint}" in robot.joint_names for joint in bends):
            return leg, bends
    known = [", ".join(f"{leg}_{joint}" for joint in bends) for bends in _BENDS]
    raise ConfigError(
        f"no script moves robot '{robot.name}': its leg '{leg}' has neither {' nor '.join(known)}; "
        "name a clip of its own in task.motion.file"
    )


BODY_FIELDS = {"body_position_w": 3, "body_orientation_w": 4, "body_velocity_w": 3,
               "body_rates_w": 3}  # fmt: skip
"""Sensors of the watched bodies, with their widths."""
_CLOSES = 0.15
"""Largest difference of a joint between the ends of a clip that is repeated [rad]."""


@dataclass(kw_only=True)
class MotionConfig:
    """Clip to follow."""

    file: str = ""
    """A `.npz` or `.csv` (sim/motions/clip.py); empty for a script."""
    csv_fps: float = 30.0
    """Frames per second of a `.csv`, which does not say it."""
    script: ScriptConfig = field(default_factory=ScriptConfig)
    """Clip of our own, followed where no file is named."""
    repeat: bool = True
    """True if the clip begins anew where it ended, in place and heading; otherwise the last pose
    is held."""


@runtime_checkable
class FollowsMotion(Protocol):
    """Config of a task that follows a clip."""

    motion: MotionConfig
    """The clip."""
    episode_length: float
    """Longest time that it is followed [s]."""


@dataclass(frozen=True)
class Reference:
    """F control steps of a motion, as single precision tensors (F, ...)."""

    starts: int
    """Frames that an episode may begin in: the first ones; the others follow."""
    fields: dict[str, Tensor]
    """Fields of `RobotState` (base and joints), and `BODY_FIELDS` as (F, B, width)."""


def make_reference(
    config: MotionConfig, robot: RobotSpec, mechanism: "Mechanism", *, control_dt: float,
    longest_episode: float,
) -> Reference:  # fmt: skip
    """Read or make the clip and let the model go through it.

    Args:
        mechanism: Of the envs, with the sensors of the watched bodies.
        longest_episode: How long a motion must go on after its last start [s].

    Raises:
        ConfigError: The clip cannot be used.
        SpecMismatchError: It is of another robot, or the robot has no floating base.
    """
    if not mechanism.floating:
        raise SpecMismatchError(
            f"task motion needs a robot with a floating base, that of '{robot.name}' is fixed; "
            "choose robot=g1 or robot=go2"
        )
    clip = (load_clip(Path(config.file), robot, csv_fps=config.csv_fps) if config.file
            else scripted(config.script, robot, mechanism))  # fmt: skip
    starts = max(1, round(clip.duration / control_dt))
    frames = starts + round(longest_episode / control_dt) + 1
    if config.repeat:
        clip = repeated(clip, frames * control_dt, owner=config.file or "script")
    states = resampled(clip, frames, control_dt)
    plain = {name: value.double().numpy() for name, value in states.items()}
    bodies = {
        name: torch.from_numpy(values.astype(np.float32)).unflatten(-1, (-1, BODY_FIELDS[name]))
        for name, values in mechanism.sensed(plain, list(BODY_FIELDS)).items()
    }
    return Reference(starts, {**states, **bodies})


def repeated(clip: Clip, seconds: float, *, owner: str) -> Clip:
    """The clip again and again, each time from the place and heading where it ended.

    Raises:
        ConfigError: Its last frame is not like the first one.
    """
    gap = np.abs(clip.joint_position[-1] - clip.joint_position[0])
    if gap.max() > _CLOSES:
        raise ConfigError(
            f"motion '{owner}' does not close: joint {int(gap.argmax())} ends {gap.max():.2f} rad "
            f"from where it begins, expected at most {_CLOSES}; set task.motion.repeat=false"
        )
    position, turn, joints = [clip.root_position], [clip.root_orientation], [clip.joint_position]
    begin, end = quaternion.yaw(quaternion.rotation_matrix(clip.root_orientation[[0, -1]]))
    once = total = quaternion.from_yaw(np.array([end - begin]))
    while (sum(map(len, joints)) - 1) / clip.fps < seconds:
        first, last = clip.root_position[0], position[-1][-1]
        shift = np.array([last[0] - first[0], last[1] - first[1], 0.0])
        ahead = quaternion.rotate(total, clip.root_position[1:] - first * [1, 1, 0])
        position.append(ahead + first * [1, 1, 0] + shift)
        turn.append(quaternion.multiply(total, clip.root_orientation[1:]))
        joints.append(clip.joint_position[1:])
        total = quaternion.multiply(once, total)
    return Clip(
        fps=clip.fps, root_position=np.concatenate(position),
        root_orientation=np.concatenate(turn), joint_position=np.concatenate(joints),
    )  # fmt: skip


def resampled(clip: Clip, frames: int, dt: float) -> dict[str, Tensor]:
    """Base and joints at multiples of `dt` [s], with velocities: fields of `RobotState`."""
    own = np.arange(clip.frames) / clip.fps
    time = np.arange(frames) * dt
    turn = _continuous(clip.root_orientation)
    position, joints, turn = (
        np.stack([np.interp(time, own, column) for column in values.T], axis=1)
        for values in (clip.root_position, clip.joint_position, turn)
    )
    turn /= np.linalg.norm(turn, axis=1, keepdims=True)
    fields = {
        "position_w": position,
        "orientation_w": turn,
        "linear_velocity_w": np.gradient(position, dt, axis=0),
        "angular_velocity_b": _rates(turn, dt),
        "joint_position": joints,
        "joint_velocity": np.gradient(joints, dt, axis=0),
    }
    return {name: torch.from_numpy(values.astype(np.float32)) for name, values in fields.items()}


def _continuous(turn: Floats) -> Floats:
    """The same rotations without a change of sign between neighbours."""
    dots = (turn[1:] * turn[:-1]).sum(axis=1)
    sign = np.concatenate([[1.0], np.cumprod(np.where(dots < 0, -1.0, 1.0))])
    return turn * sign[:, None]


def _rates(turn: Floats, dt: float) -> Floats:
    """Angular velocities in the body, (F, 3), [rad/s], by central differences."""
    if len(turn) < 2:
        return np.zeros((len(turn), 3))
    ends = np.concatenate([turn[:1], turn, turn[-1:]])
    step = quaternion.multiply(quaternion.conjugate(ends[:-2]), ends[2:])
    step = step * np.where(step[:, :1] < 0, -1.0, 1.0)
    sine = np.linalg.norm(step[:, 1:], axis=1, keepdims=True)
    angle = 2 * np.arctan2(sine, step[:, :1])
    span = np.full((len(turn), 1), 2 * dt)
    span[[0, -1]] = dt
    return step[:, 1:] / np.maximum(sine, 1e-12) * angle / span
