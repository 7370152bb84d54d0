"""Room of MuJoCo Warp's worlds: told before it is taken, and by name where it ends."""

# pyright: reportAttributeAccessIssue=false
# The bindings of MuJoCo 4 carry no types.

import logging

import mujoco
import psutil
import pytest
import torch

from configs.schema import make_env
from robot_rl.core.errors import LimitError
from sim.physics.mujoco_model import load_model
from sim.physics.warp_engine import MujocoWarpEngine
from sim.physics.warp_memory import Room, mjw, most_contacts
from tests.compositions import composed
from tests.sim.physics.test_warp_engine import BALLS, boxes

pytestmark = pytest.mark.slow


def test_contacts_that_do_not_fit_are_told_with_the_number_to_set() -> None:
    engine = boxes(contacts=1)
    for _ in range(2):
        engine.step()
    assert engine.fault.any(), "a world whose contacts were left out means nothing"
    with pytest.raises(LimitError, match=r"^among all envs .*NARROWPHASE.*contacts=2 or more"):
        engine.check()
    engine.check()  # told once
    roomy = boxes(contacts=8)
    roomy.step()
    roomy.check()
    assert not roomy.fault.any()


MANY = """
<mujoco>
  <option timestep="0.005"/>
  <worldbody>
    <geom type="plane" size="5 5 0.1"/>
    <replicate count="20" offset="0.5 0 0">
      <body pos="0 0 0.1"><freejoint/><geom type="box" size="0.1 0.1 0.1" mass="1"/></body>
    </replicate>
  </worldbody>
</mujoco>
"""
"""Twenty boxes in a row on the floor: eighty contacts."""


def test_room_is_made_for_the_contacts_that_falls_of_the_model_show() -> None:
    model = mujoco.MjModel.from_xml_string(MANY)
    assert 80 <= most_contacts(model) <= 20 * 8
    room = Room.of(model)
    assert room.contacts == 2 * most_contacts(model)
    tight, roomy = (MujocoWarpEngine(model, 2, contacts=contacts) for contacts in (48, 0))
    for engine in (tight, roomy) * 2:
        engine.step()
    assert tight.fault.all()
    assert not roomy.fault.any()
    roomy.check()


def test_falls_on_a_height_field_begin_above_it() -> None:
    config = composed(["task=velocity_rough", "robot=go2"]).config
    env = make_env(config, num_envs=1, device=torch.device("cpu"), seed=0, evaluation=False)
    model = getattr(env, "simulation").engine.model  # noqa: B009
    assert 4 <= most_contacts(model) <= 48, "of a robot that lies on it, not of one inside"
    assert Room.of(model).contacts == 96, "at least"


def test_what_runs_over_beside_contacts_is_told_by_name(caplog: pytest.LogCaptureFixture) -> None:
    room = Room.of(mujoco.MjModel.from_xml_string(BALLS))
    bits = int(mjw.OverflowType.HFIELD | mjw.OverflowType.ITERATIONS)
    assert room.error(bits, [3]) is None, "more contacts are no remedy"
    (told,) = caplog.messages
    assert "left something out in 1 env(s)" in told
    assert "HFIELD" in told
    assert "ITERATIONS" not in told, "a solver at its limit did what the model asked for"
    error = room.error(int(mjw.OverflowType.NEFC), [1, 4])
    assert "in 2 env(s) (1, 4)" in str(error)
    assert "NEFC" in str(error)


def test_memory_is_known_and_told_before_it_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sim.physics.warp_memory")
    config = composed(["task=velocity", "robot=g1"]).config.robot
    model = load_model(config.model, config.spec, physics_dt=config.physics_dt)
    room = Room.of(model)
    process = psutil.Process()
    room.make(model, 1)
    before = process.memory_info().rss
    caplog.clear()
    _, worlds = room.make(model, 2000)
    assert caplog.messages[0].startswith("2000 worlds of MuJoCo Warp: ")
    taken = process.memory_info().rss - before
    expected = room.memory(model, 2000)
    assert taken <= 1.1 * expected  # pages that nobody has written yet are not counted
    assert expected == pytest.approx(2000 * room.memory(model, 1), rel=0.01)
    assert worlds.nworld == 2000
