"""Terrain in MuJoCo: rays hit where heights are looked up, and feet stand there."""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

import mujoco
import numpy as np
import pytest
import torch

from sim.physics.mujoco_model import load_model
from sim.physics.mujoco_scene import add_terrain
from sim.scenes.scene import SceneConfig
from sim.scenes.terrain import Terrain, TerrainConfig
from tests.sim.legs import go2

CPU = torch.device("cpu")
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


def test_the_floor_is_gone_and_the_ground_touches_what_the_floor_touched(
    model: mujoco.MjModel,
) -> None:
    names = [model.geom(i).name for i in range(model.ngeom)]
    assert "floor" not in names
    ground = model.geom("terrain")
    assert (int(ground.contype[0]), int(ground.conaffinity[0])) == (0, 1)


def test_a_ball_rests_on_the_ground_where_it_was_looked_up() -> None:
    tree = mujoco.MjSpec.from_string(
        '<mujoco><worldbody><body name="ball"><freejoint/>'
        '<geom type="sphere" size="0.1" contype="1" mass="1"/></body></worldbody></mujoco>'
    )
    add_terrain(tree, GROUND)
    model = tree.compile()
    data = mujoco.MjData(model)
    ground = Terrain(GROUND, CPU)
    for kind in ("stairs_up", "slope_down"):  # a pit and a hill, each with a platform
        column = torch.tensor(GROUND.kinds.index(kind))
        x, y, z = ground.origin(torch.tensor(1), column).tolist()
        mujoco.mj_resetData(model, data)
        data.qpos[:3] = x, y, z + 0.12
        mujoco.mj_step(model, data, nstep=1000)
        assert data.qpos[2] == pytest.approx(z + 0.1, abs=2e-3)
