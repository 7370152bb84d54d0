"""Weights in the beginning: their spread, their zero biases, heads and members on their own."""

import math

import pytest
import torch

from policies.networks.gaussian_actor import GaussianActor, GaussianActorConfig, LogStdBound
from policies.networks.mlp import (
    Activation,
    EnsembleLinear,
    Initialization,
    ensemble_mlp,
    initialize,
    mlp,
)

INPUTS, OUTPUTS = 60, 40


def test_xavier_is_uniform_with_the_variance_of_both_widths():
    torch.manual_seed(0)
    for network in (
        mlp([INPUTS, OUTPUTS], Activation.relu),
        ensemble_mlp(3, [INPUTS, OUTPUTS], Activation.relu),
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
    network = ensemble_mlp(3, [INPUTS, OUTPUTS], Activation.relu)
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
