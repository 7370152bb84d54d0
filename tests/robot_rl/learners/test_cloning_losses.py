"""Losses of imitation and their gradients against numpy in float64."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

from policies.networks.act import ACTPolicy, ACTPolicyConfig, Attention
from policies.networks.cloned_mlp import ClonedMLP, ClonedMLPConfig
from policies.networks.flow import FlowPolicy, FlowPolicyConfig
from policies.networks.mlp import Activation
from robot_rl.learners.cloning import (
    AutoencodedChunks,
    flow_matching,
    negative_log_likelihood,
    squared_error,
)

B, D, H, A = 7, 3, 4, 2
Reference = Callable[[Any, np.ndarray, np.ndarray, np.ndarray], Any]


def demonstrated() -> tuple[dict[str, Tensor], Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    obs = {"actor": torch.randn(B, D, generator=generator)}
    chunk = torch.rand(B, H, A, generator=generator) * 2 - 1
    valid = torch.rand(B, H, generator=generator) < 0.7
    valid[0] = False  # a row that counts nowhere
    return obs, chunk, valid


def cloned() -> ClonedMLP:
    torch.manual_seed(0)
    network = ClonedMLP(
        ClonedMLPConfig(hidden=[16], activation=Activation.tanh, normalize=False), D, A, H
    )
    with torch.no_grad():
        list(network.network.parameters())[-2].mul_(3)
    return network


def mlp(params: list[Tensor], x: Tensor) -> Tensor:
    """One hidden layer with tanh, of whatever type the parameters are."""
    return torch.tanh(x @ params[0].T + params[1]) @ params[2].T + params[3]


def doubles(network: torch.nn.Module) -> list[Tensor]:
    return [p.detach().double().requires_grad_() for p in network.parameters()]


def assert_like(
    network: torch.nn.Module, loss: Tensor, params: list[Tensor], expected: Tensor
) -> None:
    """Loss and gradients within 1e-5 of their size."""
    loss.backward()
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    for param, double in zip(network.parameters(), params, strict=True):
        if double.grad is None:  # of a part that this loss does not use
            assert param.grad is None
            continue
        assert param.grad is not None
        error = (param.grad.double() - double.grad).norm()
        # A key's bias shifts all scores alike: its gradient is rounding alone.
        assert error <= 1e-5 * double.grad.norm() + 1e-7


def moments(params: list[Tensor], obs: Tensor) -> tuple[Tensor, Tensor]:
    output = mlp(params, obs.double())
    mean, log_std = output[:, : H * A].reshape(B, H, A), output[:, H * A :].reshape(B, H, A)
    return torch.tanh(mean), log_std.clamp(-4.0, 1.0)


@pytest.mark.parametrize("loss_of", [squared_error, negative_log_likelihood])
def test_losses_of_single_actions_are_those_of_float64(loss_of):
    network, (obs, chunk, valid) = cloned(), demonstrated()
    loss = loss_of(network, obs, chunk, valid, torch.Generator())
    params = doubles(network)
    mean, log_std = moments(params, obs["actor"])
    if loss_of is squared_error:
        costs = (mean - chunk.double()) ** 2
    else:
        costs = -Normal(mean, log_std.exp()).log_prob(chunk.double())
    assert_like(network, loss, params, costs[valid].mean())


def test_flow_matching_is_that_of_float64():
    torch.manual_seed(0)
    config = FlowPolicyConfig(hidden=[16], activation=Activation.tanh, normalize=False)
    network = FlowPolicy(config, D, A, H)
    obs, chunk, valid = demonstrated()
    loss = flow_matching(network, obs, chunk, valid, torch.Generator().manual_seed(5))
    draws = torch.Generator().manual_seed(5)
    noise = torch.randn(B, H, A, generator=draws).double()
    time = torch.rand(B, 1, generator=draws).double()
    params, total = doubles(network), []
    for b in range(B):
        now = (1 - time[b]) * noise[b] + time[b] * chunk[b].double()
        angle = time[b] * torch.pi * 2.0 ** torch.arange(8).double()
        row = torch.cat([obs["actor"][b].double(), now.reshape(-1), angle.sin(), angle.cos()])
        velocity = mlp(params, row[None]).reshape(H, A)
        total += [(velocity - (chunk[b].double() - noise[b]))[valid[b]].square().reshape(-1)]
    assert_like(network, loss, params, torch.cat(total).mean())


@pytest.mark.parametrize("latent", [0, 3])
def test_the_loss_of_an_autoencoder_is_that_of_float64(latent):
    torch.manual_seed(0)
    config = ACTPolicyConfig(
        width=8, heads=2, feedforward=8, encoder_blocks=1, decoder_blocks=1, latent=latent,
        dropout=0.0, normalize=False,
    )  # fmt: skip
    network = ACTPolicy(config, D, A, H)
    obs, chunk, valid = demonstrated()
    double, wide = copy.deepcopy(network).double(), {"actor": obs["actor"].double()}
    generator = torch.Generator().manual_seed(5)
    loss = AutoencodedChunks(0.7)(network, obs, chunk, valid, generator)
    z, divergence = None, torch.zeros(1)
    if latent:
        mean, log_variance = double.encode(wide, chunk.double(), valid)
        noise = torch.randn(B, latent, generator=torch.Generator().manual_seed(5)).double()
        posterior = Normal(mean, (0.5 * log_variance).exp())
        z = posterior.mean + posterior.stddev * noise
        divergence = kl_divergence(posterior, Normal(0.0, 1.0)).sum(-1)
    made = double.decode(wide, z)
    rows = [(made[b, h] - chunk[b, h].double()).abs() for b, h in valid.nonzero().tolist()]
    expected = torch.cat(rows).mean() + 0.7 * divergence.mean()
    assert_like(network, loss, list(double.parameters()), expected)


def test_what_lies_beyond_the_end_of_an_episode_tells_nothing_about_its_style():
    torch.manual_seed(0)
    network = ACTPolicy(ACTPolicyConfig(width=8, heads=2, feedforward=8), D, A, H).eval()
    obs, chunk, valid = demonstrated()
    other = torch.where(valid[..., None], chunk, 100.0)
    with torch.no_grad():
        one, two = network.encode(obs, chunk, valid), network.encode(obs, other, valid)
        assert torch.equal(one[0], two[0])
        assert not torch.equal(one[0], network.encode(obs, -chunk, valid)[0])


def test_attention_is_that_of_torch_in_float64():
    torch.manual_seed(0)
    own, peer = Attention(8, 2).double(), nn.MultiheadAttention(8, 2, batch_first=True).double()
    parts = (own.query, own.key, own.value)
    with torch.no_grad():
        peer.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
        peer.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
        peer.out_proj.load_state_dict(own.out.state_dict())
    x, memory = torch.randn(3, 4, 8).double(), torch.randn(3, 5, 8).double()
    torch.testing.assert_close(own(x, memory, None), peer(x, memory, memory)[0])
