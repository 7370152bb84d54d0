"""What a base policy would have done in episodes that were stored without it."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch

from robot_rl.core.base_action import BASE_ACTION, BasePolicy
from robot_rl.core.env import Obs
from robot_rl.datasets.episode import Episode


class BaseActions:
    """Runs a base along episodes, each from a new plan on; their own actions stay what they are."""

    def __init__(self, base: BasePolicy, action_size: int) -> None:
        """Take a base.

        Args:
            base: For one world.
            action_size: A.
        """
        self._base = base
        self.widths: Mapping[str, int] = {BASE_ACTION: action_size}
        """The group that is added."""

    def __call__(self, episode: Episode) -> Episode:
        """The episode with `base_action`, (T + 1, A), after what was observed in each frame."""
        starting, actions = torch.ones(1, dtype=torch.bool), []
        for t in range(episode.num_steps + 1):
            obs: Obs = {name: torch.from_numpy(g[t : t + 1]) for name, g in episode.obs.items()}
            action = self._base.next(obs) if t else self._base.restart(starting, obs)
            actions.append(action.numpy())
        return replace(episode, obs={**episode.obs, BASE_ACTION: np.concatenate(actions)})
