"""A policy that displaces an end effector, in a bundle and on a deployed robot."""

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from configs.compose import compose, to_plain
from hardware.control.ipc import ArraySubscriber
from hardware.control.safety import SafetyState
from hardware.controllers.cartesian_position import CartesianPosition
from policies.bundle import load_bundle
from policies.runner import PolicySpec
from robot_rl.cli.components import run_name
from robot_rl.cli.deployment.options import DeployOptions
from robot_rl.cli.deployment.plan import Deployment
from robot_rl.cli.learning.bundling import largest_difference, write_learned
from robot_rl.cli.learning.lockstep import LockstepLearning
from robot_rl.cli.learning.options import SAVED
from robot_rl.cli.learning.ros_robot import RosRobot, RosRobotConfig
from robot_rl.cli.learning.twin_robot import TwinRobot, TwinRobotConfig
from robot_rl.core.observation import RobotState
from robot_rl.core.pose_target import TARGET_OFFSET, PoseTarget
from robot_rl.core.robot_command import CommandKind, PoseCommand
from robot_rl.training.runs.provenance import collect_provenance
from robot_rl.training.runs.run_folder import RunFolder
from tests.compositions import composed
from tests.robot_rl.cli.deployments import WITHOUT_ROS, running, status_of, within

pytestmark = pytest.mark.slow
TWIN = TwinRobotConfig(success_reward=1.0, reach=0.15)
OVER = 0.075
"""Height over the hole's ground, whose mouth is at 6 cm [m]."""


