"""PPO of rsl_rl in our worlds, evaluated and logged as our own learners are."""

import contextlib
import io
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from configs.schema import RunConfig, make_env
from robot_rl.core.env import Obs
from robot_rl.core.errors import MissingExtraError
from scripts.baselines.baseline_run import BaselineTraining
from scripts.baselines.settings import PPOSettings

try:
    from sim.adapters.rsl_rl_env import RslRlWorlds, grouped, make_ppo
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in ("rsl_rl", "tensordict"):
        raise
    raise MissingExtraError("rsl-rl-lib", "bench", "PPO for comparison") from None


@dataclass
class _Ends:
    """Episodes that ended since this was last asked."""

    total: float = 0.0
    episodes: int = 0


class PPOTraining(BaselineTraining):
    """The worlds and rsl_rl's algorithm."""

    title = "rsl_rl's PPO"
    name = "rsl_ppo"

    def __init__(self, config: RunConfig, settings: PPOSettings, device: torch.device) -> None:
        """Make the worlds and the networks.

        Args:
            config: The run; its learner is not used.
            settings: PPO's.
            device: Where all of it lives.
        """
        super().__init__(config, device=device)
        env = make_env(
            config, num_envs=config.num_envs, device=device, seed=config.seed, evaluation=False
        )
        torch.manual_seed(config.seed)
        self._worlds = RslRlWorlds(env, seed=config.seed)
        self._settings = settings.rsl_rl("critic" if "critic" in env.spec.groups else "actor")
        with contextlib.redirect_stdout(io.StringIO()):  # it prints its networks
            self._ppo = make_ppo(self._worlds, self._settings)
        self._returns = torch.zeros(config.num_envs, device=device)
        self._ends = _Ends()

    def iterate(self) -> Mapping[str, float]:
        """One rollout and its update."""
        ppo, obs = self._ppo, self._worlds.get_observations()
        ppo.train_mode()
        with torch.inference_mode():
            for _ in range(self._settings["num_steps_per_env"]):
                obs, reward, ended, extras = self._worlds.step(ppo.act(obs))
                self._follow(reward, ended > 0)
                ppo.process_env_step(obs, reward, ended, extras)
            ppo.compute_returns(obs)
        losses = ppo.update()
        self.steps += self._worlds.num_envs * self._settings["num_steps_per_env"]
        return {**losses, "learning_rate": float(ppo.learning_rate)}

    def mean_return(self) -> float:
        """Mean return of the episodes that ended since this was last asked."""
        ends, self._ends = self._ends, _Ends()
        return ends.total / ends.episodes if ends.episodes else math.nan

    def policy(self) -> Callable[[Obs], Tensor]:
        """The mean of the actor's distribution."""
        self._ppo.eval_mode()
        actor = self._ppo.get_policy()
        return lambda obs: actor(grouped(obs))

    def weights(self) -> Mapping[str, Tensor]:
        """Of the actor and its normaliser."""
        return self._ppo.get_policy().state_dict()

    def _follow(self, reward: Tensor, ended: Tensor) -> None:
        self._returns += reward
        self._ends.total += float(self._returns[ended].sum())
        self._ends.episodes += int(ended.sum())
        self._returns[ended] = 0.0
