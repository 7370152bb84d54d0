"""Learning from images: shifts, losses beside float64, and who trains the encoder."""

import copy
import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from policies.networks.images import ImageConfig, ImageEncoder, ImageEncoderKind, ImagePolicy
from robot_rl.core.env import EnvSpec, GroupSpec
from robot_rl.core.errors import ConfigError
from robot_rl.core.transition import Batch
from robot_rl.learners.images import random_shift
from robot_rl.learners.networks import some_members
from robot_rl.learners.off_policy import ActorObjective, TemperatureLoss
from robot_rl.learners.sac import TargetConfig
from robot_rl.learners.td3 import NoiseScheduleConfig
from tests.equality import assert_same
from tests.fakes import (
    CPU,
    copied,
    random_batch,
    random_obs,
    small_sac,
    small_td3,
)
from tests.robot_rl.learners.reference_drq import (
    Draws,
    Encoded,
    doubled,
    network,
    q_values,
    seen,
)
from tests.robot_rl.learners.small_hil import small_hil_serl
from tests.robot_rl.learners.small_offline import small_h2o

STRIDES = [2, 1]
TOLERANCE = 1e-5
"""Of float32 beside float64, for losses and gradients around 1."""


def make_spec(cameras: int = 2, privileged: bool = True) -> EnvSpec:
    camera = GroupSpec(shape=(3, 9, 11, 3), dtype=torch.uint8, stack=3)
    groups: dict[str, GroupSpec] = {"actor": GroupSpec(shape=(4,))}
    if privileged:
        groups["critic"] = GroupSpec(shape=(6,))
    groups |= {f"image/{i}": camera for i in range(cameras)}
    return EnvSpec(num_envs=4, device=CPU, groups=groups, action_size=2, control_dt=0.1)


SPEC = make_spec()


def images(**settings: Any) -> ImageConfig:
    chosen = {
        "encoder": ImageEncoderKind.conv, "channels": [8, 8], "strides": STRIDES, "features": 5,
        "shift": 2,
    }  # fmt: skip
    return ImageConfig(**{**chosen, **settings})


def drq_v2(**settings: Any) -> Any:
    chosen: dict[str, Any] = {
        "images": images(), "noise": NoiseScheduleConfig(updates=10), "noisy_objective": True,
        "smoothing_clip": 0.3, "target_actor": False, "delay_targets": False, "actor_interval": 1,
        "actor_value": ActorObjective.min, "batch_size": 12,
    }  # fmt: skip
    return small_td3(SPEC, 3, **{**chosen, **settings})


def drq_sac(**settings: Any) -> Any:
    chosen: dict[str, Any] = {
        "images": images(), "target": TargetConfig(entropy=False), "batch_size": 12,
        "actor_value": ActorObjective.mean, "init_temperature": 0.1, "critic": {"members": 3},
    }  # fmt: skip
    return small_sac(SPEC, 3, **{**chosen, **settings})


def seen_statistics(learner: Any) -> None:
    learner.observe_stored(random_obs(SPEC, 20, torch.Generator().manual_seed(5)))


def draws_of(learner: Any) -> Draws:
    generator = torch.Generator()
    generator.set_state(learner.generator.get_state())
    return Draws(generator, learner.config.images.shift)


def assert_gradients(module: Any, weights: dict[str, Tensor], loss: Tensor) -> None:
    """Gradients that an update left are those of a loss in float64."""
    names = [name for name, _ in module.named_parameters()]
    expected = torch.autograd.grad(loss, [weights[name] for name in names], retain_graph=True)
    for (name, param), found in zip(module.named_parameters(), expected, strict=True):
        assert param.grad is not None, name
        torch.testing.assert_close(
            param.grad.double(), found, atol=TOLERANCE, rtol=TOLERANCE, msg=name
        )


def assert_critics_step(
    learner: Any, batch: Batch, q: Tensor, next_q: Tensor, *, critic: dict[str, Tensor],
    encoder: dict[str, Tensor],
) -> dict[str, Tensor]:  # fmt: skip
    """Update, with the loss and the gradients of critics and encoder out of values in float64."""
    y = (batch.reward.double() + batch.discount.double() * next_q).detach()
    loss = ((q - y) ** 2).mean(1).sum()
    metrics, _ = learner.update(batch)
    assert float(metrics["critic_loss"]) == pytest.approx(loss.item(), abs=TOLERANCE)
    assert_gradients(learner.critic, critic, loss)
    assert_gradients(learner.images.encoder, encoder, loss)
    return metrics


