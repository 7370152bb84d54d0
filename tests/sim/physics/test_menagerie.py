"""Robots with the published mechanism of MuJoCo Menagerie: what is theirs and what stays ours."""

# pyright: reportAttributeAccessIssue=false
# The bindings of MuJoCo 4 carry no types.

import importlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch

from robot_rl.core.errors import ConfigError, SpecMismatchError
from sim.physics.mujoco_model import ROBOTS, load_model
from sim.robots.joint_robot import JointRandomization, JointRobotConfig
from sim.robots.joint_simulation import MujocoSimulation
from tests.compositions import composed
from tests.matrices import some
from tests.sim.robots.published import MODELS, assert_same_mechanism
from tests.sim.robots.quadruped import quadruped

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
    return replace(quadruped(request.param), model="menagerie")


def load(robot: JointRobotConfig) -> mujoco.MjModel:
    return load_model(
        robot.model, robot.spec, physics_dt=robot.physics_dt, menagerie=robot.menagerie
    )


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


def test_sensors_read_the_same_on_the_published_links(checkout, robot):
    publish(checkout, robot.spec.name)
    readings = []
    for model in (load(robot), load(replace(robot, model=f"{robot.spec.name}.xml"))):
        data = mujoco.MjData(model)
        data.qpos[2] = 0.8  # in the air: the solvers differ in what they do to contacts
        data.qpos[7:] = [joint.default_position + 0.1 for joint in robot.spec.joints]
        data.qvel[:] = np.linspace(-1, 1, model.nv)
        mujoco.mj_forward(model, data)
        readings.append(data.sensordata.copy())
    np.testing.assert_allclose(readings[0], readings[1], atol=2e-4)


def test_simulation_stands_on_the_published_legs(checkout: Path, robot: JointRobotConfig) -> None:
    publish(checkout, robot.spec.name)
    model = load(robot)
    data = mujoco.MjData(model)
    data.qpos[7:] = [joint.default_position for joint in robot.spec.joints]
    data.ctrl[:] = [joint.stiffness * joint.default_position for joint in robot.spec.joints]
    for _ in range(400):
        mujoco.mj_step(model, data)
    force = sum(data.sensor(f"foot_force/{foot}").data[0] for foot in robot.spec.feet)
    assert force == pytest.approx(model.body_mass.sum() * 9.81, rel=5e-3)
    simulation = MujocoSimulation(
        robot, JointRandomization(), num_worlds=2, device=torch.device("cpu"), seed=0
    )
    assert simulation.true_state.foot_force.shape == (2, 4)


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


def test_a_checkout_without_the_robot_says_what_it_has(checkout, robot):
    publish(checkout, robot.spec.name)
    name = robot.spec.name
    with pytest.raises(ConfigError, match=rf"no unitree_{name}/{name}_mjx\.xml .*known: {name}"):
        load(replace(robot, menagerie=f"unitree_{name}/{name}_mjx"))


@pytest.mark.parametrize("entry", ["", "unitree_go2", "/go2"])
def test_an_entry_without_folder_or_file_is_refused(entry: str, robot: JointRobotConfig) -> None:
    with pytest.raises(ConfigError, match=r"needs robot\.menagerie, folder and file .*, got '"):
        load(replace(robot, menagerie=entry))


@pytest.fixture
def without_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path of imports, and no checkout; a package from it is forgotten again."""
    monkeypatch.delenv("MENAGERIE_ROOT", raising=False)
    monkeypatch.delitem(sys.modules, "mujoco_menagerie", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("mujoco_menagerie", None)


def test_a_failed_download_is_one_clear_sentence(without_checkout, robot):
    (without_checkout / "mujoco_menagerie.py").write_text(PACKAGE)
    importlib.invalidate_caches()
    name = robot.spec.name
    told = rf"does not bring unitree_{name}/{name}: .*service not"
    with pytest.raises(ConfigError, match=told) as e:
        load(robot)
    assert "set MENAGERIE_ROOT to a checkout" in str(e.value)
    assert "\n" not in str(e.value)


def test_a_missing_package_says_what_to_install(without_checkout, robot):
    (without_checkout / "mujoco_menagerie.py").write_text("raise ImportError('not here')")
    importlib.invalidate_caches()
    told = r"pip install mujoco-menagerie, or set MENAGERIE_ROOT to a checkout"
    with pytest.raises(ConfigError, match=told):
        load(robot)


def test_the_published_go2_stands(checkout: Path) -> None:
    if not (MODELS / "go2.xml").is_file():
        pytest.skip("no published go2.xml beside the repository; one of our making is tested")
    (checkout / "unitree_go2").mkdir(parents=True)
    (checkout / "unitree_go2" / "go2.xml").write_text((MODELS / "go2.xml").read_text())
    robot = replace(quadruped("go2"), model="menagerie")
    model = load(robot)
    assert model.body_mass.sum() == pytest.approx(15.2064, abs=1e-4)
    data = mujoco.MjData(model)
    data.qpos[7:] = [joint.default_position for joint in robot.spec.joints]
    data.ctrl[:] = [joint.stiffness * joint.default_position for joint in robot.spec.joints]
    for _ in range(600):
        mujoco.mj_step(model, data)
    assert 0.26 < data.qpos[2] < 0.32
    assert all(data.sensor(f"body_contact/{leg}_thigh").data[0] == 0 for leg in robot.spec.feet)


def write_panda(checkout: Path, **changes: str) -> JointRobotConfig:
    """Put the published Panda into the checkout, or skip; the robot that asks for it."""
    if not (MODELS / "panda.xml").is_file():
        pytest.skip("no published panda.xml beside the repository")
    (checkout / "franka_emika_panda").mkdir(parents=True)
    text = (MODELS / "panda.xml").read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (checkout / "franka_emika_panda" / "panda.xml").write_text(text)
    robot = composed(["task=reach", "robot=panda"]).config.robot
    assert isinstance(robot, JointRobotConfig)
    return replace(robot, model="menagerie")


def test_the_published_panda_holds_its_pose_as_its_controller_bears_its_weight(checkout):
    robot = write_panda(checkout)
    model = load(robot)
    data = mujoco.MjData(model)
    pose = [joint.default_position for joint in robot.spec.joints]
    data.qpos[:7] = pose
    data.ctrl[:7] = [joint.stiffness * joint.default_position for joint in robot.spec.joints]
    for _ in range(400):
        mujoco.mj_step(model, data)
    np.testing.assert_allclose(data.qpos[:7], pose, atol=1e-3)  # sinks by 0.037 without


def test_a_link_whose_weight_nobody_can_bear_is_named(checkout: Path) -> None:
    robot = write_panda(checkout, **{'body name="link5"': 'body name="forearm"'})
    told = "has no body 'link5', whose weight the robot's controller bears"
    with pytest.raises(ConfigError, match=told):
        load(robot)
