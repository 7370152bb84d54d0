"""A motion clip, a robot's base and joints frame by frame, and the files that hold one."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from robot_rl.core import quaternion
from robot_rl.core.errors import ConfigError, SpecMismatchError, StorageError
from robot_rl.core.robot import RobotSpec
from sim.rendering.files import load_arrays

Floats = NDArray[np.float64]

_UNIT_TOLERANCE = 0.01
"""Largest deviation of a quaternion's length from 1."""
_LIMIT_TOLERANCE = 0.1
"""Largest excess of a joint over its limits [rad]: retargeted motions touch them; they are cut."""
_LEAST_FPS, _MOST_FPS = 5.0, 1000.0


@dataclass(frozen=True, kw_only=True)
class Clip:
    """T frames of a robot with J joints, on level ground of height 0."""

    fps: float
    """Frames per second."""
    root_position: Floats
    """Of the floating base, (T, 3), [m], world axes, z up."""
    root_orientation: Floats
    """Base to world, unit quaternions wxyz, (T, 4)."""
    joint_position: Floats
    """(T, J), [rad], joint order of the robot."""

    @property
    def frames(self) -> int:
        """T."""
        return len(self.joint_position)

    @property
    def duration(self) -> float:
        """From the first frame to the last [s]."""
        return (self.frames - 1) / self.fps


def check_names(names: Sequence[str], robot: RobotSpec, *, owner: str) -> None:
    """Refuse a clip whose joints are not those of the robot, in its order.

    Raises:
        SpecMismatchError: Names differ, or stand in another order.
    """
    found, asked = list(names), robot.joint_names
    if found == asked:
        return
    missing = [name for name in asked if name not in found]
    strange = [name for name in found if name not in asked]
    if missing or strange:
        raise SpecMismatchError(
            f"{owner} is of another robot than '{robot.name}': it lacks joints {missing} and has "
            f"unknown ones {strange}; expected {asked}"
        )
    first = next(i for i, (one, other) in enumerate(zip(found, asked, strict=False))
                 if one != other)  # fmt: skip
    raise SpecMismatchError(
        f"{owner} has the joints of robot '{robot.name}' in another order: joint {first} is "
        f"'{found[first]}', expected '{asked[first]}'; reorder its columns to {asked}"
    )


def checked(clip: Clip, robot: RobotSpec, *, owner: str) -> Clip:
    """The clip with unit quaternions and joints within their limits.

    Raises:
        ConfigError: Shapes, rate, numbers, quaternions or joint positions cannot be.
    """
    shapes = {
        "root_position": (clip.frames, 3),
        "root_orientation": (clip.frames, 4),
        "joint_position": (clip.frames, robot.num_joints),
    }
    for name, expected in shapes.items():
        values = getattr(clip, name)
        if values.shape != expected:
            raise ConfigError(f"{owner}: {name} has shape {values.shape}, expected {expected}")
        bad = np.argwhere(~np.isfinite(values))
        if len(bad):
            raise ConfigError(
                f"{owner}: {name} is {values[tuple(bad[0])]} in frame {bad[0][0]}, column "
                f"{bad[0][1]} ({len(bad)} such numbers in all); expected finite ones"
            )
    if clip.frames < 2:
        raise ConfigError(f"{owner} has {clip.frames} frame(s), expected at least 2")
    if not _LEAST_FPS <= clip.fps <= _MOST_FPS:
        raise ConfigError(
            f"{owner}: {clip.fps:g} frames per second, expected {_LEAST_FPS:g} to {_MOST_FPS:g}"
        )
    length = np.linalg.norm(clip.root_orientation, axis=1)
    worst = int(np.abs(length - 1).argmax())
    if abs(length[worst] - 1) > _UNIT_TOLERANCE:
        raise ConfigError(
            f"{owner}: the quaternion of frame {worst} has length {length[worst]:.3f}, expected 1"
        )
    return Clip(
        fps=clip.fps,
        root_position=clip.root_position,
        root_orientation=clip.root_orientation / length[:, None],
        joint_position=_within_limits(clip.joint_position, robot, owner),
    )


def refuse_other_order(clip: Clip, *, owner: str) -> None:
    """Refuse quaternions that are upright only if their scalar is taken from the other end.

    Raises:
        ConfigError: Read as declared the robot lies, read the other way it stands.
    """
    q = clip.root_orientation
    declared = float(quaternion.tilt(q).mean())
    other = float(quaternion.tilt(np.concatenate([q[:, 1:], q[:, :1]], axis=1)).mean())
    if declared > 1.0 and other < 0.5:  # [rad]
        raise ConfigError(
            f"{owner}: its base leans by {np.degrees(declared):.0f} degrees on average, and by "
            f"{np.degrees(other):.0f} if the scalar of the quaternions comes first; expected "
            "quaternions xyzw, the scalar last"
        )


