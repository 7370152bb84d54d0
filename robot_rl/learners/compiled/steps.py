"""Steps of soft actor-critic and TD3 by the compiled library, in place of the Python ones.

A compiled step takes the arguments of a learner's own step, draws the same random numbers in the
same order, and works in place on the tensors of networks and optimisers: checkpoints, resume and
export do not know of it, and a run may continue without it. What it does not cover is computed by
the learner's own step, and `find_step` says why.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from policies.networks.deterministic_actor import DeterministicActor
from policies.networks.gaussian_actor import GaussianActor, LogStdBound
from policies.networks.q_ensemble import QEnsemble
from robot_rl.core.native import CompileError
from robot_rl.core.transition import Batch
from robot_rl.learners.compiled.library import load
from robot_rl.learners.compiled.structures import (
    NetworkTensors,
    NotCoveredError,
    SACStructure,
    TD3Structure,
    fill_adam,
    parameter,
)
from robot_rl.learners.cuda_graphs import UpdateResult
from robot_rl.learners.off_policy import TemperatureLoss
from robot_rl.learners.optimization import Precision
from robot_rl.learners.values import TargetRule

AnyStep = TypeVar("AnyStep", bound="_Step")

_BATCH_FIELDS = (
    "actor_obs", "critic_obs", "action", "reward", "discount", "weight", "next_actor_obs",
    "next_critic_obs",
)  # fmt: skip
_ACTOR_FIELDS = ("actor_obs", "critic_obs", "weight", "next_log_prob", "noise")
_STEP_FIELDS = ("next_noise", "error", "next_log_prob")


def find_step(
    kind: Callable[[Any], AnyStep], learner: Any, base: type
) -> tuple[AnyStep | None, str]:
    """The compiled step of a learner, or None; and what computes its updates, and why.

    Args:
        kind: `CompiledSACStep` or `CompiledTD3Step`.
        learner: Of that kind.
        base: `SAC` or `TD3`, whose methods the compiled step stands for.
    """
    if learner.device.type != "cpu":
        return None, learner.update_method
    if not learner.config.compile:
        return None, f"{learner.update_method} (learner.compile=false)"
    try:
        step, library = kind(learner), load()
        _check_methods(step.methods, learner, base)
    except (CompileError, NotCoveredError) as error:
        return None, f"{learner.update_method} ({error})"
    products = library.products
    if step.bf16:
        products += f", those of hidden layers in bf16: {library.bf16_products}"
    return step, f"compiled ({library.compiler}, matrix products: {products})"


def _check_methods(methods: Sequence[str], learner: Any, base: type) -> None:
    """Refuse a learner that computes a part of its step otherwise.

    Raises:
        NotCoveredError: It has a method of its own.
    """
    for name in (*methods, "outputs", "objective_outputs", "train_mode", "routing"):
        if getattr(type(learner), name) is not getattr(base, name):
            raise NotCoveredError(f"{type(learner).__name__}.{name} is not that of {base.__name__}")


class _Step:
    """Common part of both steps: addresses of critics and batch, workspace, metrics."""

    names: tuple[str, ...]
    """Metrics, the two of the critics first."""
    methods: tuple[str, ...]
    """Methods of the learner whose work it does."""

    def __init__(self, learner: Any, args: Any, rule: TargetRule) -> None:
        config = learner.config
        self.bf16 = config.precision is Precision.bf16
        if self.bf16 and not load().bf16_products:
            raise NotCoveredError(
                "learner.precision=bf16 is compiled for processors with AVX512-bf16 alone; "
                "learner.precision=fp32 is faster here"
            )
        if learner.images is not None:
            raise NotCoveredError("images are encoded by PyTorch")
        if learner.critic_optimizer.joins_processes:
            raise NotCoveredError("several processes join their gradients")
        if type(learner.critic) is not QEnsemble:
            raise NotCoveredError("the critics are no plain ensemble")
        self._learner, self._args = learner, args
        self._functions = load().functions
        self._critic = NetworkTensors(
            learner.critic, learner.critic_optimizer, learner.target_critic, name="critic",
            action_size=learner.action_size, bf16=self.bf16,
        )  # fmt: skip
        self._addressed: list[object] = []
        self._rows = (0, 0, 0)
        self._workspace = torch.empty(0)
        values, critics = config.values, args.critics
        critics.atoms = values.atoms
        critics.low = values.low
        critics.spacing = (values.high - values.low) / max(1, values.atoms - 1)
        critics.rule = ("min", "mean", "own").index(rule.value)
        critics.objective = ("first", "min", "mean").index(config.actor_value.value)

    def _put_batch(self, batch: Batch) -> list[Tensor]:
        """Write the addresses of a batch; returns what must live until the update is over."""
        learner, args = self._learner, self._args
        group = learner.critic.group
        reward = learner.reward_scale.scale(batch.reward)
        tensors = [
            learner.actor.read(batch.obs), batch.obs[group], batch.action, reward,
            batch.discount, batch.weight, learner.actor.read(batch.next_obs),
            batch.next_obs[group],
        ]  # fmt: skip
        args.batch.rows = len(reward)
        return put_addresses(args.batch, _BATCH_FIELDS, tensors)

    def _find_tensors(self, *optimizers: Any) -> bool:
        """True if the tensors of some optimisers lie elsewhere than in the last update."""
        now = [optimizer.tensors() for optimizer in optimizers]
        moved = len(self._addressed) == 0 or any(
            a is not b for a, b in zip(now, self._addressed, strict=True)
        )
        self._addressed = now
        return moved

    def _make_room(self, size_of: Any, actor_rows: int) -> None:
        """Have a workspace for this number of rows."""
        self._args.threads = torch.get_num_threads()
        rows = (self._args.batch.rows, actor_rows, self._args.threads)
        if rows != self._rows:
            self._rows = rows
            self._workspace = torch.empty(size_of(ctypes.byref(self._args)) + 16)
            self._args.workspace = (self._workspace.data_ptr() + 63) // 64 * 64

    def _make_metrics(self) -> Sequence[Tensor]:
        """Memory of the metrics of this update."""
        metrics = torch.empty(len(self.names))
        self._args.metrics = metrics.data_ptr()
        return metrics.unbind()

    def _result(self, metrics: Sequence[Tensor], error: Tensor, update_actor: bool) -> UpdateResult:
        named = list(zip(self.names, metrics, strict=True))
        return UpdateResult(dict(named[:2]), dict(named[2:]) if update_actor else {}, error)


class CompiledSACStep(_Step):
    """`SAC._step` without a penalty."""

    names = ("critic_loss", "q_mean", "actor_loss", "entropy", "temperature")
    methods = ("_step", "_update_critic", "_target", "_target_outputs", "_update_actor", "_sample")

    def __init__(self, learner: Any) -> None:
        """Describe the networks and settings of a `SAC`.

        Raises:
            CompileError: The library cannot be had.
            NotCoveredError: The learner has what it does not cover.
        """
        args = SACStructure()
        super().__init__(learner, args, learner.config.target.rule)
        config, actor = learner.config, learner.actor
        if type(actor) is not GaussianActor:
            raise NotCoveredError("the actor is no plain Gaussian")
        self._actor = NetworkTensors(
            actor, learner.actor_optimizer, None, name="actor", bf16=self.bf16
        )
        self._slope = torch.zeros(())  # gradient of the temperature's parameter
        args.action_size = actor.action_size
        args.log_std_min, args.log_std_max = actor.config.log_std_min, actor.config.log_std_max
        args.log_std_bound = actor.config.log_std_bound is LogStdBound.tanh
        args.critics.tau = config.tau
        args.entropy_in_target = config.target.entropy
        args.entropy_at_next = config.actor_steps.entropy_at.value == "next_obs"
        args.temperature_with_critics = config.actor_steps.temperature_every_update
        losses = ("alpha", "log_alpha", "softplus", "fixed")
        args.temperature.loss = losses.index(config.temperature_loss.value)
        args.temperature.target_entropy = learner.temperature.target_entropy

    def __call__(
        self, batch: Batch, penalty_coef: float, update_actor: bool, critic_only: bool
    ) -> UpdateResult:
        """One update, as `SAC._step`."""
        learner, args, functions = self._learner, self._args, self._functions
        kept = self._put_batch(batch)
        optimizers = [learner.critic_optimizer, learner.actor_optimizer]
        if learner.temperature.loss is not TemperatureLoss.fixed:
            optimizers.append(learner.temperature.optimizer)
        if self._find_tensors(*optimizers):
            self._put_networks()
        rows = args.batch.rows
        metrics, noise = self._make_metrics(), self._draw_noise(rows)
        drawn = learner.drawn_members()
        args.critics.drawn = None if drawn is None else drawn.data_ptr()
        args.critics.drawn_count = 0 if drawn is None else len(drawn)
        error, next_log_prob = torch.empty(rows), torch.empty(rows)
        kept += put_addresses(args, _STEP_FIELDS, (noise, error, next_log_prob))
        args.critics.adam.rate = learner.critic_optimizer.advance()
        args.update_temperature = args.temperature_with_critics and not critic_only
        if args.update_temperature:
            self._advance_temperature()
        self._make_room(functions.sac_workspace, args.actor_rows.rows)
        functions.sac_update_critics(ctypes.byref(args))
        actor_rows = learner.actor_rows(batch, next_log_prob, update_actor)
        if update_actor and not critic_only:
            kept += self._put_actor_rows(actor_rows)
            args.actor_adam.rate = learner.actor_optimizer.advance()
            if not args.temperature_with_critics:
                self._advance_temperature()
            self._make_room(functions.sac_workspace, args.actor_rows.rows)
            functions.sac_update_actor(ctypes.byref(args))
        return self._result(metrics, error, update_actor and not critic_only)

    def _put_networks(self) -> None:
        args, temperature = self._args, self._learner.temperature
        self._critic.fill(args.critics.network, args.critics.adam)
        self._actor.fill(args.actor, args.actor_adam)
        args.temperature.parameter.value = temperature.parameter.data_ptr()
        if temperature.loss is not TemperatureLoss.fixed:
            tensors = temperature.optimizer.tensors()
            args.temperature.parameter = parameter(
                temperature.parameter, None, tensors.means[0], tensors.squares[0], self._slope
            )
            fill_adam(args.temperature.adam, temperature.optimizer)

    def _put_actor_rows(self, rows: Any) -> list[Tensor]:
        learner, target = self._learner, self._args.actor_rows
        target.rows = len(rows.weight)
        tensors = [
            learner.actor.read(rows.obs), rows.obs[learner.critic.group], rows.weight,
            rows.next_log_prob, self._draw_noise(target.rows),
        ]  # fmt: skip
        return put_addresses(target, _ACTOR_FIELDS, tensors)

    def _draw_noise(self, rows: int) -> Tensor:
        return torch.randn(rows, self._args.action_size, generator=self._learner.generator)

    def _advance_temperature(self) -> None:
        temperature = self._learner.temperature
        if temperature.loss is not TemperatureLoss.fixed:
            self._args.temperature.adam.rate = temperature.optimizer.advance()


class CompiledTD3Step(_Step):
    """`TD3._step`."""

    names = ("critic_loss", "q_mean", "actor_loss")
    methods = ("_step", "_update_critic", "_update_actor", "_smooth", "_act")

    def __init__(self, learner: Any) -> None:
        """Describe the networks and settings of a `TD3`.

        Raises:
            CompileError: The library cannot be had.
            NotCoveredError: The learner has what it does not cover.
        """
        args = TD3Structure()
        super().__init__(learner, args, learner.config.target_rule)
        if learner.config.noisy_objective:
            raise NotCoveredError("the actor ascends the value of noisy actions")
        if type(learner.actor) is not DeterministicActor:
            raise NotCoveredError("the actor is no plain deterministic one")
        target = learner.target_actor if learner.config.target_actor else None
        self._actor = NetworkTensors(
            learner.actor, learner.actor_optimizer, target, name="actor", bf16=self.bf16
        )
        args.action_size = self._actor.outputs
        args.target_actor = target is not None

    def __call__(self, batch: Batch, update_actor: bool) -> UpdateResult:
        """One update, as `TD3._step`."""
        learner, args, functions = self._learner, self._args, self._functions
        kept = self._put_batch(batch)
        if self._find_tensors(learner.critic_optimizer, learner.actor_optimizer):
            self._critic.fill(args.critics.network, args.critics.adam)
            self._actor.fill(args.actor, args.actor_adam)
        config, rows = learner.config, args.batch.rows
        tau = config.tau if update_actor or not config.delay_targets else 0.0
        args.critics.tau, args.actor_tau = tau, tau if config.target_actor else 0.0
        noise = learner.smoothing_noise(torch.Size((rows, args.action_size)))
        metrics, error = self._make_metrics(), torch.empty(rows)
        kept += put_addresses(args, _STEP_FIELDS[:2], (noise, error))
        self._make_room(functions.td3_workspace, 0)
        args.critics.adam.rate = learner.critic_optimizer.advance()
        functions.td3_update_critics(ctypes.byref(args))
        if update_actor:
            args.actor_adam.rate = learner.actor_optimizer.advance()
            functions.td3_update_actor(ctypes.byref(args))
        elif args.actor_tau > 0:
            functions.td3_move_target_actor(ctypes.byref(args))
        return self._result(metrics, error, update_actor)


def put_addresses(structure: Any, names: Sequence[str], tensors: Sequence[Tensor]) -> list[Tensor]:
    """Write addresses of tensors into fields, made contiguous float32 where they are not.

    Args:
        structure: It has the fields.
        names: Of the fields.
        tensors: On the CPU, one for each.

    Returns:
        The tensors that lie there, which must live as long as the addresses are used.
    """
    kept: list[Tensor] = []
    for name, given in zip(names, tensors, strict=True):
        plain = given.dtype is torch.float32 and given.is_contiguous()
        tensor = given if plain else given.to(torch.float32).contiguous()
        setattr(structure, name, tensor.data_ptr())
        kept.append(tensor)
    return kept
