"""Our environments as Gymnasium's: its own checker, true final observations, equal seeds."""

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import configs.gymnasium_ids  # noqa: F401 - registers the ids
from configs.catalog import choices
from configs.gymnasium_ids import id_of
from robot_rl.core.errors import ConfigError, NonFiniteError, ShapeError
from sim.adapters.gymnasium_vector import SingleWorld, VectorWorlds
from tests.fakes import LinearWorld, ToyEnv, copied
from tests.matrices import some

IDS = sorted((id_of(task) for task in choices("task")), key=id_of("hover").__ne__)
WORLDS, LIMIT = 6, 9
ROOT = Path(__file__).parents[3]


def toy(num_envs=WORLDS, **settings):
    return ToyEnv(LinearWorld(bound=0.8), num_envs, limit=LIMIT, **settings)


@pytest.mark.slow
@pytest.mark.parametrize("name", some(IDS[:1], IDS[1:]))
def test_gymnasiums_checker_finds_nothing_to_say(name):
    env = gymnasium.make(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Observations have no bounds, and the checker would rather see some.
        warnings.filterwarnings("ignore", message=".*A Box observation space .*infinity")
        check_env(env.unwrapped, skip_render_check=True)  # GL is chosen before MuJoCo is imported
    env.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", some(IDS[:1], IDS[1:]))
def test_vector_of_worlds_is_made_by_its_id(name):
    worlds = gymnasium.make_vec(name, num_envs=3)
    obs, _ = worlds.reset(seed=0)
    assert worlds.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert worlds.observation_space.contains(obs)
    worlds.action_space.seed(0)
    obs, reward, terminated, truncated, _ = worlds.step(worlds.action_space.sample())
    assert worlds.observation_space.contains(obs)
    assert (reward.dtype, reward.shape) == (np.float64, (3,))
    assert terminated.shape == truncated.shape == (3,)
    worlds.close()
    worlds.close()


@pytest.mark.slow
def test_ids_take_choices_and_fields_of_a_run():
    short: dict[str, Any] = {"overrides": ["task.episode_length=0.05", "task.success_window=0.02"]}
    env = gymnasium.make("robot_rl/Hover-v0", **short)
    env.reset(seed=0)
    for _ in range(2):  # every episode has its full length, the first one too
        ends = [env.step(np.zeros(4, np.float32))[3] for _ in range(5)]
        assert ends == [False] * 4 + [True]
        env.reset()


def test_steps_are_those_of_the_environment_and_final_ones_are_kept_apart():
    worlds, env = VectorWorlds(toy()), toy()
    obs, _ = worlds.reset(seed=2)
    start = env.reset(seed=2, mask=torch.ones(WORLDS, dtype=torch.bool))
    assert np.array_equal(obs, start["actor"])
    ended = 0
    for action in torch.rand(4 * LIMIT, WORLDS, 2, generator=torch.Generator().manual_seed(1)):
        expected = env.step(2 * action - 1)
        obs, reward, terminated, truncated, infos = worlds.step((2 * action - 1).numpy())
        assert np.array_equal(obs, expected.obs["actor"])
        assert np.array_equal(reward, expected.reward.double())
        assert np.array_equal(terminated, expected.terminated)
        assert np.array_equal(truncated, expected.truncated)
        ends = expected.ended.numpy()
        assert np.array_equal(infos["_is_success"], ~ends)
        assert ("final_obs" in infos) == bool(ends.any())
        for i in np.flatnonzero(ends):
            assert np.array_equal(infos["final_obs"][i], expected.next_obs["actor"][i])
            final = infos["final_info"]
            assert final["_is_success"][i]
            assert final["is_success"][i] == bool(expected.success[i])
            assert final["first"][i] == float(expected.metrics["first"][i])
        if ends.any():
            assert np.array_equal(infos["_final_obs"], ends)
            assert [value is None for value in infos["final_obs"]] == (~ends).tolist()
        ended += int(ends.sum())
    assert ended > 10


def test_one_world_returns_the_true_last_observation_and_waits_for_reset():
    single, env = SingleWorld(toy(1)), toy(1)
    single.reset(seed=3)
    env.reset(seed=3, mask=torch.ones(1, dtype=torch.bool))
    terminated = truncated = False
    for _ in range(LIMIT):
        step = copied(env.step(torch.full((1, 2), 0.1)))
        obs, reward, terminated, truncated, info = single.step(np.full(2, 0.1, np.float32))
        assert np.array_equal(obs, step.next_obs["actor"][0])
        assert (reward, terminated, truncated) == (
            float(step.reward), bool(step.terminated), bool(step.truncated),
        )  # fmt: skip
        assert info["is_success"] == bool(step.success)
        if terminated or truncated:
            break
    assert terminated or truncated


def test_masked_reset_leaves_the_other_worlds():
    worlds = VectorWorlds(toy())
    before, _ = worlds.reset(seed=0)
    mask = np.arange(WORLDS) < 2
    after, _ = worlds.reset(options={"reset_mask": mask})
    assert np.array_equal(before[~mask], after[~mask])
    assert (before[mask] != after[mask]).any(axis=1).all()


def test_several_worlds_are_not_one_and_a_nan_is_not_silent():
    with pytest.raises(ShapeError, match="expected one world, got 6"):
        SingleWorld(toy())
    worlds = VectorWorlds(toy())
    worlds.reset(seed=0)
    with pytest.raises(NonFiniteError):
        worlds.step(np.full((WORLDS, 2), np.nan, np.float32))
    assert worlds.render() is None
    with pytest.raises(ConfigError, match="render_mode is 'human'; known: rgb_array"):
        VectorWorlds(toy(), "human")


@pytest.mark.slow
@pytest.mark.usefixtures("gl")
def test_render_mode_of_gymnasium_draws_the_worlds():
    run = """
import gymnasium, numpy, configs.gymnasium_ids
env = gymnasium.make("robot_rl/Hover-v0", render_mode="rgb_array")
env.reset(seed=0)
before = env.render()
for _ in range(9):
    env.step(numpy.ones(4, numpy.float32))
print(before.shape, before.dtype, before.std() > 5, (env.render() != before).any())
"""
    drawn = "(480, 640, 3) uint8 True True\n"
    assert any(
        subprocess.run(
            [sys.executable, "-c", run], capture_output=True, text=True, check=False, cwd=ROOT,
            env={**os.environ, "MUJOCO_GL": backend},
        ).stdout == drawn
        for backend in ("egl", "osmesa")
    )  # fmt: skip


@pytest.mark.slow
def test_a_world_that_the_engine_put_back_pays_nothing_and_says_so():
    """Its reward was that of the pose where it had been put, and nothing told."""
    worlds: Any = gymnasium.make_vec("robot_rl/Reach-v0", num_envs=2)
    worlds.reset(seed=0)
    still = np.zeros((2, worlds.single_action_space.shape[0]), np.float32)
    inner: Any = worlds.unwrapped
    inner._env.simulation.engine.qvel[0] = 1e12
    _, reward, _, truncated, told = worlds.step(still)
    assert truncated.tolist() == [True, False]
    assert reward[0] == 0.0 != reward[1]
    assert not told["final_info"]["valid"][0]
    assert told["valid"][1]
    worlds.close()
    alone: Any = gymnasium.make("robot_rl/Reach-v0").unwrapped
    alone.reset(seed=0)
    assert alone.step(still[0])[4]["valid"]
    alone._env.simulation.engine.qvel[0] = 1e12
    _, reward, _, truncated, told = alone.step(still[0])
    assert (reward, truncated, told["valid"]) == (0.0, True, False)
    alone.close()
