"""Mixture of experts behind an actor's hidden layers (Huang et al. 2024, arXiv:2410.14972, MENTOR).

A gate weighs E experts, small perceptrons with one hidden layer each, by a softmax over all of
them; the `top` largest weights are kept and brought to the sum 1. The same output is computed in
two ways. The dense one puts the experts side by side as two large layers and works for export and
on a GPU; the sparse one gives each expert its own rows alone, which takes `top / count` of the
products.

Losses of the gate need to know how it sent the rows of a pass: `routing` collects that.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from policies.networks.mlp import (
    ACTIVATIONS,
    LAYER_NORM_EPSILON,
    Activation,
    EnsembleLinear,
    in_float32,
)
from robot_rl.core.errors import ConfigError

_EPSILON = 1e-9
"""Added to the sum of the kept weights, as in the authors' code."""
_LEAST_ROWS = 64
"""Rows from which on the sparse path is the faster one: 8 experts of 64 units, width 256, top 2."""
_LEAST_GAP = 1e-5
"""Difference of two weights of the gate that another order of sums may turn round."""


@dataclass(kw_only=True)
class ExpertsConfig:
    """Shape of a mixture of experts; it takes and gives the width of the last hidden layer."""

    count: int = 8
    """E: experts."""
    width: int = 64
    """Hidden units of an expert."""
    top: int = 2
    """Experts that a row is sent to; with 1 the gate learns by its own losses alone."""
    gate_width: int = 64
    """Hidden units of the gate."""
    gate_dropout: float = 0.0
    """Share of the gate's hidden units that learning leaves out."""
    trunk_width: int = 0
    """Width of a first layer with layer norm and tanh, as DrQ-v2 has one behind images; 0 has
    none."""
    balance_weight: float = 0.01
    """Weight of the loss that evens out the use of experts (Fedus et al. 2021, arXiv:2101.03961):
    count * sum of (share of the rows) * (mean weight), at least 1."""
    entropy_weight: float = 0.0
    """Weight of the loss of MENTOR's authors: mean entropy of the gate, which falls, plus the
    variance of the experts' shares, which has no gradient."""
    sparse: bool = True
    """On a CPU, give each expert its own rows alone; otherwise all rows to all experts."""

    def __post_init__(self) -> None:
        for name in ("count", "width", "gate_width"):
            if getattr(self, name) < 1:
                raise ConfigError(
                    f"actor.experts.{name} must be at least 1, got {getattr(self, name)}"
                )
        if not 1 <= self.top <= self.count:
            raise ConfigError(
                f"actor.experts.top must lie in [1, {self.count}], the number of experts, got "
                f"{self.top}"
            )
        if not 0 <= self.gate_dropout < 1:
            raise ConfigError(
                f"actor.experts.gate_dropout must lie in [0, 1), got {self.gate_dropout}"
            )
        for name in ("trunk_width", "balance_weight", "entropy_weight"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"actor.experts.{name} must be >= 0, got {getattr(self, name)}")


