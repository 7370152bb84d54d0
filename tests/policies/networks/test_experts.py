"""Mixture of experts: both paths against plain loops in double precision, losses of the gate."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from policies.networks.deterministic_actor import DeterministicActor, DeterministicActorConfig
from policies.networks.experts import (
    ExpertsConfig,
    MixtureNetwork,
    MixtureOfExperts,
    Routing,
    find_mixture,
    routing,
)
from policies.networks.inputs import EncoderConfig, EncoderKind
from policies.networks.mlp import Activation, EnsembleLinear
from policies.networks.q_ensemble import QEnsembleConfig
from policies.networks.trunks import NetworkKind
from robot_rl.core.env import TermSpec
from robot_rl.core.errors import ConfigError

ROWS, WIDTH = 64, 12
CONFIGS = {
    "two of eight": ExpertsConfig(width=7),
    "all of three": ExpertsConfig(count=3, top=3, width=5, gate_width=6),
    "one of four": ExpertsConfig(count=4, top=1, width=9),
    "one alone": ExpertsConfig(count=1, top=1, width=4),
}


def rows(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def mixture(config: ExpertsConfig, activation: Activation = Activation.relu) -> Any:
    """A `MixtureOfExperts` whose weights are large enough for the gate to choose."""
    torch.manual_seed(0)
    made = MixtureOfExperts(config, WIDTH, activation)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(2)
    return made


def probabilities(made: MixtureOfExperts, row: Tensor) -> Tensor:
    first, _, last = made.gate
    assert isinstance(first, nn.Linear)
    assert isinstance(last, nn.Linear)
    hidden = (first.weight @ row + first.bias).clamp(min=0)
    logits = last.weight @ hidden + last.bias
    return logits.exp() / logits.exp().sum()


def plain(made: MixtureOfExperts, x: Tensor) -> Tensor:
    """Row by row and expert by expert, with a graph."""
    first, activation, second = made.experts
    assert isinstance(first, EnsembleLinear)
    assert isinstance(second, EnsembleLinear)
    found: list[Tensor] = []
    for row in x:
        p = probabilities(made, row)
        chosen = sorted(range(len(p)), key=lambda e: -p[e].item())[: made.config.top]
        output = torch.zeros(WIDTH, dtype=x.dtype)
        for e in chosen:
            hidden = activation(row @ first.weight[e] + first.bias[e, 0])
            expert = hidden @ second.weight[e] + second.bias[e, 0]
            output = output + p[e] / (sum(p[i] for i in chosen) + 1e-9) * expert
        found.append(output)
    return torch.stack(found)


def path(made: Any, name: str) -> Any:
    made.config = ExpertsConfig(**{**vars(made.config), "sparse": name == "sparse"})
    made.by_layer = name == "by layer"
    return made


def step(made: MixtureOfExperts, x: Tensor, output: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The output, and gradients of a made-up loss by input and weights."""
    wanted = [x, *made.parameters()]
    loss = (output * rows(*output.shape, seed=5).to(output.dtype)).sum()
    return output.detach(), list(torch.autograd.grad(loss, wanted))


@pytest.mark.parametrize("name", ["sparse", "dense", "by layer"])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_output_and_gradients_equal_plain_loops_in_double_precision(config, name):
    made = path(mixture(config), name)
    exact = copy.deepcopy(made).double()
    x, y = rows(ROWS, WIDTH).requires_grad_(), rows(ROWS, WIDTH).double().requires_grad_()
    got, expected = step(made, x, made(x)), step(exact, y, plain(exact, y))
    for a, b in zip([got[0], *got[1]], [expected[0], *expected[1]], strict=True):
        # The gate of a single expert a row gets no gradient but rounding: its weight is always 1.
        assert float((a - b).abs().max()) < 1e-5 * float(b.abs().max()) + 5e-6


@pytest.mark.parametrize("activation", [Activation.relu, Activation.elu])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_sparse_and_dense_paths_agree_to_a_millionth(config, activation):
    made, x = mixture(config, activation), rows(ROWS, WIDTH).requires_grad_()
    sparse, dense = (step(path(made, name), x, made(x)) for name in ("sparse", "dense"))
    torch.testing.assert_close(sparse[0], dense[0], rtol=1e-6, atol=1e-6)
    # As above: a gate that gets no gradient but rounding has another on another processor.
    torch.testing.assert_close(sparse[1], dense[1], rtol=1e-5, atol=5e-6)


def test_experts_that_no_row_is_sent_to_cost_nothing_and_get_no_gradient():
    made = path(mixture(ExpertsConfig(count=4, top=1)), "sparse")
    with torch.no_grad():
        made.gate[2].bias.copy_(torch.tensor([0.0, 100.0, 0.0, 0.0]))
    x = rows(ROWS, WIDTH)
    made(x).sum().backward()
    for layer in (made.experts[0], made.experts[2]):
        assert layer.weight.grad[[0, 2, 3]].abs().max() == 0
        assert layer.weight.grad[1].abs().max() > 0


