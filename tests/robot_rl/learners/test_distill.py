"""DAgger by hand: who acts, what the labels are, what is regressed, what is refused."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from policies.networks.deterministic_actor import DeterministicActorConfig
from policies.networks.gaussian_actor import GaussianActor, GaussianActorConfig
from policies.networks.inputs import EncoderConfig
from robot_rl.core.errors import ConfigError
from robot_rl.learners.distill import Distill, DistillConfig, ImitationLoss, normal_divergence
from robot_rl.learners.networks import deterministic_actor, gaussian_actor
from tests.contracts.learners_with_history import ESTIMATES, KNOWS_ALL, PAST, PLANT, TERMS
from tests.fakes import LinearWorld, ToyEnv, copied, random_batch, random_obs

WORLD = LinearWorld()
SPEC = ToyEnv(
    LinearWorld(groups={n: replace(g, terms=TERMS[n]) for n, g in WORLD.groups.items()})
).spec


def make(**settings: Any) -> tuple[Distill, GaussianActor]:
    torch.manual_seed(99)
    teacher = gaussian_actor(KNOWS_ALL, SPEC)
    student = GaussianActorConfig(hidden=[16])
    config = DistillConfig(**{"batch_size": 8, "actor": student, **settings})
    learner = Distill(config, SPEC, seed=0, teacher=teacher)
    assert isinstance(learner, Distill)
    return learner, teacher


def rows(count: int = 500) -> dict[str, torch.Tensor]:
    return random_obs(SPEC, count, torch.Generator().manual_seed(1))


def test_in_the_beginning_the_teacher_acts_and_at_last_the_student():
    learner, teacher = make(mixture_updates=4)
    obs = rows()
    assert torch.equal(learner.act(obs, explore=True), teacher(obs))
    shares = []
    for seed in range(4):
        shares.append(learner.mixture)
        learner.update(random_batch(SPEC, 8, seed))
    assert shares == [1.0, 0.75, 0.5, 0.25]
    assert learner.mixture == 0
    assert torch.equal(learner.act(obs, explore=True), learner.act(obs, explore=False))


def test_each_world_is_led_by_one_of_them_in_the_asked_for_share():
    learner, teacher = make(mixture_share=0.3)
    obs = rows()
    acted, student, taught = learner.act(obs, explore=True), learner.actor(obs), teacher(obs)
    by_teacher = (acted == taught).all(-1)
    assert torch.equal(acted, torch.where(by_teacher[:, None], taught, student))
    assert 0.24 < by_teacher.float().mean() < 0.36  # 500 draws: three deviations of 0.02


def test_labels_are_the_actions_of_the_teacher_whoever_acted():
    learner, teacher = make()
    batch = random_batch(SPEC, 8)
    batch.weight[:4] = 0.5
    with torch.no_grad():
        error = ((learner.actor(batch.obs) - teacher(batch.obs)) ** 2).mean(-1)
    metrics, priority = learner.update(batch)
    torch.testing.assert_close(priority, error)
    torch.testing.assert_close(metrics["actor_loss"], (batch.weight * error).mean())


def test_the_teacher_never_changes_and_is_restored_from_a_checkpoint():
    learner, teacher = make()
    before = copied(teacher.state_dict())
    state = copied(learner.state_dict())
    learner.update(random_batch(SPEC, 8))
    for name, value in teacher.state_dict().items():
        assert torch.equal(value, before[name])
    with torch.no_grad():
        for param in teacher.parameters():
            param.add_(1.0)  # its run went on
    learner.load_state_dict(state)
    obs = rows(8)
    expected, _ = make()
    assert torch.equal(learner.teacher(obs), expected.teacher(obs))


def test_divergence_is_that_of_torch():
    generator = torch.Generator().manual_seed(0)
    mean, log_std, other, other_log_std = torch.randn(4, 6, 3, generator=generator)
    normals = torch.distributions.Normal
    expected = torch.distributions.kl_divergence(
        normals(mean, log_std.exp()), normals(other, other_log_std.exp())
    ).sum(-1)
    torch.testing.assert_close(
        normal_divergence(mean, log_std, other, other_log_std), expected, rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize(
    ("teacher", "student", "told"),
    [
        (EncoderConfig(), PAST, "the teacher has no encoder"),
        (PLANT, EncoderConfig(), "the student has no encoder"),
        (PLANT, replace(PAST, latent=5), "3 entries .teacher. and 5 .student."),
        (PLANT, ESTIMATES, "encoder.estimate claims a part"),
    ],
)
def test_latents_that_do_not_compare_are_refused(teacher, student, told):
    one = gaussian_actor(GaussianActorConfig(groups=["critic"], encoder=teacher), SPEC)
    config = DistillConfig(
        latent_weight=1.0, actor=GaussianActorConfig(hidden=[16], encoder=student)
    )
    with pytest.raises(ConfigError, match=told):
        Distill(config, SPEC, seed=0, teacher=one)
    flat = deterministic_actor(DeterministicActorConfig(hidden=[16]), SPEC)
    with pytest.raises(ConfigError, match="use learner"):  # it has no density
        Distill(DistillConfig(loss=ImitationLoss.kl), SPEC, seed=0, teacher=flat)
