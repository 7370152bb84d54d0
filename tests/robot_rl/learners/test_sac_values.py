"""Values that are known in closed form: a time limit is no end of the world."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.learners.values import TargetRule, ValueConfig
from tests.fakes import Chain, ToyEnv, small_sac

GAMMA = 0.8
TOLERANCE = 0.05
"""Of values between 4 and 5: what 1,000 updates leave; mistaken time limits miss by more than 1."""


def learned_values(
    n_step: int, *, truncation_is_termination: bool, critic: dict[str, Any] | None = None,
    **settings: Any,
) -> torch.Tensor:  # fmt: skip
    """Q of every state of the chain, (L,), learned from episodes that are cut off at random."""
    env = ToyEnv(Chain(), 32, limit=1000, truncation_rate=0.3)
    replay = ReplayBuffer(env.spec, ("actor",), capacity=3200, gamma=GAMMA, n_step=n_step)
    generator = torch.Generator().manual_seed(0)
    obs = env.reset(seed=0)
    for _ in range(60):
        # Of no effect, but critics must have seen the actions that they are asked about later.
        step = env.step(2 * torch.rand(32, 1, generator=generator) - 1)
        if truncation_is_termination:
            step = replace(
                step, terminated=step.truncated, truncated=torch.zeros_like(step.truncated)
            )
        replay.add(obs, step)
        obs = step.obs
    sac = small_sac(
        env.spec, batch_size=64, gamma=GAMMA, n_step=n_step, tau=0.1, critic_lr=3e-3,
        entropy_in_target=False, actor_interval=10, actor={"normalize": False},
        critic={"normalize": False, **(critic or {})}, **settings,
    )  # fmt: skip
    for _ in range(1000):
        sac.update(replay.sample(64))
    with torch.no_grad():
        output = sac.critic({"actor": torch.eye(4)}, torch.zeros(4, 1))
        return sac.values.expectation(output).mean(0)


@pytest.mark.parametrize("n_step", [1, 3])
def test_truncated_step_still_bootstraps(n_step: int) -> None:
    values = learned_values(n_step, truncation_is_termination=False)
    assert (values - Chain().values(GAMMA)).abs().max() < TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"target_members": 2, "critic": {"members": 5}},
        {"target_members": 2, "target_replacement": True, "critic": {"members": 5}},
        {"target_rule": TargetRule.own},
        {"target_rule": TargetRule.own, "values": ValueConfig(atoms=31, low=0.0, high=6.0)},
        {"values": ValueConfig(atoms=31, low=0.0, high=6.0)},
    ],
    ids=["redq", "with replacement", "own", "own categories", "smaller categories"],
)
def test_every_kind_of_target_finds_the_values(settings: dict[str, Any]) -> None:
    values = learned_values(1, truncation_is_termination=False, **settings)
    assert (values - Chain().values(GAMMA)).abs().max() < TOLERANCE


def test_the_same_check_finds_a_learner_that_mistakes_time_limits_for_ends() -> None:
    values = learned_values(1, truncation_is_termination=True)
    assert (values - Chain().values(GAMMA)).abs().max() > 1.0
