"""DSAC-T: both published losses against double precision, and the traps of its published code."""

from typing import Any

import pytest
import torch
from torch import Tensor

from policies.networks.mlp import Activation
from robot_rl.core.env import EnvSpec
from robot_rl.learners.dsac_t import DSACTConfig, DSACTLoss, huber_loss, paper_loss
from tests.fakes import LinearWorld, ToyEnv, copied, random_batch, small_dsac_t
from tests.robot_rl.learners.reference_sac import (
    State,
    assert_step,
    doubled,
    forward,
    gradients,
    member_outputs,
    normalized,
    relative_error,
    trained,
)
from tests.robot_rl.learners.small_offline import warmed

ROWS = 16
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "two layers": {"actor": {"hidden": [16, 16]}, "critic": {"hidden": [16, 16]}},
    "three critics": {"critic": {"members": 3}},
    "errors beyond every clip": {"noise_clip": 0.4, "target_clip": 0.2, "huber_delta": 0.3,
                                 "weight_min": 0.9, "weight_max": 1.1},
}  # fmt: skip


def learner(**settings: Any) -> tuple[Any, EnvSpec]:
    given = {"batch_size": ROWS, "init_temperature": 0.2, "actor_lr": 1e-2, **settings}
    return warmed(small_dsac_t, **given)


