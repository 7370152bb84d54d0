"""Clips of our own: squats, steps on the spot and walks, made from a robot's kinematics.

Legs bend so that their feet stay below their hips; the lowest foot is put on the ground, and the
base moves so that feet on the ground stay where they are. Nothing here knows of forces: a policy
has to find those, and may find that it cannot follow exactly.
"""

from dataclasses import dataclass
from enum import Enum

import numpy as np

from robot_rl.core.errors import ConfigError
from robot_rl.core.robot import RobotSpec
from sim.motions.clip import Clip, Floats, checked
from sim.physics.kinematics import Mechanism

_BENDS = (
    {"thigh_joint": (1.0, 1.0), "calf_joint": (-2.0, 0.0)},
    {"hip_pitch_joint": (-1.0, 1.0), "knee_joint": (2.0, 0.0), "ankle_pitch_joint": (-1.0, -1.0)},
)
"""How a leg grows shorter, and how it swings back, by the ends of its joints' names: a quadruped's,
a humanoid's, whose sole stays level."""
_FPS = 50.0


class Script(Enum):
    """What a clip of our own shows."""

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
    """What it shows."""
    period: float = 2.0
    """Time of a cycle [s]."""
    bend: float = 0.4
    """Largest angle by which the hip bends a leg; the knee bends twice as far [rad]."""
    stride: float = 0.2
    """Largest angle by which a leg swings forward and back in a walk [rad]."""

    def __post_init__(self) -> None:
        """Refuse cycles without extent."""
        if not 0.1 <= self.period <= 60:
            raise ConfigError(f"motion.script.period must be 0.1 to 60 s, got {self.period}")
        for name in ("bend", "stride"):
            if not 0 < getattr(self, name) < 1.5:
                raise ConfigError(
                    f"motion.script.{name} must lie in (0, 1.5) rad, got {getattr(self, name)}"
                )


def scripted(config: ScriptConfig, robot: RobotSpec, mechanism: Mechanism) -> Clip:
    """One cycle of a script.

    Args:
        config: The script.
        robot: With feet whose names, or the parts before a `_`, begin those of its legs' joints.
        mechanism: The robot without forces.

    Raises:
        ConfigError: Its legs are not of a kind that is known, or bend beyond their limits.
    """
    phase = np.linspace(0.0, 1.0, max(2, round(config.period * _FPS)) + 1)
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
    """How far a leg is bent, and how far it swings back [rad]; lifted in the first half."""
    if config.kind is Script.squat:
        return 0.5 * config.bend * (1 - np.cos(2 * np.pi * phase)), np.zeros_like(phase)
    lift = np.where(phase < 0.5, np.sin(2 * np.pi * phase) ** 2, 0.0)
    swing = config.stride * np.cos(2 * np.pi * phase) * (config.kind is Script.walk)
    return config.bend * lift, swing


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
