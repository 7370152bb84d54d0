"""Worlds with a base: whose plan goes on when, against a base by hand in every world."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from robot_rl.core.base_action import BASE_ACTION, BaseActionEnv
from robot_rl.core.errors import SpecMismatchError
from tests.bases import ByHand, frozen, write_base
from tests.fakes import LinearWorld, ToyEnv

WORLDS = 5


def worlds(tmp_path: Path, seed: int = 0, **settings: Any) -> BaseActionEnv:
    env = ToyEnv(LinearWorld(bound=0.6), WORLDS, limit=5, truncation_rate=0.1, **settings)
    path = write_base(tmp_path / "base.onnx", *sizes(env))
    return BaseActionEnv(env, frozen([path], env.spec, WORLDS))


def sizes(env: Any) -> tuple[int, int]:
    return env.spec.groups["actor"].shape[0], env.spec.action_size


def actions(generator: torch.Generator, env: BaseActionEnv) -> torch.Tensor:
    return torch.rand(WORLDS, env.spec.action_size, generator=generator) * 2 - 1


def test_plans_go_on_within_an_episode_and_start_anew_after_every_end(tmp_path):
    """Published: the first action of an episode was popped from the old plan, and plans outlived
    truncation. The successor of a truncated step goes on from the old plan: it has a value."""
    env = worlds(tmp_path)
    hands = [ByHand(*sizes(env)) for _ in range(WORLDS)]
    obs = env.reset(seed=1)
    expected = [hand.act(row) for hand, row in zip(hands, obs["actor"], strict=True)]
    np.testing.assert_allclose(obs[BASE_ACTION].numpy(), expected, atol=1e-6)
    draws, ends = torch.Generator().manual_seed(0), {"terminated": 0, "truncated": 0}
    for _ in range(40):
        action = actions(draws, env)
        step = env.step(action)
        assert torch.equal(step.action, action)  # however far from the base
        after = [hand.act(row) for hand, row in zip(hands, step.next_obs["actor"], strict=True)]
        np.testing.assert_allclose(step.next_obs[BASE_ACTION].numpy(), after, atol=1e-6)
        for world in step.ended.nonzero()[:, 0].tolist():
            hands[world].start()
            after[world] = hands[world].act(step.obs["actor"][world])
        np.testing.assert_allclose(step.obs[BASE_ACTION].numpy(), after, atol=1e-6)
        for name in ends:
            ends[name] += int(getattr(step, name).sum())
    assert min(ends.values()) > 3


def test_a_reset_of_some_worlds_leaves_the_plans_of_the_others(tmp_path):
    env = worlds(tmp_path)
    hands = [ByHand(*sizes(env)) for _ in range(WORLDS)]
    obs = env.reset(seed=1)
    expected = [hand.act(row) for hand, row in zip(hands, obs["actor"], strict=True)]
    mask = torch.tensor([True, False, True, False, False])
    obs = env.reset(mask=mask)
    for world in (0, 2):
        hands[world].start()
        expected[world] = hands[world].act(obs["actor"][world])
    np.testing.assert_allclose(obs[BASE_ACTION].numpy(), expected, atol=1e-6)


def test_another_base_is_refused(tmp_path):
    env = worlds(tmp_path)
    env.reset(seed=1)
    state = env.state_dict()
    write_base(tmp_path / "base.onnx", *sizes(env), seed=1)
    toy = ToyEnv(LinearWorld(), WORLDS)
    other = BaseActionEnv(toy, frozen([tmp_path / "base.onnx"], toy.spec, WORLDS))
    with pytest.raises(SpecMismatchError, match="are not those that the run began with"):
        other.load_state_dict(state)
    with pytest.raises(SpecMismatchError, match="observe 'base_action' already"):
        BaseActionEnv(env, env.base)


def test_several_are_mixed_by_their_weights_and_reward_weights_are_those_of_the_worlds(tmp_path):
    """They were forgotten: stored rewards were valued by ones until the first step."""
    env = ToyEnv(LinearWorld(), WORLDS, reward_weights=lambda _: [3.0])
    paths = [write_base(tmp_path / f"{i}.onnx", *sizes(env), seed=i) for i in range(2)]
    based = BaseActionEnv(env, frozen(paths, env.spec, WORLDS, weights=[3.0, 1.0]))
    assert based.spec.reward_weights == env.spec.reward_weights
    obs = based.reset(seed=0)
    for world in range(WORLDS):
        one, two = (ByHand(*sizes(env), seed=i).act(obs["actor"][world]) for i in range(2))
        got = obs[BASE_ACTION][world].numpy()
        np.testing.assert_allclose(got, 0.75 * one + 0.25 * two, atol=1e-6)
