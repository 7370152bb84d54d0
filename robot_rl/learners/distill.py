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
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from robot_rl.core.env import EnvStep, Obs
from robot_rl.core.learner import MonteCarloReturns, Phase
from robot_rl.core.onednn import OneDnnMatmul, is_faster
from robot_rl.core.seeding import derive_seed
from robot_rl.core.transition import Batch
from robot_rl.learners.networks import (
    StochasticActor,
    batch_statistics,
    rows_meet,
    without_invalid,
)
from robot_rl.learners.off_policy import DescentConfig, check_ranges
from robot_rl.learners.optimization import Optimizer, Reduce, autocast


class ImitationLoss(Enum):
    """What is regressed."""

    mse = "mse"
    """Squared difference of the deterministic actions, within [-1, 1]."""
    kl = "kl"
    """Divergence of the student's normal from the teacher's, before both are squashed."""


@dataclass(kw_only=True)
class DistillConfig(DescentConfig):
    """Whom to imitate, and how."""

    teacher: str = ""
    """Folder of the run whose best policy teaches, or of runs, of which the newest does."""
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

    def __post_init__(self) -> None:
        """Refuse values outside their range."""
        super().__post_init__()
        check_ranges(self, {
            "batch_size": (1, 1e9), "actor_lr": (0, 1), "latent_weight": (0, 1e6),
            "mixture_share": (0, 1), "mixture_updates": (1, 1e12),
        })  # fmt: skip


class Teacher(Protocol):
    """A policy that is not trained any more."""

    @property
    def groups(self) -> tuple[str, ...]:
        """Observation groups that are seen."""
        ...

    def __call__(self, obs: Obs) -> Tensor:
        """Action, (N, A), in [-1, 1]."""
        ...

    def latent(self, obs: Obs) -> Tensor:
        """What its encoder makes of what it sees, (N, L)."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Parameters and buffers by name."""
        ...

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any:
        """Restore `state_dict`."""
        ...


