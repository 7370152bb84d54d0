"""What may be added to the critics' loss of SAC: contract, and what a penalty is shown."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from robot_rl.core.env import Obs
from robot_rl.core.transition import Batch


@dataclass(frozen=True, kw_only=True)
class CriticView:
    """The critics that count in this update, in the middle of it."""

    members: int
    """E: all members, over which a loss is summed."""
    at_data: Tensor
    """Values of the batch's own actions, (M, B), with a graph."""
    value: Callable[[Obs, Tensor], Tensor]
    """Values of other actions, groups (R, ...) and (R, A) -> (M, R), with a graph, of the same
    members."""
    sample: Callable[[Obs], tuple[Tensor, Tensor]]
    """Actions of the policy, (R, A), and their log-probabilities, (R,), without a graph."""


class CriticPenalty(Protocol):
    """Weighs the rows of a batch, and adds a loss of its own."""

    offline: bool
    """Whether with it a learner may begin with stored experience alone."""

    next_actions: int
    """Actions drawn at every next observation, of which the largest value is the target's."""

    capturable: bool
    """Whether an update with it keeps the rules of `learners/captured.py`."""

    def share(self, online_updates: int) -> float:
        """What is left of it, in [0, 1], so many updates after the run's own experience came in."""
        ...

    def weight(self, batch: Batch) -> Tensor:
        """Importance of the rows in the temporal difference, (B,); may learn from the batch."""
        ...

    def loss(
        self, batch: Batch, view: CriticView, share: float
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """What is added to the critics' loss, 0-dim, and detached metrics.

        Args:
            batch: B rows.
            view: The critics.
            share: What is left of it.
        """
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides later losses."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        ...
