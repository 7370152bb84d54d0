"""Stepped worlds against MuJoCo called by hand, one world after another."""

# pyright: reportAttributeAccessIssue=false
# The bindings of MuJoCo 4 carry no types.

import mujoco
import numpy as np
import pytest
from mujoco.batch import Batch

from sim.physics.joint_layout import sensor_columns
from sim.physics.mujoco_engine import MujocoStepper

WORLDS = 20
"""More than threads and their shares: each thread computes several, one after another."""
CONTACTS = '<contact name="touched" geom1="ball" data="found"/>'
LIMIT = '<jointlimitpos name="limit" joint="turn"/>'
SPEED = '<framelinvel name="speed" objtype="site" objname="tip"/>'
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
    {SPEED}
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
    [(LIMIT,), (CONTACTS,), (CONTACTS, LIMIT), (CONTACTS, LIMIT, SPEED)],
    ids=["contacts", "limit", "neither", "positions alone"],
)
def test_every_world_feels_what_it_would_feel_alone(
    left_out: tuple[str, ...], decimation: int, ramped: bool
) -> None:
    text = ARM
    for part in left_out:
        text = text.replace(part, "")
    model = mujoco.MjModel.from_xml_string(text)
    batch = Batch(model, WORLDS, 2)
    draw = np.random.default_rng(0)
    batch.bind("qpos")[:] = draw.uniform(-1.5, 1.5, (WORLDS, 1))
    batch.bind("qvel")[:] = draw.uniform(-5, 5, (WORLDS, 1))
    starts = np.concatenate([batch.bind("qpos"), batch.bind("qvel")], axis=1)
    controls = draw.uniform(-1, 1, (WORLDS, decimation, 1))
    if not ramped:
        controls[:] = controls[:, :1]
        batch.bind("ctrl")[:] = controls[:, 0]
    sensors, forces = batch.bind("sensordata"), batch.bind("actuator_force")
    assert not MujocoStepper(batch, decimation).step(controls if ramped else None)
    for world in range(WORLDS):
        state, seen, force = stepped_by_hand(model, starts[world], controls[world])
        np.testing.assert_array_equal(np.r_[batch.qpos[world], batch.qvel[world]], state)
        np.testing.assert_array_equal(forces[world], force)
        for name, columns in sensor_columns(model).items():
            np.testing.assert_array_equal(sensors[world, columns], seen[name], err_msg=name)
    for part, name in ((CONTACTS, "touched"), (LIMIT, "limit")):
        if part not in left_out:  # some worlds do, others do not
            assert 0 < np.count_nonzero(sensors[:, sensor_columns(model)[name]]) < WORLDS


def test_flags_of_the_model_are_its_own_again_after_a_step() -> None:
    model = mujoco.MjModel.from_xml_string(ARM.replace(CONTACTS, "").replace(LIMIT, ""))
    model.opt.disableflags = mujoco.mjtDisableBit.mjDSBL_GRAVITY.value
    batch = Batch(model, WORLDS, 2)
    MujocoStepper(batch, 2).step(None)
    assert (batch.expand("opt.disableflags") == model.opt.disableflags).all()