class DistributedTeacher(Teacher, Protocol):
    """A teacher with a density."""

    def moments(self, obs: Obs) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation before squashing, (N, A) each."""
        ...


class Student(StochasticActor, DistributedTeacher, Protocol):
    """A policy that learns to do the same."""


class Distill:
    """A student that follows any teacher; there are no values and no rewards."""

    chunk_length = 0
    """Single actions."""
    learns_offline = False
    """There are no values."""
    monte_carlo_returns: MonteCarloReturns | None = None
    """None are needed."""

    def __init__(
        self, config: DistillConfig, actor: Student, teacher: Teacher, *, device: torch.device,
        seed: int, reduce: Reduce | None = None,
    ) -> None:  # fmt: skip
        """Take over the student.

        Args:
            config: Hyperparameters.
            actor: Trained in place.
            teacher: On the device already; is read only. Has a density where the loss needs one,
                and latents of the student's width where they are compared.
            device: Where all of it lives.
            seed: Chooses who acts.
            reduce: Joins the gradients of several processes.
        """
        self.config = config
        self.actor = actor.to(device).train(False)
        self.teacher = teacher
        self.actor_groups = tuple(actor.groups)
        """Observation groups that the student needs; the teacher, who acts while it explores, needs
        those of `critic_groups` too."""
        self.critic_groups = tuple(g for g in teacher.groups if g not in self.actor_groups)
        """Observation groups that only learning needs: what the teacher sees beyond."""
        self.samples_per_update = config.batch_size
        """B: transitions that one `update` eats."""
        self.gamma, self.n_step = 0.0, 1
        self.updates = 0
        """Updates done."""
        largest = max(math.prod(param.shape[-2:]) for param in actor.parameters())
        self.products = OneDnnMatmul(device.type == "cpu" and is_faster(config.batch_size, largest))
        """Entered by every update."""
        self._rows_meet = rows_meet(actor)
        self._optimizer = Optimizer(
            actor.parameters(), config.actor_lr, config, after_step=actor.constrain, reduce=reduce
        )
        self._device = device
        self._generator = torch.Generator(device=device)
        self._generator.manual_seed(derive_seed(seed, "who acts"))

    @property
    def mixture(self) -> float:
        """Share of the steps in which the teacher acts now."""
        left = max(0.0, 1 - self.updates / self.config.mixture_updates)
        return self.config.mixture_share * left

    @torch.no_grad()
    def act(self, obs: Obs, explore: bool) -> Tensor:
        """The student's actions, (N, A), in [-1, 1]; exploring, the teacher's in its share."""
        action = self.actor(obs)
        if not explore or self.mixture == 0:
            return action
        drawn = torch.rand(len(action), 1, generator=self._generator, device=self._device)
        return torch.where(drawn < self.mixture, self.teacher(obs), action)

    def begin(self, mask: Tensor) -> None:
        """Nothing to prepare: who acts is drawn anew in every step."""

    def observe(self, step: EnvStep) -> None:
        """Take what is acted on next into the student's normaliser."""
        self.actor.update_statistics(step.obs)

    def observe_stored(self, obs: Obs) -> None:
        """The normaliser takes in what the student is going to see, nothing else."""

    def begin_phase(self, phase: Phase) -> None:
        """Every phase is the same."""

    def inspect(self, batch: Batch) -> dict[str, Tensor]:
        """There are no values to show."""
        return {}

    def update(self, batch: Batch) -> tuple[dict[str, Tensor], Tensor]:
        """One step of the student towards what the teacher does at these observations.

        Returns:
            Detached metrics, and the error of every row, (B,), as its priority.
        """
        batch = without_invalid(batch) if self._rows_meet else batch
        with self.products, batch_statistics(self.actor):
            error = self._errors(batch.obs)  # (B,)
            loss = (batch.weight * error).mean()
            metrics = {"actor_loss": loss.detach()}
            if self.config.latent_weight > 0:
                latent = (batch.weight * self._latent_errors(batch.obs)).mean()
                loss = loss + self.config.latent_weight * latent
                metrics["latent_loss"] = latent.detach()
            self._optimizer.step(loss)
        metrics["mixture"] = torch.full((), self.mixture, device=self._device)
        self.updates += 1
        return metrics, error.detach()

    def _errors(self, obs: Obs) -> Tensor:
        with autocast(self._device, self.config.precision):
            if self.config.loss is ImitationLoss.mse:
                with torch.no_grad():
                    label = self.teacher(obs)
                return (self.actor(obs) - label).square().mean(-1)
            with torch.no_grad():
                label, label_log_std = self.teacher.moments(obs)  # pyright: ignore[reportAttributeAccessIssue] - checked where it is built
            mean, log_std = self.actor.moments(obs)
        return normal_divergence(label, label_log_std, mean, log_std)

    def _latent_errors(self, obs: Obs) -> Tensor:
        with torch.no_grad():
            label = self.teacher.latent(obs)
        return (self.actor.latent(obs) - label).square().mean(-1)

    def policy(self) -> nn.Module:
        """The student."""
        assert isinstance(self.actor, nn.Module)
        return self.actor

    def state_dict(self) -> dict[str, Any]:
        """Student, optimiser, RNG, and the teacher as it was: its run may go on meanwhile."""
        return {
            "actor": self.actor.state_dict(), "actor_optimizer": self._optimizer.state_dict(),
            "teacher": self.teacher.state_dict(), "generator": self._generator.get_state(),
            "updates": self.updates,
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`: the next update is bit-equal."""
        self.actor.load_state_dict(state["actor"])
        self._optimizer.load_state_dict(state["actor_optimizer"])
        self.teacher.load_state_dict(state["teacher"])
        self._generator.set_state(state["generator"])
        self.updates = int(state["updates"])


def normal_divergence(
    mean: Tensor, log_std: Tensor, other: Tensor, other_log_std: Tensor
) -> Tensor:
    """KL(first || second) of diagonal normals, (B, A) each -> (B,) [nat]."""
    ratio = (2 * (log_std - other_log_std)).exp()
    distance = (mean - other).square() * (-2 * other_log_std).exp()
    return 0.5 * (ratio + distance - 1).sum(-1) + (other_log_std - log_std).sum(-1)
