"""Clips from files: our `.npz`, and `.csv` as LAFAN1 retargeted to Unitree's robots comes in.

`.npz`: `fps`, `joint_names` (J), `joint_position` (T, J), `root_position` (T, 3), and
`root_orientation_wxyz` or `root_orientation_xyzw` (T, 4): the name says where the scalar is.

`.csv`: a frame a line, without a header: root position (3), quaternion xyzw (4), joints in the
robot's order; the frame rate is not in it (the data set says 30).
"""

from pathlib import Path

import numpy as np

from robot_rl.core.errors import ConfigError, StorageError
from robot_rl.core.robot import RobotSpec
from sim.film.files import load_arrays, save_arrays
from sim.motions.clip import Clip, check_names, checked, refuse_other_order

_SUFFIXES = (".npz", ".csv")
_NEEDED = ("fps", "joint_names", "joint_position", "root_position")
_WXYZ, _XYZW = "root_orientation_wxyz", "root_orientation_xyzw"


def load_clip(path: Path, robot: RobotSpec, *, csv_fps: float) -> Clip:
    """Read a clip of a robot.

    Args:
        path: An `.npz` or a `.csv`.
        robot: Whose motion it is.
        csv_fps: Frames per second of a `.csv`.

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


def save_clip(path: Path, clip: Clip, robot: RobotSpec) -> None:
    """Write a clip as `.npz`.

    Raises:
        StorageError: The file cannot be written.
    """
    save_arrays(
        path,
        {
            "fps": clip.fps,
            "joint_names": np.array(robot.joint_names),
            "joint_position": clip.joint_position,
            "root_position": clip.root_position,
            _WXYZ: clip.root_orientation,
        },
    )


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
