"""The collectors as the learner sees them; what carries requests and blocks is behind this."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn, Protocol

from torch import Tensor

from robot_rl.core.env import BatchEnv, EnvSpec, Obs
from robot_rl.core.errors import ConfigError
from robot_rl.training.cluster.remote_collector import Block, CollectRequest, Weights


class Fleet(Protocol):
    """K collectors, each with requests that wait for it."""

    @property
    def count(self) -> int:
        """K."""
        ...

    @property
    def lost(self) -> int:
        """Number of those that were lost and replaced so far."""
        ...

    def begin(self, seed: int, states: Sequence[Mapping[str, Any] | None]) -> None:
        """All begin new episodes.

        Args:
            seed: Each derives its own from it, and so does every one that replaces another.
            states: One per collector: what `states` gave, or None.
        """
        ...

    def publish(self, weights: Weights) -> None:
        """Weights that go with every request from now on."""
        ...

    def request(self, collector: int, request: CollectRequest) -> None:
        """Give one a request; it works off its requests one after another."""
        ...

    def waiting(self, collector: int) -> int:
        """Orders that it has and whose blocks have not been taken."""
        ...

    def up(self, collector: int) -> bool:
        """True if it works; false while the one in the place of a lost one is coming up.

        Raises:
            RankError: It is lost again and again before it has a block.
        """
        ...

    def take(self, collector: int) -> Block | None:
        """Its oldest block; waits for it. None where it was lost just now, with its requests.

        Raises:
            RankError: It ended by an error, or is lost again and again.
            NonFiniteError: Its envs report a value that is not a number.
        """
        ...

    def wait(self) -> None:
        """Wait until any collector is up.

        Raises:
            RankError: None comes up.
        """
        ...

    def states(self) -> list[Mapping[str, Any] | None]:
        """State that the envs of each go on from; of one that is away, its last."""
        ...

    def close(self) -> None:
        """End them all; allowed more than once."""
        ...


class RemoteEnv:
    """A `BatchEnv` in name: collectors reset and step it, and check it after every block."""

    def __init__(self, template: BatchEnv, num_envs: int, fleet: Fleet) -> None:
        self.fleet = fleet
        """The collectors."""
        self.template = template
        """One env like them."""
        self.spec: EnvSpec = replace(template.spec, num_envs=num_envs, resumable=False)
        """Of all envs; episodes begin anew on resume."""

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
        raise ConfigError(f"envs of cluster.collectors cannot be {what} by the learner's process")