class MixtureOfExperts(nn.Module):
    """Gate and experts, (B, W) -> (B, W)."""

    def __init__(self, config: ExpertsConfig, width: int, activation: Activation) -> None:
        """Build it for rows of `width` entries."""
        super().__init__()
        self.config = config
        self.gate = nn.ModuleList(
            [
                nn.Linear(width, config.gate_width),
                nn.ReLU(),
                nn.Linear(config.gate_width, config.count),
            ]
        )
        self.experts = nn.Sequential(
            EnsembleLinear(config.count, width, config.width),
            ACTIVATIONS[activation](),
            EnsembleLinear(config.count, config.width, width),
        )
        self.by_layer = False
        """True while hooks on its layers must see all rows in all experts."""
        self.routing: Routing | None = None
        """Record of the newest pass, inside of `routing`."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, W) -> (B, W)."""
        logits = self._logits(x)
        probability = torch.softmax(logits, -1)  # (B, E)
        if torch.compiler.is_compiling():
            return self.dense(x, _kept(probability, self.config.top))
        value, index = probability.topk(self.config.top)  # (B, K) each
        if self.routing is not None:
            self.routing.add(logits, index)
        value = value / (value.sum(-1, keepdim=True) + _EPSILON)
        if self.config.sparse and x.is_cpu and not self.by_layer and len(x) >= _LEAST_ROWS:
            return self.sparse(x, value, index)
        weight = torch.zeros_like(probability).scatter(-1, index, value)
        if self.by_layer:
            return (weight.t().unsqueeze(-1) * self.experts(x)).sum(0)
        return self.dense(x, weight)

    def dense(self, x: Tensor, weight: Tensor) -> Tensor:
        """Sum over all experts, of which most have weight 0.

        Args:
            x: (B, W).
            weight: (B, E).

        Returns:
            (B, W). Both layers are plain products of rows, which every export knows.
        """
        first, activation, second = self._layers()
        into, before = first.weight.permute(1, 0, 2).flatten(1), first.bias.flatten()
        hidden = activation(x @ into + before)  # (B, E * H)
        each = weight.unsqueeze(-1).expand(*weight.shape, self.config.width).flatten(-2)
        return (hidden * each) @ second.weight.flatten(0, 1) + weight @ second.bias.flatten(1)

    def sparse(self, x: Tensor, weight: Tensor, index: Tensor) -> Tensor:
        """The same sum over the experts of each row alone; the host waits for their counts.

        Args:
            x: (B, W).
            weight: Of these experts, (B, K).
            index: Experts, (B, K) int64.

        Returns:
            (B, W), equal to `dense` up to rounding.
        """
        expert = index.flatten()  # (B * K,)
        order = expert.argsort(stable=True)
        counts = torch.bincount(expert, minlength=self.config.count).tolist()
        row = order // self.config.top
        first, activation, second = self._layers()
        into, back = (
            list(zip(layer.bias.unbind(), layer.weight.unbind(), strict=True))
            for layer in (first, second)
        )
        found: list[Tensor] = []
        for e, rows in enumerate(x[row].split(counts)):
            if len(rows):
                (before, up), (after, down) = into[e], back[e]
                hidden = activation(torch.addmm(before, rows, up))
                found.append(torch.addmm(after, hidden, down))
        outputs = torch.cat(found) * weight.flatten()[order].unsqueeze(-1)
        return torch.zeros_like(x, dtype=outputs.dtype).index_add(0, row, outputs)

    def _layers(self) -> tuple[EnsembleLinear, nn.Module, EnsembleLinear]:
        first, activation, second = self.experts
        assert isinstance(first, EnsembleLinear)
        assert isinstance(second, EnsembleLinear)
        return first, activation, second

    def _logits(self, x: Tensor) -> Tensor:
        """Of the gate before its softmax, (B, E), in float32 under autocast too."""
        first, activation, last = self.gate
        hidden = activation(first(x))
        share = self.config.gate_dropout
        if self.routing is not None and share > 0:
            drawn = torch.rand(hidden.shape, generator=self.routing.generator, device=x.device)
            hidden = hidden * (drawn >= share) / (1 - share)
        return in_float32(last, hidden)


def _kept(probability: Tensor, top: int) -> Tensor:
    """The `top` largest of each row, brought to the sum 1, the rest 0: (B, E) -> (B, E).

    NaN stays NaN. Equal ones at the edge are all kept.
    """
    least = probability.topk(top).values[..., -1:]
    kept = probability * (probability >= least)
    return kept / (kept.sum(-1, keepdim=True) + _EPSILON)


