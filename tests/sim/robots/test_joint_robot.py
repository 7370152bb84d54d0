"""Settings of robots with joints: scales of single joints."""

import math

import pytest

from robot_rl.core.errors import ConfigError
from sim.robots.joint_robot import JointActionConfig
from sim.tasks.legs.velocity import VelocityConfig
from tests.sim.legs import go2


def test_joints_may_have_scales_of_their_own_by_parts_of_their_names() -> None:
    robot = go2(action_scale=0.5, action_scales={"calf": 1.0, "FL_calf": 1.5})
    made = robot.action_map(VelocityConfig())
    reach = [(high - low) / 2 for low, high in zip(made.low, made.high, strict=True)]
    asked = {"FL_calf_joint": 1.5, "FR_calf_joint": 1.0, "FL_thigh_joint": 0.5}
    for name, scale in asked.items():
        assert reach[robot.spec.joint_names.index(name)] == pytest.approx(scale)


@pytest.mark.parametrize(
    ("scales", "said"),
    [({"knee": 1.0}, "robot.action_scales: joint 'knee'.*FL_hip_joint"),
     ({"calf": 0.0}, "robot.action_scales.calf is 0.0; expected more than 0"),
     ({"calf": math.nan}, "robot.action_scales.calf is nan")],
)  # fmt: skip
def test_scales_of_no_joint_or_of_nothing_are_refused(scales: dict[str, float], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        go2(action_scales=scales).action_map(VelocityConfig())


def test_scales_that_the_tasks_own_would_hide_are_refused() -> None:
    task = VelocityConfig(action=JointActionConfig(scale=0.3))
    with pytest.raises(ConfigError, match=r"would have no effect.*set task.action.scale=null"):
        go2(action_scales={"calf": 1.0}).action_map(task)
