"""Constants of many models at once: the same as MuJoCo derives one by one."""

# pyright: reportAttributeAccessIssue=false
# The bindings of MuJoCo 4 carry no types.

import mujoco
import numpy as np
import pytest

from sim.physics.mujoco_engine import ModelConstants

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


def test_fields_that_no_mass_changes_are_left_out() -> None:
    model = mujoco.MjModel.from_xml_string(CHAIN)
    made = ModelConstants(model, 2, 1).derive({"body_mass": model.body_mass * np.ones((2, 1))})
    assert set(made) == {"body_mass"}
