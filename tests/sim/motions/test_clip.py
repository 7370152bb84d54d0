"""Clips: what a file must say, and what is refused in which words."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.robot import JointSpec, RobotSpec
from sim.motions.clip import Clip, checked, load_clip

ROBOT = RobotSpec(
    name="biped",
    joints=[JointSpec(name=name, position_limit=[-1.0, 2.0]) for name in ("hip", "knee")],
)
YAW = np.array([np.cos(0.4), 0.0, 0.0, np.sin(0.4)])  # wxyz


def clip(**changes: Any) -> Clip:
    values: dict[str, Any] = {
        "fps": 30.0,
        "root_position": np.array([[0.0, 0.0, 0.7], [0.1, 0.0, 0.7], [0.2, 0.0, 0.7]]),
        "root_orientation": np.tile(YAW, (3, 1)),
        "joint_position": np.array([[0.0, 0.1], [0.2, 0.3], [0.4, 0.5]]),
    }
    return Clip(**(values | changes))


def arrays(**changes: Any) -> dict[str, Any]:
    one = clip()
    values = {
        "fps": one.fps, "joint_names": np.array(["hip", "knee"]),
        "joint_position": one.joint_position, "root_position": one.root_position,
        "root_orientation_wxyz": one.root_orientation,
    }  # fmt: skip
    return {name: value for name, value in (values | changes).items() if value is not None}


def write(path: Path, **changes: Any) -> Path:
    np.savez(path, **arrays(**changes))
    return path


def read(path: Path) -> Clip:
    return load_clip(path, ROBOT, csv_fps=30.0)


def test_clips_are_read_as_they_were_and_the_array_says_where_the_scalar_is(tmp_path):
    again = read(write(tmp_path / "one.npz"))
    assert again.fps == 30.0
    assert again.duration == pytest.approx(2 / 30)
    for name in ("root_position", "root_orientation", "joint_position"):
        np.testing.assert_allclose(getattr(again, name), getattr(clip(), name))
    xyzw = np.roll(clip().root_orientation, -1, axis=1)
    path = write(tmp_path / "a.npz", root_orientation_wxyz=None, root_orientation_xyzw=xyzw)
    np.testing.assert_allclose(read(path).root_orientation, clip().root_orientation)


def table(orientation: np.ndarray) -> np.ndarray:
    one = clip()
    return np.concatenate([one.root_position, orientation, one.joint_position], axis=1)


def test_csv_holds_position_quaternion_xyzw_and_joints(tmp_path):
    np.savetxt(
        tmp_path / "walk.csv", table(np.roll(clip().root_orientation, -1, axis=1)), delimiter=","
    )
    one = load_clip(tmp_path / "walk.csv", ROBOT, csv_fps=60.0)
    assert one.fps == 60.0
    np.testing.assert_allclose(one.root_orientation[0], YAW)
    np.testing.assert_allclose(one.joint_position, clip().joint_position)
    np.savetxt(tmp_path / "walk.csv", table(clip().root_orientation), delimiter=",")
    with pytest.raises(ConfigError, match="scalar of the quaternions comes first"):
        load_clip(tmp_path / "walk.csv", ROBOT, csv_fps=30.0)


def test_joints_of_another_robot_or_order_are_refused(tmp_path):
    for names, said in (
        (["knee", "hip"], "joint 0 is 'knee', expected 'hip'"),
        (["hip", "ankle"], r"lacks joints \['knee'\]"),
    ):
        with pytest.raises(SpecMismatchError, match=said):
            read(write(tmp_path / "a.npz", joint_names=np.array(names)))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"fps": 0.0}, "0 frames per second, expected 5"),
        ({"joint_position": clip().joint_position * np.nan}, "joint_position is nan in frame 0"),
        ({"joint_position": np.degrees(clip().joint_position)}, "is it degrees"),
        ({"joint_position": clip().joint_position[:, :1]}, r"joint_position has shape \(3, 1\)"),
        ({"root_orientation_wxyz": 2 * clip().root_orientation}, "has length 2.000, expected 1"),
        ({"root_orientation_xyzw": clip().root_orientation}, "expected one of"),
        ({"root_position": None}, "it has no root_position"),
        ({name: value[:1] for name, value in arrays().items()
          if name in ("joint_position", "root_position", "root_orientation_wxyz")}, "1 frame"),
    ],
)  # fmt: skip
def test_numbers_that_cannot_be_are_refused_by_name(tmp_path, changes, said):
    with pytest.raises(ConfigError, match=said):
        read(write(tmp_path / "a.npz", **changes))


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.bvh", "", "ends with .npz or .csv"), ("gone.npz", None, "does not exist"),
        ("a.npz", "text", "not a readable motion clip"), ("a.csv", "x,y\n", "no table of numbers"),
        ("a.csv", "1,2,3\n1,2,3\n", "3 columns, expected 9"),
    ],
)  # fmt: skip
def test_files_of_another_kind_are_refused(tmp_path, name, text, said):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=said):
        read(tmp_path / name)


def test_joints_a_little_beyond_their_limits_are_cut():
    joints = clip().joint_position.copy()
    joints[1, 1] = 2.05
    assert checked(clip(joint_position=joints), ROBOT, owner="it").joint_position[1, 1] == 2.0
