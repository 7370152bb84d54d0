"""Symmetric augmentation: of every transition its mirror image is learned too.

A learner knows nothing of it: what is left and right is data out of the `RobotSpec`.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from robot_rl.core.env import BatchEnv, Obs
from robot_rl.core.errors import ConfigError
from robot_rl.core.mirror import EnvMirror, Mirrorable, SignedPermutation
from robot_rl.core.transition import Batch


class MirrorImages:
    """Makes mirror images of batches; rewards and ends are the same there."""

    def __init__(self, mirror: EnvMirror, device: torch.device) -> None:
        """Bring the mirror to a device.

        Args:
            mirror: Of the environment.
            device: Where batches live.
        """
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
        return {
            name: _side_by_side(group, self._groups[name](group)) for name, group in obs.items()
        }


def mirror_images_of(env: BatchEnv) -> MirrorImages:
    """For an environment that knows its left and right.

    Raises:
        ConfigError: It does not.
    """
    if not isinstance(env, Mirrorable):
        raise ConfigError(
            "training.symmetry=augment needs an environment that knows its left and right, such as "
            "task=velocity robot=go2; this one describes none: choose training.symmetry=none"
        )
    return MirrorImages(env.mirror(), env.spec.device)


class _Columns:
    def __init__(self, mirror: SignedPermutation, device: torch.device) -> None:
        self._source = torch.tensor(mirror.source, device=device)
        self._sign = torch.tensor(mirror.sign, device=device)

    def __call__(self, values: Tensor) -> Tensor:
        return values.index_select(-1, self._source) * self._sign


def _side_by_side(one: Tensor, two: Tensor) -> Tensor:
    return torch.stack([one, two], dim=1).flatten(0, 1)
