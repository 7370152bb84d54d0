"""A robot with a driver of a plug-in to learn on: what must be named, and what it tells."""

import re
from typing import Any

import pytest

from hardware.learning.rewards import PlaceConfig
from robot_rl.cli.learning.direct_robot import DirectRobot, DirectRobotConfig
from robot_rl.cli.learning.options import LearnOptions
from robot_rl.core.errors import ConfigError
from tests.compositions import composed

HOLE = {"hole_position": [0.5, 0.0, 0.1], "hole_axis": [1.0, 0.0, 0.0]}


def robot(task: str = "peg", *, helped: bool = True, **config: Any) -> DirectRobot:
    run = composed([f"task={task}", "robot=panda"]).config
    return DirectRobot(
        run, DirectRobotConfig(**config), driver="my_port", driver_options={"port": 3},
        helped=helped,
    )  # fmt: skip


def test_what_holds_around_the_robot_is_told_by_its_process():
    made = robot(sensed=HOLE)
    made.check()
    assert made.world_widths == {"sensed/hole_position": 3, "sensed/hole_axis": 3}
    assert made.person_labels


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({}, "the policy reads sensed/hole_position, sensed/hole_axis, which driver=my_port does"),
        ({"sensed": {"hole_position": [0.5, 0.0, 0.1]}}, "the policy reads sensed/hole_axis,"),
        ({"sensed": {"hole": [0.0]}}, "further input 'hole' is unknown"),
        ({"sensed": HOLE | {"hole_axis": [1.0]}}, "'hole_axis' takes 3 numbers, got [1.0]"),
        ({"sensed": HOLE, "helped": False}, "direct.place.radius= and direct.place.at="),
        (
            {"task": "lift", "goal": {"cube_position": [0.5, 0.0, 0.2]}},
            "reads sensed/cube_position, sensed/cube_axis, which",
        ),
    ],
)
def test_what_nobody_would_tell_is_refused(values, why):
    with pytest.raises(ConfigError, match=re.escape(why)):
        robot(**values).check()


def test_a_place_judges_without_a_person():
    place = PlaceConfig(input="sensed/hole_position", radius=0.02)
    made = robot(helped=False, sensed=HOLE, place=place)
    made.check()
    assert not made.person_labels


def test_a_driver_that_nobody_brings_is_refused():
    with pytest.raises(ConfigError, match="driver 'my_prt' is unknown"):
        LearnOptions(driver="my_prt")
    with pytest.raises(ConfigError, match="are for a plug-in's driver, but driver=twin"):
        LearnOptions(driver_options={"port": 1})
