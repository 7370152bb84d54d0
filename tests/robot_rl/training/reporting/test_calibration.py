"""Values beside returns: by hand over two episodes."""

import math

import pytest
import torch
from torch import Tensor

from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.core.env import EnvSpec, EnvStep, GroupSpec
from robot_rl.core.transition import Batch
from robot_rl.training.reporting.calibration import calibrate

GAMMA = 0.5


def stored(rewards: list[float], ends: list[int], gamma: float = GAMMA) -> ReplayBuffer:
    """One world whose observation is its step's number; the episodes end by time."""
    spec = EnvSpec(
        num_envs=1, device=torch.device("cpu"), action_size=1, control_dt=0.1,
        groups={"actor": GroupSpec(shape=(1,))},
    )  # fmt: skip
    replay = ReplayBuffer(spec, ("actor",), capacity=len(rewards), gamma=gamma)
    off = torch.zeros(1, dtype=torch.bool)
    for number, reward in enumerate(rewards):
        obs = {"actor": torch.full((1, 1), float(number))}
        replay.add(obs, EnvStep(
            obs=obs, next_obs=obs, reward=torch.tensor([reward]), terminated=off,
            truncated=off | (number in ends), success=off, valid=~off, intervened=off,
            action=torch.zeros(1, 1), metrics={},
        ))  # fmt: skip
    return replay


def test_values_stand_beside_the_returns_of_the_same_part_of_every_episode() -> None:
    # Returns: 1 + 0.5 * 2 = 2 and 2; of the second episode 0.5 * 4 + 0 = 2 and 4.
    replay = stored([1.0, 2.0, 0.0, 4.0], ends=[1, 3])

    def value(batch: Batch) -> tuple[Tensor, Tensor]:
        number = batch.obs["actor"][:, 0]
        return torch.stack([number, number + 2]), -number

    early, late = calibrate(replay, value, parts=2)
    assert (early.rows, late.rows) == (2, 2)
    assert (early.begin, early.end, late.begin, late.end) == (0.0, 0.5, 0.5, 1.0)
    assert (early.returned, late.returned) == (2.0, 3.0)  # 2 and 2; 2 and 4
    assert (early.stored, late.stored) == (2.0, 3.0)  # steps 0 and 2, 1 and 3; 1 more on average
    assert (early.policy, late.policy) == (-1.0, -2.0)
    assert early.disagreement == late.disagreement == pytest.approx(1.0)
    assert math.isnan(early.correlation)  # its returns are all 2
    assert late.correlation == pytest.approx(1.0)


def test_steps_whose_return_is_not_known_are_left_out() -> None:
    replay = stored([1.0, 2.0, 5.0], ends=[1])  # the last one's episode goes on

    def value(batch: Batch) -> tuple[Tensor, Tensor]:
        return batch.obs["actor"].T, batch.obs["actor"][:, 0]

    (one,) = calibrate(replay, value, parts=1)
    assert one.rows == 2
    assert one.disagreement == 0.0
