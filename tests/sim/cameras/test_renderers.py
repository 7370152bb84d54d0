"""Pictures of both renderers: orientation, channels, depth, agreement, looks per world."""

# pyright: reportAttributeAccessIssue=false

import functools
from dataclasses import dataclass
from typing import Any

import mujoco
import pytest
import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError
from sim.cameras.cameras import make_renderer
from sim.cameras.config import CameraConfig, ImageKind, ImageRenderer
from sim.cameras.renderer import Renderer
from sim.physics.mujoco_scene import add_cameras
from tests.fakes import CPU

pytestmark = pytest.mark.slow

SCENE = """<mujoco>
  <visual><headlight ambient="0.3 0.3 0.3" diffuse="0.5 0.5 0.5" specular="0 0 0"/></visual>
  <worldbody>
    <geom type="plane" size="5 5 0.1" rgba="0.2 0.2 0.6 1"/>
    <body name="red" pos="1 0.3 0.3"><joint type="slide" axis="0 0 1"/>
      <geom type="box" size="0.1 0.1 0.1" rgba="0.9 0.1 0.1 1"/></body>
    <body name="green" pos="1 -0.3 0.1" mocap="true">
      <geom type="sphere" size="0.1" rgba="0.1 0.8 0.1 1"/></body>
  </worldbody>
</mujoco>"""
AHEAD: dict[str, Any] = {"position": [0.0, 0.0, 0.3], "target": [1.0, 0.0, 0.3]}
RENDERERS = [ImageRenderer.warp, ImageRenderer.gl]


@dataclass
class Worlds:
    """Some worlds of the scene above: red goes up and down, green stands anywhere."""

    model: Any
    num_worlds: int
    qpos: Tensor
    fixtures: tuple[Tensor, ...]


def worlds(**cameras: CameraConfig) -> Worlds:
    """Two of them."""
    count = 2
    tree = mujoco.MjSpec.from_string(SCENE)
    add_cameras(tree, cameras)
    model = tree.compile()
    place = torch.tensor(model.body("green").pos)[None, None].repeat(count, 1, 1)
    turn = torch.tensor([1.0, 0.0, 0.0, 0.0]).double().repeat(count, 1, 1)
    return Worlds(model, count, torch.zeros(count, 1, dtype=torch.float64), (place, turn))


@functools.cache
def gl_fault() -> str:
    """Reason why GL draws nothing here; empty where it does."""
    try:
        eye = CameraConfig(**AHEAD)
        make_renderer(ImageRenderer.gl, worlds(eye=eye), {"eye": eye}, CPU).close()
    except ConfigError as error:
        return str(error)
    return ""


def renderer(kind: ImageRenderer, drawn: Worlds, **cameras: CameraConfig) -> Renderer:
    if kind is ImageRenderer.gl and gl_fault():
        pytest.skip(gl_fault())
    return make_renderer(kind, drawn, cameras, CPU)


def draw(one: Renderer, *rows: int) -> dict[str, Tensor]:
    count = len(next(iter(one.images.values())))
    mask = torch.zeros(count, dtype=torch.bool)
    mask[list(rows or range(count))] = True
    one.draw(EnvSelection(mask))
    return {name: image.clone() for name, image in one.images.items()}


def middle_of(image: Tensor, channel: int) -> tuple[float, float]:
    """Mean row and column of what is mostly of one colour, from -1 (top, left) to 1."""
    others = image.float().sum(-1) - image[..., channel].float()
    rows, columns = torch.where(image[..., channel].float() > 1.5 * others)
    height, width = image.shape[:2]
    row, column = float(rows.float().mean()), float(columns.float().mean())
    return 2 * row / height - 1, 2 * column / width - 1


@pytest.mark.parametrize("kind", RENDERERS)
def test_what_is_left_is_left_and_red_is_red_and_what_rises_goes_up(kind: ImageRenderer):
    eye = CameraConfig(**AHEAD)
    drawn = worlds(eye=eye)
    drawn.qpos[1] = 0.2
    images = draw(renderer(kind, drawn, eye=eye))["eye"]
    row, column = middle_of(images[0], 0)
    assert column < -0.3
    assert abs(row) < 0.15
    assert middle_of(images[1], 0)[0] < row - 0.2
    green_row, green_column = middle_of(images[0], 1)
    assert green_column > 0.3
    assert green_row > 0.2


