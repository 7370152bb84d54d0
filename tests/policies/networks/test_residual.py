"""Actor and critics of a residual: bounds, densities, and steps of thousandths."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from policies.networks.q_ensemble import QEnsemble, QEnsembleConfig
from policies.networks.residual import WIDTHS, ResidualActor, ResidualActorConfig, ResidualCritic
from robot_rl.core.errors import ConfigError

B, D, A = 4000, 5, 3


def actor(**changes: Any) -> ResidualActor:
    torch.manual_seed(0)
    config: dict[str, Any] = {"hidden": [16], **changes}
    return ResidualActor(ResidualActorConfig(**config), D, A)


def observed(count: int = B, span: float = 1.0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    base = (torch.rand(count, A, generator=generator) * 2 - 1) * span
    return {"actor": torch.randn(count, D, generator=generator), "base_action": base}


def trained(network: ResidualActor) -> ResidualActor:
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(std=0.7)
    return network


def test_an_untrained_residual_is_its_base():
    obs = observed()
    assert torch.equal(actor()(obs), obs["base_action"])


@pytest.mark.parametrize("scale", [0.1, 0.4])
def test_exploration_begins_equally_wide_whatever_the_scale(scale):
    """Published: the noise is in units of executed actions, not of the scale."""
    obs, network = observed(span=0.2), actor(scale=scale, initial_std=0.02)
    spread = (network.explore(obs, torch.Generator().manual_seed(0)) - obs["base_action"]).std()
    assert spread.item() == pytest.approx(0.02, rel=0.1)  # tanh takes a little


def test_executed_actions_stay_within_the_scale_and_the_range():
    obs, network = observed(), trained(actor(scale=0.3, initial_std=0.3))
    for action in (network(obs), network.sample(obs)[0], network.explore(obs)):
        assert (action - obs["base_action"]).abs().max() <= 0.3 + 1e-6
        assert action.abs().max() <= 1.0
        assert (action - obs["base_action"]).abs().max() > 0.25


def test_the_log_probability_is_that_of_the_residual_in_units_of_its_scale():
    obs, network = observed(span=0.5), trained(actor(scale=0.2, initial_std=0.1))
    action, log_prob = network.sample(obs, torch.Generator().manual_seed(3))
    residual = ((action - obs["base_action"]) / 0.2).double().clamp(-0.99999, 0.99999)
    inputs = torch.cat([network.normalizer(obs["actor"]), obs["base_action"]], -1)
    mean, log_std = network.network(inputs).double().chunk(2, -1)
    std = (log_std + math.log(0.5)).clamp(-10.0, 2.0).exp()
    u = residual.atanh()
    density = torch.distributions.Normal(mean, std).log_prob(u) - (1 - residual.square()).log()
    clear = (residual.abs() < 0.999).all(-1)
    assert clear.sum() > B / 4
    difference = (density.sum(-1) - log_prob.double())[clear].abs()
    assert difference.max() < 1e-2  # float32 near the edge
    assert difference.median() < 1e-5


def test_what_it_may_not_be_is_refused():
    with pytest.raises(ConfigError, match=r"actor.scale must lie in \(0, 2\], got 0"):
        ResidualActorConfig(scale=0)
    with pytest.raises(ConfigError, match=r"initial_std 1e-09 of a scale of 0.2"):
        ResidualActorConfig(initial_std=1e-9)


ROWS, SIZE, ACTIONS = 256, 3, 2
SCALE = 0.02


class Repeats(QEnsemble):
    def forward(self, obs: dict[str, Tensor], action: Tensor) -> Tensor:
        return action[None]


def test_critics_read_the_action_the_base_and_the_way_between_in_units_of_the_scale():
    critic = ResidualCritic(Repeats(QEnsembleConfig(), "critic", SIZE, WIDTHS * ACTIONS), SCALE)
    obs = {"critic": torch.zeros(2, SIZE), "base_action": torch.tensor([[0.5, -0.5], [0.0, 0.9]])}
    action = torch.tensor([[0.51, -0.5], [-0.8, 0.88]])  # the second is a demonstration's
    seen = critic(obs, action)[0]
    assert torch.equal(seen[:, :ACTIONS], action)
    assert torch.equal(seen[:, ACTIONS : 2 * ACTIONS], obs["base_action"])
    torch.testing.assert_close(
        seen[:, 2 * ACTIONS :], torch.tensor([[0.5, 0.0], [-3.0, -1.0]]), atol=1e-5, rtol=0
    )


def slope_found(critic: ResidualCritic | QEnsemble) -> float:
    """Share of fresh rows in which the slope at the base points to the best displacement.

    The value falls off on either side of half a scale, whatever the base: the case of a peg whose
    hole is a millimetre beside where the base aims.
    """
    draws = torch.Generator().manual_seed(0)

    def rows() -> tuple[dict[str, Tensor], Tensor]:
        base = torch.rand(ROWS, ACTIONS, generator=draws) * 1.6 - 0.8
        displacement = torch.randn(ROWS, ACTIONS, generator=draws) * 0.5
        obs = {"critic": torch.randn(ROWS, SIZE, generator=draws), "base_action": base}
        return obs, base + SCALE * displacement

    def worth(obs: dict[str, Tensor], action: Tensor) -> Tensor:
        off = (action - obs["base_action"]) / SCALE - 0.5
        return torch.exp(-off.square().sum(-1))

    optimizer = torch.optim.Adam(critic.parameters(), lr=3e-3)
    for _ in range(300):
        obs, action = rows()
        loss = (critic(obs, action)[..., 0] - worth(obs, action)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    obs, _ = rows()
    action = obs["base_action"].clone().requires_grad_()
    critic(obs, action).sum().backward()
    assert action.grad is not None
    return float((action.grad > 0).all(-1).float().mean())


@pytest.mark.slow
def test_a_step_of_thousandths_is_not_lost_on_them():
    """Regression: success fell once the actor moved, along slopes between actions far apart."""
    torch.manual_seed(0)
    config = QEnsembleConfig(members=2, hidden=[32, 32], layer_norm=True)
    alone = slope_found(QEnsemble(config, "critic", SIZE, ACTIONS))
    widened = slope_found(
        ResidualCritic(QEnsemble(config, "critic", SIZE, WIDTHS * ACTIONS), SCALE)
    )
    assert widened > 0.95
    assert alone < 0.8
