"""One simulation for training and evaluation, as Isaac Lab allows one in a process.

Whoever steps it next after another one begins new episodes in all worlds, in a row that is invalid:
nothing was stepped in it, and nobody takes the other's end for its own.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.errors import ConfigError
from sim.adapters.torch_worlds.isaaclab.worlds import IsaacLabWorlds
from sim.adapters.torch_worlds.worlds import WorldStep


class SharedSimulation:
    """A simulation and who used it last; closed with its last user."""

    def __init__(self, worlds: IsaacLabWorlds, key: Any) -> None:
        """Begin without users.

        Args:
            worlds: All worlds of the simulation.
            key: What it was made from.
        """
        self.worlds, self.key = worlds, key
        self.user: SharedWorlds | None = None
        self._users: list[SharedWorlds] = []

    @property
    def closed(self) -> bool:
        """Nobody uses it any more."""
        return not self._users

    def share(self, count: int) -> "SharedWorlds":
        """The first worlds of the simulation, for one more user.

        Raises:
            ConfigError: There are not as many.
        """
        if count > self.worlds.num_envs:
            raise ConfigError(
                f"{count} worlds were asked for to evaluate in, but Isaac Lab keeps one simulation "
                f"in a process, and it has {self.worlds.num_envs}: lower "
                "training.evaluation_episodes, or raise num_envs"
            )
        user = SharedWorlds(self, count)
        self._users.append(user)
        return user

    def leave(self, user: "SharedWorlds") -> None:
        """One user less."""
        if user in self._users:
            self._users.remove(user)
            if not self._users:
                self.worlds.close()


class SharedWorlds:
    """The first worlds of a simulation; the others stand at action 0 meanwhile."""

    def __init__(self, simulation: SharedSimulation, count: int) -> None:
        """One user of the simulation, through `SharedSimulation.share`."""
        self._simulation, self.num_envs = simulation, count
        self.env = simulation.worlds.env
        self._steps = 0

    @property
    def steps(self) -> int:
        """Steps since the run began; those of other users do not count."""
        mine = self._simulation.user is self
        return self._simulation.worlds.steps if mine else self._steps

    @steps.setter
    def steps(self, value: int) -> None:
        self._steps = value
        if self._simulation.user is self:
            self._simulation.worlds.steps = value

    def reset(self, seed: int | None, ids: Tensor | None) -> Mapping[str, Any]:
        """Begin new episodes; of some worlds only where nobody else was before."""
        if ids is not None and self._simulation.user is not self:
            ids = None  # not taken: the next step begins all of them anew
        else:
            self._take()
        return self._mine(self._simulation.worlds.reset(seed, ids))

    def step(self, action: Tensor) -> WorldStep:
        """Step, or begin anew if somebody else was here."""
        if self._take():
            begun = self._mine(self._simulation.worlds.reset(None, None))
            none = torch.zeros(self.num_envs, dtype=torch.bool, device=action.device)
            return WorldStep(
                stayed=begun, final=None, begun=begun, reward=none.float(), terminated=none,
                truncated=~none, log={}, stepped=False,
            )  # fmt: skip
        others = action.new_zeros(
            self._simulation.worlds.num_envs - self.num_envs, *action.shape[1:]
        )
        step = self._simulation.worlds.step(torch.cat([action, others]))
        if not len(others):
            return step
        return WorldStep(
            stayed=self._mine(step.stayed),
            final=None if step.final is None else self._mine(step.final),
            begun=self._mine(step.begun),
            reward=step.reward[: self.num_envs],
            terminated=step.terminated[: self.num_envs],
            truncated=step.truncated[: self.num_envs],
            log={name: self._of_mine(value) for name, value in step.log.items()},
        )

    def term(self, name: str) -> Tensor | None:
        """A termination term in these worlds."""
        told = self._simulation.worlds.term(name)
        return None if told is None else told[: self.num_envs]

    def close(self) -> None:
        """Leave; the last one closes the simulation."""
        self._simulation.leave(self)

    def _take(self) -> bool:
        """Become the simulation's user; true if another one was."""
        before = self._simulation.user
        if before is self:
            return False
        if before is not None:
            before._steps = self._simulation.worlds.steps
        self._simulation.user = self
        self._simulation.worlds.steps = self._steps
        return before is not None

    def _mine(self, obs: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: self._mine(part) if isinstance(part, Mapping) else part[: self.num_envs]
            for name, part in obs.items()
        }

    def _of_mine(self, value: Any) -> Any:
        everyone = (self._simulation.worlds.num_envs,)
        if isinstance(value, Tensor) and value.shape == everyone:
            return value[: self.num_envs]
        return value
