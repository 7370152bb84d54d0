"""Perceptrons: dense layers as one node, products by oneDNN, and weights in the beginning."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from policies.networks.gaussian_actor import GaussianActor, GaussianActorConfig, LogStdBound
from policies.networks.mlp import (
    Activation,
    EnsembleLayerNorm,
    EnsembleLinear,
    Initialization,
    OneDnnMatmul,
    chain,
    in_own_format,
    initialize,
    is_exact,
    mlp,
)

SIZES = [23, 32, 40, 12]
"""Input, hidden layers, output."""


def network(members: int, outputs: int = 12) -> torch.nn.Sequential:
    torch.manual_seed(0)
    sizes = [*SIZES[:-1], outputs]
    return mlp(sizes, Activation.relu, members=members) if members else mlp(sizes, Activation.relu)


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


MATMUL: Any = torch.backends.mkldnn.matmul  # pyright: ignore[reportAttributeAccessIssue]
SHAPES = [(7, 5, 3), (256, 23, 256), (100, 300, 1), (512, 512, 64)]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("m", "k", "n"), SHAPES)
def test_products_have_the_digits_of_float32(m, k, n, turned):
    a, b = torch.randn(2, m, k), torch.randn(2, k, n)
    if turned:  # columns beside each other
        a, b = a.mT.contiguous().mT, b.mT.contiguous().mT
    exact = a.double() @ b.double()
    with OneDnnMatmul():
        batched, single = a @ b, a[0] @ b[0]
    for got, expected in ((batched, exact), (single, exact[0])):
        assert float((got - expected).norm() / expected.norm()) < 1e-6


def test_the_setting_is_as_it_was_afterwards_and_after_an_error():
    before = MATMUL.fp32_precision
    with OneDnnMatmul(), OneDnnMatmul():
        assert (MATMUL.fp32_precision == "bf16") == is_exact()
    assert MATMUL.fp32_precision == before
    with pytest.raises(RuntimeError, match="shapes"), OneDnnMatmul():
        torch.mm(torch.randn(2, 3), torch.randn(2, 3))
    assert MATMUL.fp32_precision == before


def test_a_library_that_rounds_is_found_out(monkeypatch):
    plain = torch.Tensor.__matmul__

    def rounded(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if a.dtype is torch.float32:
            a, b = a.bfloat16().float(), b.bfloat16().float()
        return plain(a, b)

    is_exact.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "__matmul__", rounded)
        with OneDnnMatmul():
            assert MATMUL.fp32_precision != "bf16"
    is_exact.cache_clear()


INPUTS, OUTPUTS = 60, 40


def test_xavier_is_uniform_with_the_variance_of_both_widths():
    torch.manual_seed(0)
    for network in (
        mlp([INPUTS, OUTPUTS], Activation.relu),
        mlp([INPUTS, OUTPUTS], Activation.relu, members=3),
    ):
        initialize(network, Initialization.xavier)
        bound = math.sqrt(6 / (INPUTS + OUTPUTS))
        weight = network[0].get_parameter("weight").detach()
        assert weight.abs().max() <= bound
        assert weight.abs().max() > 0.99 * bound
        assert float(weight.std()) == pytest.approx(bound / math.sqrt(3), rel=0.05)
        assert network[0].get_parameter("bias").abs().max() == 0


def test_heads_in_one_layer_are_drawn_as_if_they_were_apart():
    torch.manual_seed(0)
    network = mlp([INPUTS, 2 * OUTPUTS], Activation.relu)
    initialize(network, Initialization.xavier, heads=2)
    largest = float(network[0].get_parameter("weight").detach().abs().max())
    assert largest == pytest.approx(math.sqrt(6 / (INPUTS + OUTPUTS)), rel=0.01)


def test_orthogonal_rows_have_length_sqrt_two_in_every_member():
    network = mlp([INPUTS, OUTPUTS], Activation.relu, members=3)
    initialize(network, Initialization.orthogonal)
    layer = network[0]
    assert isinstance(layer, EnsembleLinear)
    for member in layer.weight:  # (inputs, outputs)
        torch.testing.assert_close(member.T @ member, 2 * torch.eye(OUTPUTS), rtol=0, atol=1e-5)
    assert not torch.equal(layer.weight[0], layer.weight[1])


@pytest.mark.parametrize(("bound", "log_std"), [(LogStdBound.tanh, -2.5), (LogStdBound.clamp, 0.0)])
def test_a_zero_head_begins_at_rest_with_one_noise_everywhere(bound, log_std):
    config = GaussianActorConfig(
        hidden=[8], log_std_min=-5.0, log_std_max=0.0, log_std_bound=bound, zero_head=True
    )
    actor = GaussianActor(config, 6, 20_000)
    obs = {"actor": torch.randn(3, 6)}
    assert actor(obs).abs().max() == 0
    drawn = torch.atanh(actor.explore(obs, torch.Generator().manual_seed(0)).double())
    # 60,000 draws tell the deviation to half a percent; float32 close to 1 costs as much again.
    assert drawn[drawn.isfinite()].std().item() == pytest.approx(math.exp(log_std), rel=0.02)


def test_members_begin_apart_and_as_plain_linear_layers_do():
    torch.manual_seed(0)
    layer = EnsembleLinear(4, 100, 200)
    assert not torch.equal(layer.weight[0], layer.weight[1])
    for parameter in (layer.weight, layer.bias):  # uniform within 1/sqrt(inputs), as nn.Linear
        assert parameter.abs().max() <= 0.1
        assert parameter.abs().max() > 0.099
        assert abs(float(parameter.detach().std()) - 0.1 / 3**0.5) < 2e-3


@pytest.mark.parametrize("ensemble", [False, True])
def test_layer_norm_adds_a_millionth_to_the_variance(ensemble):
    norm = (
        EnsembleLayerNorm(1, 2) if ensemble else mlp([2, 2, 1], Activation.relu, layer_norm=True)[1]
    )
    x = torch.tensor([[1e-3, -1e-3]])  # variance 1e-6: the result tells what was added
    value = norm(x[None] if ensemble else x).flatten()
    torch.testing.assert_close(value, torch.tensor([1.0, -1.0]) / 2**0.5, rtol=1e-5, atol=0)


@pytest.mark.parametrize("members", [0, 2])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_layer_norm_in_its_input_s_number_format_differs_by_rounding_alone(members, device):
    torch.manual_seed(0)
    norm = EnsembleLayerNorm(members, 32) if members else torch.nn.LayerNorm(32, eps=1e-6)
    with torch.no_grad():
        for param in norm.parameters():
            param.copy_(1 + 0.1 * torch.randn_like(param))
    norm = norm.to(device)
    x = torch.randn((members, 64, 32) if members else (64, 32)).to(device, torch.bfloat16)
    x.requires_grad_()
    with torch.autocast(device, torch.bfloat16):
        short = in_own_format(norm, x)
        long = norm(x)
    assert short.dtype is torch.bfloat16
    grad = torch.randn_like(long)
    wanted = [x, *norm.parameters()]
    ours = [short, *torch.autograd.grad(short, wanted, grad.to(short.dtype))]
    exact = [long, *torch.autograd.grad(long, wanted, grad)]
    for got, expected in zip(ours, exact, strict=True):
        scale = float(expected.detach().float().abs().max())
        torch.testing.assert_close(got.float(), expected.float(), rtol=0.02, atol=0.02 * scale)


@pytest.mark.gpu
def test_on_a_gpu_norms_of_a_network_under_autocast_are_in_bf16():
    torch.manual_seed(0)
    layers = mlp([23, 32, 40, 12], Activation.silu, layer_norm=True, members=2)
    layers.to("cuda")
    x, seen = torch.randn(64, 23, device="cuda"), []
    for layer in list(layers.children())[:-1]:
        layer.register_forward_hook(lambda _, inputs, output: seen.append(output.dtype))
    with torch.autocast("cuda", torch.bfloat16):
        rounded = layers(x)
    assert torch.bfloat16 in seen
    assert torch.float32 not in seen
    assert rounded.dtype is torch.float32
    torch.testing.assert_close(rounded, layers(x), rtol=0.05, atol=0.05)