def _within_limits(joints: Floats, robot: RobotSpec, owner: str) -> Floats:
    limits = np.array([joint.position_limit for joint in robot.joints])
    beyond = np.maximum(limits[:, 0] - joints, joints - limits[:, 1])
    frame, joint = np.unravel_index(int(beyond.argmax()), beyond.shape)
    if beyond[frame, joint] > _LIMIT_TOLERANCE:
        raise ConfigError(
            f"{owner}: joint '{robot.joint_names[joint]}' is at {joints[frame, joint]:.3f} rad in "
            f"frame {frame}, expected {limits[joint].tolist()}; is it degrees, or another robot?"
        )
    return np.clip(joints, limits[:, 0], limits[:, 1])


_SUFFIXES = (".npz", ".csv")
_NEEDED = ("fps", "joint_names", "joint_position", "root_position")
_WXYZ, _XYZW = "root_orientation_wxyz", "root_orientation_xyzw"


def load_clip(path: Path, robot: RobotSpec, *, csv_fps: float) -> Clip:
    """Read a clip of a robot from an `.npz`, or from a `.csv` of so many frames per second.

    Raises:
        ConfigError: The file is missing, of another kind, or its numbers cannot be.
        SpecMismatchError: It is of another robot, or its joints stand in another order.
    """
    owner = f"clip {path}"
    if path.suffix not in _SUFFIXES:
        raise ConfigError(f"{owner}: expected a file that ends with {' or '.join(_SUFFIXES)}")
    if not path.is_file():
        raise ConfigError(f"{owner} does not exist; task.motion.file names a .npz or .csv file")
    clip = _read_npz(path, robot, owner) if path.suffix == ".npz" else _read_csv(
        path, robot, owner, csv_fps
    )  # fmt: skip
    return checked(clip, robot, owner=owner)


def _read_npz(path: Path, robot: RobotSpec, owner: str) -> Clip:
    try:
        arrays = load_arrays(path, what="motion clip", needed=_NEEDED)
    except StorageError as error:
        raise ConfigError(str(error)) from error
    orders = [name for name in (_WXYZ, _XYZW) if name in arrays]
    if len(orders) != 1:
        raise ConfigError(
            f"{owner} has {orders or 'no quaternions'}; expected one of {_WXYZ} and {_XYZW}, "
            f"(T, 4); it has {sorted(arrays)}"
        )
    check_names([str(name) for name in arrays["joint_names"].ravel()], robot, owner=owner)
    turns = _numbers(arrays[orders[0]], orders[0], owner)
    if orders[0] == _XYZW:
        turns = np.roll(turns, 1, axis=-1)
    return Clip(
        fps=_rate(arrays["fps"], owner),
        root_position=_numbers(arrays["root_position"], "root_position", owner),
        root_orientation=turns,
        joint_position=_numbers(arrays["joint_position"], "joint_position", owner),
    )


def _read_csv(path: Path, robot: RobotSpec, owner: str, fps: float) -> Clip:
    try:
        table = np.loadtxt(path, delimiter=",", ndmin=2)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{owner} is no table of numbers ({error}); expected lines of numbers between commas, "
            "without a header"
        ) from error
    expected = 7 + robot.num_joints
    if table.shape[1] != expected:
        raise ConfigError(
            f"{owner} has {table.shape[1]} columns, expected {expected} for robot '{robot.name}': "
            f"position (3), quaternion xyzw (4), {robot.num_joints} joints"
        )
    clip = Clip(
        fps=fps,
        root_position=table[:, :3],
        root_orientation=np.roll(table[:, 3:7], 1, axis=1),
        joint_position=table[:, 7:],
    )
    refuse_other_order(checked(clip, robot, owner=owner), owner=owner)
    return clip


def _rate(value: np.ndarray, owner: str) -> float:
    if value.size != 1 or value.dtype.kind not in "fiu":
        raise ConfigError(f"{owner}: fps must be one number, got {value!r}")
    return float(value.reshape(-1)[0])


def _numbers(value: np.ndarray, name: str, owner: str) -> np.ndarray:
    if value.dtype.kind not in "fiu":
        raise ConfigError(f"{owner}: {name} holds {value.dtype}, expected numbers")
    return value.astype(np.float64)