class MixtureNetwork(nn.Module):
    """Hidden layers, a mixture of experts, and a linear head."""

    def __init__(
        self, config: ExpertsConfig, inputs: int, outputs: int, *, hidden: Sequence[int],
        activation: Activation, layer_norm: bool,
    ) -> None:  # fmt: skip
        """Build it; `hidden` are the widths before the mixture, the last one also its own."""
        super().__init__()
        layers: list[nn.Module] = []
        if config.trunk_width:
            width = config.trunk_width
            layers += [nn.Linear(inputs, width), nn.LayerNorm(width), nn.Tanh()]
            inputs = width
        for width in hidden:
            layers.append(nn.Linear(inputs, width))
            if layer_norm:
                layers.append(nn.LayerNorm(width, eps=LAYER_NORM_EPSILON))
            layers.append(ACTIVATIONS[activation]())
            inputs = width
        self.trunk = nn.Sequential(*layers)
        self.mixture = MixtureOfExperts(config, inputs, activation)
        self.activation = ACTIVATIONS[activation]()
        self.out = nn.Linear(inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """(B, in) -> (B, out)."""
        return in_float32(self.out, self.activation(self.mixture(self.trunk(x))))

    def parts(self) -> dict[str, nn.Module]:
        """Its modules by the names that settings and metrics have for them."""
        return {
            "trunk": self.trunk, "gate": self.mixture.gate, "experts": self.mixture.experts,
            "head": self.out,
        }  # fmt: skip


def find_mixture(network: nn.Module) -> MixtureOfExperts | None:
    """The mixture of experts inside a network, if there is one."""
    found = [module for module in network.modules() if isinstance(module, MixtureOfExperts)]
    return found[0] if found else None


class Routing:
    """Weights of the gate and experts of the rows of a pass, and what follows from them."""

    def __init__(
        self, config: ExpertsConfig | None, generator: torch.Generator | None = None
    ) -> None:
        """Begin without rows; a config of None is that of a network without a mixture."""
        self.generator = generator
        """Of the gate's dropout."""
        self._config = config
        self._logits: Tensor | None = None
        self._index = torch.zeros(0)

    def add(self, logits: Tensor, index: Tensor) -> None:
        """Take the newest pass: logits of the gate, (B, E), and experts of its rows, (B, K)."""
        self._logits, self._index = logits, index

    def add_loss(self, loss: Tensor, weight: Tensor) -> Tensor:
        """The loss of an actor, 0-dim, and those of its gate; the loss itself without a mixture.

        Args:
            loss: Of the actor.
            weight: Importance of the rows of the pass, (B,).
        """
        if self._config is None or self._logits is None:
            return loss
        if self._config.balance_weight > 0:
            loss = loss + self._config.balance_weight * self.balance(weight)
        if self._config.entropy_weight > 0:
            published = self.entropy(weight) + self.shares(weight).var(unbiased=False)
            loss = loss + self._config.entropy_weight * published
        return loss

    def metrics(self, weight: Tensor) -> dict[str, Tensor]:
        """Largest and smallest share of the rows that an expert has, entropy [nat], balance."""
        if self._logits is None:
            return {}
        with torch.no_grad():
            shares = self.shares(weight)
            return {
                "expert_use_max": shares.max(), "expert_use_min": shares.min(),
                "gate_entropy": self.entropy(weight), "gate_balance": self.balance(weight),
            }  # fmt: skip

    def shares(self, weight: Tensor) -> Tensor:
        """Share of the rows that each expert has, (E,); their sum is `top`."""
        rows = self._rows(weight)[:, None].expand_as(self._index)
        none = torch.zeros_like(self._known()[0])
        return none.index_add(0, self._index.flatten(), rows.flatten())

    def balance(self, weight: Tensor) -> Tensor:
        """E * sum over experts of (share / top) * (mean weight): 1 where all are used alike."""
        probability = torch.softmax(self._known(), -1)
        mean = (self._rows(weight)[:, None] * probability).sum(0)  # (E,)
        share = self.shares(weight) / self._index.shape[-1]
        return len(mean) * (share * mean).sum()

    def entropy(self, weight: Tensor) -> Tensor:
        """Mean entropy of the gate [nat]."""
        log_probability = torch.log_softmax(self._known(), -1)
        each = -(log_probability.exp() * log_probability).sum(-1)  # (B,)
        return (self._rows(weight) * each).sum()

    @property
    def decided(self) -> Tensor:
        """Rows, (B,) bool, whose experts no other order of sums would exchange for others."""
        top = self._index.shape[-1]
        probability = torch.softmax(self._known(), -1)
        if top == probability.shape[-1]:
            return torch.ones_like(probability[:, 0], dtype=torch.bool)
        edge = probability.topk(top + 1).values[:, -2:]
        return edge[:, 0] - edge[:, 1] > _LEAST_GAP

    def _known(self) -> Tensor:
        assert self._logits is not None  # a pass came first
        return self._logits

    def _rows(self, weight: Tensor) -> Tensor:
        """Weights of the rows, of sum 1, (B,)."""
        weight = weight.to(self._known().dtype)
        return weight / weight.sum().clamp_min(torch.finfo(weight.dtype).tiny)


@contextmanager
def routing(
    mixture: MixtureOfExperts | None, generator: torch.Generator | None = None
) -> Iterator[Routing]:
    """Context in which a mixture learns: its gate drops units out, and its last pass is kept.

    Args:
        mixture: None collects nothing.
        generator: Of the dropout.
    """
    found = Routing(None if mixture is None else mixture.config, generator)
    if mixture is None:
        yield found
        return
    before, mixture.routing = mixture.routing, found
    try:
        yield found
    finally:
        mixture.routing = before