@pytest.mark.parametrize("count", [1, 5, 200])
def test_a_row_is_answered_alike_among_few_and_many(count):
    made, x = mixture(CONFIGS["two of eight"]), rows(200, WIDTH)
    torch.testing.assert_close(made(x[:count]), made(x)[:count], rtol=1e-6, atol=1e-6)


class TestGate:
    def routed(self, logits: Tensor, top: int = 1, **settings: Any) -> Routing:
        found = Routing(ExpertsConfig(count=logits.shape[1], top=top, **settings))
        found.add(logits, logits.topk(top).indices)
        return found

    def test_balance_is_one_where_all_are_used_alike_and_the_count_where_one_does_all(self):
        even = 20 * torch.eye(4).repeat(3, 1)
        weight = torch.ones(12)
        assert float(self.routed(even).balance(weight)) == pytest.approx(1, abs=1e-6)
        one = torch.tensor([[50.0, 0, 0, 0]]).repeat(12, 1)
        assert float(self.routed(one).balance(weight)) == pytest.approx(4, abs=1e-6)

    def test_losses_and_their_gradients_equal_sums_by_hand(self):
        logits = rows(10, 4).double().requires_grad_()
        weight = torch.tensor([2.0, 1.0, 0.0, 0.5, 1.5, 1, 1, 1, 1, 0]).double()
        found = self.routed(logits, 2, balance_weight=0.3, entropy_weight=0.7)
        p = logits.exp() / logits.exp().sum(-1, keepdim=True)
        share = torch.zeros(4, dtype=torch.float64)
        for b in range(10):
            for e in sorted(range(4), key=lambda e: -p[b, e].item())[:2]:
                share[e] += weight[b] / weight.sum()
        mean = sum(weight[b] * p[b] for b in range(10)) / weight.sum()
        balance = 4 * sum(share[e] / 2 * mean[e] for e in range(4))
        entropy = -sum(weight[b] * (p[b] * p[b].log()).sum() for b in range(10)) / weight.sum()
        variance = ((share - share.mean()) ** 2).mean()
        expected = 5 + 0.3 * balance + 0.7 * (entropy + variance)
        loss = found.add_loss(torch.tensor(5.0).double(), weight)
        torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)
        got = torch.autograd.grad(loss, logits, retain_graph=True)[0]
        torch.testing.assert_close(got, torch.autograd.grad(expected, logits)[0])
        metrics = found.metrics(weight)
        torch.testing.assert_close(metrics["expert_use_max"], share.max())
        torch.testing.assert_close(metrics["expert_use_min"], share.min())
        torch.testing.assert_close(metrics["gate_entropy"], entropy.detach())

    @pytest.mark.slow
    def test_the_balance_has_a_gradient_and_brings_idle_experts_to_work(self):
        made, x = mixture(ExpertsConfig(count=4, top=1, balance_weight=1.0)), rows(256, WIDTH)
        with torch.no_grad():
            made.gate[2].bias.copy_(torch.tensor([0.0, 3.0, 0.0, 0.0]))
        adam = torch.optim.Adam(made.gate.parameters(), 1e-2)
        weight, shares = torch.ones(256), []
        for _ in range(150):
            with routing(made) as found:
                made(x)
            shares.append(found.shares(weight))
            adam.zero_grad()
            found.add_loss(torch.zeros(()), weight).backward()
            adam.step()
        assert shares[0].max() > 0.6
        assert shares[0].min() < 0.08
        assert shares[-1].max() < 0.4
        assert shares[-1].min() > 0.1

    def test_the_authors_loss_lowers_the_entropy_and_its_variance_moves_nothing(self):
        logits = rows(32, 4).requires_grad_()
        found = self.routed(logits, entropy_weight=1.0, balance_weight=0.0)
        weight = torch.ones(32)
        found.add_loss(torch.zeros(()), weight).backward()
        assert logits.grad is not None
        after = self.routed(logits.detach() - 0.5 * logits.grad)
        assert after.entropy(weight) < found.entropy(weight)
        assert not found.shares(weight).requires_grad

    def test_probabilities_of_zero_leave_gradients_finite(self):
        logits = torch.tensor([[300.0, 0.0, -300.0]]).requires_grad_()
        found = self.routed(logits, balance_weight=1.0, entropy_weight=1.0)
        found.add_loss(torch.zeros(()), torch.ones(1)).backward()
        assert logits.grad is not None
        assert logits.grad.isfinite().all()

    def test_rows_without_weight_count_for_nothing_and_none_at_all_give_no_nan(self):
        logits, other = rows(8, 4), rows(8, 4, seed=1)
        weight = torch.ones(8)
        weight[5:] = 0
        other[:5] = logits[:5]
        for name, value in self.routed(logits).metrics(weight).items():
            torch.testing.assert_close(value, self.routed(other).metrics(weight)[name])
        loss = self.routed(logits, entropy_weight=1.0).add_loss(torch.ones(()), torch.zeros(8))
        assert loss.isfinite()

    def test_units_are_left_out_only_while_learning_and_by_the_given_stream(self):
        made, x = mixture(ExpertsConfig(gate_dropout=0.5)), rows(ROWS, WIDTH)
        quiet = made(x)
        outputs = []
        for seed in (1, 1, 2):
            with routing(made, torch.Generator().manual_seed(seed)):
                outputs.append(made(x))
        assert torch.equal(outputs[0], outputs[1])
        assert not torch.equal(outputs[0], outputs[2])
        assert not torch.equal(outputs[0], quiet)
        assert torch.equal(made(x), quiet)
        drawn = torch.rand(ROWS, 64, generator=torch.Generator().manual_seed(1)) >= 0.5
        first, _, last = made.gate
        logits = last(first(x).relu() * drawn * 2)
        with routing(made, torch.Generator().manual_seed(1)) as found:
            made(x)
        expected = -(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1).mean()
        torch.testing.assert_close(found.entropy(torch.ones(ROWS)), expected)


