"""Dense layers in float32 on the CPU: all layers and members as one node, products by oneDNN.

Two things slow down networks of a few hundred units in torch on a CPU: their float32 products go to
MKL, which leaves half of the vector units of an AMD processor idle, and every small operation costs
more in bookkeeping than in arithmetic. `chain` calls oneDNN instead, and runs one member after
another so that its activations stay in the cache. Products in bf16 go to oneDNN by torch itself.

Used where `usable` says so; everything else runs through torch's own layers with the same result
up to rounding.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_SMALL = 8
"""Products with a side below this go to torch: preparing oneDNN would cost more than they do."""
_WORTH = 1 << 22
"""Multiplications of a member's largest product from which on `chain` is the faster way. Measured
on one thread of a Zen 5: 256 rows through 128 x 128 take as long either way, 64 x 64 a third longer
by `chain`, 256 x 256 two thirds as long."""


def _one_dnn() -> Any:
    """The linear layer of oneDNN, x (M, K), w (N, K) -> (M, N); None where it was left out."""
    return getattr(torch.ops.mkldnn, "_linear_pointwise", None)


_LINEAR: Any = _one_dnn() if torch.backends.mkldnn.is_available() else None


def usable(x: Tensor) -> bool:
    """Whether `chain` can take an input, (B, in) or (E, B, in).

    Not on other devices nor in other number formats, not where torch was built without oneDNN, and
    not while the network is traced for export or for a compiler, which need operations they know.
    """
    return (
        _LINEAR is not None
        and x.is_cpu
        and x.dtype is torch.float32
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


def worthwhile(x: Tensor, weight_size: int) -> bool:
    """Whether B rows through a largest weight of so many entries are faster by `chain`."""
    return x.ndim > 1 and x.shape[-2] * weight_size >= _WORTH


def chain(x: Tensor, params: Sequence[Tensor]) -> Tensor:
    """Linear layers with ReLU between them, none after the last.

    Args:
        x: Input, (B, in), or (E, B, in) for an ensemble.
        params: Weight and bias of every layer in turn: (out, in) and (out,), or for an ensemble
            (E, in, out) and (E, 1, out).

    Returns:
        (B, out), or (E, B, out) for an ensemble.
    """
    if torch.is_grad_enabled():
        return _Chain.apply(x, *params)  # pyright: ignore[reportReturnType]  untyped in torch
    return _forward(x, _members(params), ensemble=params[0].ndim == 3)[0]


def product(a: Tensor, b: Tensor) -> Tensor:
    """Product of a (M, K) and b (N, K) transposed, (M, N)."""
    if a.shape[1] == 1:  # an outer product: MKL takes many times as long
        return a * b.t()
    if _LINEAR is None or min(a.shape[0], a.shape[1], b.shape[0]) < _SMALL:
        return a @ b.t()
    return _LINEAR(a, b, None, "none", [], "")


Layer = tuple[Tensor, Tensor]
"""Weight (out, in) and bias (out,) of one member."""


class _Chain(torch.autograd.Function):
    """Forward and backward of `chain`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *params: Tensor) -> Tensor:
        ctx.members = _members(params)
        output, ctx.inputs = _forward(x, ctx.members, ensemble=params[0].ndim == 3)
        ctx.save_for_backward(*params)  # notices weights that change before the backward pass
        ctx.per_member = x.ndim == 3
        return output

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]  the decorator hides names
        ctx: Any, *grads: Tensor
    ) -> tuple[Tensor | None, ...]:
        params: tuple[Tensor, ...] = ctx.saved_tensors
        input_needed, trained = ctx.needs_input_grad[0], _weights_are_wanted(ctx)
        each = grads[0].unbind(0) if params[0].ndim == 3 else grads
        backs = [
            _member_backward(*parts, input_needed=input_needed, trained=trained)
            for parts in zip(each, ctx.members, ctx.inputs, strict=True)
        ]
        inputs, by_layer = zip(*backs, strict=True)
        input_grad = None
        if input_needed:
            joined = torch.stack(inputs)
            input_grad = joined if ctx.per_member else joined.sum(0)
        if not trained:
            return (input_grad, *[None] * len(params))
        by_param = zip(zip(*by_layer, strict=True), params, strict=True)
        return (input_grad, *(_collect(members, param) for members, param in by_param))


