"""SAC: its losses and gradients against double precision, and the choices of published kinds."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from policies.networks.gaussian_actor import GaussianActorConfig, LogStdBound
from policies.networks.mlp import Activation
from robot_rl.core.env import EnvSpec, Obs
from robot_rl.core.errors import ConfigError
from robot_rl.core.transition import Batch
from robot_rl.learners.networks import gaussian_actor
from robot_rl.learners.off_policy import ActorObjective, TemperatureLoss
from robot_rl.learners.sac import SAC, ActorStepsConfig, EntropyAt, SACConfig, TargetConfig
from robot_rl.learners.values import TargetRule, ValueConfig
from tests.fakes import LinearWorld, ToyEnv, copied, random_batch, small_sac
from tests.robot_rl.learners.reference_sac import Parameters, assert_step, trained
from tests.robot_rl.learners.small_offline import warmed

ROWS, MEMBERS = 16, 10
SPEC = ToyEnv(LinearWorld(), ROWS).spec
LAYER_NORM = {"layer_norm": True}
TANH = {"layer_norm": True, "activation": Activation.tanh, "normalize": False}
SILU = {"layer_norm": True, "activation": Activation.silu}
REDQ: dict[str, Any] = {"target": TargetConfig(members=2), "actor_value": ActorObjective.mean}
NEXT = {"actor_steps": ActorStepsConfig(entropy_at=EntropyAt.next_obs)}
SERL = TargetConfig(members=2, replacement=True, entropy=False)
C51 = {"values": ValueConfig(atoms=7, low=-3.0, high=3.0)}
VARIANTS: dict[str, dict[str, Any]] = {
    "paper": {},
    "no entropy in the target": {"target": TargetConfig(entropy=False)},
    "mean of five": {"actor_value": ActorObjective.mean, "critic": {"members": 5}},
    "one critic": {"critic": {"members": 1}},
    "layer norm": {"actor": LAYER_NORM, "critic": LAYER_NORM},
    "two layers": {"actor": {"hidden": [16, 16]}, "critic": {"hidden": [16, 16]}},
    "sb3": {"temperature_loss": TemperatureLoss.log_alpha, "actor": {"log_std_min": -20.0}},
    "redq": {**REDQ, "critic": {"members": 10}},
    "redq with replacement": {
        "target": TargetConfig(members=2, replacement=True), "actor_value": ActorObjective.mean,
        "critic": {"members": 3},
    },
    "rlpd": {**REDQ, "target_entropy_per_action": -0.5,
             "critic": {**LAYER_NORM, "members": 10, "normalize": False},
             "actor": {"normalize": False}},
    "serl": {**REDQ, **NEXT, "target": SERL,
             "temperature_loss": TemperatureLoss.softplus, "target_entropy_per_action": -0.5,
             "actor": TANH, "critic": {**TANH, "members": 10}},
    "wsrl": {**NEXT, "target": SERL,
             "temperature_loss": TemperatureLoss.softplus, "critic": {"members": 10}},
    "mean of the targets": {"target": TargetConfig(rule=TargetRule.mean)},
    "own targets": {"target": TargetConfig(rule=TargetRule.own)},
    "categories, smaller of two": {**C51, "tau": 0.9},
    "categories, mixture of two drawn": {
        **C51, "target": TargetConfig(rule=TargetRule.mean, members=2),
        "critic": {"members": 4},
    },
    "fast_sac": {**C51, "target": TargetConfig(rule=TargetRule.own),
                 "actor_value": ActorObjective.mean, "target_entropy_per_action": 0.0,
                 "actor_steps": ActorStepsConfig(
                     entropy_at=EntropyAt.next_obs, temperature_every_update=True),
                 "actor": {**SILU, "log_std_bound": LogStdBound.tanh, "log_std_max": 0.0},
                 "critic": SILU},
}  # fmt: skip


def learner(**settings: Any) -> tuple[Any, EnvSpec]:
    settings = {"batch_size": 16, "init_temperature": 0.2, "compile": False, **settings}
    return warmed(small_sac, **settings)


@pytest.mark.parametrize("variant", VARIANTS)
def test_losses_and_gradients_equal_a_plain_implementation_in_double_precision(variant):
    sac, spec = learner(**VARIANTS[variant])
    batch = random_batch(spec, 16)
    batch.weight[:4] = torch.tensor([0.5, 2.0, 1.0, 1.5])
    reference = Parameters.of(sac)
    metrics, _ = sac.update(batch)

    critic_loss, next_log_prob = reference.critic_loss(batch)
    critic, told = trained(reference.critic), metrics["critic_loss"]
    assert_step(critic_loss, critic, sac.critic.parameters(), told)

    stepped = Parameters.of(sac)  # the actor climbs the critics that have just learned
    reference.critic = stepped.critic
    before = reference.x
    if sac.config.actor_steps.temperature_every_update:
        reference.x = stepped.x  # and pays the temperature that has just been set
    actor_loss, log_prob = reference.actor_loss(batch)
    actor, told = trained(reference.actor), metrics["actor_loss"]
    assert_step(actor_loss, actor, sac.actor.parameters(), told)

    assert float(metrics["entropy"]) == pytest.approx(-float(log_prob.mean()), rel=1e-5)
    assert float(metrics["temperature"]) == pytest.approx(reference.alpha.item())
    reference.x = before
    alpha_loss = reference.temperature_loss(batch, log_prob, next_log_prob)
    assert_step(alpha_loss, [reference.x], [sac.temperature.parameter])
    assert torch.equal(stepped.generator.get_state(), reference.generator.get_state())


def test_critics_and_targets_share_one_normaliser_after_loading_too():
    (sac, _), (other, _) = learner(), learner()
    other.load_state_dict(copied(sac.state_dict()))
    for one in (sac, other):
        shared = {t.data_ptr() for t in one.critic.buffers()}
        assert {t.data_ptr() for t in one.target_critic.buffers()} == shared != set()


class Powers(nn.Module):
    """Critics of values 2^e, whatever is done; they get gradients and do not learn."""

    group = "critic"
    groups: tuple[str, ...] = ("critic",)

    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Parameter(2.0 ** torch.arange(MEMBERS)[:, None])

    def forward(self, obs: Obs, action: Tensor) -> Tensor:
        return (self.value + 0 * action[:, 0])[..., None]

    def update_statistics(self, obs: Obs) -> None:
        """Nothing to normalise."""

    def constrain(self) -> None:
        """Nothing to project."""


def drawn_pairs(count: int, *, replacement: bool) -> list[tuple[int, int]]:
    """The members whose mean was the target, update by update."""
    config = SACConfig(
        batch_size=ROWS, critic_lr=0.0, actor_interval=count + 1, tau=0.0,
        target=TargetConfig(
            members=2, replacement=replacement, rule=TargetRule.mean, entropy=False
        ),
    )  # fmt: skip
    actor = gaussian_actor(GaussianActorConfig(hidden=[16]), SPEC)
    sac = SAC(config, SPEC, seed=0, networks=(actor, Powers()))
    with torch.no_grad():
        next(sac.critic.parameters()).zero_()  # the error is now the target itself
    codes = {(2**a + 2**b) / 2: (a, b) for a in range(MEMBERS) for b in range(a, MEMBERS)}
    batch = random_batch(SPEC, ROWS)
    batch.reward.zero_()
    batch.discount.fill_(1.0)
    errors = torch.stack([sac.update(batch)[1] for _ in range(count)])
    assert torch.equal(errors.amin(1), errors.amax(1))  # one draw for the whole batch
    return [codes[value] for value in errors[:, 0].tolist()]


@pytest.mark.slow
def test_a_subset_holds_a_critic_twice_only_with_replacement():
    pairs = drawn_pairs(400, replacement=False)
    assert all(a != b for a, b in pairs)
    assert len(set(pairs)) == MEMBERS * (MEMBERS - 1) // 2  # and every pair comes
    pairs = drawn_pairs(400, replacement=True)
    alone = sum(a == b for a, b in pairs) / len(pairs)
    assert alone == pytest.approx(1 / MEMBERS, abs=0.05)  # three standard errors


def test_the_actor_steps_on_all_minibatches_since_its_last_step_where_it_is_told_to():
    sac = small_sac(
        SPEC, batch_size=ROWS, actor_interval=3, critic_lr=0.0, compile=False,
        actor_steps=ActorStepsConfig(on_all=True, entropy_at=EntropyAt.next_obs),
    )  # fmt: skip
    batches = [random_batch(SPEC, ROWS, seed) for seed in range(6)]
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


def test_critics_learn_alone_in_the_beginning_and_actor_and_temperature_wait():
    """The temperature would follow an entropy that nobody moves, farther and farther."""
    sac = small_sac(SPEC, actor_steps=ActorStepsConfig(
        critic_updates=3, temperature_every_update=True, entropy_at=EntropyAt.next_obs
    ))  # fmt: skip
    first = "network.0.weight"
    moved = []
    for seed in range(5):
        before = copied(sac.state_dict())
        sac.update(random_batch(SPEC, 8, seed))
        after = sac.state_dict()
        assert not torch.equal(after["critic"][first], before["critic"][first])
        waits = torch.equal(after["actor"][first], before["actor"][first])
        fixed = before["temperature"]["parameter"] == after["temperature"]["parameter"]
        assert waits == fixed
        moved.append(not waits)
    assert moved == [False, False, False, True, True]


@pytest.mark.parametrize(("share", "calm"), [(0.0, 0), (0.5, 8), (0.99, 15)])
def test_a_share_of_the_envs_acts_without_noise_in_training_alone(share, calm):
    sac, _ = learner(noiseless_share=share)
    noisy, _ = learner()
    obs = ToyEnv(LinearWorld(), ROWS).reset(seed=1)
    mean, action, drawn = sac.act(obs, False), sac.act(obs, True), noisy.act(obs, True)
    torch.testing.assert_close(action[:calm], mean[:calm])
    torch.testing.assert_close(action[calm:], drawn[calm:])  # the others draw as they would
    assert (drawn != mean).any(-1).all()
    alone = {group: rows[:1] for group, rows in obs.items()}
    assert (sac.act(alone, True) != mean[:1]).any()  # a robot by itself explores


def test_a_share_that_is_none_is_refused():
    with pytest.raises(ConfigError, match=r"noiseless_share must lie in \[0, 1\]"):
        SACConfig(noiseless_share=1.5)
    with pytest.raises(ConfigError, match="noiseless_share=1 leaves no env that explores"):
        SACConfig(noiseless_share=1.0)
