"""Distillation of a teacher into a student by DAgger (Ross, Gordon and Bagnell 2011).

The worlds go where the student leads them: at first the teacher acts in a share of all steps, later
in none. Whoever acted, every stored observation is labelled with what the teacher would have done,
and the student learns that by regression. The teacher may see what no robot measures; the policy
that is kept, exported and deployed is the student alone.

With `latent_weight` and an encoder on both sides this is the second phase of RMA (Kumar et al.
2021, arXiv:2107.04034): the student's encoder learns from its history what the teacher's makes of
the hidden parameters. There the network behind the encoder is the teacher's; here it learns too.
"""

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch
from torch import Tensor, nn

from policies.networks.deterministic_actor import DeterministicActor
from policies.networks.experts import find_mixture, routing
from policies.networks.gaussian_actor import GaussianActor, GaussianActorConfig
from policies.networks.images import ImageConfig, ImagePolicy
from robot_rl.core.env import EnvSpec, EnvStep, Obs
from robot_rl.core.errors import ConfigError
from robot_rl.core.seeding import derive_seed
from robot_rl.core.transition import Batch
from robot_rl.learners.estimation import EstimationConfig, make_estimation
from robot_rl.learners.images import ImageLearning, check_no_critic, make_image_learning
from robot_rl.learners.networks import (
    batch_statistics,
    gaussian_actor,
    seed_weights,
    uses_batch_norm,
    without_invalid,
)
from robot_rl.learners.off_policy import BatchLearner
from robot_rl.learners.optimization import (
    DescentConfig,
    Optimizer,
    Reduce,
    autocast,
    check_ranges,
    fast_products,
)


class ImitationLoss(Enum):
    """Quantity that is regressed."""

    mse = "mse"
    """Squared difference of the deterministic actions, within [-1, 1]."""
    kl = "kl"
    """Divergence of the student's normal from the teacher's, before both are squashed."""


@dataclass(kw_only=True)
class DistillConfig(DescentConfig):
    """Whom to imitate, and how."""

    teacher: str = ""
    """Folder of the run whose best policy teaches, of one of its checkpoints, or of runs, of which
    the newest does."""
    noiseless_teacher: bool = False
    """A teacher that learned on measurements answers to the true state, which the run shows it as
    its group `critic`. Noise of sensors, which shakes what it does on a robot, then shakes nothing
    that the student learns. The checkpoint that does best on the true state teaches."""
    batch_size: int = 1024
    """Observations per update."""
    actor_lr: float = 1e-3
    """Step size of the student."""
    loss: ImitationLoss = ImitationLoss.mse
    """mse of actions, or kl of distributions."""
    latent_weight: float = 0.0
    """Weight of the squared difference of the two encoders' latents (RMA); 0 leaves it out."""
    mixture_share: float = 1.0
    """Share of the steps in which the teacher acts in the beginning."""
    mixture_updates: int = 2_000
    """Updates over which this share falls to 0, linearly."""
    actor: GaussianActorConfig = field(default_factory=GaussianActorConfig)
    """Policy network of the student."""
    estimation: EstimationConfig = field(default_factory=EstimationConfig)
    """Loss of an encoder beside the imitation."""
    images: ImageConfig = field(default_factory=ImageConfig)
    """Images that the student sees; the teacher sees none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, {
            "batch_size": (1, 1e9), "actor_lr": (0, 1), "latent_weight": (0, 1e6),
            "mixture_share": (0, 1), "mixture_updates": (1, 1e12),
        })  # fmt: skip
        check_no_critic(self.images)


Teacher = GaussianActor | DeterministicActor
"""A policy that is not trained any more."""


def make_student(config: DistillConfig, spec: EnvSpec, *, seed: int) -> nn.Module:
    """The student alone: all that evaluation, export and deployment need."""
    return _policy_of(*_make_student(config, spec, seed))


def _make_student(
    config: DistillConfig, spec: EnvSpec, seed: int
) -> tuple[GaussianActor, ImageLearning | None]:
    """The student's network, and the encoder of the images that it sees; None for none."""
    seed_weights(seed)
    images = make_image_learning(config.images, spec)
    return gaussian_actor(config.actor, spec, images), images


def _policy_of(actor: GaussianActor, images: ImageLearning | None) -> nn.Module:
    return actor if images is None else ImagePolicy(images.encoder, actor, actor.groups)


