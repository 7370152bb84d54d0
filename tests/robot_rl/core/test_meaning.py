"""Meaning of actions and observations: what is told of it, and where two of them differ."""

from dataclasses import replace

import pytest

from robot_rl.core.action import ActionMap, PoseMotion, describe_meaning
from robot_rl.core.meaning import meaning_difference, meaning_of_groups
from robot_rl.core.observation import TermConfig
from robot_rl.core.robot_command import CommandKind

MAP = ActionMap(kind=CommandKind.joint, low=[-0.3], high=[0.3], stiffness=[1.0], damping=[0.1])
TERM = TermConfig(term="joint_position", history=2)
TOLD = describe_meaning(MAP, {"actor": [TERM], "critic": []})


@pytest.mark.parametrize(
    ("action_map", "terms", "difference"),
    [
        (replace(MAP, high=[1.0]), [TERM], ("action.high[0]", 0.3, 1.0)),
        (MAP, [replace(TERM, scale=0.5)],
         ("observation group 'actor', joint_position.scale", 1.0, 0.5)),
        (MAP, [replace(TERM, clip=2.0)],
         ("observation group 'actor', joint_position.clip", None, 2.0)),
        (MAP, [TermConfig(term="goal"), TERM],
         ("observation group 'actor', terms", ["joint_position"], ["goal", "joint_position"])),
    ],
)  # fmt: skip
def test_the_first_difference_is_named_with_both_sides(action_map, terms, difference):
    assert meaning_difference(TOLD, describe_meaning(action_map, {"actor": terms})) == difference


def test_roundings_and_what_one_side_does_not_tell_are_no_difference():
    rounded = describe_meaning(replace(MAP, low=[-0.3 - 1e-9]), {"actor": [TERM]})
    assert meaning_difference(TOLD, rounded) is None
    assert meaning_difference(TOLD, {}) is None
    assert meaning_difference({}, TOLD) is None
    more = describe_meaning(MAP, {"actor": [TERM], "critic": [TERM]})
    assert meaning_difference(TOLD, more) is None
    assert meaning_of_groups(more, ["actor"]) == TOLD


def test_gains_follow_a_target_and_are_no_meaning():
    softer = describe_meaning(replace(MAP, stiffness=[0.5], damping=[0.2]), {"actor": [TERM]})
    assert meaning_difference(TOLD, softer) is None


def test_a_workspace_bounds_a_target_and_is_no_meaning():
    one, two = (
        ActionMap.end_effector(
            translation=0.01, rotation=0.1, motion=PoseMotion(workspace=space), gripper=False
        )
        for space in ([], [[0.0, 1.0]] * 3)
    )
    assert meaning_difference(describe_meaning(one, {}), describe_meaning(two, {})) is None