def test_drq_v2_learns_from_the_losses_of_its_paper():
    learner, batch = drq_v2(), random_batch(SPEC, 12, seed=4)
    seen_statistics(learner)
    for other in range(2):  # targets that have moved
        learner.update(random_batch(SPEC, 12, seed=other))
    draws = draws_of(learner)
    encoder, actor, critic, target = (
        doubled(one)
        for one in (learner.images.encoder, learner.actor, learner.critic, learner.target_critic)
    )
    sigma = 1.0 + (0.1 - 1.0) * 3 / 10  # third of ten updates
    features = Encoded.of(encoder, batch, draws, STRIDES)

    def noisy(weights: Any, vector: Tensor, of: Any) -> tuple[Tensor, Tensor]:
        action = torch.tanh(network(weights, seen(weights, vector, of)))
        noise = (sigma * draws.normal(12, 2)).clamp(-0.3, 0.3)
        return action, (action + noise).clamp(-1, 1)

    _, next_action = noisy(actor, batch.next_obs["actor"], features.next_obs)
    next_q = q_values(target, batch.next_obs["actor"], features.next_obs, next_action).amin(0)
    q = q_values(critic, batch.obs["actor"], features.obs, batch.action.double())
    metrics = assert_critics_step(learner, batch, q, next_q, critic=critic, encoder=encoder)

    stepped = doubled(learner.critic)
    still = {name: x.detach() for name, x in features.obs.items()}
    action, cut = noisy(actor, batch.obs["actor"], still)
    action = action + (cut - action).detach()  # the gradient passes the bounds
    actor_loss = -q_values(stepped, batch.obs["actor"], still, action).amin(0).mean()
    assert float(metrics["actor_loss"]) == pytest.approx(actor_loss.item(), abs=TOLERANCE)
    assert_gradients(learner.actor, actor, actor_loss)


def test_drq_sac_learns_from_the_losses_of_its_paper():
    learner, batch = drq_sac(temperature_loss=TemperatureLoss.alpha), random_batch(SPEC, 12, seed=4)
    seen_statistics(learner)
    for other in range(2):
        learner.update(random_batch(SPEC, 12, seed=other))
    draws = draws_of(learner)
    encoder, actor, critic, target = (
        doubled(one)
        for one in (learner.images.encoder, learner.actor, learner.critic, learner.target_critic)
    )
    alpha = float(learner.temperature.value())
    features = Encoded.of(encoder, batch, draws, STRIDES)

    def sample(vector: Tensor, of: Any) -> tuple[Tensor, Tensor]:
        mean, log_std = network(actor, seen(actor, vector, of)).chunk(2, -1)
        log_std = log_std.clamp(-5, 2)
        u = mean + draws.normal(12, 2) * log_std.exp()
        log_prob = torch.distributions.Normal(mean, log_std.exp()).log_prob(u)
        log_prob = log_prob - torch.log(1 - torch.tanh(u) ** 2)
        return torch.tanh(u), log_prob.sum(-1)

    next_action, _ = sample(batch.next_obs["actor"], features.next_obs)
    next_q = q_values(target, batch.next_obs["actor"], features.next_obs, next_action).amin(0)
    q = q_values(critic, batch.obs["actor"], features.obs, batch.action.double())
    metrics = assert_critics_step(learner, batch, q, next_q, critic=critic, encoder=encoder)

    still = {name: x.detach() for name, x in features.obs.items()}
    action, log_prob = sample(batch.obs["actor"], still)
    value = q_values(doubled(learner.critic), batch.obs["actor"], still, action).mean(0)
    actor_loss = (alpha * log_prob - value).mean()
    assert float(metrics["actor_loss"]) == pytest.approx(actor_loss.item(), abs=TOLERANCE)
    assert float(metrics["entropy"]) == pytest.approx(-log_prob.mean().item(), abs=TOLERANCE)
    assert_gradients(learner.actor, actor, actor_loss)


@pytest.mark.parametrize("make", [drq_v2, drq_sac])
@pytest.mark.parametrize("privileged", [False, True])
def test_one_of_actor_and_critics_trains_the_encoder(make, privileged):
    learner = make(images=images(privileged_critic=privileged), actor_interval=2)
    assert ("image/0" in learner.critic.groups) != privileged
    assert set(learner.actor_groups) == {"actor", "image/0", "image/1"}
    assert learner.critic_groups == (("critic",) if privileged else ())
    moved: list[bool] = []
    for i in range(4):  # the actor steps in every second update
        before = copied(list(learner.images.encoder.parameters()))
        learner.update(random_batch(SPEC, 12, seed=i))
        now = list(learner.images.encoder.parameters())
        moved.append(not all(map(torch.equal, before, now)))
    assert moved == ([False, True, False, True] if privileged else [True] * 4)


