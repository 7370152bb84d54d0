"""Engine on CPU threads: steps, sensors, faults, states, ramps, fields and derived constants."""

# pyright: reportAttributeAccessIssue=false
# The bindings of MuJoCo 4 carry no types.

import mujoco
import numpy as np
import pytest
import torch
from mujoco.batch import Batch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from sim.physics.joint_layout import sensor_columns
from sim.physics.mujoco_engine import ModelConstants, MujocoEngine, MujocoStepper
from tests.matrices import some
from tests.sim.physics.test_engines import WORLDS, pendulums


def test_a_control_step_has_its_physics_steps_and_views_are_live():
    engine = pendulums()
    assert engine.control_dt == pytest.approx(0.04)
    places = [view.data_ptr() for view in (engine.qpos, engine.qvel, engine.control)]
    tip = engine.sensors["tip"]
    before = tip.clone()
    engine.step()
    assert [view.data_ptr() for view in (engine.qpos, engine.qvel, engine.control)] == places
    assert not torch.equal(tip, before)


@pytest.mark.parametrize("ramped", [False, True])
def test_a_world_that_mujoco_refuses_is_a_fault_also_with_controls_of_every_substep(ramped):
    box = """
    <mujoco>
      <worldbody>
        <geom type="plane" size="5 5 0.1"/>
        <body name="box" pos="0 0 0.05"><freejoint/><geom type="box" size="0.1 0.1 0.1"/></body>
        <body pos="1 0 1"><joint name="joint"/><geom size="0.1"/></body>
      </worldbody>
      <actuator><motor joint="joint"/></actuator>
      <sensor><framepos name="place" objtype="body" objname="box"/></sensor>
    </mujoco>
    """
    engine = MujocoEngine(mujoco.MjModel.from_xml_string(box), WORLDS, decimation=2, threads=1)
    engine.model_field("geom_condim")[0] = 9  # a contact that there is not
    engine.step(ramped=ramped)
    assert engine.fault.tolist() == [True, False, False, False, False]


FEW, MANY = 6, 130
TUMBLING = """
<mujoco>
  <option timestep="0.004" integrator="implicitfast"/>
  <worldbody>
    <geom type="plane" size="5 5 0.1"/>
    <body pos="0 0 0.15">
      <freejoint/>
      <geom type="box" size="0.1 0.06 0.05" mass="1"/>
      <body pos="0.12 0 0">
        <joint name="arm" axis="0 1 0" damping="0.05"/>
        <geom type="capsule" size="0.02" fromto="0 0 0 0.15 0 0" mass="0.2"/>
        <site name="tip" pos="0.15 0 0"/>
      </body>
    </body>
    <body pos="0.4 0 0.1"><freejoint/><geom type="sphere" size="0.06" mass="0.3"/></body>
  </worldbody>
  <actuator><motor joint="arm" gear="2"/></actuator>
  <sensor>
    <framepos name="tip" objtype="site" objname="tip"/>
    <framelinvel name="tip_velocity" objtype="site" objname="tip"/>
    <accelerometer name="felt" site="tip"/>
  </sensor>
</mujoco>
"""


SPEED = '<framelinvel name="tip_velocity" objtype="site" objname="tip"/>'


def tumbling(count: int, model: str = TUMBLING) -> MujocoEngine:
    return MujocoEngine(mujoco.MjModel.from_xml_string(model), count, decimation=3, threads=2)


