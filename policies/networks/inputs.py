"""Inputs of a network: groups, running normaliser, and a window of past frames as a latent.

A term of width w and H frames takes H * w consecutive columns, oldest frame first
(`robot_rl/core/observation.py`): frame t of all encoded terms together is one row of the window.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain, pairwise
from typing import ClassVar

import torch
from torch import Tensor, nn

from policies.networks.experts import ExpertsConfig, MixtureNetwork, find_mixture, routing
from policies.networks.images import ImageTrunk
from policies.networks.layers import constrained_layers
from policies.networks.mlp import ACTIVATIONS, Activation, initialize, mlp
from policies.networks.trunks import NetworkConfig, NetworkKind, make_network
from robot_rl.core.env import Obs, TermSpec
from robot_rl.core.errors import ConfigError, unknown_name


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


class NormalizedNetwork(nn.Module):
    """A network behind the normaliser of what it reads: the common part of actors and critics."""

    groups: tuple[str, ...] = ("actor",)
    """Observation groups that are read, side by side: vectors, and behind them images."""

    def __init__(
        self, config: NetworkConfig, obs_size: int, network: nn.Module, *, heads: int = 1,
        groups: Sequence[str] = ("actor",), trunk: ImageTrunk | None = None,
    ) -> None:  # fmt: skip
        """Take the network over and draw its weights as the config says, heads as `initialize`.

        Args:
            groups: Vectors that are read.
            trunk: Reads the features of images, whose output goes behind the normalised vectors.
        """
        super().__init__()
        self._vectors = tuple(groups)
        self.groups = self._vectors + (() if trunk is None else trunk.groups)
        self.normalizer = make_normalizer(obs_size, wanted=config.normalize)
        self.network = network
        self._constrained = constrained_layers(network)
        initialize(network, config.initialization, heads=heads)
        self.trunk = trunk

    def normalized(self, obs: Obs) -> Tensor:
        """Input of the network, (N, D)."""
        if self.trunk is None:
            return self.normalizer(self.read(obs))
        seen = [self.normalizer(self.read(obs))] if self._vectors else []
        return torch.cat([*seen, self.trunk(obs)], dim=-1)

    def update_statistics(self, obs: Obs) -> None:
        """Take the vectors that are read, (N, ...), into the normaliser."""
        if self._vectors:
            self.normalizer.update(self.read(obs))

    def constrain(self) -> None:
        """Bring constrained weights back to their norm after a step of the optimiser."""
        for layer in self._constrained:
            layer.project()

    def read(self, obs: Obs) -> Tensor:
        """The vectors that are read, side by side, (N, D)."""
        if len(self._vectors) == 1:
            return obs[self._vectors[0]]
        return torch.cat([obs[name] for name in self._vectors], dim=-1)


@dataclass(frozen=True)
class Columns:
    """Columns by their part."""

    present: list[int]
    """Newest frame of every term, in order; encoded terms of a single frame are not in it."""
    window: list[list[int]]
    """Columns of each frame that is encoded, oldest first, all of equal width; empty for none."""


def find_columns(
    terms: Sequence[TermSpec], *, frames: int, encoded: Sequence[str] | None
) -> Columns:
    """Divide an observation.

    Args:
        frames: Newest frames of every term that are looked at; 0 looks at all.
        encoded: Terms that are encoded; an empty list takes those with several frames, None none:
            then all frames that are looked at are the present.

    Raises:
        ConfigError: Terms are unknown, have too few frames, or different numbers of them.
    """
    starts = [sum(term.size for term in terms[:i]) for i in range(len(terms))]
    for term in terms:
        if frames > term.history > 1:
            raise ConfigError(
                f"actor.encoder.frames {frames} asks for more than term '{term.name}' has, "
                f"{term.history}; raise its history in the task"
            )

    def columns(index: int, kept: int) -> list[list[int]]:
        term, end = terms[index], starts[index] + terms[index].size
        firsts = range(end - kept * term.width, end, term.width)
        return [list(range(first, first + term.width)) for first in firsts]

    looked = [min(term.history, frames) if frames else term.history for term in terms]
    if encoded is None:
        seen = [columns(i, looked[i]) for i in range(len(terms))]
        return Columns([c for frame in seen for row in frame for c in row], [])
    picked = _picked(terms, looked, encoded)
    count = {looked[i] for i in picked}
    if len(count) > 1:
        told = ", ".join(f"{terms[i].name} {looked[i]}" for i in picked)
        raise ConfigError(
            f"actor.encoder needs terms with the same number of frames, got {told}; give them one "
            "history in the task, or actor.encoder.frames that all of them have"
        )
    left = [i for i in range(len(terms)) if i not in picked or looked[i] > 1]
    present = [c for i in left for c in columns(i, 1)[0]]
    frames_of = [columns(i, looked[i]) for i in picked]
    return Columns(present, [list(chain(*row)) for row in zip(*frames_of, strict=True)])


def _picked(terms: Sequence[TermSpec], looked: Sequence[int], encoded: Sequence[str]) -> list[int]:
    """Positions of the encoded terms."""
    names = [term.name for term in terms]
    for name in encoded:
        if name not in names:
            raise ConfigError(unknown_name("term of actor.encoder.terms", name, names))
    if not encoded:
        picked = [i for i, count in enumerate(looked) if count > 1]
        if not picked:
            raise ConfigError(
                "actor.encoder needs a history: no term of the actor's groups has more than one "
                f"frame that is looked at (terms: {', '.join(names)}); give terms a history in the "
                "task, or name what is encoded in actor.encoder.terms"
            )
        return picked
    return [i for i, name in enumerate(names) if name in encoded]


_KERNEL, _STRIDE = 4, 2
"""Frames that a convolution joins, and frames between two of its places."""


class EncoderKind(Enum):
    """Shape of an encoder."""

    none = "none"
    """Nothing is encoded: the network sees all frames that it looks at."""
    mlp = "mlp"
    """A perceptron over all frames, as in DreamWaQ (Nahrendra et al. 2023, arXiv:2301.10602)."""
    conv = "conv"
    """Each layer joins four frames and moves on by two; RMA (Kumar et al. 2021, arXiv:2107.04034)
    has longer windows and larger kernels."""


@dataclass(kw_only=True)
class EncoderConfig:
    """Encoder between past frames and the actor's network (docs/history.md)."""

    kind: EncoderKind = EncoderKind.none
    """none, mlp, or conv: convolutions over time."""
    terms: list[str] = field(default_factory=list)
    """Terms that are encoded; empty takes those with a history."""
    frames: int = 0
    """Newest frames that are looked at, also without an encoder; 0 looks at all there are."""
    hidden: list[int] = field(default_factory=lambda: [64, 32])
    """Widths of the hidden layers, or channels of the convolutions."""
    activation: Activation = Activation.elu
    """Nonlinearity of its layers."""
    latent: int = 16
    """Width of what it hands on, beside the estimates."""
    estimate: list[str] = field(default_factory=list)
    """Terms of the group `critic` that its first outputs learn to estimate (DreamWaQ)."""

    def __post_init__(self) -> None:
        if not self.hidden or min(self.hidden) < 1:
            raise ConfigError(f"actor.encoder.hidden needs widths of at least 1, got {self.hidden}")
        least = 0 if self.estimate else 1
        for name, lowest in (("frames", 0), ("latent", least)):
            if getattr(self, name) < lowest:
                raise ConfigError(
                    f"actor.encoder.{name} must be at least {lowest}, got {getattr(self, name)}"
                )
        for name in ("terms", "estimate"):
            if getattr(self, name) and self.kind is EncoderKind.none:
                raise ConfigError(
                    f"actor.encoder.{name} {getattr(self, name)} needs an encoder; choose "
                    "actor.encoder.kind=mlp or conv"
                )


