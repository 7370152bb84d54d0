"""H2O: weights, discriminators, losses and gradients against double precision, and their laws."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from robot_rl.core.errors import ConfigError
from robot_rl.learners.sac import SAC
from tests.fakes import copied
from tests.robot_rl.learners.reference_offline import RELU, largest_backup, named
from tests.robot_rl.learners.reference_sac import Parameters, assert_step, member_outputs
from tests.robot_rl.learners.small_offline import small_h2o, stored, warmed


def doubled(h2o: SAC, name: str) -> dict[str, Tensor]:
    """A discriminator in double precision, with gradients."""
    state = copied(h2o.state_dict())["penalty"][name]
    return {n: t.double().requires_grad_() for n, t in state.items()}


def logits(discriminator: dict[str, Tensor], obs: Tensor, rest: Tensor) -> Tensor:
    return 2 * torch.tanh(member_outputs(discriminator, obs, rest, RELU)[0])


def test_losses_weights_and_gradients_equal_a_plain_implementation_in_double_precision():
    h2o, spec = warmed(small_h2o)
    penalty: Any = h2o.penalty
    batch = stored(spec)
    at = Parameters.of(h2o)
    of_action, of_both = doubled(h2o, "of_action"), doubled(h2o, "of_successor")
    metrics, _ = h2o.update(batch)

    # The target draws first, then the noise on what the discriminators learn from.
    plain = copied(at.generator.get_state())
    largest_backup(at, batch, 1)
    obs, action, after = (
        tensor.double() + 0.1 * torch.randn(tensor.shape, generator=at.generator).double()
        for tensor in (batch.obs["critic"], batch.action, batch.next_obs["critic"])
    )
    first = logits(of_action, obs, action)
    second = logits(of_both, obs, torch.cat([action, after], -1)) + first
    total = torch.zeros((), dtype=torch.float64)
    for b in range(16):
        label = 0 if int(batch.extra["source"][b]) else 1
        wrong = -torch.log_softmax(first[b], 0)[label] - torch.log_softmax(second[b], 0)[label]
        total = total + 0.5 * float(batch.weight[b]) * wrong / 8
    params = [*penalty.of_action.parameters(), *penalty.of_successor.parameters()]
    leaves = [*named(of_action), *named(of_both)]
    assert_step(total, leaves, params, metrics["discriminator_loss"])

    # Weights of simulated rows, by the discriminators that have just learned.
    of_both = doubled(h2o, "of_successor")
    tested = logits(
        of_both, batch.obs["critic"], torch.cat([batch.action, batch.next_obs["critic"]], -1)
    )
    rho = [min(max(math.exp(float(row[0] - row[1])), 1e-5), 1.0) for row in tested.detach()]
    simulated = [b for b in range(16) if not int(batch.extra["source"][b])]
    mean = sum(rho[b] for b in simulated) / 8
    assert float(metrics["simulated_weight"]) == pytest.approx(mean, rel=1e-5)
    weight = torch.tensor(
        [2.0 * float(batch.weight[b]) * (rho[b] if b in simulated else 1.0) for b in range(16)]
    )
    fresh = torch.Generator()
    fresh.set_state(plain)
    drawn, at.generator = at.generator, fresh
    td, _ = largest_backup(at, replace(batch, weight=weight.double()), 1)
    at.generator = drawn
    assert float(metrics["critic_loss"]) == pytest.approx(td.item(), rel=1e-5)

    # The gap by disturbed successors, and the penalty that it gives.
    real = [b for b in range(16) if b not in simulated]
    spread = batch.obs["critic"].double()[real].std(0, correction=0)
    surplus = torch.zeros(16, dtype=torch.float64)
    for _ in range(3):
        noise = torch.randn(batch.next_obs["critic"].shape, generator=at.generator).double()
        moved = batch.next_obs["critic"].double() + noise * spread
        found = logits(of_both, batch.obs["critic"], torch.cat([batch.action.double(), moved], -1))
        surplus += (found[:, 1] - found[:, 0]).detach() / 3
    gap = surplus[simulated].clamp(1e-30, 10.0)
    penalty_loss = torch.zeros((), dtype=torch.float64)
    known = batch.weight[real].double()
    for q in member_outputs(at.critic, batch.obs["critic"], batch.action, RELU):
        soft = torch.log((gap / gap.sum() * torch.exp(q[simulated, 0])).sum())
        penalty_loss = penalty_loss + 0.5 * (soft - (known * q[real, 0]).sum() / known.sum())
    assert float(metrics["dynamics_gap"]) == pytest.approx(float(gap.mean()), rel=1e-5)
    assert float(metrics["gap_penalty"]) == pytest.approx(penalty_loss.item(), rel=1e-5)
    assert_step(td + penalty_loss, named(at.critic), h2o.critic.parameters())


def shifted(spec: Any, seed: int) -> Any:
    """Real and simulated rows whose successors differ by one, and nothing else does."""
    batch = stored(spec, seed=seed)
    batch.weight.fill_(1.0)
    batch.next_obs["critic"].copy_(
        batch.obs["critic"] + torch.where(batch.extra["source"] > 0, 0.0, 1.0)[:, None]
    )
    return batch


@pytest.mark.slow
def test_simulated_rows_of_other_dynamics_lose_their_weight_and_real_rows_keep_theirs():
    h2o, spec = warmed(small_h2o, dynamics_gap={"discriminator_lr": 3e-3})
    penalty: Any = h2o.penalty
    first = penalty.weight(shifted(spec, 0))
    for seed in range(150):
        penalty.weight(shifted(spec, seed % 5))
    source = shifted(spec, 149 % 5).extra["source"]
    last = penalty.weight(shifted(spec, 149 % 5))
    assert (last[source > 0] == 2.0).all()  # a mean of their own: half of the rows are real
    assert float(last[source == 0].mean()) < 0.2 < float(first[source == 0].mean())


def test_the_log_ratio_lies_within_four_whatever_the_discriminators_say():
    h2o, spec = warmed(small_h2o)
    penalty: Any = h2o.penalty
    with torch.no_grad():
        for param in penalty.of_successor.parameters():
            param.mul_(1e3)
    weight = penalty.weight(stored(spec))
    assert float(weight.min()) >= 0.999 * math.exp(-4) * 0.5 * 2


def test_without_real_rows_it_says_where_to_name_them():
    h2o, spec = warmed(small_h2o)
    with pytest.raises(ConfigError, match=r"training.prior.run=... and a training.prior.share"):
        h2o.update(replace(stored(spec), extra={}))
