"""The student of a distillation, alone or with its teacher."""

from dataclasses import dataclass, field

import torch

from configs.actor_builders import estimating, gaussian_actor
from policies.deterministic_actor import DeterministicActor
from policies.gaussian_actor import GaussianActor, GaussianActorConfig
from robot_rl.core.env import EnvSpec
from robot_rl.core.errors import ConfigError
from robot_rl.core.learner import Learner
from robot_rl.core.seeding import derive_seed
from robot_rl.learners.distill import Distill, DistillConfig, ImitationLoss
from robot_rl.learners.estimation import EstimationConfig
from robot_rl.learners.optimization import Reduce


@dataclass(kw_only=True)
class DistillLearnerConfig(DistillConfig):
    """A distillation and the student that is handed to it."""

    actor: GaussianActorConfig = field(default_factory=GaussianActorConfig)
    """Policy network of the student."""
    estimation: EstimationConfig = field(default_factory=EstimationConfig)
    """How an encoder learns beside the imitation."""


def build_student(config: DistillLearnerConfig, spec: EnvSpec, *, seed: int) -> GaussianActor:
    """The student alone: all that evaluation, export and deployment need."""
    torch.manual_seed(derive_seed(seed, "initial weights"))
    return gaussian_actor(config.actor, spec)


def build_distill(
    config: DistillLearnerConfig, spec: EnvSpec, *, seed: int, stream_seed: int | None = None,
    reduce: Reduce | None = None, teacher: GaussianActor | DeterministicActor,
) -> Learner:  # fmt: skip
    """A distillation for an environment.

    Raises:
        ConfigError: The teacher has not what the student is to imitate.
    """
    actor = build_student(config, spec, seed=seed)
    if config.loss is ImitationLoss.kl and not isinstance(teacher, GaussianActor):
        raise ConfigError(
            "learner.loss=kl needs a teacher that draws its actions, got one that gives a single "
            "action; use learner.loss=mse, or a teacher of learner=sac"
        )
    if config.latent_weight > 0:
        _check_latents(config, teacher, actor)
    teacher = teacher.to(spec.device).eval().requires_grad_(False)
    learner = Distill(
        config, actor, teacher, device=spec.device,
        seed=seed if stream_seed is None else stream_seed, reduce=reduce,
    )  # fmt: skip
    return estimating(learner, actor, config, spec, reduce)


def _check_latents(
    config: DistillLearnerConfig, teacher: GaussianActor | DeterministicActor, actor: GaussianActor
) -> None:
    """Refuse latents that are not there, mean something else, or are not as wide."""
    widths = {
        name: getattr(one.network, "latent_size", 0)
        for name, one in (("teacher", teacher), ("student", actor))
    }
    weight = f"learner.latent_weight={config.latent_weight:g}"
    for name, width in widths.items():
        if width == 0:
            raise ConfigError(
                f"{weight} compares latents, but the {name} has no encoder; give it one with "
                "learner.actor.encoder.kind=mlp or conv, or set learner.latent_weight=0"
            )
    if config.actor.encoder.estimate or teacher.config.encoder.estimate:
        raise ConfigError(
            f"{weight} compares whole latents, of which actor.encoder.estimate claims a part; "
            "leave one of them out, in the student and in the teacher"
        )
    if widths["teacher"] != widths["student"]:
        raise ConfigError(
            f"{weight} compares latents of {widths['teacher']} entries (teacher) and "
            f"{widths['student']} (student); set learner.actor.encoder.latent={widths['teacher']}"
        )
