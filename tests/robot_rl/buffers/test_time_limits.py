"""Values of a chain that is cut off at random: a time limit is no end of the world.

What learns is a table that takes over the mean target of each state, as a critic would after many
steps: what it converges to is what the replay says, and nothing else.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.core.env import EnvStep
from tests.fakes import Chain, ToyEnv

GAMMA = 0.8
WORLDS = 16


def as_it_was(step: EnvStep) -> EnvStep:
    return step


def time_limits_as_ends(step: EnvStep) -> EnvStep:
    return replace(step, terminated=step.ended, truncated=torch.zeros_like(step.truncated))


def reset_observations_as_successors(step: EnvStep) -> EnvStep:
    return replace(step, next_obs=step.obs)


def time_limits_unseen(step: EnvStep) -> EnvStep:
    return replace(step, truncated=torch.zeros_like(step.truncated))


def learned(change: Callable[[EnvStep], EnvStep], n_step: int) -> Tensor:
    """Q of every state, (L,), from steps as `change` would have a collector store them."""
    chain = Chain()
    env = ToyEnv(chain, WORLDS, limit=1000, truncation_rate=0.3)
    replay = ReplayBuffer(env.spec, ("actor",), capacity=1600, gamma=GAMMA, n_step=n_step)
    obs = env.reset(seed=0)
    for _ in range(150):  # the ring wraps
        step = change(env.step(torch.zeros(WORLDS, 1)))
        replay.add(obs, step)
        obs = step.obs
    q = torch.zeros(chain.length, dtype=torch.float64)
    for _ in range(150):
        batch = replay.sample(512)
        state, successor = batch.obs["actor"].double(), batch.next_obs["actor"].double()
        target = batch.reward + batch.discount * (successor @ q)
        visits = state.sum(0)
        q = torch.where(visits > 0, state.T @ target / visits.clamp_min(1), q)
    return q


def misses(change: Callable[[EnvStep], EnvStep], n_step: int) -> float:
    """Largest error of a value relative to the true one."""
    true = Chain().values(GAMMA)
    return float(((learned(change, n_step) - true) / true).abs().max())


@pytest.mark.parametrize("n_step", [1, 5])
def test_truncated_step_still_bootstraps(n_step):
    assert misses(as_it_was, n_step) < 1e-5


@pytest.mark.parametrize(
    ("broken", "n_step"),
    [
        (time_limits_as_ends, 1),
        (reset_observations_as_successors, 5),
        (time_limits_unseen, 5),  # sums go on into the next episode
    ],
)
def test_the_same_check_finds_every_way_to_mistake_a_time_limit(broken, n_step):
    assert misses(broken, n_step) > 0.05
