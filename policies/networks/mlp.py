"""Multi-layer perceptrons, single and as an ensemble evaluated in one batched product.

On the CPU all layers of all members are one node of the graph (`chain`): every small operation
costs more in bookkeeping than in arithmetic, for networks of a few hundred units. It has two
operations per layer forward and three or four backward, gives gradients to those alone who want
them, and computes the hidden layers in bf16 under autocast. Where `usable` says no, torch's own
layers give the same result up to rounding.

Float32 products there go to oneDNN in place of MKL, which leaves half of the vector units of an AMD
processor idle (`OneDnnMatmul`). torch hands float32 to oneDNN only if oneDNN may round to bf16 on
the way; without AMX units it does not know how, and computes in float32 all the same. That this is
so is tried once per process.
"""

import functools
import math
from collections.abc import Sequence
from enum import Enum
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class Activation(Enum):
    """Nonlinearity between layers."""

    relu = "relu"
    tanh = "tanh"
    silu = "silu"
    elu = "elu"
    gelu = "gelu"


ACTIVATIONS: dict[Activation, type[nn.Module]] = {
    Activation.relu: nn.ReLU,
    Activation.tanh: nn.Tanh,
    Activation.silu: nn.SiLU,
    Activation.elu: nn.ELU,
    Activation.gelu: nn.GELU,
}
"""Module of every nonlinearity."""

LAYER_NORM_EPSILON = 1e-6
"""As in Flax, so that published settings of JAX learners carry over; torch's default is 1e-5."""


def mlp(
    sizes: Sequence[int], activation: Activation, *, layer_norm: bool = False,
    members: int | None = None,
) -> nn.Sequential:  # fmt: skip
    """Linear layers with [layer norm and] activation between them, none after the last.

    (B, in) -> (B, out), or of E independent members (E, B, in) or (B, in) -> (E, B, out).
    """
    layers: list[nn.Module] = []
    for i, (inputs, outputs) in enumerate(pairwise(sizes)):
        one = members is None
        layers.append(
            nn.Linear(inputs, outputs) if one else EnsembleLinear(members, inputs, outputs)
        )
        if i < len(sizes) - 2:
            if layer_norm:
                layers.append(
                    nn.LayerNorm(outputs, eps=LAYER_NORM_EPSILON)
                    if one
                    else EnsembleLayerNorm(members, outputs)
                )
            layers.append(ACTIVATIONS[activation]())
    return Dense(*layers)


class Dense(nn.Sequential):
    """Layers in order, as one operation where `dense` can do that and it pays.

    Under autocast the last layer stays in float32: a value or a mean needs more than eight bits.
    """

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__(*layers)
        self._linear = [one for one in self if isinstance(one, nn.Linear | EnsembleLinear)]
        self._chained = all(isinstance(one, nn.Linear | EnsembleLinear | nn.ReLU) for one in self)
        self._largest = max(math.prod(one.weight.shape[-2:]) for one in self._linear)
        self.by_layer = False
        """True while hooks on its layers must see what they give."""

    def forward(self, input: Tensor) -> Tensor:
        """(B, in) or (E, B, in) -> (B, out) or (E, B, out)."""
        chained = self._chained and not self.by_layer
        if chained and usable(input) and is_faster(input.shape[-2], self._largest):
            return chain(input, _params(self._linear))
        if torch.is_autocast_enabled(input.device.type):
            return self._mixed(input)
        return super().forward(input)

    def _mixed(self, x: Tensor) -> Tensor:
        *hidden, last = self
        for layer in hidden:
            normalizes = isinstance(layer, nn.LayerNorm | EnsembleLayerNorm)
            x = in_own_format(layer, x) if normalizes and not x.is_cpu else layer(x)
        return in_float32(last, x)


def in_float32(last: nn.Module, x: Tensor) -> Tensor:
    """A network's last layer, in float32 under autocast too: values need more than eight bits."""
    if not torch.is_autocast_enabled(x.device.type):
        return last(x)
    with torch.autocast(x.device.type, enabled=False):
        return last(x.float())


def in_own_format(norm: "nn.LayerNorm | EnsembleLayerNorm", x: Tensor) -> Tensor:
    """A layer norm in the number format of its input, where autocast would take float32.

    Its sums are float32 inside. What comes between two layers is then half as many bytes, which is
    what a GPU waits for.
    """
    weight, bias = norm.weight.to(x.dtype), norm.bias.to(x.dtype)
    with torch.autocast(x.device.type, enabled=False):
        if isinstance(norm, nn.LayerNorm):
            return nn.functional.layer_norm(x, norm.normalized_shape, weight, bias, norm.eps)
        return EnsembleLayerNorm.scaled(x, weight, bias)


def _params(layers: Sequence[Any]) -> list[Tensor]:
    """Weight and bias of every layer in turn; looked up anew: they may be swapped for one call."""
    return [param for layer in layers for param in (layer.weight, layer.bias)]


