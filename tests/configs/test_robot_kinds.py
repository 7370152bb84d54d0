"""Each shipped task with each shipped robot: it builds, or a sentence says which robots fit."""

import re

import pytest
import torch

from configs.catalog import choices
from configs.schema import check_robot, make_env
from configs.twin_builder import build_twin
from robot_rl.core.errors import SpecMismatchError
from tests.compositions import composed
from tests.matrices import split

pytestmark = pytest.mark.slow

FLYING, WALKING, GRIPPING = {"crazyflie", "x500"}, {"go2", "go1", "g1"}, {"panda", "ur5e_2f85"}
FIT = {
    "hover": FLYING, "tracking": FLYING, "gates": FLYING, "landing": FLYING,
    "velocity": WALKING, "velocity_rough": WALKING, "velocity_hidden": {"go2", "go1"},
    "clutter": WALKING, "motion": WALKING, "stand_up": WALKING, "climb": {"go2", "go1"},
    "reach": {*GRIPPING, "ur5e"}, "lift": GRIPPING, "drawer": GRIPPING, "peg": {"panda"},
    "reorient": {"allegro"}, "cartpole_swingup": {"cartpole"}, "ball_in_cup": {"cup"},
}  # fmt: skip
"""Robots that each task builds with."""
PAIRS = [(task, robot) for task in choices("task") for robot in choices("robot")]
REFUSED = [(task, robot) for task, robot in PAIRS if robot not in FIT[task]]
USUAL = {
    ("climb", "g1"), ("climb", "panda"), ("velocity", "panda"), ("velocity_hidden", "g1"),
    ("hover", "go2"), ("velocity", "x500"), ("peg", "ur5e_2f85"), ("lift", "ur5e"),
    ("reach", "go2"), ("reorient", "panda"), ("cartpole_swingup", "cup"), ("stand_up", "panda"),
    ("ball_in_cup", "ur5e_2f85"), ("motion", "allegro"), ("clutter", "cartpole"),
}  # fmt: skip
"""Refusals of every kind; the others run under `--full`."""


def build(task: str, robot: str) -> None:
    config = composed([f"task={task}", f"robot={robot}"]).config
    make_env(config, num_envs=1, device=torch.device("cpu"), seed=0, evaluation=False)


@pytest.mark.parametrize(("task", "robot"), split(REFUSED, USUAL))
def test_a_robot_that_does_not_fit_is_refused_by_those_that_do(task: str, robot: str) -> None:
    with pytest.raises(SpecMismatchError, match=f"was asked of robot '{robot}', and is") as told:
        build(task, robot)
    sentence = str(told.value)
    named = set(re.findall(r"robot=(\w+)", sentence))
    assert named
    assert named <= FIT[task]
    assert "\n" not in sentence
    assert len(sentence) < 200


@pytest.mark.parametrize(
    ("task", "robot"),
    split([pair for pair in PAIRS if pair not in REFUSED], {("climb", "go1"), ("peg", "panda")}),
)
def test_all_others_build(task: str, robot: str) -> None:
    build(task, robot)


def test_a_twin_of_a_robot_that_does_not_fit_is_refused_alike() -> None:
    config = composed(["task=climb", "robot=g1"]).config
    with pytest.raises(SpecMismatchError, match="four feet or more; choose robot=go2 or robot=go1"):
        build_twin(config, seed=0)


def test_values_of_a_task_that_fit_another_robot_let_it_pass() -> None:
    gait = "task.gait.offsets=[0.0,0.5]"
    config = composed(["task=velocity_hidden", "robot=g1", gait]).config
    check_robot(config)
