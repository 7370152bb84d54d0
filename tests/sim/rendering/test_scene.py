"""Contents of a scene: goals read from their names, geoms as triangles, the simulated env."""

# The bindings of MuJoCo 4 carry no types:
# pyright: reportAttributeAccessIssue=false

from types import SimpleNamespace

import mujoco
import numpy as np
import pytest
import torch

from robot_rl.core.errors import ConfigError
from sim.rendering.scene import (
    Mark,
    Shape,
    goal_marks,
    ground_point,
    is_adjustable,
    planes_of,
    shapes_of,
    view_radius,
)
from sim.rendering.shown import contact_forces
from sim.robots.joint_simulation import MujocoSimulation
from tests.sim.rendering.shown import player_of

HERE = np.array([1.0, 2.0, 3.0])
QUARTER_LEFT = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])


def marks(**goal: list[float]) -> list[Mark]:
    size = 0.5 / 0.6  # arrows begin 0.15 of it above the robot, and cover half a second
    box = np.array([[1.0, 2.0, 4.0 - 0.15 * size], [1.0 + size, 2.0, 4.0 - 0.15 * size]])
    data = SimpleNamespace(xpos=[HERE], xmat=[QUARTER_LEFT])
    return goal_marks(goal, data, 0, (box[0], box[1]))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("goal", "starts", "ends"),
    [
        ({"position_w": [0.1, 0.2, 0.3]}, [[0.1, 0.2, 0.3]], []),
        ({"end_effector_position_b": [1.0, 0.0, 0.5]}, [[1.0, 3.0, 3.5]], []),
        ({"preview_w": [1, 2, 3, 4, 5, 6]}, [[1, 2, 3], [4, 5, 6]], []),
        # 2 m/s for half a second, from the goal's position, or from above the robot
        ({"position_w": [0, 0, 1], "linear_velocity_w": [2, 0, 0]}, [[0, 0, 1]] * 2, [[1, 0, 1]]),
        ({"velocity_b": [2.0, 0.0, 9.0]}, [[1, 2, 4]], [[1, 3, 4]]),
        # 0.4 of the robot's size along the axis; the second axis follows from the first
        ({"x_axis": [1, 0, 0], "cube_y_axis": [1, 0, 0]}, [], []),
        ({"cube_x_axis": [0.0, 0.6, 0.8]}, [[1, 2, 4]], [[1, 2.2, 4 + 0.8 / 3]]),
    ],
)
def test_goals_are_points_and_arrows_in_the_world_that_turn_with_the_base(goal, starts, ends):
    found = marks(**goal)
    np.testing.assert_allclose([mark.start for mark in found], starts)
    np.testing.assert_allclose([mark.end for mark in found if mark.end is not None], ends)
    assert len({mark.name for mark in found}) == len(found)


def test_corners_are_squares_around_their_middle():
    corners = [0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 2.0, 0.0, 2.0, 0.0, 0.0, 2.0]
    first, second = marks(gate_corners_w=corners + [number + 5 for number in corners])
    assert first.outline is not None
    np.testing.assert_allclose(first.outline[2], [2, 0, 2])
    np.testing.assert_allclose(second.start, [6, 5, 6])


def test_what_a_name_does_not_say_is_neither_drawn_nor_set_by_a_person():
    assert marks(clock=[0.1, 0.2], stiffness=[3.0, 1.0, 2.0]) == []
    assert is_adjustable("position_w", 3)
    assert is_adjustable("velocity_b", 3)
    assert not is_adjustable("clock", 2)
    assert not is_adjustable("preview_w", 18)


WORLD = """
<mujoco>
  <asset>
    <mesh name="corner" vertex="0 0 0  1 0 0  0 1 0  0 0 1"/>
    <hfield name="hills" nrow="3" ncol="4" size="1 2 0.5 0.1"/>
    <material name="red" rgba="1 0 0 1"/>
  </asset>
  <worldbody>
    <geom name="ground" type="plane" size="1 1 1"/>
    <geom name="ball" type="sphere" size="0.3" material="red"/>
    <geom name="egg" type="ellipsoid" size="0.1 0.2 0.3" rgba="0 1 0 0.5"/>
    <geom name="pill" type="capsule" size="0.2 0.5"/>
    <geom name="can" type="cylinder" size="0.2 0.5"/>
    <geom name="brick" type="box" size="0.1 0.2 0.3"/>
    <geom name="corner" type="mesh" mesh="corner"/>
    <geom name="hills" type="hfield" hfield="hills"/>
    <geom name="hidden" type="box" size="1 1 1" group="3"/>
    <geom name="clear" type="box" size="1 1 1" rgba="1 1 1 0"/>
  </worldbody>
</mujoco>"""

