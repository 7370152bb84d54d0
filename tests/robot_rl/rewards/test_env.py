"""Envs with a learned reward: what pays, what is remembered, what stays the task's."""

from functools import partial

import numpy as np
import pytest
import torch

from robot_rl.rewards.env import (
    ClassifierJudge,
    LearnedRewardEnv,
    RewardMode,
    RewardRelabeler,
    held_stages,
)
from tests.fakes import PointMass, ToyEnv
from tests.rewards import learned_env, near_middle
from tests.robot_rl.rewards.points import wandering

CPU = torch.device("cpu")


def point_env(mode: RewardMode = RewardMode.replace, weight: float = 2.0) -> LearnedRewardEnv:
    return learned_env(ToyEnv(PointMass(axes=1), 3, limit=12), mode=mode, weight=weight)


def test_reward_is_the_held_decision_and_success_stays_the_tasks():
    env, plain = point_env(), ToyEnv(PointMass(axes=1), 3, limit=12)
    env.reset(seed=1)
    plain.reset(seed=1)
    generator = torch.Generator().manual_seed(0)
    judge = near_middle(plain.spec).classifier
    seen: list[list[bool]] = [[] for _ in range(3)]
    paid = 0.0
    for _ in range(30):
        action = 2 * torch.rand(3, env.spec.action_size, generator=generator) - 1
        step, bare = env.step(action), plain.step(action)
        reached = judge.judge(bare.next_obs).reached[:, 0]
        for row in range(3):
            seen[row].append(bool(reached[row]))
            held = sum(seen[row][-3:]) >= 2
            assert float(step.reward[row]) == 2.0 * held
            if bool(bare.ended[row]):
                seen[row] = []
        assert torch.equal(step.success, bare.success)
        assert torch.equal(step.metrics["task_reward"], bare.reward)
        assert step.reward_terms is None
        paid += float(step.reward.sum())
    assert paid > 0, "a test in which nothing is ever held shows nothing"


def test_added_rewards_are_those_of_the_task_and_more():
    one, two = point_env(), point_env(RewardMode.add)
    one.reset(seed=1)
    two.reset(seed=1)
    for _ in range(12):
        action = torch.full((3, one.spec.action_size), 0.1)
        alone, added = one.step(action), two.step(action)
        expected = alone.metrics["task_reward"] + alone.reward
        assert torch.allclose(added.reward, expected)


def test_state_goes_on_bit_for_bit():
    env = point_env()
    env.reset(seed=1)
    action = torch.zeros(3, env.spec.action_size)
    for _ in range(5):
        env.step(action)
    state = env.state_dict()
    rewards = [env.step(action).reward.clone() for _ in range(10)]
    other = point_env()
    other.reset(state=state)
    assert all(torch.equal(other.step(action).reward, reward) for reward in rewards)


def test_stored_episodes_get_the_rewards_that_steps_would_have_given():
    episode = wandering(3)
    reward = near_middle()
    stages = partial(held_stages, reward.classifier)
    relabel = RewardRelabeler(stages, mode=RewardMode.replace, weight=3.0)
    judge = ClassifierJudge(reward, 1, CPU)
    expected = []
    for frame in episode.obs["actor"][1:]:
        expected.append(3.0 * float(judge.judge({"actor": torch.from_numpy(frame[None])}).reward))
    got = relabel(episode)
    assert got.reward.tolist() == pytest.approx(expected)
    assert 0 < np.count_nonzero(got.reward) < len(expected)
    added = RewardRelabeler(stages, mode=RewardMode.add, weight=3.0)(episode)
    assert added.reward.tolist() == pytest.approx((episode.reward + got.reward).tolist())


def test_uncertain_is_said_by_the_same_rule():
    reward = near_middle()
    judge = ClassifierJudge(reward, 1, CPU)
    edge = {"actor": torch.tensor([[0.5, 0.0]])}  # one member says so, the other does not
    assert bool(reward.classifier.judge(edge).uncertain)
    assert [bool(judge.judge(edge).uncertain) for _ in range(3)] == [False, True, True]
