"""Mean of a policy's weights over its last updates: what is evaluated, saved and exported.

Neighbouring checkpoints of one run may differ by a tenth of the success rate or more: every update
moves the policy, and the step size does not fall. The mean of what the weights were lately moves
less (Polyak and Juditsky 1992; Izmailov et al. 2018, arXiv:1803.05407). Training, with its actions
and targets, goes on with the newest weights.
"""

from torch import nn

from robot_rl.core.moving import moving_copy, soft_update


class PolicyAverage:
    """A copy of a policy that follows it; normalisers are the policy's own."""

    def __init__(self, policy: nn.Module, updates: int) -> None:
        """Begin with the policy as it is.

        Args:
            policy: Trained in place.
            updates: Updates over which weights fade to 1 / e; before there were so many, all count
                alike.
        """
        self.policy = moving_copy(policy)
        """The mean, a policy like the other."""
        self.seen = 0
        """Updates that are in it."""
        self._horizon = updates
        self._weights, self._newest = list(self.policy.parameters()), list(policy.parameters())

    def take(self, updates: int) -> None:
        """Take in the present weights, for so many updates since it was last called."""
        self.seen += updates
        soft_update(self._weights, self._newest, updates / min(self.seen, self._horizon + updates))

    def begin_anew(self) -> None:
        """Forget all but the present weights."""
        self.seen = 0
        soft_update(self._weights, self._newest, 1.0)
