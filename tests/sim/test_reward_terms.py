"""Reward terms that a program adds to tasks of ours."""

import pytest
import torch

import robot_rl
from robot_rl.core.errors import ConfigError
from sim.env import SimEnv
from sim.reward_terms import REWARD_TERMS, RewardedStep, reward_term


@pytest.fixture
def declared():
    """Terms that are forgotten afterwards."""
    before = dict(REWARD_TERMS)
    yield reward_term
    for name in set(REWARD_TERMS) - set(before):
        del REWARD_TERMS[name], REWARD_TERMS.owners[name]


def test_a_term_counts_by_its_weight_and_reads_the_step(declared):
    seen: list[RewardedStep] = []

    @declared
    def changed(step: RewardedStep):
        seen.append(step)
        return (step.action - step.last_action).abs().sum(-1)

    env = robot_rl.make_env("task=reach", "task.reward.changed=-0.5", num_envs=3)
    env.reset(seed=0)
    size = env.spec.action_size
    first, second = 0.25 * torch.ones(3, size), -0.25 * torch.ones(3, size)
    env.step(first)
    step = env.step(second)
    place = env.spec.reward_names.index("changed")
    assert step.reward_terms is not None
    assert step.reward_weights is not None
    torch.testing.assert_close(step.reward_terms[:, place], torch.full((3,), 0.5 * size))
    assert step.reward_weights[place] == -0.5
    torch.testing.assert_close(step.reward, step.reward_terms @ step.reward_weights)
    assert seen[-1].goal.keys() == {"end_effector_position_b"}
    assert seen[-1].true_state.joint_position.shape[0] == 3


def test_a_curriculum_moves_its_weight_too(declared):
    @declared
    def low(step: RewardedStep):
        return -step.true_state.position_w[:, 2].abs()

    env = robot_rl.make_env("task=hover", "task.reward.final.low=2.0", num_envs=2)
    assert env.spec.reward_weights[env.spec.reward_names.index("low")] == 0.0
    assert isinstance(env, SimEnv)
    env.set_global_step(10_000_000)
    weights = env.step(torch.zeros(2, env.spec.action_size)).reward_weights
    assert weights is not None
    assert weights[env.spec.reward_names.index("low")] == 2.0


def test_a_term_that_gives_no_number_for_each_env_is_refused(declared):
    @declared
    def flat(step: RewardedStep):
        return step.action

    with pytest.raises(ConfigError, match=r"reward term 'flat' gave \(2, 7\), expected a tensor"):
        robot_rl.make_env("task=reach", "task.reward.flat=1.0", num_envs=2)


def test_a_term_of_doubles_counts_and_one_with_a_name_of_the_task_s_own_is_refused(declared):
    @declared
    def exact(step: RewardedStep):
        return step.action.double().sum(-1)

    env = robot_rl.make_env("task=reach", "task.reward.exact=1.0", num_envs=2)
    assert env.step(torch.zeros(2, env.spec.action_size)).reward.dtype == torch.float32

    @declared
    def closeness(step: RewardedStep):
        return step.action.sum(-1)

    with pytest.raises(ConfigError, match="'closeness' is a reward term of ReachTask itself and"):
        robot_rl.make_env("task=reach", num_envs=2)


@pytest.mark.parametrize("task", ["reach", "peg"])
def test_an_added_term_counts_beside_a_sparse_reward(task, declared):
    @declared
    def gentle(step: RewardedStep):
        return -step.action.square().sum(-1)

    env = robot_rl.make_env(
        f"task={task}", "task.kind=sparse", "task.reward.gentle=0.5", num_envs=2
    )
    assert env.spec.reward_weights[env.spec.reward_names.index("gentle")] == 0.5
    assert sum(weight != 0 for weight in env.spec.reward_weights) == 2


def test_a_weight_without_any_term_names_the_nearest(declared):
    @declared
    def jolts(step: RewardedStep):
        return step.action.sum(-1)

    with pytest.raises(ConfigError, match=r"reward term 'jolt' is unknown.*jolts"):
        robot_rl.make_env("task=reach", "task.reward.jolt=1.0", num_envs=2)
