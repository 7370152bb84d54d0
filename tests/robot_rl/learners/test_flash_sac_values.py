"""FlashSAC learns values that are known in closed form, time limits and seams included."""

import pytest
import torch

from policies.networks.trunks import NetworkKind
from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.learners.reward_scale import RewardScaling
from robot_rl.learners.temperature import TemperatureLoss
from robot_rl.learners.values import ValueConfig
from tests.fakes import Chain, ToyEnv
from tests.small_flash_sac import small_flash_sac

GAMMA = 0.8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "n_step"),
    [(NetworkKind.flash, 1), (NetworkKind.flash, 3), (NetworkKind.simba, 1), (NetworkKind.bro, 3)],
)
def test_truncated_step_still_bootstraps(kind: NetworkKind, n_step: int) -> None:
    env = ToyEnv(Chain(), 32, limit=1000, truncation_rate=0.3)
    replay = ReplayBuffer(env.spec, ("actor",), capacity=3200, gamma=GAMMA, n_step=n_step)
    learner = small_flash_sac(
        env.spec, batch_size=64, gamma=GAMMA, n_step=n_step, tau=0.05, critic_lr=3e-3,
        actor_interval=10, temperature_loss=TemperatureLoss.fixed, init_temperature=1e-6,
        values=ValueConfig(atoms=31, low=0.0, high=6.0), reward_scale=RewardScaling.none,
        actor={"kind": kind}, critic={"kind": kind},
    )  # fmt: skip
    obs, generator = env.reset(seed=0), torch.Generator().manual_seed(0)
    for _ in range(60):
        # Batch norm sees actions too: those of the policy must lie among those that were tried.
        step = env.step(2 * torch.rand(32, 1, generator=generator) - 1)
        replay.add(obs, step)
        obs = step.obs
    losses = [float(learner.update(replay.sample(64))[0]["critic_loss"]) for _ in range(900)]
    assert sum(losses[-50:]) < 0.5 * sum(losses[:50])
    with torch.no_grad():
        output = learner.critic({"actor": torch.eye(4)}, torch.zeros(4, 1))
        values = learner.values.expectation(output).mean(0)
    # Of values between 4 and 5: what 900 updates leave; mistaken time limits miss by more than 1.
    assert (values - Chain().values(GAMMA)).abs().max() < 0.25
