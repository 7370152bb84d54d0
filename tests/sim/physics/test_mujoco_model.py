"""Models of robots with their scenes: units, tools, objects, terrain."""

# pyright: reportAttributeAccessIssue=false
# The bindings of MuJoCo 4 carry no types.

import re
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
import torch

from robot_rl.core.errors import ConfigError, SpecMismatchError
from sim.physics.mujoco_model import ROBOTS, load_model
from sim.robots.joint_robot import JointRandomization, JointRobotConfig
from sim.robots.joint_simulation import MujocoSimulation
from sim.scenes.scene import SceneConfig
from sim.scenes.terrain import Terrain, TerrainConfig
from tests.compositions import composed
from tests.matrices import some
from tests.sim.arms import CPU, begin, panda
from tests.sim.legs import go2


def scaled(text: str, length: float = 1.0, mass: float = 1.0, inertia: float = 1.0) -> str:
    """A robot's MJCF as another program would write it."""

    def times(factor: float):
        return lambda found: (
            f'{found[1]}="' + " ".join(str(factor * float(n)) for n in found[2].split()) + '"'
        )

    kinds = {"pos|size|fromto": length, "mass": mass, "(?:full|diag)inertia": inertia}
    for names, factor in kinds.items():
        text = re.sub(rf'\b({names})="([^"]*)"', times(factor), text)
    return text


@pytest.fixture(params=some(["panda"], ["go2", "g1"]))
def robot(request: pytest.FixtureRequest) -> JointRobotConfig:
    task = "reach" if request.param == "panda" else "velocity"
    config = composed([f"task={task}", f"robot={request.param}"]).config.robot
    assert isinstance(config, JointRobotConfig)
    return config


@pytest.mark.parametrize(
    ("factors", "told"),
    [
        ({"length": 1000.0}, r"; expected at most 10 m: is the file in millimetres\?"),
        ({"mass": 1000.0, "inertia": 1000.0}, r"has a mass of .* is the file in grams\?"),
        ({"inertia": 1e6}, r"has an inertia of .* are inertias in kg mm\^2 or g mm\^2\?"),
    ],
    ids=["millimetres", "grams", "inertias in kg mm^2"],
)
def test_a_file_in_other_units_is_refused(robot, factors, told, tmp_path):
    file = tmp_path / "model.xml"
    file.write_text(scaled((ROBOTS / robot.model).read_text(), **factors))
    with pytest.raises(SpecMismatchError, match=f"^robot '{robot.spec.name}': link '.*{told}"):
        load_model(str(file), robot.spec, physics_dt=robot.physics_dt)


BOTH, FIRST = torch.tensor([True, True]), torch.tensor([True, False])
SCENE = """<mujoco><worldbody>
  <body name="post" mocap="true" pos="0.6 0 0"><geom size="0.01"/><site name="top"/>
    <body name="flap"><joint name="flap" axis="0 1 0"/><geom size="0.01" pos="0 0 0.1"/></body>
  </body>
  <body name="ball" pos="0.5 0 0.5"><freejoint name="ball"/><geom size="0.02"/></body>
  </worldbody><sensor>
  <framepos name="ball" objtype="body" objname="ball"/>
  <framepos name="probe" objtype="site" objname="probe" reftype="site" refname="top"/>
  <jointpos name="flap" joint="flap"/>
  </sensor></mujoco>"""
TOOL = """<mujoco><worldbody><body name="stick"><geom size="0.01" mass="0.1"/>
  <site name="probe" pos="0 0 0.1"/></body></worldbody></mujoco>"""


def furnished(
    tmp_path: Path, *, around: str = SCENE, carried: str = TOOL, **changes: Any
) -> SceneConfig:
    """A scene of two files."""
    (tmp_path / "scene.xml").write_text(around)
    (tmp_path / "tool.xml").write_text(carried)
    files: dict[str, Any] = {"file": f"{tmp_path}/scene.xml", "tool": f"{tmp_path}/tool.xml"}
    return SceneConfig(**(files | changes))


def worlds(scene: SceneConfig, count: int = 2) -> MujocoSimulation:
    return MujocoSimulation(
        panda(noise=False), JointRandomization(), num_worlds=count, device=CPU, seed=0, scene=scene
    )


