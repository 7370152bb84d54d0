"""What worlds observe beyond what episodes of before were stored with."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from robot_rl.datasets.episode import Episode


class ObservationAugmenter(Protocol):
    """Adds groups to the observations of episodes that were stored without them."""

    @property
    def widths(self) -> Mapping[str, int]:
        """Groups that it adds."""
        ...

    def __call__(self, episode: "Episode") -> "Episode":
        """The episode with them."""
        ...
