"""Mirror images by the laws of reflection, and robots that have none."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from configs.catalog import choices
from robot_rl.core import quaternion
from robot_rl.core.action import ActionMap
from robot_rl.core.errors import ConfigError
from robot_rl.core.mirror import RobotMirror, SignedPermutation
from robot_rl.core.observation import Mirrored
from robot_rl.core.robot import JointSpec, MirrorSpec, RobotSpec
from robot_rl.core.robot_command import CommandKind, JointCommand
from tests.compositions import composed
from tests.matrices import some

PLANE = torch.tensor([1.0, -1.0, 1.0])
HIP = {"position_limit": [-0.5, 1.0], "default_position": 0.2}
KNEE = {"position_limit": [-2.0, 0.0], "default_position": -1.0}


def walker(**changes: Any) -> RobotSpec:
    """Two legs with a hip about x and a knee about y each, and a tail about z."""
    values: dict[str, Any] = {
        "name": "walker",
        "joints": [
            JointSpec(name="left_hip", **HIP),
            JointSpec(name="left_knee", **KNEE),
            JointSpec(name="right_hip", position_limit=[-1.0, 0.5], default_position=-0.2),
            JointSpec(name="right_knee", **KNEE),
            JointSpec(name="tail", position_limit=[-1.0, 1.0]),
        ],
        "feet": ["right", "left"],
        "rotors": ["right_fan", "left_fan"],
        "command": CommandKind.joint,
        "mirror": MirrorSpec(swap={"left": "right"}, reversed=["left_hip", "right_hip", "tail"]),
    }
    return RobotSpec(**(values | changes))


def image(mirror: SignedPermutation, values: Tensor) -> Tensor:
    return values[..., list(mirror.source)] * torch.tensor(mirror.sign, dtype=values.dtype)


def reflected(kind: Mirrored, values: Tensor) -> Tensor:
    return image(RobotMirror(walker()).kind(kind, values.shape[-1]), values)


def draws(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def test_vectors_are_reflected_and_a_cross_product_of_two_turns_the_other_way():
    a, b = draws(20, 3), draws(21, 3)[:20]
    assert torch.equal(reflected(Mirrored.vector, a), a * PLANE)
    image_of_cross = reflected(Mirrored.pseudovector, torch.linalg.cross(a, b))
    cross_of_images = torch.linalg.cross(a * PLANE, b * PLANE)
    assert torch.allclose(image_of_cross, cross_of_images)


def test_rotations_turn_mirrored_vectors_into_mirrored_vectors():
    q = torch.nn.functional.normalize(draws(50, 4), dim=-1)
    v = draws(50, 3)
    turned = (quaternion.rotation_matrix(q).view(50, 3, 3) @ v[..., None])[..., 0]
    for matrix in (
        reflected(Mirrored.rotation, quaternion.rotation_matrix(q)),
        quaternion.rotation_matrix(reflected(Mirrored.quaternion, q)),
    ):
        again = (matrix.view(50, 3, 3) @ (v * PLANE)[..., None])[..., 0]
        assert torch.allclose(again, turned * PLANE, atol=1e-5)


def test_motion_on_the_ground_wrenches_joints_and_feet_by_hand():
    moved = reflected(Mirrored.ground_motion, torch.tensor([0.5, 0.2, -0.3]))
    assert moved.tolist() == pytest.approx([0.5, -0.2, 0.3])
    wrench = reflected(Mirrored.wrench, torch.tensor([1.0, 2, 3, 4, 5, 6]))
    assert wrench.tolist() == [1, -2, 3, -4, 5, -6]  # a vector, and a pseudovector
    mirror = RobotMirror(walker())
    assert image(mirror.joints, torch.tensor([1.0, 2, 3, 4, 5])).tolist() == [-3, 4, -1, 2, -5]
    assert image(mirror.feet, torch.tensor([1.0, 2.0])).tolist() == [2, 1]


def test_done_twice_nothing_has_changed():
    width = {Mirrored.joints: 5, Mirrored.feet: 2, Mirrored.quaternion: 8, Mirrored.rotation: 9}
    for kind in set(Mirrored) - {Mirrored.action}:  # which belongs to an action map
        values = draws(6, width.get(kind, 6))
        assert torch.equal(reflected(kind, reflected(kind, values)), values), kind


def test_parts_change_places_and_are_mirrored_inside():
    feet = RobotMirror(walker()).feet.of_parts(SignedPermutation.signs(1, -1, 1))
    values = torch.tensor([1.0, 2, 3, 4, 5, 6])
    assert image(feet, values).tolist() == [4, -5, 6, 1, -2, 3]
    assert torch.equal(image(feet, image(feet, values)), values)


def test_the_mirrored_action_makes_the_mirrored_command():
    robot = walker()
    mirror = RobotMirror(robot)
    action_map = ActionMap.joint_positions(robot, 0.7)
    found, action = mirror.action(action_map), draws(30, 5).clamp(-1, 1)
    one, two = (action_map.to_command(a) for a in (action, image(found, action)))
    assert isinstance(one, JointCommand)
    assert isinstance(two, JointCommand)
    assert torch.allclose(image(mirror.joints, one.q), two.q, atol=1e-6)
    assert torch.equal(image(found, image(found, action)), action)


def test_rotors_change_sides_and_body_rates_turn_the_other_way():
    rotors = ActionMap(kind=CommandKind.rotors, low=[0.0] * 2, high=[1.0] * 2)
    found = RobotMirror(walker(command=CommandKind.rotors)).action(rotors)
    assert (found.source, found.sign) == ((1, 0), (1.0, 1.0))
    rates = ActionMap(kind=CommandKind.body_rates, low=[-2, -2, -1, 0], high=[2, 2, 1, 1])
    found = RobotMirror(walker(command=CommandKind.body_rates)).action(rates)
    assert (found.source, found.sign) == ((0, 1, 2, 3), (-1, 1, -1, 1))


def other_hip(**changes: Any) -> RobotSpec:
    joints = walker().joints
    return walker(joints=[*joints[:2], replace(joints[2], **changes), *joints[3:]])


def swapped(left: str, **more: Any) -> RobotSpec:
    return walker(mirror=MirrorSpec(swap={"left": left}, **more))


RANGES = ActionMap.joint_positions(walker(), 0.7)
LOPSIDED = replace(RANGES, low=[*RANGES.low[:-1], -0.1])


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: RobotMirror(walker(mirror=None)),
         r"'walker' cannot be mirrored: .* use training.symmetry=none"),
        (lambda: RobotMirror(swapped("starboard")), "makes starboard_hip, starboard_k"),
        (lambda: RobotMirror(swapped("right", reversed=["hip"])), r"\['hip'\], which"),
        (lambda: RobotMirror(swapped("right", reversed=["left_hip"])), "twice, column"),
        (lambda: RobotMirror(swapped("right")), "'left_hip' with limits .* is not"),
        (lambda: RobotMirror(other_hip(default_position=0.2)),
         "'left_hip' with limits .* is not the mirror image of"),
        (lambda: RobotMirror(walker()).action(LOPSIDED),
         r"action 4 ranges over -0.1 to 0.7, its .* -0.7 to 0.1"),
        (lambda: MirrorSpec(swap={"a": "b", "b": "c"}), r"mirror.swap: expected pairs"),
        (lambda: SignedPermutation((1, 0), (1.0, -1.0)), "are no mirror: done twice"),
        (lambda: RobotMirror(walker()).kind(Mirrored.joints, 10),
         "has 10 columns, which are no 'joints'"),
    ],
)  # fmt: skip
def test_what_has_no_mirror_is_refused_in_words(make, told):
    with pytest.raises(ConfigError, match=told):
        make()


def test_a_description_with_a_mirror_comes_back_from_plain_values():
    robot = walker()
    assert RobotSpec.from_dict(robot.to_dict()) == robot
    older = {key: value for key, value in robot.to_dict().items() if key != "mirror"}
    assert RobotSpec.from_dict(older).mirror is None


TASKS = {
    "panda": "reach", "ur5e": "reach", "ur5e_2f85": "reach", "allegro": "reorient",
    "cartpole": "cartpole_swingup", "cup": "ball_in_cup", "crazyflie": "hover", "x500": "hover",
}  # fmt: skip
"""Of robots that do not walk."""
MIRRORED = ("go1", "go2", "g1", "crazyflie", "x500")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", some(["g1", "panda"], sorted({*choices("robot")} - {"g1", "panda"}))
)
def test_robots_of_the_house_are_their_own_mirror_image_where_they_say_so(name):
    task = TASKS.get(name, "velocity")
    spec = composed([f"task={task}", f"robot={name}"]).config.robot.spec
    assert (spec.mirror is not None) == (name in MIRRORED)
    if spec.mirror is not None:
        other = {"FL": "FR", "FR": "FL", "RL": "RR", "RR": "RL",
                 "left_foot": "right_foot", "right_foot": "left_foot"}  # fmt: skip
        found = [spec.feet[i] for i in RobotMirror(spec).feet.source]
        assert found == [other[foot] for foot in spec.feet]
