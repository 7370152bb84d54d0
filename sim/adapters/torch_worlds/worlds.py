"""What the shared adapter asks of a package's environments."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class WorldStep:
    """One step of N worlds, some of which ended and began anew.

    Observations are the package's own: group -> (N, ...), or group -> term -> (N, ...), and may be
    overwritten by the next step.
    """

    stayed: Mapping[str, Any]
    """What worlds see whose episode goes on; other rows mean nothing."""
    final: Mapping[str, Any] | None
    """What worlds saw last whose episode ended; other rows mean nothing. None if it is lost."""
    begun: Mapping[str, Any]
    """What worlds see that began anew; other rows mean nothing."""
    reward: Tensor
    """(N,)."""
    terminated: Tensor
    """(N,) bool."""
    truncated: Tensor
    """(N,) bool; may be set together with `terminated`."""
    log: Mapping[str, Any]
    """What the task logged in this step: numbers, or tensors () or (N,)."""
    stepped: bool = True
    """False if all worlds only began anew."""


class TorchWorlds(Protocol):
    """N worlds of a package; whoever calls sees to the global random generators."""

    @property
    def num_envs(self) -> int:
        """N."""
        ...

    @property
    def env(self) -> Any:
        """The package's environment itself."""
        ...

    @property
    def steps(self) -> int:
        """Steps since the run began, which the task's schedules follow."""
        ...

    @steps.setter
    def steps(self, value: int) -> None: ...

    def reset(self, seed: int | None, ids: Tensor | None) -> Mapping[str, Any]:
        """Begin new episodes.

        Args:
            seed: Of all that is random; None goes on.
            ids: Worlds, int64; None for all.

        Returns:
            Observations; rows of other worlds mean nothing.
        """
        ...

    def step(self, action: Tensor) -> WorldStep:
        """Apply actions (N, A), in the task's own units."""
        ...

    def term(self, name: str) -> Tensor | None:
        """(N,) bool: a termination term in the last step; None where there are no such terms."""
        ...

    def close(self) -> None:
        """Release the worlds; allowed more than once."""
        ...
