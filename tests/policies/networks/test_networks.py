"""Networks and normaliser: an ensemble is its members, statistics are those of numpy."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from policies.networks.inputs import IdentityNormalizer, RunningNormalizer
from policies.networks.mlp import Activation, EnsembleLayerNorm, EnsembleLinear, ensemble_mlp, mlp
from policies.networks.q_ensemble import QEnsemble, QEnsembleConfig
from robot_rl.core.errors import ConfigError
from robot_rl.learners.networks import some_members

SIZES = [6, 16, 16, 3]


def rows(count: int, size: int = 6, seed: int = 0) -> Tensor:
    return torch.randn(count, size, generator=torch.Generator().manual_seed(seed))


def member(
    ensemble: nn.Sequential, e: int, *, layer_norm: bool, activation: Activation
) -> nn.Module:
    """One member's weights in a network of its own."""
    single = mlp(SIZES, activation, layer_norm=layer_norm)
    with torch.no_grad():
        for ours, theirs in zip(single, ensemble, strict=True):
            if isinstance(theirs, EnsembleLinear):
                ours.get_parameter("weight").copy_(theirs.weight[e].T)
                ours.get_parameter("bias").copy_(theirs.bias[e, 0])
            elif isinstance(theirs, EnsembleLayerNorm):
                ours.get_parameter("weight").copy_(theirs.weight[e, 0])
                ours.get_parameter("bias").copy_(theirs.bias[e, 0])
    return single


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("activation", list(Activation))
def test_an_ensemble_equals_its_members_apart(layer_norm, activation):
    torch.manual_seed(0)
    ensemble = ensemble_mlp(3, SIZES, activation, layer_norm=layer_norm)
    for parameter in ensemble.parameters():  # scales and shifts of the norms too
        nn.init.normal_(parameter, std=0.5)
    shared, apart = rows(8), torch.stack([rows(8, seed=e) for e in range(3)])
    for e in range(3):
        single = member(ensemble, e, layer_norm=layer_norm, activation=activation)
        # One batched product and three plain ones sum in different orders.
        torch.testing.assert_close(ensemble(shared)[e], single(shared), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(ensemble(apart)[e], single(apart[e]), rtol=1e-5, atol=1e-5)


def test_one_members_loss_gives_the_others_no_gradient():
    ensemble = ensemble_mlp(3, SIZES, Activation.relu, layer_norm=True)
    ensemble(rows(8))[1].sum().backward()
    for parameter in ensemble.parameters():
        assert parameter.grad is not None
        assert parameter.grad[[0, 2]].abs().max() == 0
        assert parameter.grad[1].abs().max() > 0


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


def test_the_last_layer_has_neither_norm_nor_activation():
    for network in (mlp(SIZES, Activation.relu, layer_norm=True),
                    ensemble_mlp(2, SIZES, Activation.relu, layer_norm=True)):  # fmt: skip
        kinds = [type(layer).__name__.removeprefix("Ensemble") for layer in network]
        assert kinds == ["Linear", "LayerNorm", "ReLU"] * 2 + ["Linear"]


@pytest.mark.parametrize("chunks", [[1000], [1] * 1000, [17, 3, 480, 500], [999, 1]])
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


def test_normalising_is_an_option_of_the_critic():
    config = QEnsembleConfig(hidden=[16], normalize=False)
    critic = QEnsemble(config, "actor", 6, 2)
    assert isinstance(critic.normalizer, IdentityNormalizer)
    obs, action = {"actor": rows(4)}, rows(4, 2)
    before = critic(obs, action)
    critic.update_statistics({"actor": 100 * rows(50)})
    assert torch.equal(critic(obs, action), before)


def test_the_critic_reads_its_own_group_only():
    critic = QEnsemble(QEnsembleConfig(members=3, hidden=[16]), "critic", 6, 2)
    obs = {"critic": rows(4), "actor": rows(4, 9)}
    value = critic(obs, rows(4, 2))
    assert value.shape == (3, 4, 1)
    assert torch.equal(critic({"critic": obs["critic"]}, rows(4, 2)), value)
    critic.update_statistics(obs)
    np.testing.assert_allclose(
        critic.get_buffer("normalizer.mean"), obs["critic"].mean(0), rtol=1e-5
    )


def test_a_critic_has_as_many_outputs_per_member_as_are_asked_for():
    critic = QEnsemble(QEnsembleConfig(members=3, hidden=[16]), "actor", 6, 2, outputs=51)
    assert critic({"actor": rows(4)}, rows(4, 2)).shape == (3, 4, 51)


def test_some_members_of_a_critic_answer_as_they_do_among_all():
    config = QEnsembleConfig(members=4, hidden=[16], layer_norm=True)
    critic = QEnsemble(config, "critic", 6, 2, outputs=3)
    critic.update_statistics({"critic": 5 * rows(20)})
    obs, action = {"critic": rows(8)}, rows(8, 2)
    for index in ([2], [3, 1], [0, 0, 2]):
        got = some_members(critic, torch.tensor(index), obs, action)
        # Batched products of another number of members may sum in another order.
        torch.testing.assert_close(got, critic(obs, action)[index], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("changes", [{"members": 0}, {"hidden": []}, {"hidden": [16, 0]}])
def test_a_critic_that_cannot_be_built_is_refused(changes):
    with pytest.raises(ConfigError, match=f"critic.{next(iter(changes))} "):
        QEnsembleConfig(**changes)
