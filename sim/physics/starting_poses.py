"""Poses that walking robots begin in: crouched, on their feet, and lying on their bellies."""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from robot_rl.core import quaternion
from robot_rl.core.errors import ConfigError
from robot_rl.core.robot import RobotSpec
from sim.physics.joint_layout import JointLayout
from sim.physics.kinematics import Floats, Mechanism, settle

if TYPE_CHECKING:
    import mujoco

_COUNT = 64
"""Poses of a kind."""
_CLOSE = 0.01
"""A base this much higher than asked stands on something else than its feet [m]."""
_FOLDS = 60
"""Heights through which a robot folds its legs until its trunk touches the ground."""
_ABOVE, _NOISE = 0.01, 0.1
"""Height above the ground from which folded robots drop [m], and half-width of their joints
[rad]."""
_SETTLING, _STIFF = 1.0, 2.0
"""Time in which they come to rest [s], and viscous friction of their joints meanwhile
[N m s/rad]."""
_UPRIGHT = 0.5
"""Lean beyond which a robot has tipped over and does not lie on its belly [rad]."""


def starting_poses(
    model: "mujoco.MjModel", layout: JointLayout, robot: RobotSpec, *, crouch: float,
    offset: float, kinds: Collection[str],
) -> dict[str, Tensor]:  # fmt: skip
    """Poses of some kinds on level ground, position, quaternion, joints, (M, 7 + J) float64 each.

    Nothing is below the ground, and something touches it. They are the same in every call.

    Args:
        crouch: Height of the base in the deepest crouch, as a share of that in the default pose.
        offset: Half-width of the joints of robots on their feet, around the default pose [rad].
        kinds: Of `crouched`, `moving` and `lying`.

    Raises:
        ConfigError: The base does not float, the legs cannot fold so far, or the robot tips over.
    """
    if not (layout.floating and robot.feet):
        raise ConfigError(
            f"task.starts asks for robots that crouch, move or lie; robot '{robot.name}' has no "
            "floating base with feet"
        )
    mechanism = Mechanism(model, robot)
    default = np.array([joint.default_position for joint in robot.joints])
    makers = {
        "crouched": lambda: _crouched(mechanism, default, crouch, robot.name),
        "moving": lambda: _on_feet(mechanism, default, offset, robot),
        "lying": lambda: _lying(model, layout, mechanism, default, robot.name),
    }
    return {kind: makers[kind]() for kind in kinds}


def _crouched(mechanism: Mechanism, default: Floats, crouch: float, name: str) -> Tensor:
    high = float(mechanism.base_path(default[None])[0, 2])
    heights = np.linspace(high, crouch * high, _COUNT)
    joints, found = mechanism.folded(default, heights.tolist())
    off = np.abs(found - heights) > _CLOSE
    if off.any():
        lowest = heights[: int(off.argmax())].min(initial=high) / high
        raise ConfigError(
            f"task.starts.crouch_height={crouch:g}: the legs of robot '{name}' fold down to "
            f"{lowest:.2f} of its height on its feet; choose that or more"
        )
    return _level(found, joints)


def _on_feet(mechanism: Mechanism, default: Floats, offset: float, robot: RobotSpec) -> Tensor:
    generator = np.random.default_rng(0)
    limits = np.array([joint.position_limit for joint in robot.joints])
    drawn = default + generator.uniform(-offset, offset, (_COUNT, len(default)))
    joints = drawn.clip(limits[:, 0], limits[:, 1])
    heights = [float(mechanism.base_path(one[None])[0, 2]) for one in joints]
    return _level(np.array(heights), joints)


def _lying(
    model: "mujoco.MjModel", layout: JointLayout, mechanism: Mechanism, default: Floats, name: str
) -> Tensor:
    high = float(mechanism.base_path(default[None])[0, 2])
    heights = np.linspace(high, 0.0, _FOLDS)
    joints, found = mechanism.folded(default, heights.tolist())
    last = int((found - heights > _CLOSE).argmax())  # there the trunk lies, or the legs are folded
    generator = np.random.default_rng(0)
    drawn = joints[last] + generator.uniform(-_NOISE, _NOISE, (_COUNT, len(default)))
    base = [float(mechanism.base_path(one[None])[0, 2]) + _ABOVE for one in drawn]
    poses = settle(model, layout, _level(np.array(base), drawn), seconds=_SETTLING, damping=_STIFF)
    lies = quaternion.tilt(poses[:, 3:7]) < _UPRIGHT
    if int(lies.sum()) < _COUNT // 2:
        raise ConfigError(
            f"task.starts.lying: robot '{name}' tips over when it lies with folded legs, "
            f"{_COUNT - int(lies.sum())} of {_COUNT} times; leave it at 0, or choose task=stand_up"
        )
    return poses[lies]


def _level(heights: Floats, joints: Floats) -> Tensor:
    """Poses of level robots over the origin, (M, 7 + J)."""
    poses = np.zeros((len(joints), 7 + joints.shape[1]))
    poses[:, 2], poses[:, 3], poses[:, 7:] = heights, 1.0, joints
    return torch.from_numpy(poses)
