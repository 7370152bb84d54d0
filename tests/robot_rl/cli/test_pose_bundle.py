"""A policy that displaces an end effector, cloned from a person, on a deployed robot."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from hardware.control.ipc import ArraySubscriber
from hardware.control.safety import SafetyState
from hardware.teleop.simulated_person import PersonConfig
from policies.bundle import load_bundle
from robot_rl.cli.learning.bundling import write_learned
from robot_rl.cli.learning.twin_robot import RESPONSE, TwinRobot, TwinRobotConfig
from robot_rl.cli.teleoperation.demonstrations import DemonstrationRecorder
from tests.compositions import composed
from tests.robot_rl.cli.deployments import WITHOUT_ROS, running, status_of, within

TWIN = TwinRobotConfig(success_reward=1.0, reach=0.15)
TASK = ("task=peg", "robot=panda", "task.kind=sparse", "task.episode_length=10")


class Cloned(nn.Module):
    """Actions of the demonstrations nearest to what is seen, as a small network."""

    def __init__(self, obs: torch.Tensor, action: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", obs.mean(0))
        self.register_buffer("scale", obs.std(0).clamp_min(1e-3))
        self.net = nn.Sequential(
            nn.Linear(obs.shape[1], 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(),
            nn.Linear(128, action.shape[1]), nn.Tanh(),
        )  # fmt: skip

    def forward(self, obs):
        return self.net(((obs["actor"] - self.mean) / self.scale).clamp(-5, 5))


def cloned(config, episodes: int, updates: int) -> Cloned:
    """A policy that imitates a perfect simulated person."""
    skill = PersonConfig.perfect()
    skill.response = RESPONSE
    recorder = DemonstrationRecorder(config, TWIN, person="simulated", skill=skill, seed=1)
    with closing(recorder):
        found = [recorder.record(number).episode for number in range(episodes)]
    obs = torch.from_numpy(np.concatenate([one.obs["actor"][:-1] for one in found]))
    action = torch.from_numpy(np.concatenate([one.action for one in found]))
    torch.manual_seed(0)
    policy = Cloned(obs, action)
    optimizer = torch.optim.Adam(policy.parameters(), 1e-3)
    for _ in range(updates):
        rows = torch.randint(len(obs), (256,))
        loss = (policy({"actor": obs[rows]}) - action[rows]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return policy.eval()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Path:
    config = composed(TASK).config
    robot = TwinRobot(config, TWIN)
    policy = cloned(config, episodes=20, updates=3000)
    return write_learned(tmp_path_factory.mktemp("peg") / "bundle", policy, config, robot, {})


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.skipif(WITHOUT_ROS, reason="ROS 2 is not installed")
def test_a_cloned_peg_policy_inserts_the_peg_on_the_deployed_twin(bundle, domain):
    runner = load_bundle(bundle, ramp=False)
    assert runner.spec.action_map.pose is not None
    with running(domain, bundle=bundle, arm_at="policy") as operator:
        operator.arm()
        parts = operator.parts
        states = ArraySubscriber(parts.channels.state, parts.robot.state_widths)
        world = ArraySubscriber(parts.channels.world, parts.world_widths)

        def below() -> float:
            """Depth of the tip below the hole's mouth, where it is over it [m]."""
            here, there = states.newer(), world.newer()
            if here is None or there is None:
                return -1.0
            way = (here[0]["end_effector_position_b"] - there[0]["sensed/hole_position"])[0]
            return -float(way[2]) if np.linalg.norm(way[:2]) < 0.01 else -1.0

        try:
            assert below() < 0.0
            operator.hand_over()
            assert within(30.0, lambda: below() > 0.01)
            assert status_of(operator).safety is SafetyState.POLICY
        finally:
            states.close()
            world.close()
