"""`robot-rl robot import`: what it writes can be simulated by the command that it prints."""

import re

import pytest
import torch
import yaml

from robot_rl.cli import api
from tests.urdf_arm import six_joint_urdf, tetrahedron_stl
from tests.urdf_dog import FEET, MASS, four_legged_urdf

FEW = ("training.total_steps=400", "training.random_steps=100", "training.evaluation_interval=400",
       "training.evaluation_episodes=2", "training.replay_capacity=1600", "learner.batch_size=16",
       "video=false", "logging.tensorboard=false")  # fmt: skip


@pytest.fixture
def urdf(here):
    file = here / "arm.urdf"
    file.write_text(six_joint_urdf())
    return file


@pytest.mark.slow
def test_the_folder_that_is_written_simulates_the_arm_and_its_goals(command, urdf, monkeypatch):
    said = command("robot", "import", "arm.urdf").out
    assert "end effector 'tool0'" in said
    assert "train        robot-rl train --config-dir my_configs task=reach robot=six_arm" in said
    assert "gains (stiffness, damping): estimated" in said
    monkeypatch.setenv("ROBOT_RL_CONFIG_DIR", "my_configs")
    env = api.make_env("task=reach", "robot=six_arm", num_envs=16)
    action = torch.zeros(16, env.spec.action_size)
    step = env.step(action)
    for _ in range(25):  # a second around the default pose
        assert not step.terminated.any()
        step = env.step(action)
    assert step.metrics["joint_speed"].median() < 0.02  # at rest, but where an episode just began
    assert step.metrics["distance"].max() < 0.6  # goals lie around the end effector
    assert env.spec.robot is not None
    assert env.spec.robot.name == "six_arm"


@pytest.mark.slow
def test_a_walking_robot_stands_in_the_task_and_learns_from_mirror_images(command, here):
    (here / "dog.urdf").write_text(four_legged_urdf())
    said = command("robot", "import", "dog.urdf", f"feet=[{','.join(FEET)}]").out
    assert "12 joints, 4 feet, 8.6 kg; it stands, its base at 0.2" in said
    chosen = "--config-dir my_configs task=velocity robot=small_dog"
    assert f"train        robot-rl train {chosen}" in said
    words = [*chosen.split(), "num_envs=16", "training.symmetry=augment", *FEW]
    assert "finished" in command("train", *words).out
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROBOT_RL_CONFIG_DIR", "my_configs")
        env = api.make_env("task=velocity", "robot=small_dog", num_envs=16)
    for _ in range(50):  # a second around the default pose
        assert not env.step(torch.zeros(16, env.spec.action_size)).terminated.any()


def test_a_light_robot_stands_by_its_own_weight_and_soft_gains_are_told(command, here):
    text = four_legged_urdf()
    for part in ("mass value", "ixx", "iyy", "izz"):  # 0.43 kg in all
        text = re.sub(rf'{part}="([\d.]+)"', lambda m: f'{m[0][:-1]}e-2"', text)
    (here / "light.urdf").write_text(text.replace('effort="20"', 'effort="0.5"'))
    (here / "soft.urdf").write_text(four_legged_urdf().replace('effort="20"', 'effort="4"'))
    (here / "weak.urdf").write_text(four_legged_urdf().replace('effort="20"', 'effort="0.5"'))
    feet = f"feet=[{','.join(FEET)}]"
    said = command("robot", "import", "light.urdf", feet, "name=light").out
    assert "it stands" in said
    with open("my_configs/fitted/velocity_light.yaml") as file:
        touch = yaml.safe_load(file)["task"]["gait"]["touch"]
    assert touch == pytest.approx(0.15 * 9.81 * 0.01 * MASS / 4, rel=0.01)  # not a Go2's 5 N
    assert "gains are soft: the base sinks" in command(
        "robot", "import", "soft.urdf", feet, "name=soft"
    ).out  # fmt: skip
    said = command("robot", "import", "weak.urdf", feet, "name=weak").out
    assert "it stands" not in said
    assert "  - the pose does not stand: held by these gains the robot falls" in said
    assert "as it falls" in (here / "my_configs/fitted/velocity_weak.yaml").read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "what shall be imported? robot-rl robot import <file.urdf>"),
        (("export",), "robot 'export' is unknown"),
        (("import",), "expected one file, robot-rl robot import <file.urdf>, got none"),
        (("import", "none.urdf"), "there is no file none.urdf; expected a URDF"),
        (("import", "arm.urdf", "name=6dof"), "'6dof' is no name of a robot, from arm.urdf"),
        (("import", "arm.urdf", "name=panda"), "there is a robot 'panda' already; choose another"),
        (("import", "arm.urdf", "tip=tool0"), "tip"),
        (("import", "arm.urdf", "feet=[tool0]", "end_effector=tool0"), "feet of a robot that"),
        (("import", "arm.urdf", "feet=[tool0]"), "feet: expected two or more different links"),
    ],
)
def test_what_cannot_be_imported_is_a_sentence_and_leaves_nothing(refused, urdf, words, told):
    assert told in refused("robot", *words)
    assert [path.name for path in urdf.parent.iterdir()] == ["arm.urdf"]


@pytest.mark.slow
def test_an_imported_robot_is_not_overwritten_and_a_bad_one_leaves_nothing(command, refused, urdf):
    heavy = six_joint_urdf(name="tons").replace('<mass value="1.0"/>', '<mass value="5000"/>')
    (urdf.parent / "tons.urdf").write_text(heavy)
    assert "is the file in grams?" in refused("robot", "import", "tons.urdf")
    assert not (urdf.parent / "my_configs").exists()
    shape = '<cylinder radius="0.04" length="0.1"/></geometry></collision>'
    mesh = shape.replace(shape[: shape.index("/>") + 2], '<mesh filename="base.stl"/>')
    urdf.write_text(six_joint_urdf().replace(shape, mesh, 1))
    (urdf.parent / "base.stl").write_bytes(tetrahedron_stl(0.1))
    command("robot", "import", "arm.urdf", "name=mine", "out=others")
    assert (urdf.parent / "others/robot/mine_meshes/base.stl").is_file()
    kept = (urdf.parent / "others/robot/mine.yaml").read_text()
    assert "mine.yaml exists already" in refused(
        "robot", "import", "arm.urdf", "name=mine", "out=others"
    )
    assert (urdf.parent / "others/robot/mine.yaml").read_text() == kept
