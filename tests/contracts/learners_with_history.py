"""Learners whose actors look back, estimate, or teach each other: cases of the contract."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from policies.networks.gaussian_actor import GaussianActorConfig
from policies.networks.inputs import EncoderConfig, EncoderKind
from robot_rl.core.env import EnvSpec, TermSpec
from robot_rl.core.learner import Learner
from robot_rl.learners.distill import Distill, DistillConfig, ImitationLoss
from robot_rl.learners.estimation import EstimationConfig
from robot_rl.learners.networks import gaussian_actor
from tests.contracts.learner import LearnerCase
from tests.fakes import EXPERTS, small_sac, small_td3

TERMS = {
    "actor": (TermSpec(name="gyro", width=1, history=4),),
    "critic": (TermSpec(name="velocity", width=2), TermSpec(name="plant", width=4)),
}
"""Of the groups of `LinearWorld`."""
PAST = EncoderConfig(kind=EncoderKind.mlp, hidden=[8], latent=3)
ESTIMATES = replace(PAST, estimate=["velocity"])
PLANT = replace(PAST, terms=["plant"])
BESIDE = EstimationConfig(next_obs=True)
IMITATES: dict[str, Any] = {"loss": "actor_loss", "reads": ("obs",)}


def actor(encoder: EncoderConfig = PAST, **settings: Any) -> GaussianActorConfig:
    return GaussianActorConfig(**{"hidden": [16], "encoder": encoder, **settings})


def sac(**settings: Any) -> Callable[[EnvSpec, int], Learner]:
    given: dict[str, Any] = {"actor": {"encoder": PAST}, **settings}
    return lambda spec, seed: small_sac(spec, seed, **given)


def td3(**settings: Any) -> Callable[[EnvSpec, int], Learner]:
    given: dict[str, Any] = {"actor_interval": 1, "actor": {"encoder": ESTIMATES}, **settings}
    return lambda spec, seed: small_td3(spec, seed, **given)


def distill(teacher: GaussianActorConfig, **settings: Any) -> Callable[[EnvSpec, int], Learner]:
    config = DistillConfig(**{"batch_size": 8, "actor": actor(), "mixture_share": 0.5, **settings})

    def make(spec: EnvSpec, seed: int) -> Learner:
        torch.manual_seed(99)  # there is one teacher, whatever the student's seed
        return Distill(config, spec, seed=seed, teacher=gaussian_actor(teacher, spec))

    return make


MIXES = GaussianActorConfig(**EXPERTS)
KNOWS_ALL = GaussianActorConfig(hidden=[16], groups=["critic"])
WITH_HISTORY = tuple(
    replace(case, terms=TERMS)
    for case in (
        LearnerCase("sac with a history", sac()),
        LearnerCase(
            "sac with convolutions over its history",
            sac(actor={"encoder": EncoderConfig(kind=EncoderKind.conv, hidden=[4], latent=3)}),
        ),
        LearnerCase("sac that estimates", sac(actor={"encoder": ESTIMATES}, estimation=BESIDE)),
        LearnerCase("sac that sees what the critic sees", sac(actor={"groups": ["critic"]})),
        LearnerCase(
            "sac that encodes the plant",
            sac(actor={"encoder": PLANT, "groups": ["actor", "critic"]}),
        ),
        LearnerCase("td3 that estimates", td3(estimation=BESIDE)),
        LearnerCase("distill of experts", distill(KNOWS_ALL, actor=MIXES), **IMITATES),
        LearnerCase("distill", distill(KNOWS_ALL), **IMITATES),
        LearnerCase(
            "distill by divergence",
            distill(KNOWS_ALL, loss=ImitationLoss.kl, weight_decay=1e-3, max_grad_norm=1.0),
            **IMITATES,
        ),
        LearnerCase(
            "distill of a latent",
            distill(actor(PLANT, groups=["critic"]), latent_weight=1.0),
            **IMITATES,
        ),
    )
)