def _weights_are_wanted(ctx: Any) -> bool:
    """Whether this backward pass goes on to the weights: `backward(inputs=...)` may not.

    torch tells its own layers and not the functions of others, which therefore have to ask. The
    question is refused under `torch.autograd.grad`, where the answer is yes.
    """
    if not ctx.needs_input_grad[1]:
        return False
    weights = [node for node, _ in ctx.next_functions[1:] if node is not None]
    try:
        return any(torch._C._will_engine_execute_node(node) for node in weights)
    except (AttributeError, RuntimeError):
        return True


def _member_backward(
    grad: Tensor, layers: list[Layer], inputs: list[Tensor], *, input_needed: bool, trained: bool
) -> tuple[Tensor | None, list[Tensor]]:
    """Gradients of the input, and of weight (out, in) and bias of every layer in turn."""
    found: list[Tensor] = []
    for i in reversed(range(len(layers))):
        weight, x = layers[i][0], inputs[i]
        if trained:
            found += [grad.sum(0), _weight_gradient(grad, x)]
        if i == 0 and not input_needed:
            return None, found[::-1]
        grad = product(grad, weight.t())
        if i > 0:  # x is the output of a ReLU
            grad = torch.ops.aten.threshold_backward(grad, x, 0)
    return grad, found[::-1]


def _weight_gradient(grad: Tensor, x: Tensor) -> Tensor:
    """Gradient of a weight, (out, in), from grad (B, out) and the layer's input x (B, in)."""
    if grad.shape[1] < x.shape[1]:  # oneDNN is fastest with the shorter side first
        return product(grad.t(), x.t())
    return product(x.t(), grad.t()).t()


def _collect(members: Sequence[Tensor], param: Tensor) -> Tensor:
    """Gradients of the members in the layout of their parameter."""
    if param.ndim < 3:
        return torch.empty_like(param).copy_(members[0])
    collected = torch.empty_like(param)
    for target, member in zip(collected.unbind(0), members, strict=True):
        target.copy_(member.mT if member.ndim == 2 else member)
    return collected


def _members(params: Sequence[Tensor]) -> list[list[Layer]]:
    """Layers of every member."""
    layers: list[list[Layer]] = []
    for i in range(0, len(params), 2):
        weight, bias = params[i], params[i + 1]
        if weight.ndim == 3:
            layers.append(list(zip(weight.mT.unbind(0), bias[:, 0].unbind(0), strict=True)))
        else:
            layers.append([(weight, bias)])
    return [list(member) for member in zip(*layers, strict=True)]


def _forward(
    x: Tensor, members: list[list[Layer]], *, ensemble: bool
) -> tuple[Tensor, list[list[Tensor]]]:
    """Output, and by member what went into every layer."""
    outputs: list[Tensor] = []
    inputs: list[list[Tensor]] = []
    for member, layers in enumerate(members):
        h, kept = x if x.ndim == 2 else x[member], []
        for i, (weight, bias) in enumerate(layers):
            kept.append(h)
            h = _linear(h, weight, bias, relu=i < len(layers) - 1)
        outputs.append(h)
        inputs.append(kept)
    return torch.stack(outputs) if ensemble else outputs[0], inputs


def _linear(x: Tensor, weight: Tensor, bias: Tensor, *, relu: bool) -> Tensor:
    """One layer: x (B, in), weight (out, in), bias (out,) -> (B, out)."""
    if min(weight.shape) < _SMALL:
        y = torch.addmm(bias, x, weight.t())
    else:
        y = _LINEAR(x, weight, bias, "none", [], "")
    # Not as a part of oneDNN's product: that makes 0 of a NaN, which nobody would ever see.
    return y.relu_() if relu else y