class OverTheHole(nn.Module):
    """Leads the peg over its hole, and turns it as the hole is turned."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(15.0))  # actions per metre

    def forward(self, obs):
        rows = obs["actor"]
        way, q = rows[:, 20:23] / 10, rows[:, :7]  # from the hole to the tip, of scale 10
        turned = q[:, :1] - q[:, 6:7] + 0.785398  # of a hand that points down
        hole = torch.atan2(rows[:, 27:28], rows[:, 26:27])
        still = torch.zeros_like(turned)
        height = way[:, 2:] - OVER
        parts = [-self.gain * way[:, :2], -self.gain * height, still, still, 6 * (hole - turned)]
        return torch.cat(parts, dim=1).clamp(-1, 1)


@pytest.fixture(scope="module")
def robot() -> TwinRobot:
    return TwinRobot(composed(("task=peg", "robot=panda", "task.kind=sparse")).config, TWIN)


@pytest.fixture(scope="module")
def bundle(robot, tmp_path_factory) -> Path:
    config = composed(("task=peg", "robot=panda", "task.kind=sparse")).config
    folder = tmp_path_factory.mktemp("peg") / "bundle"
    return write_learned(folder, OverTheHole().eval(), config, robot, {})


def test_the_bundle_acts_as_torch_does_in_the_environment_of_its_learning(robot, bundle):
    with closing(robot.lockstep_env(3)) as env:
        assert largest_difference(bundle, OverTheHole().eval(), robot, env) < 1e-5


def drawn_state(spec: PolicySpec, rng: np.random.Generator, step: int) -> RobotState:
    """A state by chance, with an end effector that points down and rises with the steps."""
    fields = {
        name: 0.1 * rng.standard_normal((1, width))
        for name, width in spec.robot.state_widths.items()
    }
    fields["end_effector_orientation_b"] = np.array([[0.0, 1.0, 0.0, 0.0]])
    fields["end_effector_position_b"] = np.array([[0.5, 0.0, 0.2 + 0.001 * step]])
    return RobotState(fields)


def test_the_bundles_targets_are_those_of_the_action_map_and_begin_at_the_measured_pose(bundle):
    runner = load_bundle(bundle, ramp=False)
    spec, rng = runner.spec, np.random.default_rng(0)
    oracle = None
    for step in range(12):
        state = drawn_state(spec, rng, step)
        sensed = {name: np.ones((1, width)) for name, width in spec.sensed_widths.items()}
        if step in (0, 7):
            runner.reset()
            oracle = PoseTarget(spec.action_map, state)
        command = runner.act(state, {}, sensed)
        assert oracle is not None
        assert isinstance(command, PoseCommand)
        expected = oracle.command(runner.last_action.astype(float), state)
        oracle.follow(expected)
        np.testing.assert_allclose(command.position_w, expected.position_w, atol=1e-6)
        np.testing.assert_allclose(command.orientation_w, expected.orientation_w, atol=1e-6)


class Pulls(nn.Module):
    """Actions against the way to the target: it reads what nobody measures."""

    def forward(self, obs):
        return (-0.2 * obs["actor"][:, -6:]).clamp(-1, 1)


@pytest.fixture(scope="module")
def reads_its_target(tmp_path_factory) -> tuple[Path, TwinRobot]:
    config = composed(("experiment=peg_with_person",)).config
    assert config.task.actor[-1].term == f"sensed/{TARGET_OFFSET}"
    robot = TwinRobot(config, TWIN)
    folder = tmp_path_factory.mktemp("target") / "bundle"
    return write_learned(folder, Pulls().eval(), config, robot, {}), robot


def test_a_policy_that_reads_the_way_to_its_target_acts_as_torch_does(reads_its_target):
    bundle, robot = reads_its_target
    with closing(robot.lockstep_env(3)) as env:
        assert largest_difference(bundle, Pulls().eval(), robot, env) < 1e-5


def test_the_runner_knows_the_way_to_the_target_by_itself(reads_its_target):
    bundle, _ = reads_its_target
    runner = load_bundle(bundle, ramp=False)
    spec, rng = runner.spec, np.random.default_rng(0)
    assert TARGET_OFFSET not in spec.given_widths
    assert spec.sensed_widths == {**spec.given_widths, TARGET_OFFSET: 6}
    oracle: PoseTarget | None = None
    for step in range(12):
        state = drawn_state(spec, rng, step)
        sensed = {name: np.ones((1, width)) for name, width in spec.given_widths.items()}
        if step in (0, 7):
            runner.reset()
            oracle = PoseTarget(spec.action_map, state)
        assert oracle is not None
        command = runner.act(state, {}, sensed)
        away = 50 * oracle.offset(state)  # the term's scale
        np.testing.assert_allclose(runner.last_observation[:, -6:], away, atol=1e-5)
        assert isinstance(command, PoseCommand)
        if step == 4:  # somebody led the robot elsewhere
            command = replace(command, position_w=command.position_w + 0.003)
            runner.accept(command)
        oracle.follow(command)


@pytest.mark.timeout(300)
@pytest.mark.skipif(WITHOUT_ROS, reason="ROS 2 is not installed")
def test_a_deployed_policy_is_told_no_way_to_its_target(reads_its_target, domain):
    bundle, _ = reads_its_target
    with running(domain, bundle=bundle) as operator:
        assert f"sensed/{TARGET_OFFSET}" not in operator.parts.world_widths
        operator.arm()
        operator.hand_over()
        begin = status_of(operator).time
        assert within(20.0, lambda: status_of(operator).time > begin + 3.0)
        assert status_of(operator).safety is SafetyState.POLICY


@pytest.mark.timeout(300)
@pytest.mark.skipif(WITHOUT_ROS, reason="ROS 2 is not installed")
def test_a_peg_policy_leads_the_deployed_twins_peg_over_its_hole(bundle, domain):
    over_the_hole(bundle, domain)


def over_the_hole(bundle: Path, domain: int) -> None:
    """Deploy on the simulated robot, and wait until the peg's tip is over the hole."""
    with running(domain, bundle=bundle) as operator:
        operator.arm()
        parts = operator.parts
        states = ArraySubscriber(parts.channels.state, parts.robot.state_widths)
        world = ArraySubscriber(parts.channels.world, parts.world_widths)

        def away() -> float:
            """Distance of the peg's tip from the place over its hole [m]."""
            here, there = states.newer(), world.newer()
            if here is None or there is None:
                return np.inf
            way = here[0]["end_effector_position_b"] - there[0]["sensed/hole_position"]
            return float(np.linalg.norm(way[0] - [0.0, 0.0, OVER]))

        try:
            assert within(5.0, lambda: np.isfinite(away()))
            operator.hand_over()
            assert within(20.0, lambda: away() < 0.004)
            assert status_of(operator).safety is SafetyState.POLICY
        finally:
            states.close()
            world.close()