class EnsembleLinear(nn.Module):
    """E linear layers as one batched matrix product, initialised as `nn.Linear`."""

    def __init__(self, members: int, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(members, inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(members, 1, outputs).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        """(E, B, in), or (B, in) shared by all members -> (E, B, out)."""
        if x.ndim == 2:
            x = x.expand(self.weight.shape[0], *x.shape)
        return torch.baddbmm(self.bias, x, self.weight)


class EnsembleLayerNorm(nn.Module):
    """Layer norm with its own scale and shift for every member."""

    def __init__(self, members: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(members, 1, size))
        self.bias = nn.Parameter(torch.zeros(members, 1, size))

    def forward(self, x: Tensor) -> Tensor:
        """(E, B, size) -> (E, B, size)."""
        return self.scaled(x, self.weight, self.bias)

    @staticmethod
    def scaled(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """The same with a scale and a shift, (E, 1, size), that are given."""
        normal = nn.functional.layer_norm(x, x.shape[-1:], eps=LAYER_NORM_EPSILON)
        return torch.addcmul(bias, normal, weight)


class Initialization(Enum):
    """Distribution of the weights of linear layers in the beginning."""

    torch = "torch"
    """Weights and biases uniform within 1 / sqrt(inputs)."""
    xavier = "xavier"
    """Uniform with variance 2 / (inputs + outputs), zero biases: REDQ, RLPD, SERL."""
    orthogonal = "orthogonal"
    """Orthogonal matrices times sqrt(2), zero biases: WSRL."""


@torch.no_grad()
def initialize(network: nn.Module, kind: Initialization, *, heads: int = 1) -> None:
    """Draw the weights of all linear layers anew; those of `torch` are left as they are.

    Args:
        network: Linear layers, plain or of an ensemble, in the order of its modules.
        heads: Layers of equal width that the last layer stands for, each drawn on its own.
    """
    if kind is Initialization.torch:
        return
    layers = [m for m in network.modules() if isinstance(m, (nn.Linear, EnsembleLinear))]
    for layer in layers:
        layer.bias.zero_()
        parts = heads if layer is layers[-1] else 1
        for matrix in _matrices(layer):
            _draw(matrix.chunk(parts), kind)


@torch.no_grad()
def zero_last(network: nn.Module) -> None:
    """Let the last linear layer answer zero to everything in the beginning."""
    last = [m for m in network.modules() if isinstance(m, nn.Linear | EnsembleLinear)][-1]
    last.weight.zero_()
    last.bias.zero_()


def _matrices(layer: nn.Linear | EnsembleLinear) -> list[Tensor]:
    """Views of the weights, (outputs, inputs) each."""
    if isinstance(layer, nn.Linear):
        return [layer.weight]
    return [member.T for member in layer.weight]


def _draw(matrices: Sequence[Tensor], kind: Initialization) -> None:
    for matrix in matrices:
        fresh = torch.empty(matrix.shape)
        if kind is Initialization.xavier:
            nn.init.xavier_uniform_(fresh)
        else:
            nn.init.orthogonal_(fresh, gain=math.sqrt(2.0))
        matrix.copy_(fresh)


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
                bias = params[2 * i + 1]
                found[2 * i + 1] = grad.sum(-2, keepdim=bias.ndim == 3).to(bias.dtype)
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


_TRIED_SHAPES = ((256, 17, 256), (256, 256, 256), (256, 256, 12))
"""Rows, inputs, outputs of the products that are tried: layers of a usual network."""
_MAX_ERROR = 1e-5
"""Relative error that float32 stays below; bf16 has a hundred times as much."""
_MIN_PRODUCTS = 1 << 22
"""Multiplications of the largest product from which on oneDNN pays: small ones it takes longer to
prepare than MKL to compute. Measured with SAC on one thread of a Zen 5, 256 rows: a seventh longer
at width 64, a seventh shorter at 128, 40 % shorter at 256."""


class OneDnnMatmul:
    """Context in which float32 products on the CPU go to oneDNN, if that is wanted and exact.

    The setting is the process's: the last digits of products in other threads change with it.
    """

    def __init__(self, wanted: bool = True) -> None:
        """Try what oneDNN does, the first time that somebody wants it."""
        self.changes_setting = wanted and is_exact()
        """False if the context does nothing."""
        self._before = "none"

    def __enter__(self) -> None:
        if self.changes_setting:
            self._before, _settings().fp32_precision = _settings().fp32_precision, "bf16"

    def __exit__(self, *exception: object) -> None:
        if self.changes_setting:
            _settings().fp32_precision = self._before


def is_faster(rows: int, weight_size: int) -> bool:
    """True if so many rows through a largest weight of so many entries are faster by oneDNN."""
    return rows * weight_size >= _MIN_PRODUCTS


@functools.cache
def is_exact() -> bool:
    """True if oneDNN computes in float32 where it is permitted to round to bf16."""
    if not torch.backends.mkldnn.is_available():
        return False
    before, _settings().fp32_precision = _settings().fp32_precision, "bf16"
    try:
        return all(_error(*shape) < _MAX_ERROR for shape in _TRIED_SHAPES)
    finally:
        _settings().fp32_precision = before


def _settings() -> Any:
    onednn: Any = torch.backends.mkldnn  # torch does not annotate what it has there
    return onednn.matmul


def _error(rows: int, inputs: int, outputs: int) -> float:
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(rows, inputs, generator=generator)
    b = torch.randn(inputs, outputs, generator=generator)
    exact = a.double() @ b.double()
    return float((a @ b - exact).abs().max() / exact.abs().max())
