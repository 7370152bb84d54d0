"""Robots with the published mechanism of MuJoCo Menagerie: what is theirs and what stays ours."""

# pyright: reportAttributeAccessIssue=false
# The bindings of MuJoCo 4 carry no types.

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest

from robot_rl.core.errors import ConfigError, SpecMismatchError
from sim.physics.mujoco_model import ROBOTS, load_model
from sim.robots.joint_robot import JointRobotConfig
from sim.scenes.scene import SceneConfig
from sim.scenes.terrain import TerrainConfig
from tests.matrices import some
from tests.sim.joint_robots import joint_robot
from tests.sim.robots.published import MODELS, assert_same_mechanism

PACKAGE = """
class MenagerieError(Exception):
    pass

class DownloadError(MenagerieError):
    pass

class Robot:
    def __init__(self, name):
        self.name = name

    def xml(self, entry):
        raise DownloadError(f"{self.name}: <urlopen error Name or service not known>")

get = Robot
"""
"""What the package does on a machine without internet."""


def publish(folder: Path, name: str, **changes: str) -> None:
    """Write a model as Menagerie would: our mechanism with motors, keyframe and drawings.

    Args:
        folder: The checkout.
        name: Robot of ours.
        changes: Text of the file -> what stands there instead, both with "_" for nothing.
    """
    tree = mujoco.MjSpec.from_file(str(ROBOTS / f"{name}.xml"))
    for part in (*tree.sensors, *tree.sites, tree.geom("floor")):
        tree.delete(part)
    base = tree.worldbody.bodies[0]
    base.name, base.joints[0].name = "trunk", ""
    drawing = base.add_geom(name="drawing", contype=0, conaffinity=0, group=2)
    drawing.type, drawing.size = mujoco.mjtGeom.mjGEOM_BOX, [0.2, 0.1, 0.1]
    imu = base.add_site(name="imu")
    imu.pos = [9, 9, 9]
    for joint in list(tree.joints)[1:]:
        tree.add_actuator(name=joint.name, target=joint.name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
    tree.add_key(name="home")
    for add in (tree.worldbody.add_light, base.add_camera):
        add(name=f"theirs_{add.__name__}", targetbody="trunk")
    tree.add_exclude(bodyname1="trunk", bodyname2=base.first_body().name)
    tree.add_sensor(
        name="theirs", type=mujoco.mjtSensor.mjSENS_FRAMEPOS,
        objtype=mujoco.mjtObj.mjOBJ_BODY, objname="trunk",
    )  # fmt: skip
    tree.compile()
    text = tree.to_xml()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (folder / f"unitree_{name}").mkdir(parents=True)
    (folder / f"unitree_{name}" / f"{name}.xml").write_text(text)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MENAGERIE_ROOT", str(tmp_path / "menagerie"))
    return tmp_path / "menagerie"


@pytest.fixture(params=some(["go1"], ["go2"]))
def robot(request: pytest.FixtureRequest) -> JointRobotConfig:
    return replace(joint_robot(request.param, "velocity"), model="menagerie")


def load(robot: JointRobotConfig) -> mujoco.MjModel:
    return load_model(
        robot.model, robot.spec, physics_dt=robot.physics_dt, menagerie=robot.menagerie
    )


def test_a_published_robot_stands_unturned_on_hills_alone(checkout, robot):
    publish(
        checkout, robot.spec.name, **{'<body name="trunk"': '<body name="trunk" quat="1 0 0 1"'}
    )
    model = load_model(
        robot.model, robot.spec, physics_dt=robot.physics_dt, menagerie=robot.menagerie,
        scene=SceneConfig(terrain=TerrainConfig(levels=1, kinds=["flat"])),
    )  # fmt: skip
    assert model.body("base").quat.tolist() == [1, 0, 0, 0]
    kinds = model.geom_type[model.geom_bodyid == 0].tolist()
    assert kinds == [int(mujoco.mjtGeom.mjGEOM_HFIELD)]


@pytest.mark.slow
def test_mechanism_is_theirs_and_motors_sensors_and_ground_are_ours(checkout, robot):
    publish(checkout, robot.spec.name)
    ours = load(replace(robot, model=f"{robot.spec.name}.xml"))
    model = load(robot)
    bodies = {name: name for i in range(1, ours.nbody) if (name := ours.body(i).name)}
    assert_same_mechanism(ours, model, bodies=bodies, inertia_atol=1e-8, place_atol=1e-6)
    assert [model.actuator(i).name for i in range(model.nu)] == robot.spec.joint_names
    np.testing.assert_allclose(model.actuator_forcerange, ours.actuator_forcerange)
    names = [[m.sensor(i).name for i in range(m.nsensor)] for m in (model, ours)]
    assert names[0] == names[1]
    np.testing.assert_array_equal(model.sensor_dim, ours.sensor_dim)
    np.testing.assert_allclose(model.site("imu").pos, ours.site("imu").pos)
    assert model.nkey == 0
    assert (model.nlight, model.ncam) == (ours.nlight, ours.ncam)
    assert "drawing" not in [model.geom(i).name for i in range(model.ngeom)]
    assert (model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE).sum() == 1
    assert (model.opt.cone, model.opt.integrator) == (ours.opt.cone, ours.opt.integrator)
    # In the air: the solvers differ in what they do to contacts.
    assert_same_sensors(model, ours, robot, height=0.8)


def assert_same_sensors(
    one: mujoco.MjModel, other: mujoco.MjModel, robot: JointRobotConfig, *, height: float = 0.0,
    felt: bool = True,
) -> None:  # fmt: skip
    """All sensors agree at a pose and velocities that are no symmetric ones.

    Args:
        height: Of a floating base [m].
        felt: Accelerations too, which friction and damping of the joints change.
    """
    readings = []
    for model in (one, other):
        data = mujoco.MjData(model)
        joints = [joint.default_position + 0.1 for joint in robot.spec.joints]
        first = 7 if height else 0  # behind a floating base
        if height:
            data.qpos[2] = height
        data.qpos[first : first + len(joints)] = joints
        data.qvel[:] = np.linspace(-1, 1, model.nv)
        mujoco.mj_forward(model, data)
        readings.append(data.sensordata.copy())
    if not felt:
        kinds = np.repeat(one.sensor_type, one.sensor_dim)
        seen = kinds != mujoco.mjtSensor.mjSENS_ACCELEROMETER
        readings = [reading[seen] for reading in readings]
    np.testing.assert_allclose(readings[0], readings[1], atol=2e-4)


@pytest.mark.parametrize(
    ("old", "new", "error", "told"),
    [
        ("FL_calf_joint", "FL_knee_joint", SpecMismatchError,
         r"'go[12]'.*lacks \['FL_calf_joint'\]"),
        ('body name="RL_calf"', 'body name="RL_shank"', ConfigError,
         "sensor 'foot_force/RL' belongs to link 'RL_calf'"),
        ('body name="RL_thigh"', 'body name="RL_femur"', ConfigError,
         "has no body 'RL_thigh', which our sensor 'body_contact/RL_thigh' looks at"),
    ],
)  # fmt: skip
def test_joints_and_links_of_the_spec_that_are_not_there_are_named(
    checkout, robot, old, new, error, told
):
    publish(checkout, robot.spec.name, **{old: new})
    with pytest.raises(error, match=told):
        load(robot)


def test_entries_that_are_not_there_say_what_is(checkout, robot):
    publish(checkout, robot.spec.name)
    name = robot.spec.name
    with pytest.raises(ConfigError, match=rf"no unitree_{name}/{name}_mjx\.xml .*known: {name}"):
        load(replace(robot, menagerie=f"unitree_{name}/{name}_mjx"))
    for entry in ("", "unitree_go2", "/go2"):
        with pytest.raises(ConfigError, match=r"robot\.menagerie, folder and file .*, got '"):
            load(replace(robot, menagerie=entry))


@pytest.mark.parametrize(
    ("package", "told"),
    [
        (PACKAGE, "not bring unitree_go1/go1: .*service not.*set MENAGERIE_ROOT to a checkout"),
        ("raise ImportError('not here')",
         "pip install mujoco-menagerie, or set MENAGERIE_ROOT to a checkout"),
    ],
)  # fmt: skip
def test_a_failed_download_or_a_missing_package_is_one_clear_sentence(
    tmp_path, monkeypatch, package, told
):
    monkeypatch.delenv("MENAGERIE_ROOT", raising=False)
    monkeypatch.delitem(sys.modules, "mujoco_menagerie", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "mujoco_menagerie.py").write_text(package)
    importlib.invalidate_caches()
    with pytest.raises(ConfigError, match=told) as caught:
        load(replace(joint_robot("go1", "velocity"), model="menagerie"))
    assert "\n" not in str(caught.value)
    sys.modules.pop("mujoco_menagerie", None)


@pytest.mark.parametrize(
    ("name", "entry", "height", "inertia_atol", "place_atol"),
    [
        ("go2", "unitree_go2/go2", 1.0, 1e-12, 1e-9),
        ("g1", "unitree_g1/g1", 1.5, 1e-12, 1e-9),
        ("panda", "franka_emika_panda/panda", 0.0, 2e-6, 3e-6),  # written with six digits
        ("ur5e", "universal_robots_ur5e/ur5e", 0.0, 1e-9, 3e-6),
    ],
)
def test_models_of_ours_have_the_published_mechanism_and_sensors(
    checkout, name, entry, height, inertia_atol, place_atol
):
    published = MODELS / f"{name}.xml"
    if not published.is_file():
        pytest.skip(f"no published {name}.xml beside the repository")
    (checkout / entry).parent.mkdir(parents=True)
    (checkout / entry).with_suffix(".xml").write_text(published.read_text())
    robot = joint_robot(name, "velocity" if height else "reach")
    ours, theirs = load(robot), load(replace(robot, model="menagerie"))
    bodies = {ours.body(i).name: ours.body(i).name for i in range(1, ours.nbody)}
    assert_same_mechanism(
        ours, theirs, bodies=bodies, inertia_atol=inertia_atol, place_atol=place_atol
    )
    assert_same_sensors(ours, theirs, robot, height=height, felt=False)
    if not height:  # the controller bears the weight: a pose sinks by 0.037 rad without
        data, pose = mujoco.MjData(theirs), [joint.default_position for joint in robot.spec.joints]
        data.qpos[: len(pose)] = pose
        data.ctrl[: len(pose)] = np.multiply([joint.stiffness for joint in robot.spec.joints], pose)
        for _ in range(400):
            mujoco.mj_step(theirs, data)
        np.testing.assert_allclose(data.qpos[: len(pose)], pose, atol=1e-3)