def test_members_that_are_drawn_have_the_trunk_of_all():
    learner = drq_sac(target=TargetConfig(members=1), critic={"members": 3})
    batch = learner.encode(random_batch(SPEC, 12))
    whole = learner.critic(batch.obs, batch.action)
    for index in range(3):
        some = some_members(learner.critic, torch.tensor([index]), batch.obs, batch.action)
        torch.testing.assert_close(some[0], whole[index])


def test_the_grasp_critic_learns_from_the_features_and_leaves_the_encoder_to_sac():
    learner = small_hil_serl(SPEC, 3, images=images(shift=0), compile=False)
    still = small_hil_serl(SPEC, 3, images=images(shift=0), compile=False, gripper_lr=0.0)
    batch = random_batch(SPEC, 12)
    encoder, gripper, target = (
        copy.deepcopy(one)
        for one in (learner.images.encoder, learner._gripper, learner._target_gripper)
    )
    metrics, _ = learner.update(batch)
    still.update(batch)
    assert_same(learner.images.encoder.state_dict(), still.images.encoder.state_dict())
    with torch.no_grad():
        now, after = encoder(batch.obs), encoder(batch.next_obs)
        command = (batch.action[:, -1:] - torch.tensor([-1.0, 0.0, 1.0])).abs().argmin(-1)
        best = gripper(after).argmax(-1, keepdim=True)
        wanted = batch.reward + batch.discount * target(after).gather(1, best)[:, 0]
        error = gripper(now).gather(1, command[:, None])[:, 0] - wanted
        loss = float((batch.weight * error * error).mean())
    assert float(metrics["grasp_critic_loss"]) == pytest.approx(loss, rel=1e-5)
    moved = [
        name for name, one in learner._gripper.state_dict().items()
        if not torch.equal(one, gripper.state_dict()[name])
    ]  # fmt: skip
    assert any("trunk" in name for name in moved), "it reads the features by a trunk of its own"
    policy, obs = learner.policy(), random_obs(SPEC, 4, torch.Generator().manual_seed(1))
    assert isinstance(policy, ImagePolicy)
    assert policy.groups == ("actor", "image/0", "image/1")
    with torch.no_grad():
        action = policy(obs)
        assert torch.equal(action, learner.act(obs, explore=False))
        other = {**obs, "image/0": 255 - obs["image/0"]}
        scores = (learner._gripper(encoder(one)) for one in (obs, other))
    assert set(action[:, -1].tolist()) <= {-1.0, 0.0, 1.0}
    assert not torch.equal(*scores)


def test_the_policy_reads_frames_as_they_are():
    learner = drq_v2()
    policy, obs = learner.policy(), random_obs(SPEC, 4, torch.Generator().manual_seed(1))
    assert isinstance(policy, ImagePolicy)
    assert policy.groups == ("actor", "image/0", "image/1")
    learner.begin(torch.ones(4, dtype=torch.bool))
    with torch.no_grad():
        assert torch.equal(policy(obs), learner.act(obs, explore=False))
        assert torch.equal(policy(obs), policy(copied(obs)))


def test_noise_fades_over_the_updates():
    learner = drq_v2(noise=NoiseScheduleConfig(updates=4, start=1.0, end=0.2))
    obs = random_obs(SPEC, 4, torch.Generator().manual_seed(1))
    rows = {name: group.repeat(500, *[1] * (group.ndim - 1)) for name, group in obs.items()}
    learner.begin(torch.ones(2000, dtype=torch.bool))
    found = []
    for i in range(6):
        with torch.no_grad():
            for param in learner.actor.network.parameters():
                param.mul_(0.01)  # in the middle of the range, where nothing is cut off
        difference = learner.act(rows, explore=True) - learner.act(rows, explore=False)
        found.append(float(torch.quantile(difference.abs(), 0.5)) / 0.6745)
        learner.update(random_batch(SPEC, 12, seed=i))
    expected = [1.0, 0.8, 0.6, 0.4, 0.2, 0.2]
    assert found == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("make", [small_sac, small_td3])
