"""Layers that are single or an ensemble of E members, by the shape of their parameters alone.

`members=None` makes one layer: (B, in) -> (B, out). With E members the parameters carry a leading
axis, and (E, B, in), or (B, in) shared by all, becomes (E, B, out) in one batched product. Layers
that hold their parameters at a norm say so with `project`, which the networks' owners call after
every optimiser step.
"""

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

_BATCH_EPSILON = 1e-5
"""Added to the variance of a batch: torch's own."""


@runtime_checkable
class Constrained(Protocol):
    """A layer whose parameters lie on a sphere."""

    def project(self) -> None:
        """Put the parameters back on it; in place, to be called without gradients."""
        ...


def constrained_layers(network: nn.Module) -> list[Constrained]:
    """The layers of a network that must be projected after every optimiser step."""
    return [layer for layer in network.modules() if isinstance(layer, Constrained)]


def leading(members: int | None) -> tuple[int, ...]:
    """Leading axes of the parameters: none, or (E,)."""
    return () if members is None else (members,)


class Linear(nn.Module):
    """x W [+ b] with orthogonal weights (Saxe et al. 2014, arXiv:1312.6120) and zero bias."""

    def __init__(
        self, members: int | None, inputs: int, outputs: int, *, gain: float = 1.0,
        bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        lead = leading(members)
        self.weight = nn.Parameter(torch.empty(*lead, inputs, outputs))
        for member in self.weight.detach().view(-1, inputs, outputs):
            nn.init.orthogonal_(member, gain)
        self.bias = nn.Parameter(torch.zeros(*lead, 1, outputs)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """(B, in) or (E, B, in) -> (B, out) or (E, B, out)."""
        if self.weight.ndim == 2:
            return x @ self.weight if self.bias is None else torch.addmm(self.bias, x, self.weight)
        if x.ndim == 2:
            x = x.expand(self.weight.shape[0], *x.shape)
        if self.bias is None:
            return torch.bmm(x, self.weight)
        return torch.baddbmm(self.bias, x, self.weight)


class UnitLinear(Linear):
    """Linear layer whose weights have length one along the input axis; its bias is free."""

    def __init__(
        self, members: int | None, inputs: int, outputs: int, *, bias: bool = False
    ) -> None:
        super().__init__(members, inputs, outputs, bias=bias)
        with torch.no_grad():
            self.project()

    def project(self) -> None:
        """Divide every output's weights by their length."""
        length = torch.linalg.vector_norm(self.weight, dim=-2, keepdim=True)
        self.weight.div_(length.clamp_min_(1e-8))


class LayerNorm(nn.Module):
    """Layer norm with trained scale and shift, in float32."""

    def __init__(self, members: int | None, size: int, *, epsilon: float) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.ones(*leading(members), 1, size))
        self.bias = nn.Parameter(torch.zeros(*leading(members), 1, size))

    def forward(self, x: Tensor) -> Tensor:
        """(..., B, size) -> (..., B, size)."""
        normal = nn.functional.layer_norm(x.float(), x.shape[-1:], eps=self.epsilon)
        return torch.addcmul(self.bias, normal, self.weight)


class UnitRMSNorm(nn.Module):
    """x / rms(x) times a trained scale of length sqrt(size), in float32."""

    def __init__(self, members: int | None, size: int, *, epsilon: float) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.ones(*leading(members), 1, size))

    def forward(self, x: Tensor) -> Tensor:
        """(..., B, size) -> (..., B, size)."""
        x = x.float()
        square = (x * x).mean(-1, keepdim=True)
        return x * torch.rsqrt(square + self.epsilon) * self.weight

    def project(self) -> None:
        """Bring the scale to length sqrt(size)."""
        square = (self.weight * self.weight).mean(-1, keepdim=True)
        self.weight.mul_(torch.rsqrt(square + 1e-8))


class UnitBatchNorm(nn.Module):
    """Batch norm whose scale and shift together have length sqrt(size), in float32.

    Rows are normalised by the statistics of their own batch while something is learned from them:
    in training mode with gradients on. Everywhere else - acting, bootstrapping, evaluation,
    export - the running statistics are constants, so that a policy does not depend on how many
    worlds it acts in. They are buffers and travel with every copy of the network.
    """

    uses_batch_norm = True
    """Learners keep rows of weight zero away from the others."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, members: int | None, size: int, *, momentum: float = 0.01) -> None:
        """Start as the identity.

        Args:
            members: E, each with statistics of its own; None for a single layer.
            momentum: Share of the running statistics that a batch takes over.
        """
        super().__init__()
        self.momentum = momentum
        shape = (*leading(members), 1, size)
        self.weight = nn.Parameter(torch.ones(shape))
        self.bias = nn.Parameter(torch.zeros(shape))
        self.register_buffer("running_mean", torch.zeros(shape))
        self.register_buffer("running_var", torch.ones(shape))

    def forward(self, x: Tensor) -> Tensor:
        """(B, size) or (E, B, size) -> (..., B, size)."""
        x = x.float()  # statistics of bf16 rows would have three digits
        if self.training and torch.is_grad_enabled() and x.shape[-2] > 1:
            return self._of_batch(x)
        scale = self.weight * torch.rsqrt(self.running_var + _BATCH_EPSILON)
        return torch.addcmul(torch.addcmul(self.bias, self.running_mean, scale, value=-1), x, scale)

    def _of_batch(self, x: Tensor) -> Tensor:
        # Torch's own layer over all members side by side: forward and backward together take half
        # the time of plain operations (2 members, 1,024 rows, width 256, one CPU thread).
        members, size = self.weight.shape[:-2], self.weight.shape[-1]
        x = x.expand(*members, *x.shape[-2:])
        side_by_side = x.movedim(-2, 0).reshape(x.shape[-2], -1)  # (B, E * size)
        normal = nn.functional.batch_norm(
            side_by_side, self.running_mean.view(-1), self.running_var.view(-1),
            self.weight.view(-1), self.bias.view(-1), True, self.momentum, _BATCH_EPSILON,
        )  # fmt: skip
        return normal.view(-1, *members, size).movedim(0, -2)

    def project(self) -> None:
        """Bring scale and shift together to length sqrt(size)."""
        square = (self.weight * self.weight + self.bias * self.bias).mean(-1, keepdim=True)
        shrink = torch.rsqrt(square + 1e-8)
        self.weight.mul_(shrink)
        self.bias.mul_(shrink)


class Scale(nn.Module):
    """Trained factor per entry that starts at `start` and learns as if it started at `speed`.

    A parameter of size `speed` stands for the factor `start`; Adam moves all parameters equally far
    per step, so that the ratio sets how fast the factor changes (Loshchilov et al. 2024,
    arXiv:2410.01131, section 2.5).
    """

    def __init__(self, members: int | None, size: int, *, start: float, speed: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((*leading(members), 1, size), speed))
        self._ratio = start / speed

    def forward(self, x: Tensor) -> Tensor:
        """(..., B, size) -> (..., B, size)."""
        return x * (self.weight * self._ratio)


def unit(x: Tensor) -> Tensor:
    """Rows of length one, in float32."""
    return nn.functional.normalize(x.float(), dim=-1, eps=1e-8)
