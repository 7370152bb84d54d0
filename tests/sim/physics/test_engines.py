"""Laws of both engines that step robots with joints: MuJoCo on CPU threads, and MuJoCo Warp."""

# pyright: reportAttributeAccessIssue=false
# The bindings of MuJoCo 4 carry no types.

import copy
from functools import partial
from typing import Any

import mujoco
import numpy as np
import pytest
import torch

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError, ShapeError
from sim.physics.mujoco_engine import MujocoEngine
from tests.equality import assert_same

PENDULUMS = """
<mujoco>
  <option timestep="0.01" integrator="implicitfast"/>
  <worldbody>
    <body>
      <joint name="upper" axis="0 1 0" damping="0.1"/>
      <geom type="capsule" size="0.02" fromto="0 0 0 0 0 -0.5" mass="1"/>
      <body name="lower" pos="0 0 -0.5">
        <joint name="lower" axis="0 1 0" damping="0.1"/>
        <geom name="bob" type="capsule" size="0.02" fromto="0 0 0 0 0 -0.5" mass="1"/>
        <site name="tip" pos="0 0 -0.5"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="upper"/></actuator>
  <sensor>
    <framepos name="tip" objtype="site" objname="tip"/>
    <jointvel name="rate" joint="lower"/>
  </sensor>
</mujoco>
"""
WORLDS = 5


OTHERS = [0, 1, 3, 4]


def warp_engine(*parts: Any, **named: Any) -> Any:
    from sim.physics.warp_engine import MujocoWarpEngine  # takes seconds: not for quick tests

    return MujocoWarpEngine(*parts, **named)


ENGINES = {"c": partial(MujocoEngine, threads=1), "warp": warp_engine}
both = pytest.mark.parametrize("kind", ["c", pytest.param("warp", marks=pytest.mark.slow)])
NAN = float("nan")


def pendulums(kind: str = "c", count: int = WORLDS, **arguments: Any) -> Any:
    """Double pendulums with different starts and torques."""
    model = mujoco.MjModel.from_xml_string(PENDULUMS)
    engine = ENGINES[kind](model, count, **{"decimation": 4, **arguments})
    rng = np.random.default_rng(0)
    qpos, qvel, torque = (torch.from_numpy(rng.uniform(-1, 1, (count, n))) for n in (2, 2, 1))
    engine.reset(EnvSelection(torch.ones(count, dtype=torch.bool)), qpos, qvel, torque)
    return engine


def picked(*ids: int) -> EnvSelection:
    mask = torch.zeros(WORLDS, dtype=torch.bool)
    mask[list(ids)] = True
    return EnvSelection(mask)


def at_rest(count: int) -> list[torch.Tensor]:
    """Positions, velocities and torques of pendulums that hang still."""
    return [torch.zeros(count, n) for n in (2, 2, 1)]


@both
def test_sensors_tell_of_the_present_state_not_of_the_last_substep(kind: str) -> None:
    engine = pendulums(kind)
    for _ in range(3):
        engine.step()
        upper, lower = engine.qpos[:, 0], engine.qpos.sum(-1)
        height = -0.5 * upper.cos() - 0.5 * lower.cos()
        torch.testing.assert_close(engine.sensors["tip"][:, 2], height)
        torch.testing.assert_close(engine.sensors["rate"][:, 0], engine.qvel[:, 1])
        assert torch.equal(engine.motion, torch.cat([engine.qpos, engine.qvel], dim=1))
    engine.reset(picked(1), torch.zeros(1, 2), torch.ones(1, 2), torch.zeros(1, 1))
    assert engine.sensors["tip"][1].tolist() == pytest.approx([0, 0, -1])
    assert float(engine.sensors["rate"][1]) == 1.0


@both
def test_nothing_of_its_past_remains_in_a_world_that_was_reset_and_the_others_go_on(kind):
    engine, twin, fresh = (pendulums(kind) for _ in range(3))
    for each in (engine, twin):
        each.step()
    start = [torch.ones(2, 2), *at_rest(2)[1:]]
    for each in (engine, fresh):
        each.reset(picked(0, 4), *start)
    others = [1, 2, 3]
    for _ in range(3):
        for name in ("qpos", "qvel", "sensordata"):
            here, there, new = (getattr(each, name) for each in (engine, twin, fresh))
            assert torch.equal(here[others], there[others])
            assert torch.equal(here[[0, 4]], new[[0, 4]])
        for each in (engine, twin, fresh):
            each.step()


