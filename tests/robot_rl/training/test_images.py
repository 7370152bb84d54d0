"""Runs that see a camera: learned, resumed bit by bit, and refused where nothing handles images."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from policies.networks.images import ImageConfig, ImageEncoderKind
from robot_rl.buffers.priorities import ReplayConfig
from robot_rl.core.base_action import BaseActionEnv
from robot_rl.core.env import EnvSpec, GroupSpec, Obs
from robot_rl.learners.off_policy import ActorObjective
from robot_rl.learners.residual import Residual, ResidualConfig
from robot_rl.learners.td3 import NoiseScheduleConfig
from robot_rl.training.evaluation import Evaluation
from tests.fakes import LinearWorld, MovingDot, ToyEnv, small_sac, small_td3
from tests.robot_rl.learners.small_hil import small_hil_serl
from tests.robot_rl.training.loop import WORLD, ends_as_if_uninterrupted
from tests.robot_rl.training.test_learning import learned

CAMERA = GroupSpec(shape=(2, 8, 9, 3), dtype=torch.uint8, stack=2)
SEEN = LinearWorld(
    groups={**WORLD.groups, "image/front": CAMERA}, bound=0.9, reward_names=WORLD.reward_names
)
IMAGES = ImageConfig(
    encoder=ImageEncoderKind.conv, channels=[8, 8], strides=[2, 1], features=6, shift=1
)


def drq_v2(spec: EnvSpec, seed: int, **settings: Any) -> Any:
    chosen: dict[str, Any] = {
        "images": IMAGES, "noise": NoiseScheduleConfig(updates=100), "noisy_objective": True,
        "target_actor": False, "actor_interval": 1, "actor_value": ActorObjective.min, "n_step": 3,
    }  # fmt: skip
    return small_td3(spec, seed, **{**chosen, **settings})


def drq_sac(spec: EnvSpec, seed: int, **settings: Any) -> Any:
    return small_sac(spec, seed, **{"images": IMAGES, "n_step": 3, **settings})


@pytest.mark.slow
@pytest.mark.parametrize("priority", [0.0, 0.6])
def test_a_run_from_images_resumes_bit_equal(tmp_path, priority):
    ends_as_if_uninterrupted(
        tmp_path, [52, 96], world=SEEN, make_learner=drq_v2, replay=ReplayConfig(priority=priority)
    )


@pytest.mark.slow
def test_a_run_with_a_grasp_critic_that_sees_resumes_bit_equal(tmp_path):
    def make(spec: EnvSpec, seed: int) -> Any:
        return small_hil_serl(spec, seed, images=IMAGES, gripper={"commands": [-1.0, 1.0]})

    ends_as_if_uninterrupted(tmp_path, [60], world=SEEN, make_learner=make)


@pytest.mark.slow
def test_a_run_with_privileged_critics_resumes_bit_equal(tmp_path):
    images = ImageConfig(**{**vars(IMAGES), "privileged_critic": True})
    ends_as_if_uninterrupted(
        tmp_path, [60], world=SEEN, make_learner=lambda *of: drq_sac(*of, images=images)
    )


def trained(folder: Path, make: Any, seed: int) -> Evaluation:
    env, judging = (ToyEnv(MovingDot(), n, limit=12, seed=seed + n) for n in (8, 100))
    learner = make(
        env.spec, seed, batch_size=64, gamma=0.9, tau=0.02, actor_lr=2e-3, critic_lr=2e-3,
        actor={"hidden": [32, 32]}, critic={"hidden": [32, 32]},
    )  # fmt: skip
    return learned(folder, env, judging, learner, total_steps=3_200, random_steps=400)


@pytest.mark.slow
@pytest.mark.parametrize("make", [drq_v2, drq_sac])
def test_a_dot_that_only_a_camera_sees_is_brought_to_the_middle(tmp_path, make):
    assert any(trained(tmp_path / str(seed), make, seed).success_rate > 0.9 for seed in range(2)), (
        "blind, 15 % of the line are the middle"
    )


class Nothing:
    """A base that does nothing."""

    groups = ("actor",)

    def next(self, obs: Obs) -> Tensor:
        return torch.zeros_like(obs["actor"])

    def restart(self, mask: Tensor, obs: Obs) -> Tensor:
        return self.next(obs)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing to restore."""


@pytest.mark.slow
def test_a_correction_that_sees_brings_the_dot_to_the_middle(tmp_path):
    """The base is blind and does nothing: all that is right comes from the pictures."""

    def train(seed: int) -> Evaluation:
        env, judging = (
            BaseActionEnv(ToyEnv(MovingDot(), n, limit=12, seed=seed + n), Nothing())
            for n in (8, 100)
        )
        config = ResidualConfig(
            batch_size=64, gamma=0.9, tau=0.02, n_step=3, actor_lr=2e-3, critic_lr=2e-3,
            temperature_lr=3e-3, init_temperature=0.1, images=IMAGES,
        )  # fmt: skip
        config.actor.hidden = config.critic.hidden = [32, 32]
        config.actor.scale, config.actor.initial_std = 1.0, 0.5
        learner = Residual(config, env.spec, seed=seed)
        folder = tmp_path / str(seed)
        return learned(folder, env, judging, learner, total_steps=3_200, random_steps=400)

    assert any(train(seed).success_rate > 0.9 for seed in range(2)), "blind: 15 %"
