"""The Allegro Hand against the manufacturer's description: frames, masses, limits."""

# pyright: reportAttributeAccessIssue=false
# The bindings of MuJoCo 4 carry no types.

import mujoco
import numpy as np
import pytest

from sim.physics.mujoco_model import load_model
from tests.sim.joint_robots import joint_robot

# allegro_hand_description_right.urdf: place and roll, pitch, yaw of each joint's frame in its
# parent, axis, range, in the order from the palm to the tip.
FINGER = (
    ((0.0, 0.0, 0.0164), (0.0, 0.0, 0.0), (0, 1, 0), (-0.196, 1.61)),
    ((0.0, 0.0, 0.054), (0.0, 0.0, 0.0), (0, 1, 0), (-0.174, 1.709)),
    ((0.0, 0.0, 0.0384), (0.0, 0.0, 0.0), (0, 1, 0), (-0.227, 1.618)),
)
CHAINS = {
    "ff": (((0.0, 0.0435, -0.001542), (-0.08726646255, 0, 0), (0, 0, 1), (-0.47, 0.47)), *FINGER),
    "mf": (((0.0, 0.0, 0.0007), (0.0, 0, 0), (0, 0, 1), (-0.47, 0.47)), *FINGER),
    "rf": (((0.0, -0.0435, -0.001542), (0.08726646255, 0, 0), (0, 0, 1), (-0.47, 0.47)), *FINGER),
    "th": (
        ((-0.0182, 0.019333, -0.045987), (0, -1.65806278845, -1.5707963259), (-1, 0, 0),
         (0.263, 1.396)),
        ((-0.027, 0.005, 0.0399), (0, 0, 0), (0, 0, 1), (-0.105, 1.163)),
        ((0.0, 0.0, 0.0177), (0, 0, 0), (0, 1, 0), (-0.189, 1.644)),
        ((0.0, 0.0, 0.0514), (0, 0, 0), (0, 1, 0), (-0.162, 1.719)),
    ),
}  # fmt: skip
TIPS = {"ff": 0.0267, "mf": 0.0267, "rf": 0.0267, "th": 0.0423}
MASSES = {
    **dict.fromkeys(("ff", "mf", "rf"), (0.0119, 0.065, 0.0355, 0.0096 + 0.0168)),
    "th": (0.0176, 0.0119, 0.038, 0.0388 + 0.0168),
}
PARTS = ("base", "proximal", "medial", "distal")


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    robot = joint_robot("allegro", "reorient")
    return load_model(robot.model, robot.spec, physics_dt=robot.physics_dt)


def frame(place: tuple[float, ...], angles: tuple[float, ...]) -> np.ndarray:
    """Frame at a place, turned by roll, pitch and yaw about the parent's axes, (4, 4)."""
    (cr, cp, cy), (sr, sp, sy) = np.cos(angles), np.sin(angles)
    roll = np.array([[1, 0, 0], [0, cr, -sr], [0, sr, cr]])
    pitch = np.array([[cp, 0, sp], [0, 1, 0], [-sp, 0, cp]])
    yaw = np.array([[cy, -sy, 0], [sy, cy, 0], [0, 0, 1]])
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = yaw @ pitch @ roll, place
    return pose


def turned(axis: tuple[int, int, int], angle: float) -> np.ndarray:
    """Turn about one of the axes, (4, 4)."""
    pose, turn, quaternion = np.eye(4), np.zeros(9), np.zeros(4)
    mujoco.mju_axisAngle2Quat(quaternion, np.array(axis, dtype=float), angle)
    mujoco.mju_quat2Mat(turn, quaternion)
    pose[:3, :3] = turn.reshape(3, 3)
    return pose


def test_every_tip_lies_where_the_published_frames_put_it(model: mujoco.MjModel) -> None:
    data = mujoco.MjData(model)
    rng = np.random.default_rng(0)
    for _ in range(10):
        data.qpos[:] = rng.uniform(*model.jnt_range.T)
        mujoco.mj_forward(model, data)
        palm = np.eye(4)
        palm[:3, :3], palm[:3, 3] = data.body("palm").xmat.reshape(3, 3), data.body("palm").xpos
        for finger, chain in CHAINS.items():
            pose = palm
            for i, (place, angles, axis, _) in enumerate(chain):
                angle = data.joint(f"{finger}j{i}").qpos[0]
                pose = pose @ frame(place, angles) @ turned(axis, angle)
                body = data.body(f"{finger}_{PARTS[i]}")
                np.testing.assert_allclose(body.xpos, pose[:3, 3], atol=1e-6)
                np.testing.assert_allclose(body.xmat.reshape(3, 3), pose[:3, :3], atol=1e-5)
            tip = pose @ np.array([0, 0, TIPS[finger], 1])
            np.testing.assert_allclose(data.site(f"{finger}_tip").xpos, tip[:3], atol=1e-6)


def test_masses_and_ranges_are_the_published_ones(model: mujoco.MjModel) -> None:
    robot = joint_robot("allegro", "reorient").spec
    ranges = {joint.name: joint.position_limit for joint in robot.joints}
    for finger, chain in CHAINS.items():
        for i, (_, _, _, limits) in enumerate(chain):
            name = f"{finger}j{i}"
            assert model.joint(name).range.tolist() == list(limits)
            assert ranges[name] == list(limits)
            mass = model.body(f"{finger}_{PARTS[i]}").mass[0]
            assert mass == pytest.approx(MASSES[finger][i], abs=1e-9)
    assert model.body("palm").mass[0] == pytest.approx(0.4154)


def test_the_palm_looks_up_and_fingers_bend_upwards(model: mujoco.MjModel) -> None:
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    assert data.site("palm_middle").xpos[2] > data.body("palm").xpos[2]
    flat = {f: data.site(f"{f}_tip").xpos.copy() for f in CHAINS}
    for finger in ("ff", "mf", "rf"):
        assert flat[finger][0] > 0.1  # ahead, along x
        data.joint(f"{finger}j1").qpos[0] = 1.0
    mujoco.mj_forward(model, data)
    for finger in ("ff", "mf", "rf"):
        assert data.site(f"{finger}_tip").xpos[2] > flat[finger][2] + 0.05
    assert flat["th"][1] < -0.03  # the thumb stands at -y


def test_fingers_meet_each_other_with_their_outer_links(model: mujoco.MjModel) -> None:
    data = mujoco.MjData(model)
    for finger in ("ff", "mf"):
        data.joint(f"{finger}j1").qpos[0] = 1.3  # bent, they swing to the side
    touching: list[bool] = []
    for share in np.linspace(-1, 1, 21):
        data.joint("ffj0").qpos[0], data.joint("mfj0").qpos[0] = 0.47 * share, -0.47 * share
        mujoco.mj_forward(model, data)
        touching.append(data.ncon > 0)
    assert any(touching)  # they do not pass through each other
    assert not all(touching)
