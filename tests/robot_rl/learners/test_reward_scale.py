"""The running scale of rewards: what counts, in which order, and what does not stick."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from robot_rl.core.env import EnvStep
from robot_rl.learners.values import RewardScaling, RunningRewardScale, make_reward_scale
from tests.equality import assert_same
from tests.fakes import CPU, LinearWorld, ToyEnv, random_batch, small_flash_sac, small_sac

GAMMA = 0.9


def step(
    reward: list[float], *, terminated: list[bool] | None = None,
    truncated: list[bool] | None = None, valid: list[bool] | None = None,
) -> EnvStep:  # fmt: skip
    count = len(reward)
    no = torch.zeros(count, dtype=torch.bool)

    def flags(given: list[bool] | None, default: Tensor) -> Tensor:
        return default if given is None else torch.tensor(given)

    empty = torch.zeros(count, 1)
    return EnvStep(
        obs={"actor": empty}, next_obs={"actor": empty}, reward=torch.tensor(reward),
        terminated=flags(terminated, no), truncated=flags(truncated, no), success=no,
        valid=flags(valid, ~no), action=empty, intervened=no,
    )  # fmt: skip


def running(limit: float = 5.0, **settings: Any) -> RunningRewardScale:
    return RunningRewardScale(GAMMA, limit=limit, device=CPU, **settings)


def divisor(scale: RunningRewardScale) -> float:
    return float(1 / scale.scale(torch.ones(1)))


def test_rewards_are_left_alone_before_any_was_paid():
    scale = running()
    assert scale.scale(torch.tensor([3.0])).item() == 3.0
    scale.observe(step([0.0, 0.0]))
    assert scale.scale(torch.tensor([3.0])).item() == 3.0


def test_the_divisor_is_the_deviation_of_the_running_returns():
    scale = running(limit=1e6)  # the largest return plays no part
    rng = np.random.default_rng(0)
    returns, seen = np.zeros(4), []
    for _ in range(200):
        reward = rng.normal(1.0, 2.0, 4)
        ended = rng.random(4) < 0.1
        scale.observe(step(reward.tolist(), truncated=ended.tolist()))
        returns = GAMMA * returns + reward
        seen.append(returns.copy())
        returns[ended] = 0.0
    assert divisor(scale) == pytest.approx(np.std(seen), rel=1e-5)
    reward = torch.tensor([1.0, -2.0])
    torch.testing.assert_close(scale.scale(reward), reward / float(np.std(seen)))  # not centred


@pytest.mark.parametrize(
    ("limit", "steps", "expected"),
    [
        (2.0, [step([1.0])] * 3, 2.71 / 2),  # 1 + 0.9 + 0.81, at the limit
        (1.0, [step([1.0], truncated=[True]), step([1.0])], 1.0),  # a time limit ends it too
        # A terminal reward counts before the past is forgotten; then nothing is left of it.
        (1.0, [step([1.0]), step([-100.0], terminated=[True])], 100 - 0.9),
        (1.0, [step([1.0]), step([-100.0], terminated=[True]), step([-100.0])], 100.0),
        (1.0, [step([1.0, -1.0])] * 2, 1.9),  # of each world: not zero, as in a sum over them
    ],
)
def test_the_largest_return_of_a_world_is_scaled_to_the_limit(limit, steps, expected):
    scale = running(limit=limit, peak_decay=1.0)
    for one in steps:
        scale.observe(one)
    assert divisor(scale) == pytest.approx(expected)


def test_an_invalid_row_counts_for_nothing_and_ends_its_return():
    scale, other = running(limit=1.0), running(limit=1.0)
    for one in (scale, other):
        one.observe(step([1.0, 2.0]))
    scale.observe(step([float("nan"), 2.0], valid=[False, True]))
    other.observe(step([7e7, 2.0], valid=[False, True]))
    assert_same(scale.state_dict(), other.state_dict())
    assert int(scale.state_dict()["count"]) == 3
    assert scale.state_dict()["return"][0] == 0.0
    assert divisor(scale) == pytest.approx(3.8)


def test_a_reward_that_is_no_number_does_not_stick():
    scale, other = running(), running()
    for reward in ([1.0, 2.0], [float("nan"), 2.0], [1.0, float("inf")], [1.0, 1.0]):
        scale.observe(step(reward))
    assert np.isfinite(divisor(scale))
    for reward, valid in (
        ([1.0, 2.0], [True, True]), ([0.0, 2.0], [False, True]), ([1.0, 0.0], [True, False]),
        ([1.0, 1.0], [True, True]),
    ):  # fmt: skip
        other.observe(step(reward, valid=valid))
    assert_same(scale.state_dict(), other.state_dict())
    assert scale.scale(torch.tensor([float("nan")])).isnan().all()  # losses still report it


def test_a_spike_is_forgotten_by_half_in_6931_steps():
    scale = running(limit=1.0)
    scale.observe(step([1000.0] * 4, truncated=[True] * 4))
    before = divisor(scale)
    scale.observe(step([0.0] * 4))
    assert divisor(scale) == pytest.approx(before * 0.5 ** (1 / 6931), rel=1e-6)


@pytest.mark.slow
def test_statistics_stay_exact_over_many_steps_far_from_zero():
    scale = RunningRewardScale(0.0, limit=1e6, device=CPU)  # without a past: plain rewards
    for t in range(2000):
        scale.observe(step([1000.0 + (-1) ** t]))
    assert divisor(scale) == pytest.approx(1.0, rel=1e-6)


def test_without_scaling_nothing_is_kept_and_divided_rewards_are_not_taken_for_plain_ones():
    scale = make_reward_scale(RewardScaling.none, 0.99, 5.0, CPU)
    scale.observe(step([100.0]))
    reward = torch.tensor([3.0])
    assert scale.scale(reward) is reward
    assert scale.state_dict() == {}
    with pytest.raises(ValueError, match=r"learner\.reward_scale=running"):
        scale.load_state_dict(running().state_dict())


MAKERS: dict[str, Callable[..., Any]] = {"sac": small_sac, "flash_sac": small_flash_sac}


def learned(name: str, unit: float, scaling: RewardScaling) -> dict[str, Tensor]:
    """The policy after a few updates, where rewards are paid in another unit."""
    env = ToyEnv(LinearWorld(), 8)
    made = MAKERS[name](env.spec, reward_scale=scaling, reward_limit=2.0, actor_interval=1)
    env.reset(seed=0)
    for _ in range(20):
        seen = env.step(torch.ones(8, 2))
        made.observe(replace(seen, reward=unit * seen.reward))
    for seed in range(3):
        batch = random_batch(env.spec, 16, seed)
        made.update(replace(batch, reward=unit * batch.reward))
    return made.policy().state_dict()


@pytest.mark.parametrize("name", MAKERS)
def test_with_scaled_rewards_a_learner_does_not_feel_their_unit(name):
    scaled = RewardScaling.running
    # Powers of two pass through sums, roots and quotients without rounding.
    assert_same(learned(name, 1024.0, scaled), learned(name, 1.0, scaled))
    first, second = (learned(name, unit, RewardScaling.none) for unit in (1024.0, 1.0))
    assert any(not torch.equal(first[n], second[n]) for n in first)
