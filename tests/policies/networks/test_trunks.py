"""Laws of every kind of network: one and many are the same, members are apart, norms hold."""

import pytest
import torch
from torch import Tensor, nn

from policies.networks.deterministic_actor import DeterministicActor, DeterministicActorConfig
from policies.networks.gaussian_actor import GaussianActor, GaussianActorConfig
from policies.networks.layers import UnitBatchNorm, UnitLinear, UnitRMSNorm, constrained_layers
from policies.networks.mlp import Initialization
from policies.networks.q_ensemble import QEnsemble, QEnsembleConfig
from policies.networks.trunks import NetworkConfig, NetworkKind, make_network
from robot_rl.core.errors import ConfigError
from robot_rl.learners.networks import some_members

INPUTS, OUTPUTS, MEMBERS = 6, 5, 3
KINDS = tuple(kind for kind in NetworkKind if kind is not NetworkKind.moe)
"""Of critics too; mixtures of experts: test_experts.py."""
NEW_KINDS = (NetworkKind.simba, NetworkKind.bro, NetworkKind.flash)


def shape(kind: NetworkKind) -> NetworkConfig:
    return NetworkConfig(kind=kind, hidden=[16, 16], layer_norm=True, width=16)


def rows(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def network(kind: NetworkKind, members: int | None = None) -> nn.Module:
    """A network whose scales, shifts and statistics differ from the start."""
    torch.manual_seed(0)
    made = make_network(shape(kind), INPUTS, OUTPUTS, members=members)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(1 + 0.3 * torch.rand_like(parameter)).add_(
                0.1 * torch.randn_like(parameter)
            )
        for name, buffer in made.named_buffers():
            buffer.copy_(0.5 + torch.rand_like(buffer) if "var" in name else rows(*buffer.shape))
        for layer in constrained_layers(made):
            layer.project()
    return made


def one_of(ensemble: nn.Module, kind: NetworkKind, member: int) -> nn.Module:
    """A single network with the weights and statistics of one member."""
    single = network(kind)
    like, state = single.state_dict(), ensemble.state_dict()
    own = {name: value[member] for name, value in state.items()}
    if kind is NetworkKind.mlp:  # torch's own layers: (out, in) and (out,)
        own = {name: value.T.reshape(like[name].shape) for name, value in own.items()}
    single.load_state_dict(own)
    return single


@pytest.mark.parametrize("learning", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_member_equals_the_single_network_with_its_weights(kind, learning):
    ensemble = network(kind, MEMBERS)
    shared, apart = rows(32, INPUTS), rows(MEMBERS, 32, INPUTS, seed=1)
    rtol = 1e-5 if kind is NetworkKind.mlp else 1e-4
    with torch.set_grad_enabled(learning):
        for member in range(MEMBERS):
            got = ensemble(shared)[member], ensemble(apart)[member]
            # One batched product and three plain ones sum in different orders.
            for value, x in zip(got, (shared, apart[member]), strict=True):
                assert value.shape == (32, OUTPUTS)
                single = one_of(ensemble, kind, member)
                torch.testing.assert_close(value, single(x), rtol=rtol, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_one_members_loss_gives_the_others_no_gradient(kind):
    ensemble = network(kind, MEMBERS)
    (ensemble(rows(32, INPUTS))[1] ** 2).sum().backward()
    for name, parameter in ensemble.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad[[0, 2]].abs().max() == 0, name
        assert parameter.grad[1].abs().max() > 0, name


@pytest.mark.parametrize("kind", KINDS)
def test_some_members_of_a_critic_answer_as_they_do_among_all(kind):
    config = QEnsembleConfig(kind=kind, members=5, hidden=[16], width=16, blocks=1)
    critic = QEnsemble(config, "actor", INPUTS, 2, OUTPUTS)
    obs, action = {"actor": rows(8, INPUTS)}, rows(8, 2)
    critic.update_statistics(obs)
    critic(obs, action)  # statistics of batch norm differ from the start
    for index in (torch.tensor([3, 0, 3]), torch.tensor([2])):
        with torch.no_grad():
            expected = critic(obs, action)[index]
            got = some_members(critic, index, obs, action)
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("members", [None, MEMBERS])
@pytest.mark.parametrize("kind", [NetworkKind.simba, NetworkKind.flash])
def test_norms_hold_after_a_hundred_steps_of_the_optimiser(kind, members):
    torch.manual_seed(1)
    made = make_network(shape(kind), INPUTS, OUTPUTS, members=members)
    adam = torch.optim.Adam(made.parameters(), 1e-2)
    before = {n: p.detach().clone() for n, p in made.named_parameters()}
    for step in range(100):
        x = rows(32, INPUTS, seed=step)
        loss = ((made(x) - x[:, :OUTPUTS]) ** 2).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        with torch.no_grad():
            for layer in constrained_layers(made):
                layer.project()
    assert all(not torch.equal(p, before[n]) for n, p in made.named_parameters())
    kinds = set()
    for layer in made.modules():
        kinds.add(type(layer))
        if isinstance(layer, UnitLinear):
            lengths = torch.linalg.vector_norm(layer.weight, dim=-2)
            torch.testing.assert_close(lengths, torch.ones_like(lengths), rtol=1e-6, atol=0)
        elif isinstance(layer, UnitRMSNorm):
            squares = (layer.weight**2).mean(-1)
            torch.testing.assert_close(squares, torch.ones_like(squares), rtol=1e-6, atol=0)
        elif isinstance(layer, UnitBatchNorm):
            squares = (layer.weight**2 + layer.bias**2).mean(-1)
            torch.testing.assert_close(squares, torch.ones_like(squares), rtol=1e-6, atol=0)
    assert UnitLinear in kinds
    assert (UnitBatchNorm in kinds) == (UnitRMSNorm in kinds) == (kind is NetworkKind.flash)


@pytest.mark.parametrize("kind", NEW_KINDS)
def test_gradients_are_finite_whatever_the_rows(kind):
    for x in (
        torch.zeros(8, INPUTS),
        torch.ones(8, INPUTS),
        1e6 * rows(8, INPUTS),
        rows(1, INPUTS),
    ):
        made = network(kind, MEMBERS)
        made(x).square().mean().backward()
        for name, parameter in made.named_parameters():
            assert parameter.grad is not None
            assert parameter.grad.isfinite().all(), name
        assert all(buffer.isfinite().all() for buffer in made.buffers())


@pytest.mark.parametrize("members", [None, MEMBERS])
@pytest.mark.parametrize("kind", KINDS)
def test_values_keep_their_digits_in_bfloat16(kind, members):
    """Five distinct values were left of 128 around 300 where the last layer was rounded too."""
    made = network(kind, members)
    with torch.no_grad():
        *_, bias = made.parameters()
        bias.fill_(300.0)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            values = made(rows(128, INPUTS))
    assert values.dtype is torch.float32
    assert len(values[..., 0].unique()) > 0.9 * values[..., 0].numel()


@pytest.mark.parametrize("make", [GaussianActor, DeterministicActor])
@pytest.mark.parametrize("kind", NetworkKind)
def test_actions_are_in_full_precision_whatever_the_network_runs_in(make, kind):
    configs = {GaussianActor: GaussianActorConfig, DeterministicActor: DeterministicActorConfig}
    actor = make(configs[make](kind=kind, hidden=[16], width=16, normalize=False), INPUTS, 3)
    with torch.autocast("cpu", torch.bfloat16):
        action = actor({"actor": rows(64, INPUTS)})
    assert action.dtype is torch.float32
    assert not torch.equal(action, action.bfloat16().float())


def streams(made: nn.Module, names: tuple[str, ...], x: Tensor) -> list[Tensor]:
    """What the named parts hand on."""
    seen: list[Tensor] = []
    for name in names:
        part = made.get_submodule(name)
        part.register_forward_hook(lambda *called: seen.append(called[-1]))
    made(x)
    return seen


def test_simba_keeps_its_stream_on_the_sphere_and_sees_how_long_the_input_was():
    x = rows(16, INPUTS)
    for stream in streams(network(NetworkKind.simba), ("blocks.0", "blocks.1"), x):
        torch.testing.assert_close(stream.norm(dim=-1), torch.ones(16), rtol=1e-6, atol=0)
    made = network(NetworkKind.simba)
    assert (made(x) - made(2 * x)).abs().max() > 0.01  # the constant entry tells them apart


def test_a_simba_block_moves_a_third_of_the_way_at_the_start():
    torch.manual_seed(0)
    made = make_network(shape(NetworkKind.simba), INPUTS, OUTPUTS)  # two blocks: 1 / (2 + 1)
    block = made.get_submodule("blocks.0")
    x = nn.functional.normalize(rows(4, 16), dim=-1)
    inner = x @ block.get_parameter("up.weight") * (2 / 16 / 4) ** 0.5
    branch = nn.functional.normalize(inner.relu() @ block.get_parameter("down.weight"), dim=-1)
    expected = nn.functional.normalize(x + (branch - x) / 3, dim=-1)
    torch.testing.assert_close(block(x), expected, rtol=1e-5, atol=1e-6)


def test_bronet_equals_plain_layers_of_torch():
    made = network(NetworkKind.bro)
    state = made.state_dict()

    def layer(name: str, x: Tensor) -> Tensor:
        place, number = name.rsplit(".", 1)
        norm = f"{place}.{int(number) + 1}"
        x = x @ state[f"{name}.weight"] + state[f"{name}.bias"]
        scale, shift = state[f"{norm}.weight"][0], state[f"{norm}.bias"][0]
        return nn.functional.layer_norm(x, (16,), scale, shift, eps=1e-6)

    x = rows(16, INPUTS)
    stream = layer("embed.0", x).relu()
    for block in ("blocks.0", "blocks.1"):
        inner = layer(f"{block}.branch.0", stream).relu()
        stream = stream + layer(f"{block}.branch.3", inner)
    expected = stream @ state["out.weight"] + state["out.bias"]
    torch.testing.assert_close(made(x), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("config", "changes", "told"),
    [
        *((config, {name: value}, name)
          for config in (GaussianActorConfig, DeterministicActorConfig, QEnsembleConfig)
          for name, value in (("width", 0), ("blocks", 0), ("hidden", []), ("hidden", [16, 0]))),
        (QEnsembleConfig, {"members": 0}, "members"),
        (GaussianActorConfig, {"log_std_min": 1.0, "log_std_max": 1.0}, "log_std_min"),
        (DeterministicActorConfig, {"last_layer_std": -1.0}, "last_layer_std"),
        # Settings of perceptrons would have no effect.
        (GaussianActorConfig, {"initialization": Initialization.xavier}, "initialization xavier"),
        (GaussianActorConfig, {"zero_head": True}, "zero_head true is for an mlp"),
        (DeterministicActorConfig, {"last_layer_std": 0.01}, "last_layer_std 0.01 is for an mlp"),
    ],
)  # fmt: skip
def test_a_network_that_cannot_be_built_is_refused(config, changes, told):
    part = "critic" if config is QEnsembleConfig else "actor"
    with pytest.raises(ConfigError, match=rf"{part}\.{told}"):
        config(kind=NetworkKind.simba, **changes)


def skewed_rows(count: int, seed: int = 0) -> Tensor:
    x = torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))
    return x * torch.tensor([1.0, 10.0, 0.1, 3.0]) + torch.tensor([0.0, 5.0, -2.0, 1.0])


def trained(members: int | None = None) -> UnitBatchNorm:
    torch.manual_seed(0)
    norm = UnitBatchNorm(members, 4, momentum=0.1)
    with torch.no_grad():
        norm.weight.normal_()
        norm.bias.normal_()
    return norm


def test_values_gradients_and_running_statistics_are_those_of_torch():
    ours, theirs = trained(), nn.BatchNorm1d(4, momentum=0.1)
    with torch.no_grad():
        theirs.weight.copy_(ours.weight[0])
        theirs.bias.copy_(ours.bias[0])
    for seed in range(3):
        x, y = skewed_rows(32, seed).requires_grad_(), skewed_rows(32, seed).requires_grad_()
        torch.testing.assert_close(ours(x), theirs(y), rtol=1e-5, atol=1e-5)
        (ours(x) ** 3).sum().backward()
        (theirs(y) ** 3).sum().backward()
        torch.testing.assert_close(x.grad, y.grad, rtol=1e-3, atol=1e-3)
    assert theirs.running_mean is not None
    assert theirs.running_var is not None
    torch.testing.assert_close(ours.running_mean[0], theirs.running_mean, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ours.running_var[0], theirs.running_var, rtol=1e-5, atol=1e-5)
    theirs.eval()
    with torch.no_grad():
        torch.testing.assert_close(
            ours(skewed_rows(5)), theirs(skewed_rows(5)), rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize("frozen", ["no gradients", "evaluation mode"])
def test_without_learning_a_row_does_not_feel_its_neighbours(frozen):
    norm = trained(2)
    norm(skewed_rows(64))
    before = {name: value.clone() for name, value in norm.state_dict().items()}
    norm.train(frozen == "no gradients")
    with torch.set_grad_enabled(frozen != "no gradients"):
        alone, among = norm(skewed_rows(64)[:1]), norm(skewed_rows(64))
    torch.testing.assert_close(among[:, :1], alone, rtol=0, atol=0)
    assert all(torch.equal(value, before[name]) for name, value in norm.state_dict().items())


def test_statistics_of_half_precision_rows_are_taken_in_float32():
    norm = trained()
    # In bfloat16 a sum of 512 rows near 100 could not tell them apart.
    x = (100 + torch.linspace(-1, 1, 512)[:, None].expand(512, 4)).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = norm(x)
    exact = x.double()
    assert out.dtype is torch.float32
    expected = 0.9 + 0.1 * exact.var(0)
    torch.testing.assert_close(norm.running_var[0].double(), expected, rtol=1e-5, atol=0)
