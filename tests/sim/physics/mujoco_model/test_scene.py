"""Scenes: objects, fixtures and tools join a robot's model, or are refused in words."""

from pathlib import Path
from typing import Any

import pytest
import torch

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.errors import ConfigError
from robot_rl.core.robot_state import RobotState
from sim.robots.joint_robot import JointRandomization
from sim.robots.joint_simulation import MujocoSimulation
from sim.scenes.scene import SceneConfig
from sim.task import InitialState
from tests.sim.arms import CPU, panda

SCENE = """<mujoco><worldbody>
  <body name="post" mocap="true" pos="0.6 0 0"><geom size="0.01"/><site name="top"/>
    <body name="flap"><joint name="flap" axis="0 1 0"/><geom size="0.01" pos="0 0 0.1"/></body>
  </body>
  <body name="ball" pos="0.5 0 0.5"><freejoint name="ball"/><geom size="0.02"/></body>
  </worldbody><sensor>
  <framepos name="ball" objtype="body" objname="ball"/>
  <framepos name="probe" objtype="site" objname="probe" reftype="site" refname="top"/>
  <jointpos name="flap" joint="flap"/>
  </sensor></mujoco>"""
TOOL = """<mujoco><worldbody><body name="stick"><geom size="0.01" mass="0.1"/>
  <site name="probe" pos="0 0 0.1"/></body></worldbody></mujoco>"""


def furnished(
    tmp_path: Path, *, around: str = SCENE, carried: str = TOOL, **changes: Any
) -> SceneConfig:
    """A scene of two files."""
    (tmp_path / "scene.xml").write_text(around)
    (tmp_path / "tool.xml").write_text(carried)
    files: dict[str, Any] = {
        "file": str(tmp_path / "scene.xml"),
        "tool": str(tmp_path / "tool.xml"),
    }
    return SceneConfig(**(files | changes))


def worlds(scene: SceneConfig, count: int = 2) -> MujocoSimulation:
    return MujocoSimulation(
        panda(noise=False), JointRandomization(), num_worlds=count, device=CPU, seed=0, scene=scene
    )


def begin(simulation: MujocoSimulation, mask: list[bool], scene: dict[str, torch.Tensor]) -> None:
    rows = EnvSelection(torch.tensor(mask))
    pose = torch.tensor([[joint.default_position for joint in simulation.robot.joints]])
    pose = pose.repeat(rows.count, 1)
    robot = RobotState({"joint_position": pose, "joint_velocity": 0 * pose})
    simulation.reset(rows, InitialState(robot=robot, scene=scene), torch.Generator().manual_seed(0))


def test_objects_and_fixtures_begin_where_the_task_says_and_tools_are_carried(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    simulation = worlds(furnished(tmp_path))
    assert not recwarn.list
    pose = torch.tensor([[0.4, 0.1, 0.8, 1.0, 0.0, 0.0, 0.0]])
    begin(simulation, [True, True], {})
    post = pose - torch.tensor([0.0, 0.0, 0.8, 0.0, 0.0, 0.0, 0.0])
    begin(simulation, [False, True], {"ball": pose, "post": post, "flap": torch.tensor([[0.3]])})
    sensors = simulation.sensors
    torch.testing.assert_close(sensors["ball"], torch.tensor([[0.5, 0.0, 0.5], [0.4, 0.1, 0.8]]))
    torch.testing.assert_close(sensors["flap"], torch.tensor([[0.0], [0.3]]))
    # The hand points down: the probe is 10 cm below the end effector.
    below = simulation.true_state.end_effector_position_b - torch.tensor([0.0, 0.0, 0.1])
    posts = torch.tensor([[0.6, 0.0, 0.0], [0.4, 0.1, 0.0]])
    torch.testing.assert_close(sensors["probe"], below - posts, atol=1e-5, rtol=0)


def test_a_fixture_that_the_start_leaves_out_stands_where_the_model_has_it(tmp_path: Path) -> None:
    simulation = worlds(furnished(tmp_path))
    moved = torch.tensor([[0.3, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]])
    begin(simulation, [True, False], {"post": moved})
    begin(simulation, [True, True], {})
    torch.testing.assert_close(
        simulation.engine.fixtures[0][:, 0], torch.tensor([[0.6, 0.0, 0.0]] * 2).double()
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tool_site": "end_efector"}, "did you mean 'end_effector'"),
        ({"tool": "stik.xml"}, r"tool: no model file .*stik\.xml; known: .*peg\.xml"),
        ({"file": "cub.xml"}, r"scene: no model file .*cub\.xml; known: cube\.xml"),
    ],
)
def test_scenes_that_are_not_there_are_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        worlds(furnished(tmp_path, **changes))


def test_loose_tools_and_joints_without_names_are_refused(tmp_path: Path) -> None:
    loose = TOOL.replace("<geom", '<joint name="swings"/><geom')
    with pytest.raises(ConfigError, match=r"tool .*tool\.xml has joints; .* must be rigid"):
        worlds(furnished(tmp_path, carried=loose))
    unnamed = SCENE.replace('<joint name="flap" ', "<joint ")
    unnamed = unnamed.replace('<jointpos name="flap" joint="flap"/>', "")
    with pytest.raises(ConfigError, match=r"1 joint\(s\) have no name"):
        worlds(furnished(tmp_path, around=unnamed))
