"""Ends of episodes: the one place that turns stored rows into rewards and discounts.

- A termination ends the sum and the future: discount 0.
- A truncation ends the sum; the future counts from the true successor: discount gamma^k.
- An invalid row, and the newest row of a ring, are seams: the sum stops before the former and after
  the latter, and the future counts from the last valid successor.
- A row that is itself invalid gets weight 0.
- A chunk is the actions of n rows. Those behind the sum's last row are of another episode and not
  valid: a chunk is whole if its last action is not later than the episode's.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from robot_rl.buffers.row_layout import RowLayout
from robot_rl.core.transition import Batch


class Returns:
    """Makes transitions of up to n steps out of rows."""

    def __init__(
        self, layout: RowLayout, gamma: float, n_step: int, device: torch.device,
        *, chunks: bool = False,
    ) -> None:  # fmt: skip
        """Value all reward terms alike.

        Args:
            layout: Of the rows.
            gamma: Discount per step.
            n_step: Steps per transition.
            device: Where the rows live.
            chunks: Hand out with every transition of several steps the actions of all n of them.
        """
        self.weights = torch.ones(max(1, len(layout.reward_names)), device=device)
        """Of the reward terms, (K,); the newest are valid for rows of any age."""
        self._layout, self._n_step, self._chunks = layout, n_step, chunks
        self._gamma = gamma
        self._discount = torch.tensor(gamma, device=device)

    def one_step(self, rows: Tensor, index: Tensor) -> Batch:
        """Transitions of one step.

        Args:
            rows: (B, W).
            index: Their places, (B,).
        """
        part = self._layout.split(rows)
        return Batch(
            obs=self._layout.obs(part, "obs/"),
            action=part["action"],
            reward=self.paid(part["reward"]),
            # gamma, or gamma - gamma
            discount=torch.add(self._discount, part["terminated"][:, 0], alpha=-self._gamma),
            next_obs=self._layout.obs(part, "next_obs/"),
            weight=part["valid"][:, 0],
            extra={"index": index},
        )

    def several_steps(
        self, rows: Tensor, index: Tensor, later: Callable[[int], tuple[Tensor, Tensor]]
    ) -> Batch:
        """Transitions of up to n steps.

        Args:
            rows: All rows, (M, W).
            index: Where transitions begin, (B,).
            later: For k steps later the places in the same envs, (B,), and whether these are
                not beyond the newest step, (B,) bool.

        Returns:
            With chunks, `extra` has "chunk" (B, n, A), and "valid" (B, n) bool: which of its
            actions were done one after another in one episode.
        """
        part = self._layout.split(rows.index_select(0, index))
        last = index  # (B,): row whose successor is bootstrapped from
        reward = self.paid(part["reward"])
        discount = torch.full_like(reward, self._gamma)
        going = _goes_on(part)
        chunk = [(part["action"], part["valid"][:, 0] > 0)] if self._chunks else []
        for k in range(1, self._n_step):
            place, inside = later(k)
            here = self._layout.split(rows.index_select(0, place))
            going = going & inside & (here["valid"][:, 0] > 0)
            reward = reward + going * discount * self.paid(here["reward"])
            discount = torch.where(going, discount * self._gamma, discount)
            last = torch.where(going, place, last)
            if self._chunks:  # copied: a view would keep the whole rows
                chunk.append((here["action"].clone(), going))
            going = going & _goes_on(here)
        end = self._layout.split(rows.index_select(0, last))
        extra = {"index": index}
        if chunk:
            actions, done = zip(*chunk, strict=True)
            extra |= {"chunk": torch.stack(actions, dim=1), "valid": torch.stack(done, dim=1)}
        return Batch(
            obs=self._layout.obs(part, "obs/"),
            action=part["action"],
            reward=reward,
            discount=discount * (1 - end["terminated"][:, 0]),
            next_obs=self._layout.obs(end, "next_obs/"),
            weight=part["valid"][:, 0],
            extra=extra,
        )

    def paid(self, terms: Tensor) -> Tensor:
        """Reward of terms (..., K), (...,)."""
        return terms[..., 0] * self.weights if terms.shape[-1] == 1 else terms @ self.weights


def _goes_on(part: Mapping[str, Tensor]) -> Tensor:
    ended = part["terminated"] + part["truncated"]
    return (ended[:, 0] == 0) & (part["valid"][:, 0] > 0)
