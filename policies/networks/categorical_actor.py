"""Actor that chooses one of K: a probability for each, normaliser inside.

A choice is a row of K entries: 1 at what is chosen and -1 elsewhere, so that it is an action in
[-1, 1] like any other for replays, data sets and exported networks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from policies.networks.images import ImageTrunk
from policies.networks.inputs import ActorConfig, ActorNetwork, best_is_clear
from robot_rl.core.env import Obs, TermSpec, choice_rows


@dataclass(kw_only=True)
class CategoricalActorConfig(ActorConfig):
    """Shape of the actor."""


class CategoricalActor(ActorNetwork):
    """Hands out log-probabilities, samples, and the most likely choice."""

    def __init__(
        self, config: CategoricalActorConfig, obs_size: int, choices: int, *,
        terms: Sequence[TermSpec] = (), estimated: int = 0,
        groups: Sequence[str] | None = None, trunk: ImageTrunk | None = None,
    ) -> None:  # fmt: skip
        super().__init__(config, obs_size, choices, terms, estimated, groups=groups, trunk=trunk)
        self.config = config
        self.choices = choices
        """K."""

    def forward(self, obs: Obs) -> Tensor:
        """Most likely choice, (N, K): what is evaluated and deployed."""
        scores = self._scores(obs)
        # A NaN would choose something: whoever looks at actions has to see it.
        return choice_rows(scores.argmax(-1), self.choices) + 0.0 * scores.sum(-1, keepdim=True)

    def log_probs(self, obs: Obs) -> Tensor:
        """Logarithm of the probability of every choice, (N, K)."""
        return self._scores(obs).log_softmax(-1)

    def explore(self, obs: Obs, generator: torch.Generator | None = None) -> Tensor:
        """Choice that is drawn, (N, K)."""
        scores = self._scores(obs)
        drawn = torch.rand(scores.shape, generator=generator, device=scores.device)
        # The largest of scores and Gumbel noise is drawn as often as its probability says.
        choice = (scores - (-drawn.clamp_min(1e-20).log()).log()).argmax(-1)
        return choice_rows(choice, self.choices) + 0.0 * scores.sum(-1, keepdim=True)

    def decided(self, obs: Obs) -> Tensor:
        """As of `ActorNetwork`, (N,) bool: rounding does not change what is the most likely."""
        return super().decided(obs) & best_is_clear(self._scores(obs))

    def _scores(self, obs: Obs) -> Tensor:
        return self.network(self.normalized(obs)).float()
