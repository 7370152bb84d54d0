"""Settings of the off-policy family, and the tools that its algorithms call in their updates.

Every algorithm tells its own update in its own file; only `_parts`, the names of what is saved, is
asked of it. Maximum-entropy learners also find their temperature here, learned so that the policy
keeps a target entropy (Haarnoja et al. 2018b); published learners differ in what its gradient goes
through, which changes the speed and not the fixed point.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor, nn

from policies.networks.experts import Routing, find_mixture, routing
from policies.networks.images import ImagePolicy
from robot_rl.core.env import EnvSpec, EnvStep, Obs
from robot_rl.core.learner import MonteCarloReturns, Phase
from robot_rl.core.seeding import derive_seed
from robot_rl.core.transition import Batch
from robot_rl.learners.cuda_graphs import CUDAGraphRecorder, CUDAGraphs, Step, UpdateResult
from robot_rl.learners.estimation import Estimation
from robot_rl.learners.images import ImageLearning
from robot_rl.learners.networks import (
    Actor,
    Critic,
    Network,
    batch_statistics,
    some_members,
    uses_batch_norm,
    without_invalid,
)
from robot_rl.learners.optimization import (
    DescentConfig,
    Optimizer,
    Reduce,
    autocast,
    check_ranges,
    fast_products,
)
from robot_rl.learners.values import RewardScaling, make_reward_scale


class ActorObjective(Enum):
    """Value of the critics that the actor ascends."""

    first = "first"
    """Of the first critic."""
    min = "min"
    """The smallest."""
    mean = "mean"
    """Their mean."""


@dataclass(kw_only=True)
class OffPolicyConfig(DescentConfig):
    """Hyperparameters of the whole family; the defaults are those of SAC's paper (2018b)."""

    batch_size: int = 256
    """Transitions per update."""
    gamma: float = 0.99
    """Discount per control step."""
    n_step: int = 1
    """Steps per sampled transition."""
    actor_lr: float = 3e-4
    """Step size of the actor."""
    critic_lr: float = 3e-4
    """Step size of the critics."""
    tau: float = 0.005
    """Share of the critics that their targets take over after every update."""
    actor_interval: int = 1
    """The actor steps in the last of every so many updates."""
    reward_scale: RewardScaling = RewardScaling.none
    """Divisor of sampled rewards."""
    reward_limit: float = 5.0
    """Size of the largest return after scaling; with categories, the edge of their support."""
    capture: bool = True
    """On a GPU, capture an update as a CUDA graph and replay it from then on; does nothing on the
    CPU, nor with several processes."""
    compile: bool = True
    """On the CPU, compute updates by a compiled library, where it covers the learner and there is a
    C++ compiler, and samples of the replay by another; in PyTorch operations otherwise. A run says
    which."""
    freeze_normalizers: bool = False
    """Normalisers take in stored experience alone (`training.prior`, or what the learner of
    `training.start` has seen), nothing of what is acted on: a policy that was learned from data
    goes on to see what it saw."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, {
            "batch_size": (1, 1e9), "gamma": (0, 1), "n_step": (1, 1e6), "tau": (0, 1),
            "actor_lr": (0, 1), "critic_lr": (0, 1), "actor_interval": (1, 1e6),
            "reward_limit": (1e-6, 1e6),
        })  # fmt: skip


class BatchLearner:
    """Defaults of a `Learner`, and its state: parts, a random stream, a count of updates."""

    chunk_length = 0
    """Single actions."""
    learns_offline = False
    """Values of untried actions are not kept in check."""
    monte_carlo_returns: MonteCarloReturns | None = None
    """None are needed."""
    intervention_mask = False
    """Whoever acted, all steps count alike."""
    update_method = "PyTorch operations"
    """Updates are not compiled."""
    compile = True
    """Samples of the replay may be."""
    changes_settings = False
    """Other threads may compute during an update."""
    updates: int
    """Updates done."""
    generator: torch.Generator
    """Of exploration and of all else that the learner draws."""

    def begin(self, mask: Tensor) -> None:
        """Nothing to prepare where exploration is drawn anew in every step."""

    def begin_phase(self, phase: Phase) -> None:
        """Every phase is the same."""

    def inspect(self, batch: Batch) -> dict[str, Tensor]:
        """Nothing to show."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """All parts, the counter and RNG."""
        return {
            **{name: part.state_dict() for name, part in self._parts().items()},
            "generator": self.generator.get_state(),
            "updates": self.updates,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`: the next update is bit-equal."""
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        self.generator.set_state(state["generator"])
        self.updates = int(state["updates"])

    def _parts(self) -> dict[str, Any]:
        """Parts with a state, by the name it is saved under; algorithms add theirs."""
        raise NotImplementedError