class Distill(BatchLearner):
    """A student that follows any teacher; there are no values and no rewards."""

    def __init__(
        self, config: DistillConfig, spec: EnvSpec, *, teacher: Teacher, seed: int,
        stream_seed: int | None = None, reduce: Reduce | None = None,
    ) -> None:  # fmt: skip
        """Make the student.

        Args:
            config: Hyperparameters and network.
            spec: Environment that is learned in.
            teacher: Read only.
            seed: Of the initial weights.
            stream_seed: Chooses who acts, where several processes share initial weights; None
                takes `seed`.
            reduce: Joins the gradients of several processes.

        Raises:
            ConfigError: The teacher has not what the student is to imitate.
        """
        self.config, device = config, spec.device
        actor, self.images = _make_student(config, spec, seed)
        _check_teacher(config, teacher, actor)
        self.actor = actor.to(device).train(False)
        self._student = _policy_of(self.actor, self.images)
        self.teacher = teacher.to(device).eval().requires_grad_(False)
        self.actor_groups = tuple(actor.groups)
        """Observation groups that the student needs; the teacher, who acts while it explores, needs
        those of `critic_groups` too."""
        self.estimation = make_estimation(config.estimation, config, actor, spec, reduce)
        beside = () if self.estimation is None else self.estimation.groups
        named = dict.fromkeys((*teacher.groups, *beside))
        self.critic_groups = tuple(name for name in named if name not in self.actor_groups)
        """Observation groups that only learning needs: what the teacher sees beyond."""
        self.samples_per_update = config.batch_size
        """B: transitions that one `update` eats."""
        self.gamma, self.n_step = 0.0, 1
        self.updates = 0
        largest = max(math.prod(param.shape[-2:]) for param in actor.parameters())
        self.products = fast_products(device, config.precision, config.batch_size, largest)
        """Entered by every update."""
        self.changes_settings = self.products.changes_setting
        self._uses_batch_norm = uses_batch_norm(actor)
        self._experts = find_mixture(actor)
        encoder = [] if self.images is None else self.images.encoder.parameters()
        self._optimizer = Optimizer(
            [*actor.parameters(), *encoder],
            config.actor_lr,
            config,
            after_step=actor.constrain,
            reduce=reduce,
        )
        self._device = device
        self.generator = torch.Generator(device=device)
        own_seed = seed if stream_seed is None else stream_seed
        self.generator.manual_seed(derive_seed(own_seed, "who acts"))

    @property
    def mixture(self) -> float:
        """Share of the steps in which the teacher acts now."""
        left = max(0.0, 1 - self.updates / self.config.mixture_updates)
        return self.config.mixture_share * left

    @torch.no_grad()
    def act(self, obs: Obs, explore: bool) -> Tensor:
        """The student's actions, (N, A), in [-1, 1]; exploring, the teacher's in its share."""
        action = self._student(obs)
        if not explore or self.mixture == 0:
            return action
        drawn = torch.rand(len(action), 1, generator=self.generator, device=self._device)
        return torch.where(drawn < self.mixture, self.teacher(obs), action)

    def observe(self, step: EnvStep) -> None:
        """Take what is acted on next into the normalisers."""
        self.actor.update_statistics(step.obs)
        if self.estimation is not None:
            self.estimation.update_statistics(step.obs)

    def observe_stored(self, obs: Obs) -> None:
        """The normaliser takes in what the student is going to see, nothing else."""

    def update(self, batch: Batch) -> tuple[dict[str, Tensor], Tensor]:
        """One step of the student towards what the teacher does at these observations.

        Returns:
            Detached metrics, and the error of every row, (B,), as its priority.
        """
        rows = without_invalid(batch) if self._uses_batch_norm else batch
        with self.products, batch_statistics(self.actor):
            with routing(self._experts, self.generator) as routed:
                error = self._errors(rows.obs, self._seen(rows.obs))  # (B,)
            loss = routed.add_loss((rows.weight * error).mean(), rows.weight)
            metrics = {"actor_loss": loss.detach(), **routed.metrics(rows.weight)}
            if self.config.latent_weight > 0:
                latent = (rows.weight * self._latent_errors(rows.obs)).mean()
                loss = loss + self.config.latent_weight * latent
                metrics["latent_loss"] = latent.detach()
            self._optimizer.step(loss)
        metrics["mixture"] = torch.full((), self.mixture, device=self._device)
        self.updates += 1
        if self.estimation is not None:
            with self.products:
                metrics |= self.estimation.step(batch)
        return metrics, error.detach()

    def _seen(self, obs: Obs) -> Obs:
        """Observations as the student learns from them: features of shifted frames for images."""
        if self.images is None:
            return obs
        with autocast(self._device, self.config.precision):
            return self.images.encode_obs(obs, self.generator)

    def _errors(self, obs: Obs, seen: Obs) -> Tensor:
        with autocast(self._device, self.config.precision):
            if self.config.loss is ImitationLoss.mse:
                with torch.no_grad():
                    label = self.teacher(obs)
                return (self.actor(seen) - label).square().mean(-1)
            assert isinstance(self.teacher, GaussianActor)  # `_check_teacher`
            with torch.no_grad():
                label, label_log_std = self.teacher.moments(obs)
            mean, log_std = self.actor.moments(seen)
        return normal_divergence(label, label_log_std, mean, log_std)

    def _latent_errors(self, obs: Obs) -> Tensor:
        with torch.no_grad():
            label = self.teacher.latent(obs)
        return (self.actor.latent(obs) - label).square().mean(-1)

    def policy(self) -> nn.Module:
        """The student."""
        return self._student

    def _parts(self) -> dict[str, Any]:
        # The teacher as it was: its run may go on meanwhile.
        estimation = {} if self.estimation is None else self.estimation.parts()
        return {
            "actor": self._student, "actor_optimizer": self._optimizer, "teacher": self.teacher,
            **estimation,
        }  # fmt: skip


def _check_teacher(config: DistillConfig, teacher: Teacher, actor: GaussianActor) -> None:
    """Refuse teachers without a density, and latents that do not compare."""
    if config.loss is ImitationLoss.kl and not isinstance(teacher, GaussianActor):
        raise ConfigError(
            "learner.loss=kl needs a teacher that draws its actions, got one that gives a single "
            "action; use learner.loss=mse, or a teacher of learner=sac"
        )
    if config.latent_weight == 0:
        return
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


def normal_divergence(
    mean: Tensor, log_std: Tensor, other: Tensor, other_log_std: Tensor
) -> Tensor:
    """KL(first || second) of diagonal normals, (B, A) each -> (B,) [nat]."""
    ratio = (2 * (log_std - other_log_std)).exp()
    distance = (mean - other).square() * (-2 * other_log_std).exp()
    return 0.5 * (ratio + distance - 1).sum(-1) + (other_log_std - log_std).sum(-1)
