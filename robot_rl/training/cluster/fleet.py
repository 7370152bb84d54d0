"""The collectors as the learner sees them; what carries orders and blocks is behind this."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from robot_rl.training.cluster.blocks import Block
from robot_rl.training.cluster.remote_collector import CollectRequest, Weights


class Fleet(Protocol):
    """K collectors, each with orders that wait for it."""

    @property
    def count(self) -> int:
        """K."""
        ...

    @property
    def lost(self) -> int:
        """How many were lost and replaced so far."""
        ...

    def begin(self, seed: int, states: Sequence[Mapping[str, Any] | None]) -> None:
        """All begin new episodes.

        Args:
            seed: Each derives its own from it, and so does every one that replaces another.
            states: One per collector: what `states` gave, or None.
        """
        ...

    def publish(self, weights: Weights) -> None:
        """Weights that go with every order from now on."""
        ...

    def order(self, collector: int, order: CollectRequest) -> None:
        """Give one an order; it works off its orders one after another."""
        ...

    def waiting(self, collector: int) -> int:
        """Orders that it has and whose blocks have not been taken."""
        ...

    def up(self, collector: int) -> bool:
        """Whether it works; false while the one in the place of a lost one is coming up.

        Raises:
            RankError: It is lost again and again before it has a block.
        """
        ...

    def take(self, collector: int) -> Block | None:
        """Its oldest block; waits for it.

        Returns:
            None where it was lost just now, and its orders with it.

        Raises:
            RankError: It ended by an error, or is lost again and again.
            NonFiniteError: Its worlds report a value that is not a number.
        """
        ...

    def wait(self) -> None:
        """Wait until any collector is up.

        Raises:
            RankError: None comes up.
        """
        ...

    def states(self) -> list[Mapping[str, Any] | None]:
        """What the worlds of each go on from; of one that is away, what it told last."""
        ...

    def close(self) -> None:
        """End them all; allowed more than once."""
        ...
