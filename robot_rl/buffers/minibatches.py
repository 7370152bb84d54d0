"""Minibatches for the learner: as many as there are updates, drawn at the right time.

With prior experience, every minibatch holds its share of it, evenly spread: in every part of a
minibatch too, should a learner divide it further (Ball et al. 2023, RLPD, draws and interleaves
alike). Own rows that are drawn by priority are weighed to a mean of 1, so that the share is one of
the loss as well.

With symmetric augmentation half of every minibatch, and of every even part of it, are the mirror
images of the other half. A learner knows nothing of it: left and right are data of the `RobotSpec`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.core.env import Obs
from robot_rl.core.errors import ConfigError
from robot_rl.core.mirror import EnvMirror, SignedPermutation
from robot_rl.core.transition import Batch


class MirrorImages:
    """Makes mirror images of batches; rewards and ends are the same there."""

    def __init__(self, mirror: EnvMirror, device: torch.device) -> None:
        """Bring the mirror to a device."""
        self._groups = {name: _Columns(one, device) for name, one in mirror.groups.items()}
        self._action = _Columns(mirror.action, device)

    def beside(self, batch: Batch) -> Batch:
        """Every transition, followed by its mirror image: B become 2 B."""
        return Batch(
            obs=self._obs(batch.obs),
            action=_side_by_side(batch.action, self._action(batch.action)),
            reward=batch.reward.repeat_interleave(2),
            discount=batch.discount.repeat_interleave(2),
            next_obs=self._obs(batch.next_obs),
            weight=batch.weight.repeat_interleave(2),
            extra={
                name: _side_by_side(value, self._action(value))
                if name == "chunk"
                else value.repeat_interleave(2, 0)
                for name, value in batch.extra.items()
            },
        )

    def _obs(self, obs: Mapping[str, Tensor]) -> Obs:
        for name in obs:
            if name not in self._groups:
                raise ConfigError(
                    f"training.symmetry=augment knows no mirror image of the group '{name}'; "
                    "choose training.symmetry=none"
                )
        return {
            name: _side_by_side(group, self._groups[name](group)) for name, group in obs.items()
        }


class Minibatches:
    """Draws minibatches for a learner, and hands its errors on to the priorities."""

    def __init__(
        self,
        replay: ReplayBuffer,
        size: int,
        *,
        prior: ReplayBuffer | None = None,
        share: float = 0.5,
        images: MirrorImages | None = None,
        pay: Callable[[Batch], Batch] | None = None,
    ) -> None:
        """Join the parts.

        Args:
            size: Transitions of a minibatch.
            prior: Experience of before; drawn uniformly.
            share: Part of every minibatch that is drawn from it, rounded to whole transitions.
            images: Makes mirror images: half of a minibatch is drawn, and followed, row by row, by
                them.
            pay: Gives the rewards anew; None for those that were stored.

        Raises:
            ConfigError: The share leaves nothing of one of the two, or an odd minibatch has no
                half.
        """
        self._replay, self._size = replay, size
        self._prioritized = replay.prioritized
        self._prior, self._images, self._pay = prior, images, pay
        self._drawn = size if images is None else size // 2
        self._before = 0 if prior is None else round(share * self._drawn)
        if prior is not None and not 0 < self._before < self._drawn:
            raise ConfigError(
                f"training.prior.share {share} of {self._drawn} transitions per minibatch is "
                f"{self._before}; choose a share that leaves some of both"
            )
        if images is not None and size % 2:
            raise ConfigError(
                f"training.symmetry=augment: a minibatch of {size} cannot be half mirror images; "
                "choose an even learner.batch_size, and with several ranks an even share of it"
            )

    def draw(
        self, count: int, progress: float, look: Callable[[Batch], None] = lambda _: None
    ) -> Iterator[Batch]:
        """Minibatches, one after another, at a progress of the training in [0, 1].

        Drawn uniformly, all come from one gather. Drawn by priority, each is drawn when it is asked
        for: it knows what the updates before it have told.

        Args:
            look: Sees the rows of every gather before anybody learns from them.
        """
        if self._prioritized or count == 1:
            for _ in range(count):
                batch = self._joined(1, progress)
                look(batch)
                yield batch
            return
        batch = self._joined(count, progress)
        look(batch)
        for i in range(count):
            yield batch.take(i * self._size, (i + 1) * self._size)

    def update_priorities(self, batch: Batch, error: Tensor | None) -> None:
        """Hand a learner's errors (B,), of `Learner.update`, on to the priorities.

        Raises:
            ConfigError: Rows are drawn by priority, and the learner sets none.
        """
        if not self._prioritized:
            return
        if error is None:
            raise ConfigError(
                "training.replay.priority is above 0, but this learner sets no priorities: its "
                "update returns None; use training.replay.priority=0 or another learner"
            )
        index = batch.extra["index"]
        if self._prior is not None:
            _, own = _places(self._drawn, self._before, 1, index.device)
            if self._images is not None:
                own = torch.cat([2 * own, 2 * own + 1])
            index, error = index[own], error[own]
        self._replay.set_priorities(index, error)

    def _joined(self, count: int, progress: float) -> Batch:
        """`count` minibatches in one."""
        batch = self._replay.sample(count * (self._drawn - self._before), progress=progress)
        if self._prior is not None:
            if self._prioritized:
                batch = _of_mean_one(batch)
            batch = self._mixed(batch, self._prior.sample(count * self._before), count)
        batch = batch if self._pay is None else self._pay(batch)
        return batch if self._images is None else self._images.beside(batch)

    def _mixed(self, own: Batch, before: Batch, count: int) -> Batch:
        order, _ = _places(self._drawn, self._before, count, own.action.device)
        joined = _combined(own, before, lambda a, b: torch.cat([a, b]).index_select(0, order))
        return replace(joined, extra={**joined.extra, "source": (order >= len(own.action)).long()})


def _of_mean_one(batch: Batch) -> Batch:
    """With importance weights whose mean over valid rows is 1.

    Those of the paper are 1 at most. Alone that makes steps smaller; beside rows of weight 1 it
    would leave the own ones less of the loss than of the minibatch.
    """
    valid = (batch.weight > 0).sum().clamp_min(1)
    mean = (batch.weight.sum() / valid).clamp_min(torch.finfo(batch.weight.dtype).tiny)
    return replace(batch, weight=batch.weight / mean)


@lru_cache(maxsize=8)
def _places(size: int, before: int, count: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """For every place of `count` minibatches its row, own or prior; and the places of own rows."""
    place = torch.arange(size, device=device)
    # The k-th row of before lies where k / before of the minibatch is over.
    of_before = ((place + 1) * before // size > place * before // size).repeat(count)
    own = (~of_before).cumsum(0) - 1
    other = of_before.cumsum(0) - 1 + count * (size - before)
    return torch.where(of_before, other, own), (~of_before).nonzero()[:, 0]


def _combined(one: Batch, two: Batch, join: Callable[[Tensor, Tensor], Tensor]) -> Batch:
    """Every tensor of two batches joined."""
    return Batch(
        obs={name: join(group, two.obs[name]) for name, group in one.obs.items()},
        action=join(one.action, two.action),
        reward=join(one.reward, two.reward),
        discount=join(one.discount, two.discount),
        next_obs={name: join(group, two.next_obs[name]) for name, group in one.next_obs.items()},
        weight=join(one.weight, two.weight),
        extra={name: join(value, two.extra[name]) for name, value in one.extra.items()},
    )


class _Columns:
    def __init__(self, mirror: SignedPermutation, device: torch.device) -> None:
        self._source = torch.tensor(mirror.source, device=device)
        self._sign = torch.tensor(mirror.sign, device=device)

    def __call__(self, values: Tensor) -> Tensor:
        return values.index_select(-1, self._source) * self._sign


def _side_by_side(one: Tensor, two: Tensor) -> Tensor:
    return torch.stack([one, two], dim=1).flatten(0, 1)