def test_pixels_alone_are_enough(make):
    camera = make_spec().groups["image/0"]
    spec = replace(SPEC, groups={"image/0": camera})
    learner = make(spec, 0, images=images(), batch_size=12)
    assert learner.actor_groups == ("image/0",)
    assert learner.critic_groups == ()
    metrics, _ = learner.update(random_batch(spec, 12))
    assert all(value.isfinite() for value in metrics.values())
    learner.begin(torch.ones(4, dtype=torch.bool))
    obs = random_obs(spec, 4, torch.Generator().manual_seed(1))
    learner.observe_stored(obs)
    assert learner.act(obs, explore=True).shape == (4, 2)


def shifted(image: Tensor, y: int, x: int) -> Tensor:
    """One frame (H, W, C) whose pixel (i, j) is the one at (i + y, j + x), or nearest to it."""
    height, width, _ = image.shape
    rows = torch.arange(height).add(y).clamp(0, height - 1)
    columns = torch.arange(width).add(x).clamp(0, width - 1)
    return image[rows][:, columns]


def test_stacks_move_as_one_by_every_displacement_alike():
    generator = torch.Generator().manual_seed(2)
    one = torch.randint(0, 256, (1, 3, 7, 6, 2), generator=generator).to(torch.uint8)
    found = random_shift(one.expand(1000, -1, -1, -1, -1), 1, generator)
    assert found.shape == (1000, 3, 7, 6, 2)
    counts = dict.fromkeys(itertools.product((-1, 0, 1), repeat=2), 0)
    for stack in found:
        for y, x in counts:
            if torch.equal(stack[0], shifted(one[0, 0], y, x)):
                assert all(torch.equal(stack[i], shifted(one[0, i], y, x)) for i in (1, 2))
                counts[y, x] += 1
    assert sum(counts.values()) == 1000
    assert min(counts.values()) > 70  # 111 each, deviation 10


def test_obs_and_next_obs_are_moved_apart():
    learner = drq_v2(images=images(channels=[8], strides=[1], shift=3))
    batch = random_batch(SPEC, 12)
    same = replace(batch, next_obs=batch.obs)
    encoded = learner.encode(same)
    assert not torch.equal(encoded.obs["image/0"], encoded.next_obs["image/0"])
    assert encoded.obs["image/0"].requires_grad
    assert not encoded.next_obs["image/0"].requires_grad


def test_without_shift_frames_stay():
    learner = drq_v2(images=images(shift=0))
    batch = random_batch(SPEC, 12)
    with torch.no_grad():
        assert_same(dict(learner.encode(batch).obs), learner.encoded(batch.obs))


@pytest.mark.parametrize("kind", [ImageEncoderKind.conv, ImageEncoderKind.resnet])
def test_an_encoder_says_how_many_features_it_has(kind):
    encoder = ImageEncoder(images(encoder=kind), SPEC)
    obs = encoder(random_obs(SPEC, 5, torch.Generator().manual_seed(1)))
    assert {n: obs[n].shape for n in encoder.groups} == {
        name: (5, size) for name, size in encoder.sizes.items()
    }
    assert obs["actor"].shape == (5, 4)


@pytest.mark.parametrize(
    ("height", "strides", "features"), [(84, [2, 1, 1, 1], 39_200), (48, [2, 2, 2, 1], 288)]
)
def test_published_shapes(height, strides, features):
    camera = GroupSpec(shape=(3, height, height, 3), dtype=torch.uint8, stack=3)
    spec = replace(SPEC, groups={"actor": GroupSpec(shape=(1,)), "image/eye": camera})
    config = ImageConfig(encoder=ImageEncoderKind.conv, strides=strides)
    assert ImageEncoder(config, spec).sizes == {"image/eye": features}


def test_a_run_says_that_images_are_not_compiled():
    for learner in (drq_v2(), drq_sac()):
        assert learner.compiled_step is None
        assert "images are encoded by PyTorch" in learner.update_method


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: small_sac(make_spec(0), images=images()), "needs a camera, .*groups: actor"),
        (lambda: drq_v2(images=images(cameras=["2"])), "camera of .*'image/2' is unknown"),
        (lambda: drq_v2(images=images(strides=[4, 3])), "too small for so many convolutions"),
        (lambda: images(strides=[1]), "as many strides as channels"),
        (lambda: images(shift=-1), "shift must be at least 0"),
        (lambda: images(encoder=ImageEncoderKind.resnet, channels=[6, 6]), "multiples of 4"),
        (
            lambda: small_td3(
                make_spec(privileged=False), images=images(privileged_critic=True)
            ),
            "needs the group 'critic'",
        ),
        (lambda: drq_v2(actor={"groups": ["image/0"]}), "networks read vectors only"),
        (lambda: small_h2o(SPEC, images=images()), "compares observations that are vectors"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
