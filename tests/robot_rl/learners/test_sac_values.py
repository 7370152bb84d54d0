"""Values that are known in closed form: a time limit is no end of the world."""

from dataclasses import replace

import pytest
import torch

from robot_rl.buffers.replay import ReplayBuffer
from tests.fakes import Chain, ToyEnv, small_sac

GAMMA = 0.8
TOLERANCE = 0.25
"""Of values between 4 and 5: what 2,000 updates leave; mistaken time limits miss by more than 1."""


def learned_values(n_step: int, *, truncation_is_termination: bool) -> torch.Tensor:
    """Q of every state of the chain, (L,), learned from episodes that are cut off at random."""
    env = ToyEnv(Chain(), 32, limit=1000, truncation_rate=0.3)
    replay = ReplayBuffer(env.spec, ("actor",), capacity=3200, gamma=GAMMA, n_step=n_step)
    obs = env.reset(seed=0)
    for _ in range(60):
        step = env.step(torch.zeros(32, 1))
        if truncation_is_termination:
            step = replace(
                step, terminated=step.truncated, truncated=torch.zeros_like(step.truncated)
            )
        replay.add(obs, step)
        obs = step.obs
    sac = small_sac(
        env.spec, batch_size=64, gamma=GAMMA, n_step=n_step, tau=0.1, critic_lr=3e-3,
        entropy_in_target=False, actor_interval=10, actor={"normalize": False},
        critic={"normalize": False},
    )  # fmt: skip
    for _ in range(2000):
        sac.update(replay.sample(64))
    with torch.no_grad():
        return sac.critic({"actor": torch.eye(4)}, torch.zeros(4, 1))[..., 0].mean(0)


@pytest.mark.parametrize("n_step", [1, 3])
def test_truncated_step_still_bootstraps(n_step: int) -> None:
    values = learned_values(n_step, truncation_is_termination=False)
    assert (values - Chain().values(GAMMA)).abs().max() < TOLERANCE


def test_the_same_check_finds_a_learner_that_mistakes_time_limits_for_ends() -> None:
    values = learned_values(1, truncation_is_termination=True)
    assert (values - Chain().values(GAMMA)).abs().max() > 1.0
