"""Geoms as triangles: their volumes, which way they look, and what is not drawn."""

# The bindings of MuJoCo 4 carry no types:
# pyright: reportAttributeAccessIssue=false

import mujoco
import numpy as np
import pytest

from sim.viewing.shapes import Shape, planes_of, shapes_of

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
def test_surface_encloses_the_volume_and_looks_outward(shapes, name):
    # A circle of 24 pieces has 1.1 % less area than a round one; a ball loses three times as much.
    assert volume(shapes[name]) == pytest.approx(VOLUMES[name], rel=0.035)


@pytest.mark.parametrize("name", ["pill", "can", "brick", "egg"])
def test_surface_reaches_as_far_as_the_geom(shapes, name):
    reach = {"pill": (0.2, 0.2, 0.7), "can": (0.2, 0.2, 0.5), "brick": (0.1, 0.2, 0.3),
             "egg": (0.1, 0.2, 0.3)}[name]  # fmt: skip
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


def test_height_field_has_its_corners_where_mujoco_has_them(shapes):
    vertices, faces = shapes["hills"].vertices, shapes["hills"].faces
    assert vertices.shape == (12, 3)
    np.testing.assert_allclose(vertices[0], [-1, -2, 0], atol=1e-6)
    np.testing.assert_allclose(vertices[3], [1, -2, 0.5 * 3 / 11], atol=1e-6)
    np.testing.assert_allclose(vertices[11], [1, 2, 0.5], atol=1e-6)
    a, b, c = (vertices[faces[:, i]] for i in range(3))
    assert (np.cross(b - a, c - a)[:, 2] > 0).all(), "looks upward"
    assert len(faces) == 2 * 3 * 2


def test_height_field_lies_where_a_ray_meets_it(model, shapes):
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    only_hills = model.geom("hills").id
    vertex = shapes["hills"].vertices[5].astype(float)
    start = vertex + np.array([1e-4, 1e-4, 3.0])
    distance = mujoco.mj_rayHfield(model, data, only_hills, start, np.array([0.0, 0.0, -1.0]), None)
    assert start[2] - distance == pytest.approx(vertex[2], abs=1e-3)


def test_colour_is_the_geoms_own_or_that_of_its_material(shapes):
    assert shapes["ball"].rgba == (1, 0, 0, 1)
    assert shapes["egg"].rgba == pytest.approx((0, 1, 0, 0.5))


def test_what_only_collides_or_is_clear_is_not_drawn(model, shapes):
    assert "hidden" not in shapes
    assert "clear" not in shapes
    assert planes_of(model) == [model.geom("ground").id]
