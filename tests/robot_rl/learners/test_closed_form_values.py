"""Values that are known in closed form: a time limit is no end, whatever the learner."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.core.env import EnvSpec
from robot_rl.learners.off_policy import TemperatureLoss
from robot_rl.learners.sac import TargetConfig
from robot_rl.learners.values import RewardScaling, TargetRule, ValueConfig
from tests.fakes import Chain, ToyEnv, small_sac
from tests.robot_rl.learners.reference_td3 import small_td3
from tests.small_flash_sac import small_flash_sac

pytestmark = pytest.mark.slow

GAMMA = 0.8
PLAIN = {"normalize": False}
FULL = pytest.mark.full
pytestmark = pytest.mark.slow


def learned_values(
    make: Callable[[EnvSpec, int], Any], n_step: int, updates: int, *,
    truncation_is_termination: bool = False,
) -> torch.Tensor:  # fmt: skip
    """Q of every state of the chain, (L,), learned from episodes that are cut off at random."""
    env = ToyEnv(Chain(), 32, limit=1000, truncation_rate=0.3)
    replay = ReplayBuffer(env.spec, ("actor",), capacity=3200, gamma=GAMMA, n_step=n_step)
    obs, generator = env.reset(seed=0), torch.Generator().manual_seed(0)
    for _ in range(60):
        # Of no effect, but critics must have seen the actions that they are asked about later.
        step = env.step(2 * torch.rand(32, 1, generator=generator) - 1)
        if truncation_is_termination:
            step = replace(
                step, terminated=step.truncated, truncated=torch.zeros_like(step.truncated)
            )
        replay.add(obs, step)
        obs = step.obs
    learner = make(env.spec, n_step)
    for _ in range(updates):
        learner.update(replay.sample(64))
    with torch.no_grad():
        output = learner.critic({"actor": torch.eye(4)}, torch.zeros(4, 1))
        return learner.values.expectation(output).mean(0)


def error(values: torch.Tensor) -> float:
    return float((values - Chain().values(GAMMA)).abs().max())


def sac(
    critic: dict[str, Any] | None = None, target: dict[str, Any] | None = None, **settings: Any
) -> Callable[[EnvSpec, int], Any]:  # fmt: skip
    return lambda spec, n_step: small_sac(
        spec, batch_size=64, gamma=GAMMA, n_step=n_step, tau=0.1, critic_lr=3e-3,
        actor_interval=10, actor=PLAIN, critic={**PLAIN, **(critic or {})},
        target=TargetConfig(entropy=False, **(target or {})), **settings,
    )  # fmt: skip


def td3(**settings: Any) -> Callable[[EnvSpec, int], Any]:
    return lambda spec, n_step: small_td3(
        spec, batch_size=64, gamma=GAMMA, n_step=n_step, tau=0.1, critic_lr=3e-3,
        delay_targets=False, actor=PLAIN, critic=PLAIN, **settings,
    )  # fmt: skip


def flash_sac() -> Callable[[EnvSpec, int], Any]:
    return lambda spec, n_step: small_flash_sac(
        spec, batch_size=64, gamma=GAMMA, n_step=n_step, tau=0.05, critic_lr=3e-3,
        actor_interval=10, temperature_loss=TemperatureLoss.fixed, init_temperature=1e-6,
        values=ValueConfig(atoms=31, low=0.0, high=6.0), reward_scale=RewardScaling.none,
    )  # fmt: skip


FEW_ATOMS = ValueConfig(atoms=31, low=0.0, high=6.0)


def test_truncated_step_still_bootstraps():
    # Of values between 4 and 5: what 1,000 updates leave; mistaken limits miss by more than 1.
    assert error(learned_values(sac(), 3, 1000)) < 0.05


def test_the_same_check_finds_a_learner_that_mistakes_time_limits_for_ends():
    assert error(learned_values(sac(), 1, 1000, truncation_is_termination=True)) > 1.0


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(sac({"members": 5}, {"members": 2}), id="redq"),
        pytest.param(sac(None, {"rule": TargetRule.own}, values=FEW_ATOMS), id="own categories"),
    ],
)
def test_every_kind_of_target_finds_the_values(make):
    assert error(learned_values(make, 1, 1000)) < 0.05


@pytest.mark.parametrize(
    ("make", "n_step", "updates"),
    [
        pytest.param(td3(), 3, 1500, id="td3"),
        pytest.param(td3(values=FEW_ATOMS), 1, 2000, id="td3 categories", marks=FULL),
        pytest.param(flash_sac(), 3, 600, id="flash_sac"),
    ],
)
def test_other_learners_bootstrap_too(make, n_step, updates):
    # Of values between 4 and 5: what so many updates leave; mistaken limits miss by more than 1.
    assert error(learned_values(make, n_step, updates)) < 0.25
