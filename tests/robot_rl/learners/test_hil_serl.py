"""HIL-SERL: losses and gradients against double precision, the gripper's commands and price."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from robot_rl.core.env import GroupSpec, TermSpec
from robot_rl.core.transition import Batch
from robot_rl.learners.hil_serl import HILSERL
from robot_rl.learners.off_policy import ActorObjective, TemperatureLoss
from robot_rl.learners.sac import ActorStepsConfig, EntropyAt, TargetConfig
from tests.fakes import LinearWorld, ToyEnv, copied
from tests.robot_rl.learners.reference_sac import (
    Parameters,
    assert_step,
    doubled,
    member_outputs,
    trained,
)
from tests.robot_rl.learners.small_hil import small_hil_serl, with_people
from tests.robot_rl.learners.small_offline import warmed

AS_PUBLISHED: dict[str, Any] = {
    "target": TargetConfig(entropy=False), "actor_value": ActorObjective.mean,
    "actor_steps": ActorStepsConfig(entropy_at=EntropyAt.next_obs),
    "temperature_loss": TemperatureLoss.softplus, "init_temperature": 0.01,
    "target_entropy_per_action": -0.5,
}  # fmt: skip


def opening_world() -> LinearWorld:
    """The second of two terms of the group `actor` is the gripper's opening."""
    terms = (TermSpec(name="joints", width=3), TermSpec(name="state/gripper_opening", width=1))
    return LinearWorld(
        {"actor": GroupSpec(shape=(4,), terms=terms), "critic": GroupSpec(shape=(6,))}
    )


def grasp_loss(learner: HILSERL, batch: Batch, commands: list[float]) -> tuple[Tensor, Any]:
    """Mean squared error of the double DQN, row by row, and what it is derived by."""
    state, config = copied(learner.state_dict()), learner.config
    parts = [state[name] for name in ("gripper", "target_gripper")]
    online, target = (
        doubled({n.removeprefix("scorer."): t for n, t in part.items()}) for part in parts
    )
    activation, none = config.gripper.network.activation, torch.empty(len(batch.reward), 0)
    now = member_outputs(online, batch.obs["actor"], none, activation)[0]
    after = member_outputs(online, batch.next_obs["actor"], none, activation)[0]
    lagging = member_outputs(target, batch.next_obs["actor"], none, activation)[0]
    loss = torch.zeros((), dtype=torch.float64)
    for b in range(len(batch.reward)):
        entry, opening = float(batch.action[b, -1]), float(batch.obs["actor"][b, -1])
        k = min(range(len(commands)), key=lambda k: abs(entry - commands[k]))
        moves = (k == 0 and opening > 0.9) or (k == len(commands) - 1 and opening <= 0.9)
        best = max(range(len(commands)), key=lambda k: after[b, k].item())
        reward = float(batch.reward[b]) - config.grasp_penalty * moves
        y = reward + float(batch.discount[b]) * lagging[b, best].item()
        loss = loss + float(batch.weight[b]) * (now[b, k] - y) ** 2 / len(batch.reward)
    return loss, trained(online)


@pytest.mark.parametrize("commands", [[-1.0, 0.0, 1.0], [-1.0, 1.0]])
def test_losses_and_gradients_equal_a_plain_implementation_in_double_precision(commands):
    gripper = {"commands": commands}
    env = ToyEnv(opening_world(), 32)
    learner, spec = warmed(
        lambda _, **settings: small_hil_serl(env.spec, **settings), **AS_PUBLISHED, tau=0.5,
        gripper=gripper, grasp_penalty=0.3, compile=False,
    )  # fmt: skip
    batch = with_people(spec)
    batch.obs["actor"][:, -1] += 0.9  # half of them are open
    arm = replace(batch, action=batch.action[:, :-1])
    expected, by = grasp_loss(learner, batch, commands)
    free, _ = grasp_loss(
        learner, replace(batch, obs={**batch.obs, "actor": 0 * batch.obs["actor"]}), commands
    )
    at = Parameters.of(learner)
    critic, next_log_prob = at.critic_loss(arm)
    metrics, _ = learner.update(batch)
    gripper_network: Any = learner._gripper
    by_name = dict(gripper_network.scorer.named_parameters())
    order = [
        by_name[n.removeprefix("scorer.")] for n in gripper_network.state_dict() if "network" in n
    ]
    assert_step(expected, by, order, metrics["grasp_critic_loss"])
    assert float(metrics["grasp_critic_loss"]) != pytest.approx(free.item(), rel=1e-2)
    names = dict(learner.critic.named_parameters())
    of_critic = [names[n] for n in learner.critic.state_dict() if n.startswith("network")]
    assert_step(critic, trained(at.critic), of_critic, metrics["critic_loss"])
    temperature = at.temperature_loss(arm, next_log_prob, next_log_prob)
    assert_step(temperature, [at.x], [learner.temperature.parameter])
    # The gripper's entry counts in the target entropy: -1/2 of two entries.
    assert learner.temperature.target_entropy == pytest.approx(-1.0)