@pytest.mark.parametrize("kind", RENDERERS)
def test_only_the_picked_worlds_are_drawn_and_a_mocap_body_is_where_it_was_put(kind: ImageRenderer):
    eye = CameraConfig(**AHEAD)
    drawn = worlds(eye=eye)
    one = renderer(kind, drawn, eye=eye)
    first = draw(one)["eye"]
    drawn.fixtures[0][:, 0, 1] = 0.3
    drawn.qpos[:] = 0.5
    second = draw(one, 1)["eye"]
    assert torch.equal(second[0], first[0])
    assert middle_of(second[1], 1)[1] < -0.3
    assert torch.equal(draw(one, 0)["eye"][0], second[1])  # the same state, the same picture


def test_both_renderers_agree_up_to_their_shading():
    cameras = {
        "eye": CameraConfig(**AHEAD),
        "turned": CameraConfig(position=[0.3, 0.8, 0.6], target=[1, 0, 0.2], up=[0.2, 0, 1]),
        "wide": CameraConfig(**AHEAD, field_of_view=1.4, width=96, height=48),
        "cropped": CameraConfig(**AHEAD, crop=[8, 4, 40, 24]),
        "grey": CameraConfig(**AHEAD, kind=ImageKind.grey),
        "far": CameraConfig(**AHEAD, kind=ImageKind.depth, near=0.5, far=2.5),
        "bodies": CameraConfig(**AHEAD, kind=ImageKind.segmentation),
    }
    drawn = worlds(**cameras)
    drawn.qpos[1] = 0.15
    rays = draw(renderer(ImageRenderer.warp, drawn, **cameras))
    gl = draw(renderer(ImageRenderer.gl, drawn, **cameras))
    for name, camera in cameras.items():
        assert rays[name].shape == (2, *camera.shape)
        difference = (rays[name].float() - gl[name].float()).abs()
        # Edges differ by a pixel, faces by how light is computed.
        assert float(difference.mean()) < 12, name
        assert float((difference.amax(-1) > 60).float().mean()) < 0.04, name


@pytest.mark.parametrize("kind", RENDERERS)
def test_depth_is_the_distance_along_the_axis_between_near_and_far(kind: ImageRenderer):
    eye = CameraConfig(**AHEAD, kind=ImageKind.depth, near=0.5, far=2.5)
    drawn = worlds(eye=eye)
    drawn.fixtures[0][:] = torch.tensor([1.0, 0.0, 0.3])  # a ball of 0.1 m in the middle
    image = draw(renderer(kind, drawn, eye=eye))["eye"][0, ..., 0]
    assert abs(int(image[32, 32]) - 255 * (0.9 - 0.5) / 2.0) < 2
    assert int(image[0, 0]) == 255  # the sky
    assert int(image[-1, 32]) < 255


@pytest.mark.parametrize("kind", RENDERERS)
def test_segmentation_has_the_number_of_the_body_that_is_seen(kind: ImageRenderer):
    eye = CameraConfig(**AHEAD, kind=ImageKind.segmentation)
    drawn = worlds(eye=eye)
    image = draw(renderer(kind, drawn, eye=eye))["eye"][0, ..., 0]
    assert set(image.flatten().tolist()) == {0, 1, 2, 3}  # sky, ground, red, green
    rows, columns = torch.where(image == drawn.model.body("red").id + 1)
    assert float(columns.float().mean()) < 20
    assert abs(float(rows.float().mean()) - 32) < 4


def test_looks_differ_between_worlds_alone_and_both_renderers_follow_them():
    eye = CameraConfig(**AHEAD)
    drawn = worlds(eye=eye)
    found = []
    for kind in RENDERERS:
        one = renderer(kind, drawn, eye=eye)
        colour, place = one.vary("geom_rgba"), one.vary("cam_pos")
        colour[1, 1] = torch.tensor([0.1, 0.1, 0.9, 1.0])
        place[1, 0, 2] += 0.2
        images = draw(one)["eye"]
        assert middle_of(images[0], 0)[1] < -0.3
        assert torch.isnan(torch.tensor(middle_of(images[1], 0)[0]))
        found.append(images)
    difference = (found[0].float() - found[1].float()).abs()
    assert float(difference[1].mean()) < 12