def live(engine: MujocoEngine, steps: int, seed: int) -> list[Tensor]:
    """States of all envs under torques, pushes, new masses and resets that are theirs by number."""
    draw = torch.Generator().manual_seed(seed)
    mass, count, seen = engine.model_field("body_mass"), engine.num_worlds, []
    for _ in range(steps):
        numbers = torch.rand(MANY, 8, generator=draw, dtype=torch.float64)[:count]
        engine.control[:] = 2 * numbers[:, :1] - 1
        pushed = numbers[:, 1] < 0.2
        engine.qvel[pushed, :3] += numbers[pushed, 2:5] - 0.5  # written between two steps
        engine.step()
        seen += [engine.qpos.clone(), engine.qvel.clone(), engine.sensordata.clone()]
        rows = EnvSelection(numbers[:, 5] < 0.1)
        rows.put(mass, rows.take(mass) * (0.9 + 0.2 * rows.take(numbers[:, 6:7])))
        engine.update_constants(rows)
        rows = EnvSelection((numbers[:, 5] > 0.05) & (numbers[:, 5] < 0.2))  # some, and others
        start = torch.from_numpy(engine.model.qpos0).repeat(rows.count, 1)
        start[:, 2] += 0.1 * rows.take(numbers[:, 7])
        engine.reset(
            rows, start, torch.zeros(rows.count, engine.qvel.shape[1]), torch.zeros(rows.count, 1)
        )
        seen += [engine.qpos.clone(), engine.sensordata.clone()]
    assert not engine.fault.any()
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("model", [TUMBLING, TUMBLING.replace(SPEED, "")], ids=["all", "no speed"])
def test_few_worlds_do_bit_for_bit_what_the_same_worlds_among_many_do(model):
    few, many = (live(tumbling(count, model), 60, seed=1) for count in (FEW, MANY))
    assert all(torch.equal(one, other[:FEW]) for one, other in zip(few, many, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("count", some([FEW], [MANY]))
def test_restored_worlds_in_contact_go_on_bit_equal_whatever_an_engine_did_before(count):
    engine, used, fresh = (tumbling(count) for _ in range(3))
    live(engine, 40, seed=1)
    live(used, 25, seed=2)
    state = engine.state_dict()
    expected = live(engine, 40, seed=3)
    for other in (used, fresh):
        other.load_state_dict(state)
        again = live(other, 40, seed=3)
        assert all(map(torch.equal, again, expected))


STEPPED = 20
"""More than threads and their shares: each thread computes several, one after another."""
CONTACTS = '<contact name="touched" geom1="ball" data="found"/>'
LIMIT = '<jointlimitpos name="limit" joint="turn"/>'
SPEED_SENSOR = '<framelinvel name="speed" objtype="site" objname="tip"/>'
ARM = f"""
<mujoco>
  <option timestep="0.004" integrator="implicitfast"/>
  <worldbody>
    <geom type="plane" size="5 5 0.1"/>
    <body pos="0 0 0.2">
      <joint name="turn" axis="0 1 0" damping="0.05" limited="true" range="-60 60"/>
      <geom type="capsule" size="0.02" fromto="0 0 0 0 0 -0.15" mass="0.2"/>
      <geom name="ball" size="0.03" pos="0 0 -0.18" mass="0.1"/>
      <site name="tip" pos="0 0 -0.2"/>
    </body>
  </worldbody>
  <actuator><position joint="turn" kp="5"/></actuator>
  <sensor>
    <accelerometer name="felt" site="tip"/>
    <framepos name="tip" objtype="site" objname="tip"/>
    {SPEED_SENSOR}
    {CONTACTS}
    {LIMIT}
  </sensor>
</mujoco>
"""


def stepped_by_hand(
    model: mujoco.MjModel, start: np.ndarray, controls: np.ndarray
) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]:
    """State, sensors and forces of one world: forces and accelerations of the last substep."""
    data = mujoco.MjData(model)
    mujoco.mj_setState(model, data, start, mujoco.mjtState.mjSTATE_PHYSICS.value)
    for control in controls:
        data.ctrl[:] = control
        mujoco.mj_step(model, data)
    force, last = data.actuator_force.copy(), data.sensordata.copy()
    state = np.concatenate([data.qpos, data.qvel])
    mujoco.mj_forward(model, data)
    columns = sensor_columns(model)
    seen = {name: (last if name == "felt" else data.sensordata)[c] for name, c in columns.items()}
    return state, {name: values.copy() for name, values in seen.items()}, force


@pytest.mark.parametrize("ramped", [False, True])
@pytest.mark.parametrize("decimation", [1, 3])
@pytest.mark.parametrize(
    "left_out",
    [(LIMIT,), (CONTACTS,), (CONTACTS, LIMIT), (CONTACTS, LIMIT, SPEED_SENSOR)],
    ids=["contacts", "limit", "neither", "positions alone"],
)
def test_every_world_feels_what_it_would_feel_alone(left_out, decimation, ramped):
    text = ARM
    for part in left_out:
        text = text.replace(part, "")
    model = mujoco.MjModel.from_xml_string(text)
    batch = Batch(model, STEPPED, 2)
    draw = np.random.default_rng(0)
    batch.bind("qpos")[:] = draw.uniform(-1.5, 1.5, (STEPPED, 1))
    batch.bind("qvel")[:] = draw.uniform(-5, 5, (STEPPED, 1))
    starts = np.concatenate([batch.bind("qpos"), batch.bind("qvel")], axis=1)
    controls = draw.uniform(-1, 1, (STEPPED, decimation, 1))
    if not ramped:
        controls[:] = controls[:, :1]
        batch.bind("ctrl")[:] = controls[:, 0]
    sensors, forces = batch.bind("sensordata"), batch.bind("actuator_force")
    assert not MujocoStepper(batch, decimation).step(controls if ramped else None)
    for world in range(STEPPED):
        state, seen, force = stepped_by_hand(model, starts[world], controls[world])
        np.testing.assert_array_equal(np.r_[batch.qpos[world], batch.qvel[world]], state)
        np.testing.assert_array_equal(forces[world], force)
        for name, columns in sensor_columns(model).items():
            np.testing.assert_array_equal(sensors[world, columns], seen[name], err_msg=name)
    for part, name in ((CONTACTS, "touched"), (LIMIT, "limit")):
        if part not in left_out:  # some worlds do, others do not
            assert 0 < np.count_nonzero(sensors[:, sensor_columns(model)[name]]) < STEPPED


def test_flags_of_the_model_are_its_own_again_after_a_step() -> None:
    model = mujoco.MjModel.from_xml_string(ARM.replace(CONTACTS, "").replace(LIMIT, ""))
    model.opt.disableflags = mujoco.mjtDisableBit.mjDSBL_GRAVITY.value
    batch = Batch(model, STEPPED, 2)
    MujocoStepper(batch, 2).step(None)
    assert (batch.expand("opt.disableflags") == model.opt.disableflags).all()


CHAIN = """
<mujoco><worldbody><body name="upper"><joint name="one" axis="0 1 0"/>
  <geom type="capsule" fromto="0 0 0 0 0 -0.3" size="0.03" mass="1"/>
  <body name="lower" pos="0 0 -0.3"><joint name="two" axis="0 1 0"/>
    <geom type="capsule" fromto="0 0 0 0 0 -0.3" size="0.03" mass="0.5"/></body></body>
</worldbody><actuator><motor joint="one"/></actuator></mujoco>
"""


@pytest.mark.parametrize("at_once", [2, 8])
def test_constants_equal_those_of_models_compiled_one_by_one(at_once: int) -> None:
    model = mujoco.MjModel.from_xml_string(CHAIN)
    mass = model.body_mass * np.linspace(0.5, 1.5, 5)[:, None]
    made = ModelConstants(model, at_once, 1).derive({"body_mass": mass})
    assert {"body_subtreemass", "dof_invweight0", "body_invweight0", "actuator_acc0"} <= set(made)
    for i in range(5):
        single = mujoco.MjModel.from_xml_string(CHAIN)
        single.body_mass[:] = mass[i]
        mujoco.mj_setConst(single, mujoco.MjData(single))
        for name, rows in made.items():
            np.testing.assert_array_equal(rows[i], getattr(single, name), err_msg=name)