class OffPolicyLearner(BatchLearner):
    """Parts in which the family does not differ: optimisers, normalisers, counters, state."""

    def __init__(
        self, config: OffPolicyConfig, spec: EnvSpec, actor: Actor, critic: Critic, *, seed: int,
        stream_seed: int | None = None, reduce: Reduce | None = None,
        images: ImageLearning | None = None, actor_grad_norm: float | None = None,
    ) -> None:  # fmt: skip
        """Take over the networks, and make an optimiser for each.

        Args:
            config: Hyperparameters.
            spec: Environment that is learned in.
            actor: Trained in place.
            critic: Trained in place.
            seed: Of a run.
            stream_seed: Of exploration and of all else that the learner draws, where several
                processes share initial weights; None takes `seed`.
            reduce: Joins the gradients of several processes.
            images: Encoder of images, whose features both networks read.
            actor_grad_norm: Largest norm of the actor's gradient instead of the config's.
        """
        self.device = device = spec.device
        self.images = images
        """Encoder of images, where some are read."""
        self._policy, self._critic = actor.to(device).train(False), critic.to(device).train(False)
        self.actor_groups = tuple(actor.groups)
        """Observation groups that acting needs."""
        self.action_size = spec.action_size
        """A: entries of an action."""
        self.samples_per_update = config.batch_size
        """B: transitions that one `update` eats."""
        self.gamma = config.gamma
        """Discount per control step."""
        self.n_step = config.n_step
        """Steps per sampled transition."""
        self.compile = config.compile
        """Leave to take compiled libraries on the CPU."""
        self.updates = 0
        self.reward_scale = make_reward_scale(
            config.reward_scale, config.gamma, config.reward_limit, device
        )
        """Divisor of sampled rewards."""
        self.estimation: Estimation | None = None
        """Loss of an encoder beside the algorithm's."""
        largest = max(math.prod(p.shape[-2:]) for p in [*actor.parameters(), *critic.parameters()])
        self.products = fast_products(device, config.precision, config.batch_size, largest)
        """Entered by every update that is not compiled."""
        self.actor_interval = config.actor_interval
        """The actor steps in the last of every so many updates."""
        self._phase = Phase.online
        self.uses_batch_norm = uses_batch_norm(actor, critic)
        assert isinstance(actor, nn.Module)
        self._mixture = find_mixture(actor)
        self.actor_optimizer = Optimizer(
            [*actor.parameters(), *(images.params(of_actor=True) if images else ())],
            config.actor_lr, config, after_step=actor.constrain, reduce=reduce,
            max_grad_norm=actor_grad_norm, interval=config.actor_interval,
        )  # fmt: skip
        self.critic_optimizer = Optimizer(
            [*critic.parameters(), *(images.params(of_actor=False) if images else ())],
            config.critic_lr, config, after_step=critic.constrain, reduce=reduce,
        )  # fmt: skip
        self._config = config
        self.stream_seed = seed if stream_seed is None else stream_seed
        self.generator = torch.Generator(device=device)
        self.generator.manual_seed(derive_seed(self.stream_seed, "policy samples"))
        self._actor_metrics: dict[str, Tensor] = {}
        self._first = torch.zeros(1, dtype=torch.int64, device=device)  # index of one critic
        captures = config.capture and device.type == "cuda" and reduce is None
        self.cuda_graphs = CUDAGraphs(
            CUDAGraphRecorder(device, [self.generator]) if captures else None
        )
        """Runs the steps of updates, or replays them."""
        # On a CPU a sparse mixture counts rows on the host, which no graph could hold.
        sparse = self._mixture is not None and self._mixture.config.sparse
        self.cuda_graphs.allowed = not (sparse and device.type == "cpu")
        self.compiled_step: Step | None = None
        """The step of an update by a compiled library, for algorithms that it covers."""

    @property
    def changes_settings(self) -> bool:
        """True if an update changes how all of the process computes products."""
        return self.compiled_step is None and self.products.changes_setting

    @property
    def critic_groups(self) -> tuple[str, ...]:
        """Observation groups that only learning needs."""
        beside = () if self.estimation is None else self.estimation.groups
        named = dict.fromkeys((*self._critic.groups, *beside))
        return tuple(name for name in named if name not in self.actor_groups)

    def follow_phase(self, phase: Phase) -> None:
        """Let the actor step in every update offline, else in the last of `actor_interval`."""
        if (phase is Phase.offline) != (self._phase is Phase.offline):
            self.cuda_graphs.forget()  # optimisers count other numbers of updates per step
        self._phase = phase
        self.actor_interval = 1 if phase is Phase.offline else self._config.actor_interval
        self.actor_optimizer.interval = self.actor_interval

    def observe(self, step: EnvStep) -> None:
        """Take rewards into their scale, and what is acted on next into the normalisers."""
        self.reward_scale.observe(step)
        if not self._config.freeze_normalizers:
            self.observe_stored(step.obs)

    def observe_stored(self, obs: Obs) -> None:
        """Take observations, groups (B, ...), into the normalisers."""
        self._policy.update_statistics(obs)
        self._critic.update_statistics(obs)
        if self.estimation is not None:
            self.estimation.update_statistics(obs)

    def finish(self, result: UpdateResult, batch: Batch) -> tuple[dict[str, Tensor], Tensor]:
        """Metrics and errors of an update, after the step of an encoder that learns beside it.

        Returns:
            Detached metrics, the actor's those of its last step, and the error of every row, (B,).
        """
        self._actor_metrics = result.actor_metrics or self._actor_metrics
        beside = {} if self.estimation is None else self.estimation.step(batch)
        return {**result.metrics, **self._actor_metrics, **beside}, result.error

    def step_critics(
        self, q: Tensor, target: Tensor, weight: Tensor
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Step of plain critics towards targets, by squared errors.

        Args:
            q: Values of the members, (E, B), with a graph.
            target: (B,), without one.
            weight: Of the rows, (B,).

        Returns:
            Detached metrics, and the error of every row, (B,).
        """
        error = q - target
        loss = (weight * error * error).mean(-1).sum()  # each critic as if it were alone
        self.critic_optimizer.step(loss)
        error = error.detach()
        metrics = {"critic_loss": loss.detach(), "q_mean": (error + target).mean()}
        return metrics, error.abs().mean(0)

    @contextmanager
    def train_mode(self, batch: Batch, *networks: Network) -> Iterator[Batch]:
        """Let batch norm take the statistics of the valid rows; without it, nothing changes."""
        if not self.uses_batch_norm:
            yield batch
            return
        with batch_statistics(self._policy, self._critic, *networks):
            yield without_invalid(batch)

    def eval_mode(self, critic: Critic) -> AbstractContextManager[None]:
        """Let the critic judge new actions, which must not move its batch statistics."""
        return batch_statistics(critic, taken=False) if self.uses_batch_norm else nullcontext()

    def routing(self) -> AbstractContextManager[Routing]:
        """Context of the actor's pass that it learns from: losses and metrics of its experts."""
        return routing(self._mixture, self.generator)

    def autocast(self) -> AbstractContextManager[Any]:
        """Context of forward passes in the configured precision."""
        return autocast(self.device, self._config.precision)

    def outputs(self, critic: Critic, obs: Obs, action: Tensor) -> Tensor:
        """Outputs of a critic's members, (E, B, W)."""
        with self.autocast():
            return critic(obs, action)

    def plain_outputs(self, critic: Critic, obs: Obs, action: Tensor) -> Tensor:
        """Outputs of members that have one each, (E, B), float32."""
        return self.outputs(critic, obs, action).squeeze(-1).float()

    def objective_outputs(self, objective: ActorObjective, obs: Obs, action: Tensor) -> Tensor:
        """Outputs of the members that the actor's objective needs, (E, B, W) or (1, B, W)."""
        with self.eval_mode(self._critic), self.autocast():
            if objective is ActorObjective.first:
                return some_members(self._critic, self._first, obs, action)
            return self._critic(obs, action)

    def encode(self, batch: Batch) -> Batch:
        """The batch with features of its images, with a graph for the loss that trains them."""
        if self.images is None:
            return batch
        return self.images.encode(batch, self.generator, self.autocast)

    def of_actor(self, batch: Batch) -> Batch:
        """An encoded batch as the actor's loss sees it."""
        return batch if self.images is None else self.images.of_actor(batch)

    def encoded(self, obs: Obs) -> Obs:
        """Observations to act on, with features in place of images."""
        return obs if self.images is None else self.images.encoder(obs)

    def policy(self) -> nn.Module:
        """The actor behind its encoder, whose forward is the deterministic policy."""
        assert isinstance(self._policy, nn.Module)
        if self.images is None:
            return self._policy
        return ImagePolicy(self.images.encoder, self._policy, self.actor_groups)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`: the next update is bit-equal."""
        self.cuda_graphs.forget()  # optimisers get other tensors
        super().load_state_dict(state)

    def _parts(self) -> dict[str, Any]:
        estimation = {} if self.estimation is None else self.estimation.parts()
        return {
            "actor": self._policy, "critic": self._critic,
            "actor_optimizer": self.actor_optimizer, "critic_optimizer": self.critic_optimizer,
            "reward_scale": self.reward_scale, **estimation,
            **({} if self.images is None else {"encoder": self.images.encoder}),
        }  # fmt: skip


def reduce_members(q: Tensor, objective: ActorObjective) -> Tensor:
    """Value that the actor ascends, (B,), of expected values, (E, B)."""
    if objective is ActorObjective.first:
        return q[0]
    return q.amin(0) if objective is ActorObjective.min else q.mean(0)


class TemperatureLoss(Enum):
    """Loss by which the temperature follows the surplus of entropy."""

    alpha = "alpha"
    """alpha * surplus with alpha = exp(x): the paper, RLPD, FastSAC."""
    log_alpha = "log_alpha"
    """log(alpha) * surplus: Stable-Baselines3, DSAC-T, H2O."""
    softplus = "softplus"
    """alpha * surplus with alpha = softplus(x): SERL, WSRL."""
    fixed = "fixed"
    """The temperature stays at its start."""


@dataclass(kw_only=True)
class TemperatureConfig(OffPolicyConfig):
    """Hyperparameters of learners that are paid for entropy."""

    init_temperature: float = 1.0
    """Temperature at the start."""
    temperature_lr: float = 3e-4
    """Step size of the temperature's parameter."""
    temperature_loss: TemperatureLoss = TemperatureLoss.alpha
    """Quantity that the gradient goes through, or `fixed`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, {"temperature_lr": (0, 1), "init_temperature": (1e-9, 1e6)})


@dataclass(kw_only=True)
class MaximumEntropyConfig(TemperatureConfig):
    """The same, of continuous actions."""

    target_entropy_per_action: float = -1.0
    """Target entropy divided by the number of action entries [nat]."""

    def target_entropy(self, entries: int) -> float:
        """Target entropy of so many entries of an action [nat]."""
        return self.target_entropy_per_action * entries


def normal_entropy(std: float) -> float:
    """Entropy of a normal distribution of this standard deviation [nat]."""
    return 0.5 * math.log(2 * math.pi * math.e * std**2)


class Temperature:
    """A positive number alpha with one trained parameter x."""

    def __init__(
        self, config: TemperatureConfig, *, target_entropy: float, device: torch.device,
        reduce: Reduce | None = None, interval: int = 1,
    ) -> None:  # fmt: skip
        """Start at `init_temperature`.

        Args:
            config: Start, step size and loss.
            target_entropy: Entropy that it pays for until the policy has it [nat].
            device: Where it lives.
            reduce: Joins gradients of several processes.
            interval: Updates of the learner per step of the temperature.
        """
        self.target_entropy = target_entropy
        """Wanted entropy [nat]."""
        self.loss = config.temperature_loss
        start = torch.tensor(config.init_temperature, dtype=torch.float64)
        x = self._parameter_at(start).to(device, torch.float32)
        self.parameter = x.requires_grad_()
        """x, 0-dim."""
        # No decay of weights: it would pull alpha towards 1. No clipping: peers have none here.
        self.optimizer = Optimizer(
            [self.parameter], config.temperature_lr, config, reduce=reduce, weight_decay=0.0,
            max_grad_norm=0.0, warm_up=False, interval=interval,
        )  # fmt: skip
        """Of the parameter."""

    def value(self) -> Tensor:
        """Alpha, 0-dim, without a graph."""
        return self._alpha(self.parameter.detach())

    def step(self, log_prob: Tensor, weight: Tensor) -> None:
        """Raise alpha where entropy falls short of its target, lower it where there is more.

        Args:
            log_prob: Of actions drawn from the policy, (B,).
            weight: Importance of the rows, (B,).
        """
        if self.loss is TemperatureLoss.fixed:
            return
        surplus = (weight * (-log_prob.detach() - self.target_entropy)).mean()  # [nat]
        self.parameter.grad = self._slope() * surplus
        self.optimizer.descend()

    def follow(self, interval: int) -> None:
        """Step once in so many updates of the learner from here on."""
        self.optimizer.interval = interval

    def state_dict(self) -> dict[str, Any]:
        """Parameter, what alpha is of it, and optimiser."""
        return {
            "parameter": self.parameter.detach().clone(),
            "soft": self._soft,
            "optimizer": self.optimizer.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`, of another loss too; a fixed temperature stays where it is."""
        if self.loss is TemperatureLoss.fixed:
            return
        x, optimizer = state["parameter"], state["optimizer"]
        soft = state.get("soft", self._soft)  # states of before it was kept are of the same loss
        if soft != self._soft:
            x = self._parameter_at(torch.nn.functional.softplus(x) if soft else x.exp())
            # Adam's means are of another slope; the count of updates goes on.
            optimizer = self.optimizer.state_dict() | {"updates": optimizer["updates"]}
        with torch.no_grad():
            self.parameter.copy_(x)
        self.optimizer.load_state_dict(optimizer)

    @property
    def _soft(self) -> bool:
        return self.loss is TemperatureLoss.softplus

    def _parameter_at(self, alpha: Tensor) -> Tensor:
        # softplus(log(exp(a) - 1)) = a; written so that large a does not overflow.
        return alpha + torch.log(-torch.expm1(-alpha)) if self._soft else alpha.log()

    def _slope(self) -> Tensor:
        """Derivative of the price of entropy: of x itself, exp(x) or softplus(x)."""
        x = self.parameter.detach()
        if self.loss is TemperatureLoss.log_alpha:
            return torch.ones_like(x)
        return torch.sigmoid(x) if self._soft else x.exp()

    def _alpha(self, x: Tensor) -> Tensor:
        return torch.nn.functional.softplus(x) if self._soft else x.exp()
