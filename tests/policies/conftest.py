"""A small policy with its robot, and a bundle of it written once."""

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from policies.export import export_bundle
from policies.runner import PolicyRunner
from robot_rl.core.action import ActionMap
from robot_rl.core.observation import RobotState, TermConfig
from robot_rl.core.robot import JointSpec, RobotSpec, SensorSpec
from robot_rl.core.robot_command import CommandKind


class SmallPolicy(nn.Module):
    """Normaliser, two layers, tanh; with `memory` a recurrent state of that width."""

    mean: Tensor
    std: Tensor

    def __init__(self, obs_size: int, action_size: int, memory: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.register_buffer("mean", 0.1 * torch.randn(obs_size, generator=generator))
        self.register_buffer("std", 0.5 + torch.rand(obs_size, generator=generator))
        self.hidden = nn.Linear(obs_size + memory, 16)
        self.out = nn.Linear(16, action_size + memory)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.3, generator=generator)
        self.action_size = action_size

    def forward(self, obs: dict[str, Tensor], *state: Tensor) -> Any:
        x = (obs["actor"] - self.mean) / self.std
        x = torch.tanh(self.out(torch.relu(self.hidden(torch.cat([x, *state], dim=-1)))))
        return (x[:, : self.action_size], x[:, self.action_size :]) if state else x


def make_robot(**changes: Any) -> RobotSpec:
    fields = ("position_w", "orientation_w", "linear_velocity_w", "angular_velocity_b")
    values: dict[str, Any] = {
        "name": "kite",
        "version": 3,
        "rotors": ["front", "left", "back", "right"],
        "sensors": {name: SensorSpec() for name in (*fields, "joint_position")},
        "joints": [JointSpec(name="pan"), JointSpec(name="tilt")],
    }
    return RobotSpec(**(values | changes))


TERMS = [
    TermConfig(term="position_error_w", scale=0.5),
    TermConfig(term="orientation_matrix"),
    TermConfig(term="linear_velocity_w", history=3),
    TermConfig(term="last_action", history=2),
]
OBS_SIZE = 3 + 9 + 9 + 8


def export_arguments(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "policy": SmallPolicy(OBS_SIZE, 4),
        "terms": TERMS,
        "robot": make_robot(),
        "action_map": ActionMap(kind=CommandKind.rotors, low=[0.1] * 4, high=[0.9] * 4),
        "control_dt": 0.01,
        "goal_widths": {"position_w": 3},
        "initial_action": [-0.2, 0.0, 0.0, 0.2],
        "provenance": {"git": "0" * 40, "seed": 7, "score": 0.99, "config": {"task": "hover"}},
    }
    return values | changes


def same_actions(runner: PolicyRunner, policy: Any, masks: Iterable[Any]) -> Iterator[Any]:
    """Observations (N, D) on which a bundle and a policy of torch that plans do the same.

    Episodes start in each step where its mask (N,) says so.
    """
    random = np.random.default_rng(0)
    for mask in map(np.array, masks):
        runner.reset(mask)
        policy.begin(torch.from_numpy(mask))
        state = {
            name: random.standard_normal((len(mask), width)).astype(np.float32)
            for name, width in runner.spec.robot.state_widths.items()
        }
        runner.act(RobotState(state), {"position_w": np.zeros((len(mask), 3), np.float32)})
        obs = {"actor": torch.from_numpy(runner.last_observation.copy())}
        with torch.no_grad():
            action = policy(obs)
        assert np.abs(action.numpy() - runner.last_action).max() < 1e-5
        yield obs


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_bundle(tmp_path_factory.mktemp("bundles") / "hover", **export_arguments())


@pytest.fixture
def bundle(exported: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(exported, tmp_path / "hover"))
