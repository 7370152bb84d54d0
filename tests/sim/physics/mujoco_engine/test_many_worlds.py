"""Worlds share the memory in which MuJoCo computes: no number of one tells of another."""

# pyright: reportAttributeAccessIssue=false
# The bindings of MuJoCo 4 carry no types.

import mujoco
import pytest
import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from sim.physics.mujoco_engine import MujocoEngine
from tests.matrices import some

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
    """What all worlds do under torques, pushes, new masses and resets that are theirs by number."""
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
        rows = EnvSelection(
            (numbers[:, 5] > 0.05) & (numbers[:, 5] < 0.2)
        )  # some of them, and others
        start = torch.from_numpy(engine.model.qpos0).repeat(rows.count, 1)
        start[:, 2] += 0.1 * rows.take(numbers[:, 7])
        engine.reset(
            rows, start, torch.zeros(rows.count, engine.qvel.shape[1]), torch.zeros(rows.count, 1)
        )
        seen += [engine.qpos.clone(), engine.sensordata.clone()]
    assert not engine.fault.any()
    return seen


@pytest.mark.parametrize("model", [TUMBLING, TUMBLING.replace(SPEED, "")], ids=["all", "no speed"])
def test_few_worlds_do_bit_for_bit_what_the_same_worlds_among_many_do(model):
    few, many = (live(tumbling(count, model), 60, seed=1) for count in (FEW, MANY))
    assert all(torch.equal(one, other[:FEW]) for one, other in zip(few, many, strict=True))


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
