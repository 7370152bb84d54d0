"""A robot with a driver of a plug-in to learn on: what must be named, and what it tells."""

import os
import re
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from hardware.learning.rewards import PlaceConfig
from robot_rl.cli.learning.direct_robot import DirectRobot, DirectRobotConfig
from robot_rl.cli.learning.options import LearnOptions
from robot_rl.core.errors import ConfigError
from tests.compositions import composed
from tests.robot_rl.cli.learning.test_ros_robot import SEEN, WITH_ROS, sent_pictures
from tests.robot_rl.link.linked import until

HOLE = {"hole_position": [0.5, 0.0, 0.1], "hole_axis": [1.0, 0.0, 0.0]}


def robot(
    task: str = "peg", *words: str, helped: bool = True, topics: dict[str, str] | None = None,
    **config: Any,
) -> DirectRobot:  # fmt: skip
    run = composed([f"task={task}", "robot=panda", *words]).config
    return DirectRobot(
        run, DirectRobotConfig(**config), driver="my_port", driver_options={"port": 3},
        helped=helped, topics=topics,
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


def test_a_camera_without_a_topic_is_refused():
    with pytest.raises(ConfigError, match=re.escape("name it: camera.wrist.topic=/.../image_raw")):
        robot("peg", "env.cameras=[wrist]", sensed=HOLE).check()


@WITH_ROS
@pytest.mark.slow
def test_its_cameras_are_heard_over_ros(domain):
    words = [word for word in SEEN if not word.startswith("camera.")]
    topics = {"wrist": "/simulated/wrist/image_raw"}
    made = robot("peg", *words, sensed=HOLE, topics=topics, domain=domain)
    made.check()
    with sent_pictures(domain) as sent, closing(made.channel_env(f"test-{os.getpid()}")) as env:
        assert env.spec.groups["image/wrist"].shape == (1, 16, 16, 3)
        source = made._pictures("test")
        assert source is not None
        with closing(source):
            until(lambda: bool(source.newest()), 20)
            picture = source.newest()["wrist"].pixels
        assert np.ascontiguousarray(picture).tobytes() in sent


def test_a_driver_that_nobody_brings_is_refused():
    with pytest.raises(ConfigError, match="driver 'my_prt' is unknown"):
        LearnOptions(driver="my_prt")
    with pytest.raises(ConfigError, match="are for a plug-in's driver, but driver=twin"):
        LearnOptions(driver_options={"port": 1})
