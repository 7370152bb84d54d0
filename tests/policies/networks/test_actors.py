"""Actors: density, bounds and mode of the squashed Gaussian; the deterministic one."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from policies.networks.deterministic_actor import DeterministicActor, DeterministicActorConfig
from policies.networks.gaussian_actor import (
    GaussianActor,
    GaussianActorConfig,
    LogStdBound,
    squashed_normal,
)
from policies.networks.inputs import IdentityNormalizer
from policies.networks.trunks import NetworkKind


def actor(obs_size: int = 3, actions: int = 2, **changes: Any) -> DeterministicActor:
    torch.manual_seed(0)
    return DeterministicActor(
        DeterministicActorConfig(**{"hidden": [16], **changes}), obs_size, actions
    )


def obs(count: int, width: int = 3, scale: float = 1.0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {"actor": scale * torch.randn(count, width, generator=generator)}


def test_the_action_is_the_squashed_output_of_the_network():
    plain = actor(normalize=False)
    seen = obs(50)
    expected = torch.tanh(plain.network(seen["actor"]))
    assert torch.equal(plain(seen), expected)
    assert plain(obs(50, scale=1e6)).abs().max() <= 1.0


def test_a_small_last_layer_begins_near_the_middle_of_the_range():
    small, free = actor(last_layer_std=0.001), actor()
    assert not small.get_parameter("network.2.bias").any()
    wide = actor(hidden=[400], actions=50, last_layer_std=0.01)
    assert wide.get_parameter("network.2.weight").std().item() == pytest.approx(
        0.01, rel=0.02
    )  # of 20,000 draws
    assert small(obs(50)).abs().mean() < 0.1 * free(obs(50)).abs().mean()


def test_weights_are_brought_back_to_their_constraints():
    policy = actor(kind=NetworkKind.flash, width=8, blocks=1)
    weights = {name: p.detach().clone() for name, p in policy.named_parameters()}
    with torch.no_grad():
        for p in policy.parameters():
            p.mul_(3.0)
        policy.constrain()
    back = [n for n, p in policy.named_parameters() if torch.allclose(p, weights[n], atol=1e-6)]
    assert "network.embed.weight" in back


def constant_actor(
    mean: float, log_std: float, *, actions: int = 1, **changes: Any
) -> GaussianActor:
    """An actor whose network answers with these two numbers whatever it sees."""
    config = GaussianActorConfig(hidden=[16], **changes)
    actor = GaussianActor(config, 3, actions)
    assert isinstance(actor.network, nn.Sequential)
    last = actor.network[-1]
    assert isinstance(last, nn.Linear)
    nn.init.zeros_(last.weight)
    with torch.no_grad():
        last.bias[:actions] = mean
        last.bias[actions:] = log_std
    return actor


def draw(actor: GaussianActor, count: int) -> tuple[np.ndarray, np.ndarray]:
    with torch.no_grad():
        action, log_prob = actor.sample(obs(count), torch.Generator().manual_seed(1))
    return action.double().numpy(), log_prob.double().numpy()


@pytest.mark.parametrize("mean", [-40.0, 40.0])
def test_the_log_probability_stays_exact_where_tanh_is_one(mean):
    action, log_prob = draw(constant_actor(mean, 0.0), 100)
    noise = torch.randn(100, 1, generator=torch.Generator().manual_seed(1)).double().numpy()
    u = mean + noise
    normal = -0.5 * noise**2 - 0.5 * math.log(2 * math.pi)
    exact = normal - (2 * math.log(2) - 2 * np.abs(u))  # log(1 - tanh^2) far out
    np.testing.assert_allclose(log_prob, exact[:, 0], rtol=1e-6)
    np.testing.assert_array_equal(np.abs(action), 1.0)


@pytest.mark.parametrize(
    ("bound", "raw", "log_std"),
    [
        (LogStdBound.clamp, -2.0, -2.0),
        (LogStdBound.clamp, -100.0, -3.0),
        (LogStdBound.clamp, 100.0, -1.0),
        (LogStdBound.tanh, 100.0, -1.0),
        (LogStdBound.tanh, 0.5, -2.0 + math.tanh(0.5)),
    ],
)
def test_the_log_deviation_keeps_its_bounds(bound, raw, log_std):
    actor = constant_actor(0.0, raw, log_std_min=-3.0, log_std_max=-1.0, log_std_bound=bound)
    action, _ = draw(actor, 1000)
    noise = torch.randn(1000, 1, generator=torch.Generator().manual_seed(1)).numpy()
    np.testing.assert_allclose(np.arctanh(action), noise * math.exp(log_std), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("bound", "learns"), [(LogStdBound.clamp, False), (LogStdBound.tanh, True)]
)
def test_only_the_smooth_bound_has_a_gradient_beyond_it(bound, learns):
    actor = constant_actor(0.0, 3.0, log_std_bound=bound)
    actor.sample(obs(8))[1].sum().backward()
    grad = actor.get_parameter("network.2.bias").grad
    assert grad is not None
    assert bool(grad[1] != 0) == learns


def test_exploring_draws_what_sampling_draws():
    torch.manual_seed(0)
    actor = GaussianActor(GaussianActorConfig(hidden=[16]), 3, 2)
    seen = obs(50)
    action, _ = actor.sample(seen, torch.Generator().manual_seed(4))
    assert torch.equal(actor.explore(seen, torch.Generator().manual_seed(4)), action)


def test_normalising_is_an_option_and_acts_before_the_network():
    torch.manual_seed(0)
    plain = GaussianActor(GaussianActorConfig(hidden=[16], normalize=False), 3, 2)
    assert isinstance(plain.normalizer, IdentityNormalizer)
    actor = GaussianActor(GaussianActorConfig(hidden=[16]), 3, 2)
    actor.network.load_state_dict(plain.network.state_dict())
    seen = obs(100)
    actor.update_statistics({"actor": 3 * seen["actor"] + 1})
    for network in (actor, plain):
        network.update_statistics({"actor": seen["actor"]})
    assert torch.equal(plain({"actor": actor.normalizer(seen["actor"])}), actor(seen))


def test_the_log_probability_is_that_of_the_normal_less_the_logarithm_of_the_slope():
    generator = torch.Generator().manual_seed(0)
    mean, log_std, noise = torch.randn(3, 64, 5, generator=generator).double()
    action, log_prob = squashed_normal(mean, log_std, noise)
    u = mean + noise * log_std.exp()
    normal = torch.distributions.Normal(mean, log_std.exp()).log_prob(u)
    slope = 1 / torch.cosh(u) ** 2
    torch.testing.assert_close(action, torch.tanh(u))
    torch.testing.assert_close(log_prob, (normal - slope.log()).sum(-1))


def test_the_gradient_is_that_of_finite_differences():
    generator = torch.Generator().manual_seed(1)
    mean, log_std, noise = torch.randn(3, 7, 3, generator=generator).double()
    inputs = mean.requires_grad_(), log_std.requires_grad_(), noise
    assert torch.autograd.gradcheck(squashed_normal, inputs)


def test_far_out_the_gradient_is_that_of_the_tails():
    mean = torch.tensor([[-60.0, 60.0]], requires_grad=True)
    action, log_prob = squashed_normal(mean, torch.zeros(1, 2), torch.zeros(1, 2))
    (action.sum() + log_prob.sum()).backward()
    assert mean.grad is not None
    assert mean.grad.tolist() == [[-2.0, 2.0]]  # log(1 - tanh(u)^2) falls by 2 per unit of |u|