class FrameConvolutions(nn.Module):
    """Convolutions over time as products of stacked frames, then one linear layer."""

    def __init__(
        self, frames: int, width: int, channels: Sequence[int], outputs: int, activation: Activation
    ) -> None:
        super().__init__()
        self._width = width
        self.layers = nn.ModuleList()
        left = frames
        for inputs, channel in pairwise([width, *channels]):
            if left < _KERNEL:
                raise ConfigError(
                    f"actor.encoder.kind=conv: {len(channels)} convolutions over {_KERNEL} frames "
                    f"need more than the {frames} frames there are; give fewer channels in "
                    "actor.encoder.hidden or a longer history in the task"
                )
            self.layers.append(nn.Linear(_KERNEL * inputs, channel))
            left = (left - _KERNEL) // _STRIDE + 1
        self.head = mlp([left * channels[-1], outputs], activation)
        self._activation = ACTIVATIONS[activation]()

    def forward(self, x: Tensor) -> Tensor:
        """(B, H * W) -> (B, outputs)."""
        frames = list(x.split(self._width, dim=-1))
        for layer in self.layers:
            # The newest frame is always in the last place; what is left over are the oldest.
            oldest = (len(frames) - _KERNEL) % _STRIDE
            places = range(oldest, len(frames) - _KERNEL + 1, _STRIDE)
            # A product for each place, of rows: what a bundle in C has a form for.
            frames = [
                self._activation(layer(torch.cat(frames[at : at + _KERNEL], dim=-1)))
                for at in places
            ]
        return self.head(torch.cat(frames, dim=-1))


