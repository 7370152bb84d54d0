"""Worlds that others step: what the learner must know about them, without having them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NoReturn

from torch import Tensor

from robot_rl.core.env import BatchEnv, EnvSpec, HasRewardWeights, Obs
from robot_rl.core.errors import ConfigError
from robot_rl.core.mirror import EnvMirror, Mirrorable
from robot_rl.training.cluster.fleet import Fleet


class RemoteEnv:
    """A `BatchEnv` in name: collectors reset and step it, and check it after every block."""

    def __init__(self, template: BatchEnv, num_envs: int, fleet: Fleet) -> None:
        """Describe worlds.

        Args:
            template: One world like them.
            num_envs: N, of all collectors together.
            fleet: Steps them.
        """
        self.fleet = fleet
        """The collectors."""
        self.template = template
        self.spec: EnvSpec = replace(template.spec, num_envs=num_envs, resumable=False)
        """Of all worlds; episodes begin anew on resume."""

    def reset(
        self, seed: int | None = None, mask: Tensor | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> Obs:  # fmt: skip
        """Collectors do this."""
        self._refuse("reset")

    def step(self, action: Tensor) -> NoReturn:
        """Collectors do this."""
        self._refuse("stepped")

    def check(self) -> None:
        """Collectors do this, and what they find comes with the next block."""

    def state_dict(self) -> dict[str, Any]:
        """Nothing: it is in the collector's state."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing to restore."""

    def close(self) -> None:
        """End the collectors."""
        self.fleet.close()
        self.template.close()

    def _refuse(self, what: str) -> NoReturn:
        raise ConfigError(f"worlds of cluster.collectors cannot be {what} by the learner's process")


class WeightedRemoteEnv(RemoteEnv):
    """The same of worlds that say what their reward terms weigh."""

    @property
    def reward_weights(self) -> Tensor:
        """Before the first step, (K,)."""
        assert isinstance(self.template, HasRewardWeights)
        return self.template.reward_weights


class MirroredRemoteEnv(WeightedRemoteEnv):
    """The same of worlds that know left and right, too."""

    def mirror(self) -> EnvMirror:
        """How observations and actions look with left and right exchanged."""
        assert isinstance(self.template, Mirrorable)
        return self.template.mirror()


def remote_env(template: BatchEnv, num_envs: int, fleet: Fleet) -> RemoteEnv:
    """Worlds that say all that the template says; arguments as above."""
    weighs = isinstance(template, HasRewardWeights)
    if weighs and isinstance(template, Mirrorable):
        return MirroredRemoteEnv(template, num_envs, fleet)
    return (WeightedRemoteEnv if weighs else RemoteEnv)(template, num_envs, fleet)
