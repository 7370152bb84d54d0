"""Imitation from images: students and clones whose encoder learns with them."""

import copy
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from policies.networks.act import ACTPolicyConfig
from policies.networks.cloned_mlp import ClonedMLPConfig
from policies.networks.flow import FlowPolicyConfig
from policies.networks.gaussian_actor import GaussianActorConfig
from policies.networks.images import ImageConfig, ImageEncoderKind, ImagePolicy
from robot_rl.core.env import GroupSpec
from robot_rl.core.errors import ConfigError
from robot_rl.core.transition import Batch
from robot_rl.learners.cloning import ACT, BC, ACTConfig, BCConfig, Cloning, Flow, FlowConfig
from robot_rl.learners.distill import Distill, DistillConfig, make_student
from robot_rl.learners.networks import gaussian_actor
from tests.equality import assert_same
from tests.fakes import LinearWorld, ToyEnv, random_batch, random_obs
from tests.vision_models import save_model

CAMERA = GroupSpec(shape=(2, 8, 9, 3), dtype=torch.uint8, stack=2)
SPEC = ToyEnv(LinearWorld(groups={**LinearWorld().groups, "image/front": CAMERA})).spec
IMAGES = ImageConfig(
    encoder=ImageEncoderKind.conv, channels=[8, 8], strides=[2, 1], features=6, shift=1
)
SMALL: dict[str, Any] = {"batch_size": 16, "images": IMAGES, "actor_lr": 3e-3}


def distill(seed: int = 0, **settings: Any) -> Distill:
    torch.manual_seed(99)
    teacher = gaussian_actor(GaussianActorConfig(groups=["critic"], hidden=[16]), SPEC)
    config = DistillConfig(actor=GaussianActorConfig(hidden=[16]), **{**SMALL, **settings})
    return Distill(config, SPEC, seed=seed, teacher=teacher)


def clone(kind: str, length: int = 1, **settings: Any) -> Cloning:
    chosen = {**SMALL, "chunk_length": length, **settings}
    if kind == "bc":
        return BC(BCConfig(actor=ClonedMLPConfig(hidden=[16]), **chosen), SPEC, seed=0)
    if kind == "flow":
        return Flow(FlowConfig(actor=FlowPolicyConfig(hidden=[32]), **chosen), SPEC, seed=0)
    actor = ACTPolicyConfig(width=16, heads=2, feedforward=32, encoder_blocks=1, decoder_blocks=1)
    return ACT(ACTConfig(actor=actor, **chosen), SPEC, seed=0)


def shown(count: int, length: int, seed: int = 0) -> Batch:
    """Actions that only a picture tells: the brightness of the newest frame's left half."""
    obs = random_obs(SPEC, count, torch.Generator().manual_seed(seed))
    level = torch.linspace(0, 255, count)[torch.randperm(count)]
    obs["image/front"][:, -1, :, :4] = level[:, None, None, None].to(torch.uint8)
    told = (level / 127.5 - 1)[:, None].expand(count, SPEC.action_size) * 0.8
    zeros = torch.zeros(count)
    chunk = told[:, None].expand(-1, length, -1)
    return Batch(
        obs=obs, action=told, reward=zeros, discount=zeros, next_obs=obs, weight=zeros + 1,
        extra={"chunk": chunk, "valid": torch.ones(count, length, dtype=torch.bool)},
    )  # fmt: skip


def encoder_of(learner: Any) -> list[Tensor]:
    return [each.detach().clone() for each in learner.images.encoder.parameters()]


@pytest.mark.slow
@pytest.mark.parametrize("make", [distill, partial(clone, "bc"), partial(clone, "act")])
def test_what_is_around_a_frozen_model_is_trained(tmp_path, make):
    """Its own parameters were asked for a gradient that they cannot have."""
    frozen = ImageConfig(
        encoder=ImageEncoderKind.pretrained, weights=save_model(tmp_path, "resnet"), shift=1
    )
    learner = make(images=frozen)
    encoder = learner.images.encoder
    before = {name: one.clone() for name, one in encoder.state_dict().items()}
    learner.update(shown(16, 1))
    moved = [name for name, one in encoder.state_dict().items() if not one.equal(before[name])]
    assert moved == ["cameras.image/front.kernel"]


def test_a_student_sees_images_and_its_teacher_none():
    learner = distill()
    assert learner.actor_groups == ("actor", "image/front")
    assert learner.critic_groups == ("critic",)
    assert isinstance(learner.policy(), ImagePolicy)
    before = encoder_of(learner)
    learner.update(random_batch(SPEC, 16, 0))
    assert not any(torch.equal(a, b) for a, b in zip(before, encoder_of(learner), strict=True))
    obs = random_obs(SPEC, 5, torch.Generator().manual_seed(1))
    other = {**obs, "image/front": 255 - obs["image/front"]}
    acted = learner.act(obs, explore=False)
    assert torch.equal(acted, learner.policy()(obs))
    assert not torch.equal(acted, learner.act(other, explore=False))


def test_a_student_goes_on_bit_equal_and_is_made_without_its_teacher():
    one, two = distill(), distill(seed=3)
    for seed in range(3):
        one.update(random_batch(SPEC, 16, seed))
    two.load_state_dict(copy.deepcopy(one.state_dict()))
    for seed in range(3, 5):
        one.update(random_batch(SPEC, 16, seed))
        two.update(random_batch(SPEC, 16, seed))
    assert_same(one.state_dict(), two.state_dict())
    alone = make_student(one.config, SPEC, seed=7)
    alone.load_state_dict(one.policy().state_dict())
    obs = random_obs(SPEC, 4, torch.Generator().manual_seed(2))
    assert torch.equal(alone(obs), one.policy()(obs))


@pytest.mark.parametrize("kind", ["bc", "flow", "act"])
def test_a_clone_learns_what_only_a_picture_tells_and_goes_on_bit_equal(kind):
    learner, batch = clone(kind, length=2), shown(64, 2)
    assert learner.actor_groups == ("actor", "image/front")
    learner.observe_stored({"actor": batch.obs["actor"]})
    held = shown(64, 2, seed=5)
    begin = float(learner.held_out_loss(held))
    for _ in range(150):
        learner.update(batch)
    assert float(learner.held_out_loss(held)) < 0.5 * begin
    again = clone(kind, length=2)
    again.load_state_dict(copy.deepcopy(learner.state_dict()))
    for one in (learner, again):
        one.update(batch)
    assert_same(learner.state_dict(), again.state_dict())


def test_without_a_critic_none_can_be_privileged():
    images = ImageConfig(**{**vars(IMAGES), "privileged_critic": True})
    with pytest.raises(ConfigError, match="has no critic"):
        DistillConfig(images=images)
    with pytest.raises(ConfigError, match="has no critic"):
        BCConfig(images=images)
