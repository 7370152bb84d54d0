"""Our worlds for rsl_rl (RSL, ETH Zurich): its `VecEnv`, so that its PPO trains on our tasks.

    runner = OnPolicyRunner(RslRlWorlds(env), settings, device="cpu")

rsl_rl bootstraps a time limit from the value of the observation before it, which it has at hand;
the true successor that our environments hand out is not used.
"""

from typing import Any

import torch
from rsl_rl.algorithms import PPO
from rsl_rl.env import VecEnv
from tensordict import TensorDict
from torch import Tensor

from robot_rl.core.env import BatchEnv, Obs


class RslRlWorlds(VecEnv):
    """Any `BatchEnv` as rsl_rl sees it; observation groups keep their names."""

    def __init__(self, env: BatchEnv, *, episode_steps: int = 0, seed: int = 0) -> None:
        """Start the first episodes.

        Args:
            episode_steps: Time limit in steps, where it is known; rsl_rl reads it only to draw
                random first episode lengths, which our training worlds have already.
        """
        self.env = env
        self.num_envs = env.spec.num_envs
        self.num_actions = env.spec.action_size
        self.max_episode_length = episode_steps
        self.device = env.spec.device
        self.cfg: dict[Any, Any] | object = {}
        self.episode_length_buf = torch.zeros(self.num_envs, dtype=torch.int64, device=self.device)
        self._obs = grouped(env.reset(seed=seed))

    def get_observations(self) -> TensorDict:
        """Observations to act on next, groups (N, D)."""
        return self._obs

    def step(self, actions: Tensor) -> tuple[TensorDict, Tensor, Tensor, dict[str, Any]]:
        """Apply actions (N, A); the environment clips them to [-1, 1].

        Returns:
            Observations, rewards (N,), ends of episodes (N,) as int64, and `time_outs` (N,). A row
            that the environment calls invalid ends its episode without a reward, by time.
        """
        step = self.env.step(actions)
        ended = step.ended | ~step.valid  # some begin anew in a step of their own
        self.episode_length_buf += 1
        self.episode_length_buf *= ~ended
        self._obs = grouped(step.obs)
        reward = torch.where(step.valid, step.reward, 0.0)
        time_outs = (ended & ~(step.terminated & step.valid)).float()
        return self._obs, reward, ended.long(), {"time_outs": time_outs}


def grouped(obs: Obs) -> TensorDict:
    """Observation groups, copied: ours are overwritten by the next step."""
    first = next(iter(obs.values()))
    return TensorDict({name: group.clone() for name, group in obs.items()}, [first.shape[0]])


def make_ppo(worlds: RslRlWorlds, settings: dict[str, Any]) -> PPO:
    """rsl_rl's PPO for some worlds, on their device, by rsl_rl's settings of a runner."""
    return PPO.construct_algorithm(worlds.get_observations(), worlds, settings, str(worlds.device))