VOLUMES = {
    # by the textbook [m^3]
    "ball": 4 / 3 * np.pi * 0.3**3,
    "egg": 4 / 3 * np.pi * 0.1 * 0.2 * 0.3,
    "pill": 4 / 3 * np.pi * 0.2**3 + np.pi * 0.2**2 * 1.0,
    "can": np.pi * 0.2**2 * 1.0,
    "brick": 0.2 * 0.4 * 0.6,
    "corner": 1 / 6,
}


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    model = mujoco.MjModel.from_xml_string(WORLD)
    model.hfield_data[:] = np.arange(12) / 11
    return model


@pytest.fixture(scope="module")
def shapes(model) -> dict[str, Shape]:
    return {shape.name: shape for shape in shapes_of(model)}


def volume(shape: Shape) -> float:
    """By the divergence theorem: positive where triangles look outward."""
    a, b, c = (shape.vertices[shape.faces[:, i]].astype(float) for i in range(3))
    return float((a * np.cross(b, c)).sum() / 6)


@pytest.mark.parametrize("name", VOLUMES)
def test_surface_encloses_the_volume_looks_outward_and_reaches_as_far_as_the_geom(shapes, name):
    # A circle of 24 pieces has 1.1 % less area than a round one; a ball loses three times as much.
    assert volume(shapes[name]) == pytest.approx(VOLUMES[name], rel=0.035)
    reach = {"pill": (0.2, 0.2, 0.7), "can": (0.2, 0.2, 0.5), "brick": (0.1, 0.2, 0.3),
             "egg": (0.1, 0.2, 0.3)}.get(name)  # fmt: skip
    if reach:
        np.testing.assert_allclose(shapes[name].vertices.max(axis=0), reach, rtol=1e-6)
        np.testing.assert_allclose(-shapes[name].vertices.min(axis=0), reach, rtol=1e-6)


def test_mesh_lies_where_its_file_says_though_mujoco_moves_its_frame(shapes):
    corner = shapes["corner"]
    assert np.abs(corner.position).max() > 0.1, "MuJoCo puts the frame into the centre of mass"
    rotation = np.zeros(9)
    mujoco.mju_quat2Mat(rotation, corner.orientation)
    placed = corner.vertices @ rotation.reshape(3, 3).T + corner.position
    original = [[0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0]]
    np.testing.assert_allclose(sorted(placed.round(5).tolist()), original, atol=1e-5)


def test_height_field_has_its_corners_where_mujoco_has_them_and_lies_where_a_ray_meets_it(
    shapes, model
):
    vertices, faces = shapes["hills"].vertices, shapes["hills"].faces
    assert vertices.shape == (12, 3)
    np.testing.assert_allclose(vertices[0], [-1, -2, 0], atol=1e-6)
    np.testing.assert_allclose(vertices[3], [1, -2, 0.5 * 3 / 11], atol=1e-6)
    np.testing.assert_allclose(vertices[11], [1, 2, 0.5], atol=1e-6)
    a, b, c = (vertices[faces[:, i]] for i in range(3))
    assert (np.cross(b - a, c - a)[:, 2] > 0).all(), "looks upward"
    assert len(faces) == 2 * 3 * 2
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    only_hills = model.geom("hills").id
    vertex = shapes["hills"].vertices[5].astype(float)
    start = vertex + np.array([1e-4, 1e-4, 3.0])
    distance = mujoco.mj_rayHfield(model, data, only_hills, start, np.array([0.0, 0.0, -1.0]), None)
    assert start[2] - distance == pytest.approx(vertex[2], abs=1e-3)


def test_colour_is_the_geoms_own_or_that_of_its_material_and_what_is_clear_is_not_drawn(
    shapes, model
):
    assert shapes["ball"].rgba == (1, 0, 0, 1)
    assert shapes["egg"].rgba == pytest.approx((0, 1, 0, 0.5))
    assert "hidden" not in shapes
    assert "clear" not in shapes
    assert planes_of(model) == [model.geom("ground").id]


def test_shown_arm_has_its_end_effector_where_the_simulation_measures_it():
    player = player_of("reach", 3, action=0.7)
    for _ in range(3):
        player.step()
    for env in (2, 0):
        data = player.shown.look(env, player.time)
        shown = data.site_xpos[mujoco.mj_name2id(
            player.shown.model, mujoco.mjtObj.mjOBJ_SITE, "end_effector"
        )]  # fmt: skip
        true_state = player.env.simulation.true_state.end_effector_position_b[env]
        np.testing.assert_allclose(shown, true_state, atol=1e-5)


