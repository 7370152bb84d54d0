"""The world that is drawn is the world that is simulated."""

# The bindings of MuJoCo 4 carry no types:
# pyright: reportAttributeAccessIssue=false

import mujoco
import numpy as np
import pytest
import torch

from robot_rl.core.errors import ConfigError
from sim.robots.joint_simulation import MujocoSimulation
from sim.viewing.framing import bounding_box, robot_geoms, view_radius
from sim.viewing.goals import Mark
from sim.viewing.worlds import contact_forces, shown_worlds
from tests.sim.viewing.shown import player_of


def test_shown_arm_has_its_end_effector_where_the_simulation_measures_it():
    player = player_of("reach", 3, action=0.7)
    for _ in range(3):
        player.step()
    for world in (2, 0):
        data = player.shown.look(world, player.time)
        shown = data.site_xpos[mujoco.mj_name2id(
            player.shown.model, mujoco.mjtObj.mjOBJ_SITE, "end_effector"
        )]  # fmt: skip
        true_state = player.env.simulation.true_state.end_effector_position_b[world]
        np.testing.assert_allclose(shown, true_state, atol=1e-5)


def test_looking_changes_nothing():
    watched, alone = player_of("velocity", 2), player_of("velocity", 2)
    for _ in range(5):
        watched.shown.look(1, watched.time)
        watched.step()
        alone.step()
    torch.testing.assert_close(
        watched.env.simulation.true_state.fields,
        alone.env.simulation.true_state.fields,
        rtol=0,
        atol=0,
    )


def test_shown_multirotor_is_where_the_simulation_has_it_and_its_rotors_turn():
    player = player_of("tracking", 2)
    before = player.shown.look(1, player.time).qpos[7:].copy()
    player.step()
    data = player.shown.look(1, player.time)
    true_state = player.env.simulation.true_state
    np.testing.assert_allclose(data.xpos[player.shown.base], true_state.position_w[1], atol=1e-6)
    np.testing.assert_allclose(
        data.xquat[player.shown.base], true_state.orientation_w[1], atol=1e-6
    )
    turned = data.qpos[7:] - before
    assert (np.sign(turned) == [-1, 1, -1, 1]).all()
    again = player.shown.look(1, player.time).qpos[7:]
    np.testing.assert_array_equal(again - before, turned)  # time stands still


def test_a_multirotor_is_drawn_as_large_as_it_is_with_its_rotors_on_their_sides():
    player = player_of("hover", 1, "robot=x500", action=1.0)
    plant = player.env.simulation.config.model
    before = player.shown.look(0, player.time).qpos[7:].copy()
    player.step()
    data = player.shown.look(0, player.time)
    turned = data.qpos[7:] - before
    base = player.shown.base
    axes = data.xmat[base].reshape(3, 3)
    for place, sign in zip(plant.rotor_position, plant.rotor_yaw_sign, strict=True):
        away = (data.xpos[base + 1 :] - data.xpos[base]) @ axes - [*place, 0.0]
        nearest = int(np.linalg.norm(away[:, :2], axis=1).argmin())
        np.testing.assert_allclose(away[nearest, :2], 0.0, atol=1e-3)
        assert np.sign(turned[nearest]) == sign


def test_contact_forces_carry_a_robot_that_stands():
    player = player_of("velocity", 1, "task.randomization.pushes.speed=0",
                       "task.randomization.pushes.turn=0")  # fmt: skip
    for _ in range(100):  # 2 s: it has come to rest
        player.step()
    data = player.shown.look(0, player.time)
    model = player.shown.model
    places, forces = contact_forces(model, data)
    weight = 9.81 * float(model.body_mass.sum())  # payload and drawn masses of this very world
    assert forces.sum(axis=0)[2] == pytest.approx(weight, rel=0.02)
    assert np.abs(places[:, 2]).max() < 0.01, "on the ground"


@pytest.mark.parametrize(("task", "axis", "column"), [("velocity", "y", 1), ("reach", "joint4", 3)])
def test_push_changes_one_velocity_of_one_world(task, axis, column):
    player = player_of(task, 2)
    simulation = player.env.simulation
    assert isinstance(simulation, MujocoSimulation)
    before = simulation.engine.qvel.clone()
    player.choose(1)
    player.push(axis, 0.5)
    change = simulation.engine.qvel - before
    assert float(change[1, column]) == pytest.approx(0.5)
    assert int((change != 0).sum()) == 1


def test_push_of_a_multirotor_is_felt_in_the_next_step():
    pushed, left = player_of("hover", 1), player_of("hover", 1)
    pushed.push("z", 2.0)
    pushed.step()
    left.step()
    change = (pushed.env.simulation.true_state.fields["linear_velocity_w"]
              - left.env.simulation.true_state.fields["linear_velocity_w"])  # fmt: skip
    torch.testing.assert_close(change, torch.tensor([[0.0, 0.0, 2.0]]), atol=1e-3, rtol=0)


def test_worlds_that_say_nothing_about_themselves_are_refused():
    with pytest.raises(ConfigError, match="cannot be drawn"):
        shown_worlds(object())  # pyright: ignore[reportArgumentType]  no simulation at all


def test_box_holds_the_robot_and_not_the_ground():
    player = player_of("velocity", 1)
    data, model = player.shown.look(0, 0.0), player.shown.model
    low, high = bounding_box(model, data, robot_geoms(model, player.shown.base))
    assert ((high - low) > 0.25).all()
    assert ((high - low) < 1.0).all()  # a Go2 is 0.7 m long
    assert (low < data.xpos[player.shown.base]).all()


def test_goal_far_away_does_not_make_the_robot_a_speck():
    near, far = (Mark(name="goal", start=np.array([x, 0.0, 0.0])) for x in (0.5, 50.0))
    assert view_radius(np.zeros(3), 0.2, [near]) == pytest.approx(0.5)
    assert view_radius(np.zeros(3), 0.2, [near, far]) < 2.0
    assert view_radius(np.zeros(3), 0.2, [], room=1.5) == pytest.approx(0.3)


def test_nearest_outline_is_seen_from_farther_away_than_a_point():
    square = np.array([[2.0, y, z] for y, z in ((-1, -1), (1, -1), (1, 1), (-1, 1))])
    gates = [
        Mark(name=str(x), start=square.mean(axis=0), outline=square + np.array([x, 0, 0]))
        for x in (0.0, 9.0)
    ]
    assert view_radius(np.zeros(3), 0.2, gates) == pytest.approx(6**0.5)
    assert view_radius(np.zeros(3), 0.1, gates[1:]) == pytest.approx(2.0)  # 20 radii, no more
