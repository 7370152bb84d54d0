"""Dense layers on the CPU: all layers of all members as one node of the graph.

Every small operation of a graph costs more in bookkeeping than in arithmetic, for networks of a few
hundred units. `chain` has two operations per layer forward and three or four backward, and gives
gradients to those alone who want them. Under autocast it computes the hidden layers in bf16.

Used where `usable` says so; everything else runs through torch's own layers with the same result
up to rounding.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from robot_rl.core.onednn import OneDnnMatmul


def usable(x: Tensor) -> bool:
    """True if `chain` can take an input, (B, in) or (E, B, in).

    Not on other devices nor in other number formats, and not while the network is traced for
    export or for a compiler, which need operations they know.
    """
    return (
        x.ndim > 1 and x.is_cpu and x.dtype is torch.float32 and not torch.compiler.is_compiling()
    )


def chain(x: Tensor, params: Sequence[Tensor]) -> Tensor:
    """Linear layers with ReLU between them, none after the last.

    Args:
        x: Input, (B, in), or (E, B, in) for an ensemble.
        params: Weight and bias of every layer in turn: (out, in) and (out,), or for an ensemble
            (E, in, out) and (E, 1, out).

    Returns:
        (B, out), or (E, B, out) for an ensemble. Under autocast all layers but the last are
        computed in its number format; the output is float32 nevertheless.
    """
    if not torch.is_autocast_enabled("cpu"):
        with OneDnnMatmul():
            return _chain(x, params, torch.float32)
    with torch.autocast("cpu", enabled=False):
        return _chain(x, params, torch.get_autocast_dtype("cpu"))


def _chain(x: Tensor, params: Sequence[Tensor], hidden: torch.dtype) -> Tensor:
    if torch.is_grad_enabled():
        return _Chain.apply(x, hidden, *params)  # pyright: ignore[reportReturnType]  untyped
    return _forward(x, _layers(params, hidden))[0]


Layer = tuple[Tensor, Tensor]
"""Weight ([E,] in, out) and bias, in the number format that the layer computes in."""


class _Chain(torch.autograd.Function):
    """Forward and backward of `chain`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, hidden: torch.dtype, *params: Tensor) -> Tensor:
        ctx.layers = _layers(params, hidden)
        output, ctx.inputs = _forward(x, ctx.layers)
        ctx.save_for_backward(*params)  # notices weights that change before the backward pass
        ctx.shared = x.ndim < params[0].ndim
        return output

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]  the decorator hides names
        ctx: Any, grad: Tensor
    ) -> tuple[Tensor | None, ...]:
        params: tuple[Tensor, ...] = ctx.saved_tensors
        input_needed, trained = ctx.needs_input_grad[0], _weights_are_wanted(ctx)
        found: list[Tensor | None] = [None] * len(params)
        for i in reversed(range(len(ctx.layers))):
            weight, x = ctx.layers[i][0], ctx.inputs[i]
            grad = grad.to(weight.dtype)
            if trained:
                found[2 * i] = _weight_gradient(x, grad, params[2 * i])
                found[2 * i + 1] = _bias_gradient(grad, params[2 * i + 1])
            if i == 0 and not input_needed:
                return (None, None, *found)
            grad = _product(grad, weight.mT)
            if i > 0:  # x is the output of a ReLU
                grad = _through_relu(grad, x)
        grad = grad.float()
        return (grad.sum(0) if ctx.shared else grad, None, *found)


def _weights_are_wanted(ctx: Any) -> bool:
    """True if this backward pass goes on to the weights: `backward(inputs=...)` may not.

    torch tells its own layers and not the functions of others, which therefore have to ask. The
    question is refused under `torch.autograd.grad`, where the answer is yes.
    """
    if not ctx.needs_input_grad[2]:
        return False
    weights = [node for node, _ in ctx.next_functions[2:] if node is not None]
    try:
        return any(torch._C._will_engine_execute_node(node) for node in weights)
    except (AttributeError, RuntimeError):
        return True


def _layers(params: Sequence[Tensor], hidden: torch.dtype) -> list[Layer]:
    layers: list[Layer] = []
    for i in range(0, len(params), 2):
        weight, bias = params[i], params[i + 1]
        if i < len(params) - 2 and hidden is not torch.float32:
            weight, bias = weight.to(hidden), bias.to(hidden)
        layers.append((weight if weight.ndim == 3 else weight.t(), bias))
    return layers


def _forward(x: Tensor, layers: list[Layer]) -> tuple[Tensor, list[Tensor]]:
    """Output, and what went into every layer."""
    first = layers[0][0]
    x = x.to(first.dtype)
    if x.ndim < first.ndim:
        x = x.expand(first.shape[0], *x.shape)
    inputs: list[Tensor] = []
    for weight, bias in layers[:-1]:
        inputs.append(x)
        x = _linear(x, weight, bias).relu_()
    weight, bias = layers[-1]
    x = x.to(weight.dtype)
    return _linear(x, weight, bias), [*inputs, x]


def _linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """One layer: x ([E,] B, in), weight ([E,] in, out) -> ([E,] B, out)."""
    if weight.shape[-1] == 1:  # rows times one column: the libraries take twice as long
        return torch.linalg.vecdot(x, weight.mT).unsqueeze(-1).add_(bias)
    return (torch.baddbmm if x.ndim == 3 else torch.addmm)(bias, x, weight)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Product of a ([E,] M, K) and b ([E,] K, N)."""
    if a.shape[-1] == 1:  # an outer product, for which the libraries take many times as long
        return a * b
    product = torch.bmm if a.ndim == 3 else torch.mm
    if b.shape[-1] == 1:  # half as long with the single row first
        return product(b.mT, a.mT).mT
    return product(a, b)


def _weight_gradient(x: Tensor, grad: Tensor, param: Tensor) -> Tensor:
    """Gradient of a weight in its layout, from the layer's input and its output's gradient."""
    found = _product(x.mT, grad) if param.ndim == 3 else _product(grad.mT, x)
    return found.to(param.dtype)


def _bias_gradient(grad: Tensor, param: Tensor) -> Tensor:
    return grad.sum(-2, keepdim=param.ndim == 3).to(param.dtype)


def _through_relu(grad: Tensor, output: Tensor) -> Tensor:
    """Gradient of what went into a ReLU from that of its output, in its place."""
    threshold = torch.ops.aten.threshold_backward.grad_input
    if grad.dtype is torch.bfloat16:
        # A number is positive where its bits are, and of integers torch compares 32 at once: a
        # fraction of the time that it takes in bf16, by way of float32.
        bits = grad.view(torch.int16)
        threshold(bits, output.view(torch.int16), 0, grad_input=bits)
    else:
        threshold(grad, output.to(grad.dtype), 0, grad_input=grad)
    return grad