def test_looking_changes_nothing():
    watched, alone = player_of("velocity", 2), player_of("velocity", 2)
    for _ in range(5):
        watched.shown.look(1, watched.time)
        watched.step()
        alone.step()
    torch.testing.assert_close(
        *(each.env.simulation.true_state.fields for each in (watched, alone)), rtol=0, atol=0
    )


def test_a_multirotor_is_drawn_where_and_as_large_as_it_is_with_its_rotors_on_their_sides():
    player = player_of("hover", 1, "robot=x500", action=1.0)
    plant = player.env.simulation.config.model
    before = player.shown.look(0, player.time).qpos[7:].copy()
    player.step()
    data = player.shown.look(0, player.time)
    turned = data.qpos[7:] - before
    base, true_state = player.shown.base, player.env.simulation.true_state
    np.testing.assert_allclose(data.xpos[base], true_state.position_w[0], atol=1e-6)
    np.testing.assert_allclose(data.xquat[base], true_state.orientation_w[0], atol=1e-6)
    axes = data.xmat[base].reshape(3, 3)
    for place, sign in zip(plant.rotor_position, plant.rotor_yaw_sign, strict=True):
        away = (data.xpos[base + 1 :] - data.xpos[base]) @ axes - [*place, 0.0]
        nearest = int(np.linalg.norm(away[:, :2], axis=1).argmin())
        np.testing.assert_allclose(away[nearest, :2], 0.0, atol=1e-3)
        assert np.sign(turned[nearest]) == sign
    again = player.shown.look(0, player.time).qpos[7:]
    np.testing.assert_array_equal(again - before, turned)  # time stands still


@pytest.mark.slow
def test_contact_forces_carry_a_robot_that_stands():
    player = player_of("velocity", 1, "task.randomization.pushes.speed=0",
                       "task.randomization.pushes.turn=0")  # fmt: skip
    for _ in range(100):  # 2 s: it has come to rest
        player.step()
    data = player.shown.look(0, player.time)
    model = player.shown.model
    places, forces = contact_forces(model, data)
    weight = 9.81 * float(model.body_mass.sum())  # payload and drawn masses of this very env
    assert forces.sum(axis=0)[2] == pytest.approx(weight, rel=0.02)
    assert np.abs(places[:, 2]).max() < 0.01, "on the ground"


@pytest.mark.parametrize(("task", "axis", "column"), [("velocity", "y", 1), ("reach", "joint4", 3)])
def test_push_changes_one_velocity_of_one_env(task, axis, column):
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


def test_goal_far_away_is_no_speck_and_an_outline_is_seen_from_farther_away_than_a_point():
    near, far = (Mark(name="goal", start=np.array([x, 0.0, 0.0])) for x in (0.5, 50.0))
    assert view_radius(np.zeros(3), 0.2, [near]) == pytest.approx(0.5)
    assert view_radius(np.zeros(3), 0.2, [near, far]) < 2.0
    assert view_radius(np.zeros(3), 0.2, [], room=1.5) == pytest.approx(0.3)
    square = np.array([[2.0, y, z] for y, z in ((-1, -1), (1, -1), (1, 1), (-1, 1))])
    gates = [
        Mark(name=str(x), start=square.mean(axis=0), outline=square + np.array([x, 0, 0]))
        for x in (0.0, 9.0)
    ]
    assert view_radius(np.zeros(3), 0.2, gates) == pytest.approx(6**0.5)
    assert view_radius(np.zeros(3), 0.1, gates[1:]) == pytest.approx(2.0)  # 20 radii, no more


def test_a_ray_meets_the_ground_through_what_one_sees_through_and_nothing_else():
    box = '<geom type="box" size="0.1 1 1" pos="{x} 0 0" rgba="1 1 1 {opacity}"/>'
    model = mujoco.MjModel.from_xml_string(f"""<mujoco><worldbody>
      <geom type="plane" size="0 0 1"/>
      <body name="glass">{box.format(x=1, opacity=0.2)}</body>
      <body name="pillar">{box.format(x=3, opacity=0.6)}</body>
    </worldbody></mujoco>""")
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    eye = np.array([0.0, 0.0, 2.0])
    found = ground_point(model, data, eye, np.array([0.5, 0.1, -0.5]))  # over the glass at 1 m
    assert found == pytest.approx([2.0, 0.4, 0.0])
    found = ground_point(model, data, np.array([0.0, 0.0, 1.0]), np.array([2.0, 0.0, -1.0]))
    assert found == pytest.approx([2.0, 0.0, 0.0]), "through the glass"
    with pytest.raises(ConfigError, match="the click met 'pillar' and not the floor"):
        ground_point(model, data, eye, np.array([3.0, 0.0, -1.5]))
    with pytest.raises(ConfigError, match="met no floor: click below the horizon"):
        ground_point(model, data, eye, np.array([0.0, 1.0, 0.1]))
