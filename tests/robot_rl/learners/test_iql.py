"""IQL: losses and gradients against double precision, and its laws."""

from typing import Any

import pytest
import torch

from robot_rl.learners.optimization import ScheduleConfig
from tests.fakes import copied
from tests.robot_rl.learners.reference_offline import iql_losses
from tests.robot_rl.learners.reference_sac import assert_step
from tests.robot_rl.learners.small_offline import small_iql, stored, warmed

VARIANTS: dict[str, dict[str, Any]] = {
    "locomotion": {},
    "antmaze": {"expectile": 0.9, "advantage_scale": 10.0},
    "limited weights": {"weight_limit": 1.5},
    "ten critics, two drawn": {"critic": {"members": 10}, "target_members": 2},
    "no normaliser": {"actor": {"normalize": False}, "critic": {"normalize": False}},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_losses_and_gradients_equal_a_plain_implementation_in_double_precision(variant):
    iql, spec = warmed(small_iql, **copied(VARIANTS[variant]))
    batch = stored(spec)
    losses, trained = iql_losses(iql, batch)
    metrics, _ = iql.update(batch)
    networks = {"critic": iql.critic, "value": iql.value, "actor": iql.actor}
    for name, loss in losses.items():
        order = _order(networks[name], trained[name])
        assert_step(loss, trained[name], order, metrics[f"{name}_loss"])


def _order(network: Any, reference: list[torch.Tensor]) -> list[torch.Tensor]:
    """Parameters of a network in the order of the reference's: that of its state."""
    by_name = dict(network.named_parameters())
    found = [by_name[name] for name in network.state_dict() if name in by_name]
    assert [tuple(p.shape) for p in found] == [tuple(t.shape) for t in reference]
    return found


def test_the_value_of_a_state_is_the_expectile_of_its_actions_values():
    """Two stored actions worth 0 and 1: the 0.9 expectile v has 0.9 (1 - v) = 0.1 v, v = 0.9."""
    iql, spec = warmed(
        small_iql, expectile=0.9, value_lr=2e-2, critic_lr=0.0, tau=0.0, actor_interval=1000,
        lr_schedule=ScheduleConfig(decay=400, end=0.0),
    )  # fmt: skip
    batch = stored(spec)
    for obs in (*batch.obs.values(), *batch.next_obs.values()):
        obs.copy_(obs[:1].expand_as(obs))
    batch.weight.fill_(1.0)
    values = torch.arange(16) % 2 * 1.0
    iql._least = lambda _: values
    metrics = iql.update(batch)[0]
    for _ in range(400):
        metrics = iql.update(batch)[0]
    assert float(values.mean() - metrics["advantage"]) == pytest.approx(0.9, abs=0.01)


def test_it_never_asks_for_the_value_of_an_action_that_is_not_stored():
    iql, spec = warmed(small_iql)
    asked: list[torch.Tensor] = []
    ask = iql.plain_outputs
    iql.plain_outputs = lambda critic, obs, action: asked.append(action) or ask(critic, obs, action)
    batch = stored(spec)
    iql.update(batch)
    assert all(torch.equal(one, batch.action) for one in asked if one.shape[1])
