"""Networks and normaliser: an ensemble is its members, statistics are those of numpy."""

import numpy as np
import pytest
import torch
from torch import Tensor

from policies.networks.inputs import RunningNormalizer
from policies.networks.mlp import Activation, EnsembleLayerNorm, EnsembleLinear, mlp


def rows(count: int, size: int = 6, seed: int = 0) -> Tensor:
    return torch.randn(count, size, generator=torch.Generator().manual_seed(seed))


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


@pytest.mark.parametrize("chunks", [[1] * 1000, [17, 3, 480, 500]])
def test_the_normaliser_has_the_mean_and_deviation_of_numpy(chunks):
    x = rows(1000) * torch.tensor([1.0, 10.0, 0.1, 1.0, 3.0, 0.0]) + torch.tensor(
        [0.0, 5.0, -2.0, 100.0, 1.0, 7.0]
    )
    normalizer = RunningNormalizer(6, epsilon=1e-2, clip=5.0)
    for part in x.split(chunks):
        normalizer.update(part)
    exact = x.numpy().astype(np.float64)
    expected = (exact - exact.mean(0)) / (exact.std(0) + 1e-2)
    # 100 +- 1 in float32 has five digits of the deviation; a thousand updates round as often.
    np.testing.assert_allclose(normalizer.mean, exact.mean(0), rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(normalizer(x), expected.clip(-5, 5), rtol=2e-4, atol=2e-4)


def test_the_normaliser_begins_as_the_identity_and_looking_changes_nothing():
    normalizer = RunningNormalizer(6)
    x = rows(20)
    assert torch.equal(normalizer(x), x)
    normalizer.update(x)
    assert torch.equal(normalizer(x), normalizer(x))
    other = RunningNormalizer(6)
    other.load_state_dict(normalizer.state_dict())
    other.update(rows(9, seed=1))
    normalizer.update(rows(9, seed=1))
    assert torch.equal(other(x), normalizer(x))  # counts and squares are part of the state


def test_constant_entries_stay_finite_and_far_ones_are_clipped():
    normalizer = RunningNormalizer(1, clip=10.0)
    normalizer.update(torch.full((5, 1), 3.0))
    assert normalizer(torch.tensor([[3.0], [3.01], [1e9]])).flatten().tolist() == pytest.approx(
        [0.0, 1.0, 10.0], abs=1e-4
    )
