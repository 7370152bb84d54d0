"""The k-of-m rule: a stage counts once k of the last m frames of an episode reached it."""

import torch
from torch import Tensor


class HoldWindow:
    """The newest decisions about N envs."""

    def __init__(
        self, hold: int, window: int, num_envs: int, stages: int, device: torch.device
    ) -> None:
        """Start empty: nothing is reached."""
        self._hold = hold
        self._frames = torch.zeros(window, num_envs, stages, dtype=torch.bool, device=device)
        self._next = 0

    def add(self, reached: Tensor) -> Tensor:
        """Take the newest frame, (N, S) bool; returns the stages that are held, (N, S) bool."""
        self._frames[self._next] = reached
        self._next = (self._next + 1) % len(self._frames)
        return self._frames.sum(0) >= self._hold

    def begin(self, mask: Tensor) -> None:
        """Forget the masked envs, (N,) bool: their episodes are new."""
        self._frames &= ~mask[None, :, None]

    def state_dict(self) -> dict[str, Tensor | int]:
        """Decisions, copied."""
        return {"frames": self._frames.clone(), "next": self._next}

    def load_state_dict(self, state: dict[str, Tensor | int]) -> None:
        """Restore `state_dict`."""
        frames = state["frames"]
        assert isinstance(frames, Tensor)
        self._frames.copy_(frames)
        self._next = int(state["next"])


def held_frames(reached: Tensor, episode: Tensor, hold: int, window: int) -> Tensor:
    """Stages that are held in the frames of whole episodes, one behind another.

    Args:
        reached: (B, S) bool.
        episode: (B,) int64, number of each frame's episode, in blocks.
        hold: k.
        window: m.

    Returns:
        (B, S) bool, as `HoldWindow.add` says at each frame.
    """
    count = reached.long()
    for back in range(1, window):
        same = torch.zeros_like(episode, dtype=torch.bool)
        same[back:] = episode[back:] == episode[:-back]
        moved = torch.zeros_like(count)
        moved[back:] = reached[:-back].long()
        count = count + torch.where(same[:, None], moved, 0)
    return count >= hold
