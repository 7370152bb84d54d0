"""Policies that remember something within an episode, and must be told where one starts."""

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:  # recordings are drawn without torch
    from torch import Tensor

    from robot_rl.core.env import Obs


@runtime_checkable
class EpisodicPolicy(Protocol):
    """Acts, and forgets: what plans ahead or recurs is one of these."""

    def __call__(self, obs: "Obs") -> "Tensor":
        """Actions, (N, A), in [-1, 1]."""
        ...

    def begin(self, mask: "Tensor") -> None:
        """Episodes start in the masked worlds, (N,) bool."""
        ...


def begin_episodes(act: object, mask: "Tensor") -> None:
    """Tell a policy that episodes start in the masked worlds, (N,) bool, if it wants to know."""
    if isinstance(act, EpisodicPolicy):
        act.begin(mask)