def sample(actor: State, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Action and log-density by the change of variables."""
    mean, log_std = forward(actor, normalized(actor, obs), Activation.relu).chunk(2, dim=-1)
    std = log_std.clamp(-5, 2).exp()
    u = mean + std * noise
    density = torch.distributions.Normal(mean, std).log_prob(u)
    return torch.tanh(u), (density - torch.log(1 - torch.tanh(u) ** 2)).sum(-1)


def distribution(critic: State, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    outputs = torch.stack(member_outputs(critic, obs, action, Activation.relu))
    return outputs[..., 0], torch.log(1 + torch.exp(outputs[..., 1]))


def row_gradient(
    mean: float, std: float, expected: float, sampled: float, b: float, config: DSACTConfig
) -> tuple[float, float]:
    """Derivatives of one row's loss by mean and deviation, as the reference states them."""
    reach = config.target_clip * b
    error = mean - expected
    wide = mean - (mean + min(max(sampled - mean, -reach), reach))
    eps = config.epsilon
    if config.loss is DSACTLoss.paper:
        scale = b**2 + eps
        return scale * error / (std**2 + eps), -scale * (wide**2 - std**2) / (std**3 + eps)
    delta = config.huber_delta
    huber = wide**2 / 2 if abs(wide) <= delta else delta * (abs(wide) - delta / 2)
    weight = min(max(b**2 / (std**2 + eps), config.weight_min), config.weight_max)
    bounded = min(max(error, -delta), delta)
    return weight * bounded, weight * (std**2 - huber) / (std + eps)


@pytest.mark.parametrize("loss", DSACTLoss)
@pytest.mark.parametrize("variant", VARIANTS)
def test_gradients_of_both_losses_equal_a_plain_implementation_in_double_precision(variant, loss):
    dsac, spec = learner(loss=loss, **VARIANTS[variant])
    batch = random_batch(spec, ROWS)
    batch.weight[:4] = torch.tensor([0.5, 2.0, 1.0, 1.5])
    state, config = copied(dsac.state_dict()), dsac.config
    metrics, error = dsac.update(batch)

    generator = torch.Generator()
    generator.set_state(state["generator"])
    alpha = float(state["temperature"]["parameter"].double().exp())
    actor, critic = doubled(state["actor"]), doubled(state["critic"])
    noise = torch.randn(batch.action.shape, generator=generator).double()
    action, log_prob = sample(
        state_as_double(state["target_actor"]), batch.next_obs["actor"], noise
    )
    means, stds = distribution(
        state_as_double(state["target_critic"]), batch.next_obs["critic"], action
    )
    z = torch.randn(means.shape, generator=generator).double()

    mean, std = distribution(critic, batch.obs["critic"], batch.action)
    weights = batch.weight.double()
    b = state["scale"].double()
    b = b + config.scale_tau * ((weights * std.detach()).sum(-1) / weights.sum() - b)
    squares = torch.zeros(ROWS, len(b), dtype=torch.float64)
    by_mean, by_std = torch.zeros_like(mean), torch.zeros_like(std)
    for row in range(ROWS):
        least = int(means[:, row].argmin())
        bonus = -alpha * float(log_prob[row])
        drawn = min(max(float(z[least, row]), -config.noise_clip), config.noise_clip)
        value = float(means[least, row])
        reward, discount = float(batch.reward[row]), float(batch.discount[row])
        expected = reward + discount * (value + bonus)
        sampled = reward + discount * (value + drawn * float(stds[least, row]) + bonus)
        for e in range(len(b)):
            at = mean[e, row].item(), std[e, row].item()
            grads = row_gradient(*at, expected, sampled, float(b[e]), config)
            by_mean[e, row], by_std[e, row] = (g * float(weights[row]) / ROWS for g in grads)
            squares[row, e] = (expected - at[0]) ** 2
    grad = torch.autograd.grad([mean, std], trained(critic), [by_mean, by_std])

    # float32 has 7 digits; sums over 16 rows and 16 units lose one or two.
    assert relative_error(gradients(dsac.critic.parameters()), list(grad)) < 1e-5
    assert relative_error([dsac.scale], [b]) < 1e-6
    expected_loss = (weights[:, None] * squares).mean(0).sum()
    assert float(metrics["critic_loss"]) == pytest.approx(float(expected_loss), rel=1e-5)
    assert relative_error([error], [squares.sqrt().mean(1)]) < 1e-5

    noise = torch.randn(batch.action.shape, generator=generator).double()
    action, log_prob = sample(actor, batch.obs["actor"], noise)
    climbed, _ = distribution(
        state_as_double(dsac.state_dict()["critic"]), batch.obs["critic"], action
    )
    actor_loss = (weights * (alpha * log_prob - climbed.min(0).values)).mean()
    assert_step(actor_loss, trained(actor), dsac.actor.parameters(), metrics["actor_loss"])


def state_as_double(state: State) -> dict[str, Tensor]:
    return {name: tensor.double() for name, tensor in state.items()}


@pytest.mark.parametrize(
    ("pull", "share"), [(paper_loss, 1.0), (huber_loss, 0.5)], ids=["paper", "huber"]
)
def test_the_variance_settles_at_the_squared_error_or_at_half_of_it(pull, share):
    returns = torch.tensor([[-3.0, -1.0, 1.0, 3.0]])  # mean square 5
    b = torch.full((1, 1), 2.0)

    def slope(variance: float) -> float:
        std = torch.tensor(variance).sqrt().requires_grad_()
        mean, width = torch.zeros(1, 4), std.expand(1, 4)
        pull(mean, width, torch.zeros(4), returns, b, DSACTConfig()).mean().backward()
        assert std.grad is not None
        return float(std.grad)

    assert slope(5 * share) == pytest.approx(0.0, abs=1e-5)
    assert slope(5 * share - 0.5) < -1e-2
    assert slope(5 * share + 0.5) > 1e-2


def test_the_running_deviation_starts_at_the_first_batch():
    spec = ToyEnv(LinearWorld(), 2).spec
    dsac = small_dsac_t(spec, batch_size=ROWS)
    assert (dsac.scale == 0).all()
    batch = random_batch(spec, ROWS)
    with torch.no_grad():
        raw = dsac.critic(batch.obs, batch.action)[..., 1]
    dsac.update(batch)
    torch.testing.assert_close(dsac.scale, torch.nn.functional.softplus(raw).mean(-1))


@pytest.mark.parametrize("updates_before", [0, 2])
def test_a_batch_without_a_valid_row_leaves_the_scale_alone(updates_before):
    spec = ToyEnv(LinearWorld(), 3).spec
    learner = small_dsac_t(spec)
    for seed in range(updates_before):
        learner.update(random_batch(spec, 8, seed))
    before = learner.scale.clone()
    batch = random_batch(spec, 8, 9)
    batch.weight[:] = 0.0
    learner.update(batch)
    assert torch.equal(learner.scale, before)
    learner.update(random_batch(spec, 8, 10))
    assert (learner.scale > 0).all()