def test_objects_and_fixtures_begin_where_the_task_says_and_tools_are_carried(tmp_path, recwarn):
    simulation = worlds(furnished(tmp_path))
    assert not recwarn.list
    pose = torch.tensor([[0.4, 0.1, 0.8, 1.0, 0.0, 0.0, 0.0]])
    begin(simulation, BOTH)
    post = pose - torch.tensor([0.0, 0.0, 0.8, 0.0, 0.0, 0.0, 0.0])
    begin(simulation, ~FIRST, scene={"ball": pose, "post": post, "flap": torch.tensor([[0.3]])})
    sensors = simulation.sensors
    torch.testing.assert_close(sensors["ball"], torch.tensor([[0.5, 0.0, 0.5], [0.4, 0.1, 0.8]]))
    torch.testing.assert_close(sensors["flap"], torch.tensor([[0.0], [0.3]]))
    # The hand points down: the probe is 10 cm below the end effector.
    below = simulation.true_state.end_effector_position_b - torch.tensor([0.0, 0.0, 0.1])
    posts = torch.tensor([[0.6, 0.0, 0.0], [0.4, 0.1, 0.0]])
    torch.testing.assert_close(sensors["probe"], below - posts, atol=1e-5, rtol=0)


def test_a_fixture_that_the_start_leaves_out_stands_where_the_model_has_it(tmp_path: Path) -> None:
    simulation = worlds(furnished(tmp_path))
    moved = torch.tensor([[0.3, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]])
    begin(simulation, FIRST, scene={"post": moved})
    begin(simulation, BOTH)
    torch.testing.assert_close(
        simulation.engine.fixtures[0][:, 0], torch.tensor([[0.6, 0.0, 0.0]] * 2).double()
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tool_site": "end_efector"}, "did you mean 'end_effector'"),
        ({"tool": "stik.xml"}, r"tool: no model file .*stik\.xml.*; known: .*peg\.xml"),
        ({"file": "cub.xml"}, r"file .*cub\.xml \(did you mean 'cube\.xml'\?\); known: .*cube"),
    ],
)
def test_scenes_that_are_not_there_are_refused(tmp_path, changes, message):
    with pytest.raises(ConfigError, match=message):
        worlds(furnished(tmp_path, **changes))


def test_loose_tools_and_joints_without_names_are_refused(tmp_path: Path) -> None:
    loose = TOOL.replace("<geom", '<joint name="swings"/><geom')
    with pytest.raises(ConfigError, match=r"tool .*tool\.xml has joints; .* must be rigid"):
        worlds(furnished(tmp_path, carried=loose))
    unnamed = SCENE.replace('<joint name="flap" ', "<joint ")
    unnamed = unnamed.replace('<jointpos name="flap" joint="flap"/>', "")
    with pytest.raises(ConfigError, match=r"1 joint\(s\) have no name"):
        worlds(furnished(tmp_path, around=unnamed))


GROUND = TerrainConfig(levels=2, border=1.0)


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    robot = go2()
    scene = SceneConfig(terrain=GROUND)
    return load_model(robot.model, robot.spec, physics_dt=robot.physics_dt, scene=scene)


def test_heights_are_where_rays_from_above_hit_the_compiled_model(model: mujoco.MjModel) -> None:
    ground = Terrain(GROUND, CPU)
    data = mujoco.MjData(model)
    data.qpos[2] = 50.0  # the robot is out of the way
    mujoco.mj_forward(model, data)
    unit = torch.rand((1000, 2), generator=torch.Generator().manual_seed(0))
    places = (2 * unit - 1) * torch.tensor(ground.half_size)
    hit, geom = [], np.zeros(1, dtype=np.int32)
    for x, y in places.tolist():
        way = mujoco.mj_ray(
            model, data, np.array([x, y, 5.0]), np.array([0.0, 0.0, -1.0]), None, 1, -1, geom
        )
        hit.append(5.0 - way)
    # float32 over a field of 58 m: the place within a cell is known to a few micrometres.
    assert np.abs(np.array(hit) - ground.height(places).numpy()).max() < 2e-5


def test_the_floor_is_gone_and_the_ground_touches_what_the_floor_touched(model):
    names = [model.geom(i).name for i in range(model.ngeom)]
    assert "floor" not in names
    ground = model.geom("terrain")
    assert (int(ground.contype[0]), int(ground.conaffinity[0])) == (0, 1)
