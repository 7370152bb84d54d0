"""Critics of a residual: what they read, and that a step of thousandths is not lost on them."""

import torch
from torch import Tensor

from policies.networks.q_ensemble import QEnsemble, QEnsembleConfig
from policies.networks.residual import WIDTHS, ResidualCritic

B, D, A = 256, 3, 2
SCALE = 0.02


class Repeats(QEnsemble):
    """Answers with what it was asked."""

    def forward(self, obs: dict[str, Tensor], action: Tensor) -> Tensor:
        return action[None]


def test_critics_read_the_action_the_base_and_the_way_between_in_units_of_the_scale() -> None:
    critic = ResidualCritic(Repeats(QEnsembleConfig(), "critic", D, WIDTHS * A), SCALE)
    obs = {"critic": torch.zeros(2, D), "base_action": torch.tensor([[0.5, -0.5], [0.0, 0.9]])}
    action = torch.tensor([[0.51, -0.5], [-0.8, 0.88]])  # the second is a demonstration's
    seen = critic(obs, action)[0]
    assert torch.equal(seen[:, :A], action)
    assert torch.equal(seen[:, A : 2 * A], obs["base_action"])
    torch.testing.assert_close(
        seen[:, 2 * A :], torch.tensor([[0.5, 0.0], [-3.0, -1.0]]), atol=1e-5, rtol=0
    )


def slope_found(critic: ResidualCritic | QEnsemble) -> float:
    """Share of fresh rows in which the slope at the base points to the best displacement.

    The value falls off on either side of half a scale, whatever the base: the case of a peg whose
    hole is a millimetre beside where the base aims.
    """
    draws = torch.Generator().manual_seed(0)

    def rows() -> tuple[dict[str, Tensor], Tensor]:
        base = torch.rand(B, A, generator=draws) * 1.6 - 0.8
        displacement = torch.randn(B, A, generator=draws) * 0.5
        obs = {"critic": torch.randn(B, D, generator=draws), "base_action": base}
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


def test_a_step_of_thousandths_is_not_lost_on_them() -> None:
    """What failed: success fell once the actor moved, along slopes between actions far apart."""
    torch.manual_seed(0)
    config = QEnsembleConfig(members=2, hidden=[32, 32], layer_norm=True)
    alone = slope_found(QEnsemble(config, "critic", D, A))
    widened = slope_found(ResidualCritic(QEnsemble(config, "critic", D, WIDTHS * A), SCALE))
    assert widened > 0.95
    assert alone < 0.8
