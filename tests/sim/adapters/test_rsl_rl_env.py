"""Our worlds as rsl_rl sees them: ends of episodes, time limits, invalid rows."""

import pytest
import torch

from sim.adapters.rsl_rl_env import RslRlWorlds
from tests.fakes import ToyEnv
from tests.toy_worlds import LinearWorld

pytestmark = pytest.mark.slow  # rsl_rl takes seconds to import
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


def test_an_invalid_row_ends_its_episode_by_time_and_without_a_reward():
    made, twin = worlds(), toy()
    twin.reset(seed=3)
    for _ in range(7):
        _, reward, ended, extras = made.step(action())
        invalid = ~twin.step(action()).valid
        assert bool(ended[invalid].all())
        assert bool(extras["time_outs"][invalid].all())
        assert not bool(reward[invalid].any())
        assert not bool(made.episode_length_buf[invalid].any())
        if bool(invalid.any()):
            return
    raise AssertionError("no row was invalid")


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
