"""Critics of a residual: they see how far the executed action is from the base's, in large.

A residual moves an action by hundredths of its range, and what it is worth may turn within
thousandths. To a network that reads executed actions alone such a step is next to nothing: the
slope that the actor climbs is the one between actions far apart, of demonstrations and of the base.
In units of the scale the same step is as large as any other input.
"""

import torch
from torch import Tensor, nn

from policies.q_ensemble import QEnsemble
from robot_rl.core.base_action import BASE_ACTION
from robot_rl.core.env import Obs

WIDTHS = 3
"""Actions side by side that the ensemble inside is asked with."""
_FARTHEST = 3.0
"""Of the displacement, in units of the scale. The actor's own are within 1; demonstrations and
people may be anywhere, and the executed action says where."""


class ResidualCritic(nn.Module):
    """Q(obs, action) of E members; reads what the ensemble inside reads, and `base_action`."""

    def __init__(self, ensemble: QEnsemble, scale: float) -> None:
        """Wrap critics.

        Args:
            ensemble: Made for actions three times as wide.
            scale: Farthest that the actor goes from the base.
        """
        super().__init__()
        self.ensemble = ensemble
        self.group = ensemble.group
        self._scale = scale

    def forward(self, obs: Obs, action: Tensor) -> Tensor:
        """Outputs of the members, (E, B, W), for executed actions (B, A)."""
        base = obs[BASE_ACTION]
        displacement = ((action - base) / self._scale).clamp(-_FARTHEST, _FARTHEST)
        seen = [action, base, displacement]  # A each
        return self.ensemble(obs, torch.cat(seen, dim=-1))

    def update_statistics(self, obs: Obs) -> None:
        """Take the group that is read, (N, D), into the normaliser."""
        self.ensemble.update_statistics(obs)

    def constrain(self) -> None:
        """As the ensemble."""
        self.ensemble.constrain()