def actor(**settings: Any) -> DeterministicActor:
    torch.manual_seed(0)
    config = DeterministicActorConfig(kind=NetworkKind.moe, hidden=[16], **settings)
    return DeterministicActor(config, WIDTH, 3)


class TestActor:
    def test_layers_before_and_behind_are_those_of_its_config(self):
        experts = ExpertsConfig(trunk_width=5)
        made = actor(experts=experts, layer_norm=True)
        network = made.network
        assert isinstance(network, MixtureNetwork)
        x = rows(ROWS, WIDTH)
        layers = list(network.trunk)
        kinds = (nn.Linear, nn.LayerNorm, nn.Tanh, nn.Linear, nn.LayerNorm, nn.ReLU)
        assert all(isinstance(a, b) for a, b in zip(layers, kinds, strict=True))
        seen = layers[5](layers[4](layers[3](layers[2](layers[1](layers[0](x))))))
        expected = torch.tanh(network.out(network.mixture(seen).relu()))
        torch.testing.assert_close(made({"actor": x}), expected)

    def test_it_stands_behind_an_encoder_too(self):
        config = DeterministicActorConfig(
            kind=NetworkKind.moe, hidden=[16],
            encoder=EncoderConfig(kind=EncoderKind.mlp, hidden=[8], latent=3),
        )  # fmt: skip
        made = DeterministicActor(config, 8, 2, terms=[TermSpec(name="gyro", width=2, history=4)])
        assert find_mixture(made.network) is not None
        assert made({"actor": rows(5, 8)}).shape == (5, 2)

    def test_rows_between_two_experts_are_not_decided(self):
        made = actor()
        found: Any = find_mixture(made.network)
        x = {"actor": rows(ROWS, WIDTH)}
        assert made.decided(x).all()
        with torch.no_grad():
            found.gate[2].weight.zero_()
            found.gate[2].bias.copy_(torch.tensor([2.0, 1.0, 1.0, 0, 0, 0, 0, 0]))
        assert not made.decided(x).any()
        with torch.no_grad():
            found.gate[2].bias[2] = 0.5
        assert made.decided(x).all()

    @pytest.mark.slow
    def test_exported_it_acts_as_before_and_hides_no_nan(self):
        made, x = actor(), {"actor": rows(ROWS, WIDTH)}
        exported = torch.export.export(made, (x,)).module()
        torch.testing.assert_close(exported(x), made(x), rtol=1e-6, atol=1e-6)
        assert exported({"actor": torch.full((ROWS, WIDTH), torch.nan)}).isnan().all()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"count": 0}, "count must be at least 1, got 0"),
        ({"width": 0}, "width must be at least 1, got 0"),
        ({"top": 9}, r"top must lie in \[1, 8\], the number of experts, got 9"),
        ({"top": 0}, r"top must lie in \[1, 8\]"),
        ({"gate_dropout": 1.0}, r"gate_dropout must lie in \[0, 1\), got 1.0"),
        ({"balance_weight": -1.0}, "balance_weight must be >= 0, got -1.0"),
        ({"entropy_weight": float("nan")}, "entropy_weight must be >= 0, got nan"),
    ],
)
def test_a_mixture_that_cannot_be_built_is_refused(settings, told):
    with pytest.raises(ConfigError, match=rf"actor\.experts\.{told}"):
        ExpertsConfig(**settings)


def test_critics_take_no_mixture():
    told = r"critic\.kind=moe is not for this network; available: mlp, simba, bro, flash"
    with pytest.raises(ConfigError, match=told):
        QEnsembleConfig(kind=NetworkKind.moe)