def learned_run(twin: TwinRobotConfig, said: list[str]) -> RunFolder:
    """A run that learned a little on the simulated robot, with these options beside it."""
    settings = [
        "task=peg", "task.kind=sparse", "task.episode_length=2", "learner=rlpd",
        "learner.batch_size=16", "learner.actor.hidden=[16]", "learner.critic.hidden=[16]",
        "training.prior.share=0.0", "training.total_steps=60", "training.updates_per_step=1",
        "online.start_steps=50", "online.publish_seconds=1", "num_envs=1", "device=cpu",
    ]  # fmt: skip
    composition = compose(settings)
    config, plain = composition.config, to_plain(composition.config)
    name = run_name(config, composition.chosen)
    with RunFolder.create(
        "runs", name, plain, collect_provenance(plain, seed=0, device="cpu")
    ) as run:
        learning = LockstepLearning(
            config, twin, run.path, experience=run.path / "experience", person=None,
            record=lambda values: None, record_steps=50,
        )  # fmt: skip
        with closing(learning):
            learning.run()
        (run.path / SAVED).write_text(json.dumps(said))
    return run


def test_what_a_run_learned_is_exported_with_the_law_that_it_learned_with(here, command):
    robot = TwinRobotConfig(success_reward=1.0, translation=0.005, speed=0.2)
    twin = ["twin.success_reward=1", "twin.translation=0.005", "twin.speed=0.2"]
    run = learned_run(robot, twin)
    told = command("export", "run=latest", "checkpoint=latest").out
    assert "verified against PyTorch: 1 envs x 100 steps" in told
    assert f"robot-rl deploy bundle={run.bundle}" in told
    plan = Deployment(DeployOptions(bundle=str(run.bundle), domain=7))
    parts = plan.parts()
    assert parts.led is not None
    assert (parts.led.speed, parts.led.law) == (0.2, robot.law)
    np.testing.assert_allclose(plan.runner.spec.action_map.high[:3], 0.005)
    assert parts.arming_pose == pytest.approx(plan.config.task.action.pose)


def test_what_was_learned_over_ros_2_is_deployed_with_joint_targets_of_inverse_kinematics(
    here, command
):
    ros2 = [
        "driver=ros2", "person=console", "ros2.translation=0.005", "ros2.speed=0.2",
        "ros2.source=/lab",
    ]  # fmt: skip
    run = learned_run(TwinRobotConfig(success_reward=1.0, translation=0.005, speed=0.2), ros2)
    told = command("export", "run=latest", "checkpoint=latest").out
    assert "verified against PyTorch: 1 envs x 100 steps" in told
    plan = Deployment(
        DeployOptions(
            bundle=str(run.bundle), domain=7, driver="ros2", source="/lab", command="joint_state"
        )
    )
    parts = plan.parts()
    assert parts.led is not None
    assert not parts.led.torques
    assert parts.led.speed == 0.2
    law = parts.controllers().by_kind[CommandKind.pose]
    assert isinstance(law, CartesianPosition)
    assert [*parts.world_widths] == []
    spec = plan.runner.spec
    assert set(spec.sensed_widths) == {"hole_position", "hole_axis"}


@pytest.mark.timeout(300)
@pytest.mark.skipif(WITHOUT_ROS, reason="ROS 2 is not installed")
def test_joint_targets_bring_the_deployed_twins_peg_over_its_hole_too(tmp_path, domain):
    config = composed(("task=peg", "robot=panda", "task.kind=sparse")).config
    robot = RosRobot(config, RosRobotConfig(), helped=True)
    path = write_learned(tmp_path / "bundle", OverTheHole().eval(), config, robot, {})
    over_the_hole(path, domain)
