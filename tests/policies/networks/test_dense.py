"""Dense layers as one node: what torch's layers give, and gradients for whom they are wanted."""

import pytest
import torch
from torch import Tensor

from policies.networks.mlp import Activation, chain, ensemble_mlp, mlp

SIZES = [23, 32, 40, 12]
"""Input, hidden layers, output."""


def network(members: int, outputs: int = 12) -> torch.nn.Sequential:
    torch.manual_seed(0)
    sizes = [*SIZES[:-1], outputs]
    return ensemble_mlp(members, sizes, Activation.relu) if members else mlp(sizes, Activation.relu)


def params(layers: torch.nn.Sequential) -> list[Tensor]:
    return list(layers.parameters())


def in_double(layers: torch.nn.Sequential, x: Tensor, grad: Tensor) -> list[Tensor]:
    """Output and gradients by plain products in float64."""
    x, *weights = (t.detach().double().requires_grad_() for t in (x, *params(layers)))
    h = x
    for i in range(0, len(weights), 2):
        weight = weights[i] if weights[i].ndim == 3 else weights[i].T
        h = h @ weight + weights[i + 1]
        h = h.clamp(min=0) if i < len(weights) - 2 else h
    return [h, *torch.autograd.grad(h, [x, *weights], grad.double())]


@pytest.mark.parametrize("rows", [1, 7, 64])
@pytest.mark.parametrize("outputs", [1, 2, 12])
@pytest.mark.parametrize(("members", "shared"), [(0, True), (1, True), (3, True), (3, False)])
def test_outputs_and_gradients_are_those_of_plain_products_in_double_precision(
    members, shared, outputs, rows
):
    layers = network(members, outputs)
    shape = (rows, SIZES[0]) if shared else (members, rows, SIZES[0])
    x = torch.randn(shape, requires_grad=True)
    y = chain(x, params(layers))
    grad = torch.randn_like(y)
    got = [y, *torch.autograd.grad(y, [x, *params(layers)], grad)]
    for ours, reference in zip(got, in_double(layers, x, grad), strict=True):
        assert ours.shape == reference.shape
        scale = float(reference.detach().abs().max())
        torch.testing.assert_close(ours.double(), reference, rtol=1e-5, atol=1e-5 * max(scale, 1.0))


def test_without_gradients_the_output_is_the_same_bit_for_bit():
    layers, x = network(2), torch.randn(16, SIZES[0])
    with_graph = chain(x, params(layers))
    with torch.no_grad():
        assert torch.equal(chain(x, params(layers)), with_graph)


def test_weights_that_change_before_the_backward_pass_are_noticed():
    layers = network(2)
    y = chain(torch.randn(16, SIZES[0]), params(layers)).sum()
    with torch.no_grad():
        params(layers)[0].add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


@pytest.mark.parametrize(("members", "shared"), [(0, True), (3, True), (3, False)])
def test_under_autocast_outputs_and_gradients_are_those_of_torch_s_own_layers(members, shared):
    layers = network(members, outputs=1)
    x = torch.randn((64, SIZES[0]) if shared else (members, 64, SIZES[0]), requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        y, plain = chain(x, params(layers)), layers(x)
    assert "Chain" not in plain.grad_fn.name()
    grad, inputs = torch.randn_like(y), [x, *params(layers)]
    got = [y, *torch.autograd.grad(y, inputs, grad)]
    expected = [plain, *torch.autograd.grad(plain, inputs, grad)]
    for ours, reference in zip(got, expected, strict=True):
        assert ours.dtype is torch.float32
        error = (ours - reference).detach().norm() / reference.detach().norm()
        assert float(error) < 0.004  # the last of eight bits


@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize("members", [0, 2])
def test_a_nan_goes_through_all_layers(members, rounded):
    layers, x = network(members), torch.randn(16, SIZES[0])
    x[3, 5] = -torch.nan
    with torch.autocast("cpu", torch.bfloat16, enabled=rounded):
        bad = chain(x, params(layers)).isnan()
    assert bad[..., 3, :].all()
    assert bad.sum() == bad[..., 3, :].numel()
