"""Our worlds as rsl_rl sees them: ends of episodes, time limits, invalid rows."""

import pytest
import torch

from sim.adapters.rsl_rl_env import RslRlWorlds, make_ppo
from tests.fakes import ToyEnv
from tests.toy_worlds import LinearWorld

WORLDS = 6


def toy() -> ToyEnv:
    return ToyEnv(LinearWorld(bound=0.9), WORLDS, invalid_at=[(5, 1)])


def worlds() -> RslRlWorlds:
    return RslRlWorlds(toy(), seed=3)


def action(value: float = 0.5) -> torch.Tensor:
    return torch.full((WORLDS, 2), value)


def test_observation_groups_keep_their_names_and_are_copies():
    made = worlds()
    before = made.get_observations()
    assert set(before.keys()) == {"actor", "critic"}
    kept = before["actor"].clone()
    made.step(action())
    assert torch.equal(before["actor"], kept)
    assert not torch.equal(made.get_observations()["actor"], kept)


def test_a_time_limit_is_told_from_an_end_by_the_task():
    made, twin = worlds(), toy()
    twin.reset(seed=3)
    limits = terminations = 0
    for _ in range(60):
        obs, reward, ended, extras = made.step(action())
        step = twin.step(action())
        assert torch.equal(obs["actor"], step.obs["actor"])
        assert torch.equal(reward, torch.where(step.valid, step.reward, 0.0))
        assert bool(reward.isfinite().all())  # of an invalid row too
        assert torch.equal(ended.bool(), step.terminated | step.truncated)
        assert torch.equal(extras["time_outs"].bool(), step.truncated & ~step.terminated)
        assert torch.equal(made.episode_length_buf == 0, ended.bool())
        limits += int(extras["time_outs"].sum())
        terminations += int(step.terminated.sum())
    assert limits > 0
    assert terminations > 0


def test_an_iteration_of_ppo_moves_the_policy():
    made = worlds()
    network = {"class_name": "MLPModel", "hidden_dims": [8], "obs_normalization": True}
    settings = {
        "num_steps_per_env": 4, "multi_gpu": None,
        "obs_groups": {"actor": ["actor"], "critic": ["critic"]},
        "actor": {**network, "distribution_cfg": {"class_name": "GaussianDistribution"}},
        "critic": network, "algorithm": {"class_name": "PPO"},
    }  # fmt: skip
    ppo = make_ppo(made, settings)
    before = [value.clone() for value in ppo.get_policy().parameters()]
    obs = made.get_observations()
    with torch.inference_mode():
        for _ in range(4):
            obs, reward, ended, extras = made.step(ppo.act(obs))
            ppo.process_env_step(obs, reward, ended, extras)
        ppo.compute_returns(obs)
    losses = ppo.update()
    assert losses["value"] == pytest.approx(losses["value"])  # a number
    after = list(ppo.get_policy().parameters())
    assert any(not torch.equal(one, two) for one, two in zip(before, after, strict=True))
