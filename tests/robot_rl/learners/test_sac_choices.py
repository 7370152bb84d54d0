"""The choices in which published soft actor-critics differ, each seen at work."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from policies.networks.gaussian_actor import GaussianActor, GaussianActorConfig
from robot_rl.core.env import EnvSpec, Obs
from robot_rl.core.errors import ConfigError
from robot_rl.core.transition import Batch
from robot_rl.learners.off_policy import ActorObjective
from robot_rl.learners.sac import SAC, ActorStepsConfig, EntropyAt, SACConfig, TargetConfig
from robot_rl.learners.values import TargetRule
from tests.equality import assert_same
from tests.fakes import LinearWorld, ToyEnv, copied, random_batch, small_sac
from tests.robot_rl.learners.reference_sac import Parameters

ROWS = 16
MEMBERS = 10


class LinearCritic(nn.Module):
    """Q_e = offset_e + slope_e * first action entry."""

    group = "critic"

    def __init__(self, offsets: list[float], slopes: list[float] | None = None) -> None:
        super().__init__()
        self.offset = nn.Parameter(torch.tensor(offsets)[:, None])
        self.slope = nn.Parameter(torch.tensor(slopes or [0.0] * len(offsets))[:, None])

    def forward(self, obs: Obs, action: Tensor) -> Tensor:
        return (self.offset + self.slope * action[:, 0])[..., None]

    def update_statistics(self, obs: Obs) -> None:
        """Nothing to normalise."""

    def constrain(self) -> None:
        """Nothing to project."""


def spec() -> EnvSpec:
    return ToyEnv(LinearWorld(), ROWS).spec


def sac_with(critic: LinearCritic, **settings: Any) -> SAC:
    torch.manual_seed(0)
    env = spec()
    actor = GaussianActor(
        GaussianActorConfig(hidden=[16]), env.groups["actor"].shape[0], env.action_size
    )
    config = SACConfig(**{"batch_size": ROWS, "critic_lr": 0.0, **settings})
    return SAC(config, env, seed=0, networks=(actor, critic))


def batch_without_reward(seed: int = 0) -> Batch:
    batch = random_batch(spec(), ROWS, seed)
    batch.reward.zero_()
    batch.discount.fill_(1.0)
    return batch


def drawn_pairs(count: int, *, replacement: bool) -> list[tuple[int, int]]:
    """The members whose mean was the target, update by update: their values are powers of two."""
    sac = sac_with(
        LinearCritic([2.0**e for e in range(MEMBERS)]), actor_interval=count + 1, tau=0.0,
        target=TargetConfig(
            members=2, replacement=replacement, rule=TargetRule.mean, entropy=False
        ),
    )  # fmt: skip
    with torch.no_grad():
        for p in sac.critic.parameters():
            p.zero_()  # the error is now the target itself
    codes = {(2**a + 2**b) / 2: (a, b) for a in range(MEMBERS) for b in range(a, MEMBERS)}
    batch = batch_without_reward()
    pairs = []
    for _ in range(count):
        _, error = sac.update(batch)
        assert error.min() == error.max()  # one draw for the whole batch
        pairs.append(codes[float(error[0])])
    return pairs


@pytest.mark.slow
def test_a_subset_without_replacement_never_holds_a_critic_twice():
    pairs = drawn_pairs(600, replacement=False)
    assert all(a != b for a, b in pairs)
    assert len(set(pairs)) == MEMBERS * (MEMBERS - 1) // 2  # and every pair comes


@pytest.mark.slow
def test_a_subset_with_replacement_is_a_single_critic_in_a_tenth_of_the_draws():
    pairs = drawn_pairs(400, replacement=True)
    alone = sum(a == b for a, b in pairs) / len(pairs)
    assert alone == pytest.approx(1 / MEMBERS, abs=0.05)  # three standard errors


@pytest.mark.parametrize(("value", "sign"), [(ActorObjective.min, -1), (ActorObjective.mean, 1)])
def test_the_actor_climbs_the_least_critic_or_their_mean(value, sign):
    # The lower critic falls with the action, the mean of both rises.
    sac = sac_with(
        LinearCritic([0.0, -10.0], [5.0, -1.0]), actor_value=value, actor_lr=1e-2,
        init_temperature=1e-9,
    )  # fmt: skip
    batch = random_batch(spec(), ROWS)
    before = sac.act(batch.obs, explore=False)[:, 0]
    for _ in range(5):
        sac.update(batch)
    assert ((sac.act(batch.obs, explore=False)[:, 0] - before) * sign > 0).all()


@pytest.mark.parametrize("per_action", [-1.0, -0.5, 0.0])
def test_the_target_entropy_is_per_action_times_actions(per_action):
    sac = small_sac(spec(), target_entropy_per_action=per_action)
    assert sac.temperature.target_entropy == per_action * spec().action_size


@pytest.mark.parametrize("at", EntropyAt)
def test_the_temperature_listens_to_observations_or_to_the_next_ones(at):
    def slope(changed: str) -> float:
        sac = small_sac(
            spec(), batch_size=ROWS, actor_steps=ActorStepsConfig(entropy_at=at), critic_lr=0.0
        )
        batch = random_batch(spec(), ROWS)
        if changed:
            getattr(batch, changed)["actor"].mul_(3.0)
        sac.update(batch)
        assert sac.temperature.parameter.grad is not None
        return float(sac.temperature.parameter.grad)

    deaf = "next_obs" if at is EntropyAt.obs else "obs"
    assert slope(deaf) == slope("")
    assert slope(at.value) != slope("")


@pytest.mark.parametrize("paid", [True, False])
def test_entropy_is_in_the_target_or_not(paid):
    sac = sac_with(LinearCritic([0.0]), target=TargetConfig(entropy=paid), init_temperature=2.0)
    _, error = sac.update(batch_without_reward())
    assert bool((error > 0).all()) == paid  # all values are zero: entropy alone is left


def test_the_actor_steps_on_all_minibatches_since_its_last_step_where_it_is_told_to():
    sac = small_sac(
        spec(), batch_size=ROWS, actor_interval=3, critic_lr=0.0,
        actor_steps=ActorStepsConfig(on_all=True, entropy_at=EntropyAt.next_obs),
    )  # fmt: skip
    batches = [random_batch(spec(), ROWS, seed) for seed in range(6)]
    for start in (0, 3):  # the second round begins with nothing left of the first
        reference = Parameters.of(sac)
        nexts, metrics = [], {}
        for batch in batches[start : start + 3]:
            nexts.append(reference.critic_loss(batch)[1])
            metrics, _ = sac.update(batch)
        joined = _joined(batches[start : start + 3])
        loss, log_prob = reference.actor_loss(joined)
        assert float(metrics["actor_loss"]) == pytest.approx(loss.item(), rel=1e-5)
        wanted = reference.temperature_loss(joined, log_prob, torch.cat(nexts))
        (grad,) = torch.autograd.grad(wanted, [reference.x])
        assert sac.temperature.parameter.grad is not None
        assert float(sac.temperature.parameter.grad) == pytest.approx(grad.item(), rel=1e-5)


def _joined(batches: list[Batch]) -> Batch:
    def groups(side: str) -> Obs:
        found = [getattr(batch, side) for batch in batches]
        return {name: torch.cat([one[name] for one in found]) for name in found[0]}

    def rows(field: str) -> Tensor:
        return torch.cat([getattr(batch, field) for batch in batches])

    return Batch(
        obs=groups("obs"), action=rows("action"), reward=rows("reward"), discount=rows("discount"),
        next_obs=groups("next_obs"), weight=rows("weight"),
    )  # fmt: skip


def test_minibatches_that_wait_for_the_actor_are_part_of_the_state():
    steps = ActorStepsConfig(on_all=True)
    settings: dict[str, Any] = {"batch_size": ROWS, "actor_steps": steps, "actor_interval": 3}
    sac, other = small_sac(spec(), **settings), small_sac(spec(), 1, **settings)
    batches = [random_batch(spec(), ROWS, seed) for seed in range(3)]
    for batch in batches[:2]:
        sac.update(batch)
    other.load_state_dict(copied(sac.state_dict()))
    sac.update(batches[2])
    other.update(batches[2])
    assert_same(other.state_dict(), sac.state_dict())


@pytest.mark.parametrize(
    ("part", "settings", "told"),
    [
        (TargetConfig, {"members": -1}, "target.members must lie in"),
        (TargetConfig, {"members": 2, "rule": TargetRule.own}, "needs the targets of all members"),
        (ActorStepsConfig, {"temperature_every_update": True}, "needs entropy_at=next_obs"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(part, settings, told):
    with pytest.raises(ConfigError, match=told):
        part(**settings)


def test_critics_learn_alone_in_the_beginning():
    spec = ToyEnv(LinearWorld(), 3).spec
    learner = small_sac(spec, actor_steps=ActorStepsConfig(critic_updates=3), actor_interval=2)
    actor = copied(learner.actor.state_dict())
    for seed in range(3):
        before = copied(learner.critic.state_dict())
        learner.update(random_batch(spec, 8, seed))
        assert any(not torch.equal(a, before[n]) for n, a in learner.critic.state_dict().items())
    assert_same(actor, copied(learner.actor.state_dict()))
    learner.update(random_batch(spec, 8, 3))
    with pytest.raises(AssertionError):
        assert_same(actor, copied(learner.actor.state_dict()))


def test_the_temperature_waits_for_the_actor_while_critics_learn_alone():
    """It would follow an entropy that nobody moves, farther and farther."""
    spec = ToyEnv(LinearWorld(), 3).spec
    learner = small_sac(spec, actor_steps=ActorStepsConfig(
        critic_updates=3, temperature_every_update=True, entropy_at=EntropyAt.next_obs
    ))  # fmt: skip
    seen = []
    for seed in range(5):
        learner.update(random_batch(spec, 8, seed))
        seen.append(float(learner.temperature.value()))
    assert seen[0] == seen[1] == seen[2] != seen[3]
    assert seen[3] != seen[4]