@both
def test_a_restored_state_goes_on_bit_equal_in_another_engine(kind: str) -> None:
    engine, other = pendulums(kind), pendulums(kind)
    alike = engine.state_dict()
    engine.model_field("body_mass")[2] *= 1.7
    engine.model_field("dof_damping")[:, 1] = torch.linspace(0, 1, WORLDS)
    engine.update_constants(picked(2))
    engine.step()
    state = engine.state_dict()
    snapshot, expected = copy.deepcopy(state), []
    for _ in range(5):
        expected.append([engine.qpos.clone(), engine.qvel.clone(), engine.sensordata.clone()])
        engine.step()
    other.step()
    other.load_state_dict(state)
    for step in expected:
        assert_same([other.qpos, other.qvel, other.sensordata], step)
        other.step()
    assert_same(state, snapshot)
    with pytest.raises(ShapeError, match="saved envs"):
        pendulums(kind, WORLDS + 1).load_state_dict(state)
    twin = pendulums(kind)
    engine.load_state_dict(alike)  # saved before worlds differed
    for each in (engine, twin):
        each.step()
    assert torch.equal(engine.qpos, twin.qpos)


@both
def test_a_mass_of_one_world_changes_that_world_as_its_own_model_would(kind: str) -> None:
    engine, same = pendulums(kind), pendulums(kind)
    engine.model_field("body_mass")[2, 2] = 3.0
    engine.model_field("body_inertia")[2, 2] *= 3.0
    engine.update_constants(picked(2))
    tree = mujoco.MjSpec.from_string(PENDULUMS)
    tree.geom("bob").mass = 3.0
    heavy = tree.compile()
    data = mujoco.MjData(heavy)
    data.qpos[:], data.qvel[:], data.ctrl[:] = engine.qpos[2], engine.qvel[2], engine.control[2]
    for each in (engine, same):
        each.step()
    mujoco.mj_step(heavy, data, nstep=4)
    np.testing.assert_allclose(engine.qpos[2], data.qpos, rtol=1e-12 if kind == "c" else 1e-5)
    if kind == "c":  # Warp derives the constants of all worlds in single precision
        assert torch.equal(engine.qpos[OTHERS], same.qpos[OTHERS])
    assert engine.model.body_mass[2] == 1.0


@pytest.mark.parametrize(
    ("kind", "what", "value"),
    [
        *(("c", what, value) for what in ("qpos", "qvel", "control") for value in (NAN, 1e30)),
        *(pytest.param("warp", *case, marks=pytest.mark.slow)
          for case in (("qvel", NAN), ("control", 1e30))),
    ],
)  # fmt: skip
def test_a_bad_number_raises_its_worlds_flag_until_reset_and_no_other(
    kind, what, value, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its warnings into the working directory
    engine, twin = pendulums(kind), pendulums(kind)
    getattr(engine, what)[2] = value
    for _ in range(3):
        engine.step()
        twin.step()
        assert engine.fault.tolist() == [False, False, True, False, False]
        assert engine.qpos.isfinite().all()
        assert engine.sensordata.isfinite().all()
        engine.control[2] = 0.0
    assert torch.equal(engine.qpos[OTHERS], twin.qpos[OTHERS])
    assert engine.fault_records[0].world == 2
    twin.load_state_dict(engine.state_dict())
    assert torch.equal(twin.fault, engine.fault)
    engine.reset(picked(2), *at_rest(1))
    engine.step()
    assert not engine.fault.any()


@both
def test_unknown_fields_are_refused(kind: str) -> None:
    with pytest.raises(ConfigError, match="model field 'body_weight'"):
        pendulums(kind).model_field("body_weight")


@both
def test_a_world_can_be_copied_for_drawing(kind: str) -> None:
    engine = pendulums(kind)
    engine.model_field("body_mass")[1] *= 3.0
    engine.step()
    model = copy.copy(engine.model)
    data = mujoco.MjData(model)
    engine.copy_world(1, model, data)
    np.testing.assert_allclose(data.qpos, engine.qpos[1], rtol=1e-6)
    np.testing.assert_allclose(data.site("tip").xpos, engine.sensors["tip"][1], atol=1e-5)
    assert model.body_mass[1] == pytest.approx(3 * engine.model.body_mass[1])
