"""The environment contract over every environment: a new one is one more `EnvCase`."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from robot_rl.core.env import BatchEnv, GroupSpec
from tests.contracts.batch_env import BatchEnvContract, EnvCase
from tests.fakes import LinearWorld, PointMass, ToyEnv
from tests.sim.arms import STEPS, endless_reach, reach
from tests.sim.flying import endless_flight, flight, lift_limit

IMAGES = {
    "actor": GroupSpec(shape=(5,)),
    "image/front": GroupSpec(shape=(4, 4, 3), dtype=torch.uint8),
    "image/stacked": GroupSpec(shape=(2, 3, 3, 1), dtype=torch.uint8, stack=2),
}
NAMED = LinearWorld(bound=0.8, action_size=3, reward_names=("first", "second"), groups=IMAGES)


def toy(dynamics: Any, limit: int) -> Any:
    def make(num_envs: int, seed: int, device: torch.device) -> BatchEnv:
        return ToyEnv(dynamics, num_envs, limit=limit, device=device, seed=seed)

    return make


def endless(dynamics: Any) -> Any:
    dynamics = replace(dynamics, bound=1e9)
    return lambda num_envs, device: ToyEnv(dynamics, num_envs, limit=10**9, device=device)


CASES = (
    EnvCase(
        "linear", toy(LinearWorld(bound=0.8), 9), 9, endless(LinearWorld()), noiseless=True
    ),
    EnvCase("images", toy(NAMED, 8), 8, endless(NAMED), noiseless=True),
    EnvCase("point mass", toy(PointMass(axes=2), 40), 40, noiseless=True),
    EnvCase("hover", flight("hover"), 12, endless_flight("hover"), lift_limit),
    EnvCase("tracking", flight("tracking"), 12, endless_flight("tracking"), lift_limit),
    EnvCase(
        "hover without noise", flight("hover", noise=False), 12,
        endless_flight("hover", noise=False), lift_limit, noiseless=True,
    ),
    EnvCase(
        "tracking without noise", flight("tracking", noise=False), 12,
        endless_flight("tracking", noise=False), lift_limit, noiseless=True,
    ),
)  # fmt: skip

ON_THE_CPU_ONLY = (
    EnvCase("reach", reach(), STEPS, endless_reach(), lift_limit),
    EnvCase(
        "reach without noise", reach(noise=False), STEPS, endless_reach(noise=False), lift_limit,
        noiseless=True,
    ),
)  # fmt: skip


class TestOnTheCPU(BatchEnvContract):
    cases = (*CASES, *ON_THE_CPU_ONLY)


@pytest.mark.gpu
class TestOnCUDA(BatchEnvContract):
    cases = CASES
    device = torch.device("cuda")
