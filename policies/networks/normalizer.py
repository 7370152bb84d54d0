"""Running observation normaliser that is part of the network and exports with the policy."""

import torch
from torch import Tensor, nn


class RunningNormalizer(nn.Module):
    """Shifts and scales every entry by its running mean and standard deviation.

    Statistics change only in `update`, never in `forward`; a policy that is exported or evaluated
    therefore sees constants.
    """

    mean: Tensor
    scale: Tensor
    _count: Tensor
    _squares: Tensor

    def __init__(self, size: int, *, epsilon: float = 1e-2, clip: float = 10.0) -> None:
        """Start as the identity.

        Args:
            size: D, width of the observation group.
            epsilon: Added to the standard deviation, so that constant entries stay finite.
            clip: Normalised entries are clipped to [-clip, clip].
        """
        super().__init__()
        self.epsilon = epsilon
        self.clip = clip
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("scale", torch.ones(size))
        self.register_buffer("_count", torch.zeros((), dtype=torch.float64))  # exact beyond 2^24
        self.register_buffer("_squares", torch.zeros(size))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (B, D)."""
        return ((x - self.mean) * self.scale).clamp(-self.clip, self.clip)

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        """Take (B, D) rows into the statistics (Chan et al. 1979, parallel variance)."""
        count = x.shape[0]
        total = self._count + count
        # Sums of the deviations from the first row: the plain sums that torch does fast. Deviations
        # from the mean so far would lose all digits where the first rows lie far from zero.
        deviation = x - x[0]
        offset = deviation.sum(0) / count
        squares = (deviation * deviation).sum(0) - count * offset * offset
        shift = x[0] - self.mean + offset  # mean of the rows less the mean so far
        self.mean.add_(shift * (count / total))
        self._squares.add_(squares + shift * shift * (self._count * count / total))
        self._count.copy_(total)
        deviation = (self._squares / total).clamp_min_(0).sqrt_()
        self.scale.copy_((deviation + self.epsilon).reciprocal_())


class IdentityNormalizer(nn.Module):
    """Leaves observations as they are: for runs that switch normalisation off."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x, (B, D)."""
        return x

    def update(self, x: Tensor) -> None:
        """Keep no statistics."""


def make_normalizer(size: int, *, wanted: bool) -> RunningNormalizer | IdentityNormalizer:
    """Normaliser of observations of `size` entries, or the identity."""
    return RunningNormalizer(size) if wanted else IdentityNormalizer()
