"""SAC of Stable-Baselines3 in a Gymnasium environment, evaluated and logged as our learners are."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import torch
from torch import Tensor

from configs.schema import RunConfig
from robot_rl.core.env import Obs
from robot_rl.core.errors import ConfigError, MissingExtraError
from scripts.baselines.baseline_run import BaselineTraining
from scripts.baselines.settings import SB3Settings
from sim.adapters.gymnasium_config import GymnasiumConfig

try:
    from stable_baselines3 import SAC  # pyright: ignore[reportMissingImports]
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "stable_baselines3":
        raise
    raise MissingExtraError("stable-baselines3", "bench", "SAC for comparison") from None


class SB3Training(BaselineTraining):
    """One plain Gymnasium environment and the library's SAC, which steps it itself."""

    title = "SAC of Stable-Baselines3"
    name = "sb3_sac"

    def __init__(self, config: RunConfig, settings: SB3Settings, device: torch.device) -> None:
        """Make the environment and the networks.

        Args:
            config: The run; its learner is not used.
            settings: SAC's.
            device: Of the networks.

        Raises:
            ConfigError: The run is not of one Gymnasium environment with one flat observation.
        """
        if not isinstance(config.env, GymnasiumConfig) or config.num_envs != 1:
            raise ConfigError(
                "Stable-Baselines3 trains in one Gymnasium environment here; got "
                f"{config.num_envs} worlds of {type(config.env).__name__}, expected "
                "experiment=hopper num_envs=1"
            )
        super().__init__(config, device=device)
        env: gymnasium.Env[Any, Any] = gymnasium.make(config.env.id, **config.env.kwargs)
        if len(env.observation_space.shape or ()) != 1:
            raise ConfigError(f"{config.env.id} has no flat observation, which this learner needs")
        self._device = device
        self._model: Any = SAC(
            "MlpPolicy", env, seed=config.seed, device=device, verbose=0,
            **settings.stable_baselines3(),
        )  # fmt: skip

    def iterate(self) -> Mapping[str, float]:
        """Everything up to the next evaluation, in one call: the library's own loop."""
        training = self.config.training
        goal = (self.steps // training.evaluation_interval + 1) * training.evaluation_interval
        steps = min(goal, training.total_steps) - self.steps
        self._model.learn(steps, reset_num_timesteps=False)
        self.steps = int(self._model.num_timesteps)
        found = self._model.logger.name_to_value
        return {name.removeprefix("train/"): found[name] for name in found if "loss" in name}

    def mean_return(self) -> float:
        """Mean return of the last hundred episodes."""
        returns = [episode["r"] for episode in self._model.ep_info_buffer or ()]
        return sum(returns) / len(returns) if returns else math.nan

    def policy(self) -> Callable[[Obs], Tensor]:
        """The squashed mean: actions in [-1, 1]."""
        self._model.policy.set_training_mode(False)
        actor = self._model.actor
        return lambda obs: actor(obs["actor"].to(self._device), deterministic=True)

    def weights(self) -> Mapping[str, Tensor]:
        """Of the actor."""
        return self._model.actor.state_dict()