@dataclass(kw_only=True)
class ActorConfig(NetworkConfig):
    """Shape of an actor's network and of the encoder before it."""

    kinds: ClassVar[tuple[NetworkKind, ...]] = tuple(NetworkKind)

    groups: list[str] = field(default_factory=lambda: ["actor"])
    """Observation groups that are seen, side by side; with one that a robot does not have, such as
    `critic`, the policy is a teacher in simulation only."""
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    """Encoder between past frames and the network."""
    experts: ExpertsConfig = field(default_factory=ExpertsConfig)
    """Mixture of experts, with kind=moe."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.groups or len(set(self.groups)) < len(self.groups):
            raise ConfigError(
                f"actor.groups needs different observation groups, at least one, got {self.groups}"
                "; such as [actor], or [critic] for a teacher"
            )


class ActorNetwork(NormalizedNetwork):
    """Reads the groups that its config names, through the encoder if there is one."""

    def __init__(
        self, config: ActorConfig, obs_size: int, outputs: int, terms: Sequence[TermSpec],
        estimated: int, *, heads: int = 1, groups: Sequence[str] | None = None,
        trunk: ImageTrunk | None = None,
    ) -> None:  # fmt: skip
        """Build the network.

        Args:
            groups: Vectors that are read in place of the config's.
            trunk: Reads the features of images.
            terms: What these groups consist of; an encoder and `encoder.frames` need to know.
            estimated: Width of what `encoder.estimate` names.

        Raises:
            ConfigError: There is nothing to encode, or the terms are not known.
        """
        if trunk is None:
            network = _make_encoded(config, obs_size, outputs, terms, estimated)
        else:
            network = _make_body(config, obs_size + trunk.size, outputs)
        super().__init__(
            config, obs_size, network, heads=heads, trunk=trunk,
            groups=config.groups if groups is None else groups,
        )  # fmt: skip

    def latent(self, obs: Obs) -> Tensor:
        """Latent of the past, (N, L), its estimates first; a ConfigError without an encoder."""
        if not isinstance(self.network, EncodedNetwork) or not self.network.latent_size:
            raise ConfigError(
                "a latent was asked of an actor without an encoder; train it with "
                "learner.actor.encoder.kind=mlp or conv"
            )
        return self.network.latent(self.normalized(obs))

    def decided(self, obs: Obs) -> Tensor:
        """Rows, (N,) bool, that another order of sums answers alike: all but for what chooses."""
        mixture = find_mixture(self.network)
        if mixture is None:
            return torch.ones(len(obs[self.groups[0]]), dtype=torch.bool)
        with routing(mixture) as found:
            self.network(self.normalized(obs))
        return found.decided


_ROUNDING = 1e-5
"""Share of a score, plus one, by which runtimes may differ: they sum in another order."""


def best_is_clear(scores: Tensor) -> Tensor:
    """Rows of scores (N, K), (N,) bool, whose best entry rounding cannot change."""
    best, second = scores.topk(2, dim=-1).values.unbind(-1)
    return best - second > _ROUNDING * (1 + best.abs())


def _make_encoded(
    config: ActorConfig, inputs: int, outputs: int, terms: Sequence[TermSpec], estimated: int
) -> nn.Module:
    encoder = config.encoder
    if encoder.kind is EncoderKind.none and not encoder.frames:
        return _make_body(config, inputs, outputs)
    if sum(term.size for term in terms) != inputs:
        raise ConfigError(
            f"actor.encoder needs to know the terms of the {inputs} entries that the actor sees, "
            "and this environment does not tell them; leave actor.encoder out, or train in "
            "env=sim"
        )
    encoded = None if encoder.kind is EncoderKind.none else encoder.terms
    columns = find_columns(terms, frames=encoder.frames, encoded=encoded)
    return EncodedNetwork(config, columns, outputs, estimated=estimated)


def _make_body(config: ActorConfig, inputs: int, outputs: int) -> nn.Module:
    """The network behind the encoder, or without one all of it."""
    if config.kind is not NetworkKind.moe:
        return make_network(config, inputs, outputs)
    return MixtureNetwork(
        config.experts, inputs, outputs, hidden=config.hidden, activation=config.activation,
        layer_norm=config.layer_norm,
    )  # fmt: skip


class EncodedNetwork(nn.Module):
    """Picks the present frame, encodes the window, and hands both to the network behind.

    The first `estimated` entries of the latent mean something: they learn from estimates alone, and
    the gradient of what is done with them stops there.
    """

    present: Tensor
    window: Tensor

    def __init__(
        self, config: ActorConfig, columns: Columns, outputs: int, *, estimated: int
    ) -> None:
        """Build encoder and network; the estimates are the first entries of the latent."""
        super().__init__()
        self.estimated = estimated
        """Entries of the latent that are estimates."""
        self.latent_size = estimated + config.encoder.latent if columns.window else 0
        """Entries of the latent."""
        flat = [column for frame in columns.window for column in frame]
        self.register_buffer("present", torch.tensor(columns.present), persistent=False)
        self.register_buffer("window", torch.tensor(flat, dtype=torch.int64), persistent=False)
        self.encoder: nn.Module = nn.Identity()
        if columns.window:
            chosen, frames, width = config.encoder, len(columns.window), len(columns.window[0])
            if chosen.kind is EncoderKind.mlp:
                sizes = [frames * width, *chosen.hidden, self.latent_size]
                self.encoder = mlp(sizes, chosen.activation)
            else:
                self.encoder = FrameConvolutions(
                    frames, width, chosen.hidden, self.latent_size, chosen.activation
                )
        # Built last: how the last layer of all begins is said by name elsewhere.
        self.body = _make_body(config, len(columns.present) + self.latent_size, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """(B, D) -> (B, out)."""
        seen = x.index_select(-1, self.present)
        if self.latent_size:
            estimate, rest = self.latent(x).split(
                [self.estimated, self.latent_size - self.estimated], dim=-1
            )
            seen = torch.cat([seen, estimate.detach(), rest], dim=-1)
        return self.body(seen)

    def latent(self, x: Tensor) -> Tensor:
        """(B, D) -> (B, latent), the estimates first."""
        return self.encoder(x.index_select(-1, self.window))
