"""Q-chunking (Li et al. 2025, arXiv:2507.07969): values of chunks of actions, begun from data.

A flow learns to do as was done, offline and online, and nothing else. Critics value H actions at a
time: what they bring, and what the best chunk is worth that the flow proposes then. What acts is
the best of several proposals, so no action is tried that resembles nothing in the data. Chunks that
an episode's end cuts short teach the flow up to there, and the critics nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from policies.networks.flow import BestChunk, FlowPolicy, FlowPolicyConfig
from policies.networks.q_ensemble import QEnsemble, QEnsembleConfig
from policies.networks.queued import QueuedPolicy
from robot_rl.core.env import EnvSpec, Obs
from robot_rl.core.episodic import ChunkQueue, begin_episodes
from robot_rl.core.errors import ConfigError
from robot_rl.core.moving import moving_copy, soft_update
from robot_rl.core.transition import Batch
from robot_rl.learners.cloning import flow_matching
from robot_rl.learners.cuda_graphs import UpdateResult
from robot_rl.learners.networks import seed_weights, without_invalid
from robot_rl.learners.off_policy import OffPolicyConfig, OffPolicyLearner
from robot_rl.learners.optimization import Reduce, check_ranges
from robot_rl.learners.values import inspect_values


@dataclass(kw_only=True)
class QCConfig(OffPolicyConfig):
    """Hyperparameters; the defaults are the authors'."""

    chunk_length: int = 5
    """H: actions that are valued, and planned, at once; `n_step` is as many."""
    replan_interval: int = 5
    """Actions of a plan that are done before the next one; the authors do all of them."""
    candidates: int = 32
    """Chunks that are proposed where one is to be done."""
    next_candidates: int = 32
    """Chunks that are proposed for the value of what comes next; fewer cost less."""
    actor: FlowPolicyConfig = field(default_factory=FlowPolicyConfig)
    """Velocity network of the proposals."""
    critic: QEnsembleConfig = field(default_factory=QEnsembleConfig)
    """Value networks of chunks; they choose on the robot too, and so see what the actor sees."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, {
            "chunk_length": (1, 1000), "replan_interval": (1, self.chunk_length),
            "candidates": (1, 1e6), "next_candidates": (1, 1e6),
        })  # fmt: skip
        check_no_steps(self.n_step, self.chunk_length)


class QC(OffPolicyLearner):
    """Two networks: a flow of chunks, and critics of chunks."""

    learns_offline = True
    """Untried actions are not proposed, and so not valued."""

    def __init__(
        self, config: QCConfig, spec: EnvSpec, *, seed: int, stream_seed: int | None = None,
        reduce: Reduce | None = None,
    ) -> None:  # fmt: skip
        """Make flow, critics, and the policy of both; arguments as of `OffPolicyLearner`."""
        self.config = config
        self.chunk_length = length = config.chunk_length
        """H: actions of a chunk."""
        seed_weights(seed)
        width = spec.groups["actor"].shape[0]
        self.actor = FlowPolicy(config.actor, width, spec.action_size, length)
        self.critic = QEnsemble(config.critic, "actor", width, length * spec.action_size)
        self.chooser = BestChunk(self.actor, self.critic, config.candidates).to(spec.device)
        super().__init__(
            config, spec, self.actor, self.critic, seed=seed, stream_seed=stream_seed,
            reduce=reduce,
        )  # fmt: skip
        self.n_step = length
        self.target_critic = moving_copy(self.critic)
        self._targets = list(self.target_critic.parameters())
        self._sources = list(self.critic.parameters())
        self._plans = ChunkPlans(
            self.chooser, spec, chunk_length=length, replan_interval=config.replan_interval
        )

    @torch.no_grad()
    def act(self, obs: Obs, explore: bool) -> Tensor:
        """Actions, (N, A), in [-1, 1]: of plans, which exploring draws proposals for anew."""
        if not explore:
            return self._plans.policy(obs)
        return self._plans.explore(obs, lambda seen: self._best(seen, self.config.candidates))

    def begin(self, mask: Tensor) -> None:
        """Throw the plans of the masked worlds away, (N,) bool."""
        self._plans.begin(mask)

    @torch.no_grad()
    def inspect(self, batch: Batch) -> dict[str, Tensor]:
        """Values of stored, random and proposed chunks, and the error of the critics' target.

        Raises:
            ConfigError: No chunk is whole, so that the critics would learn nothing.
        """
        scaled = replace(batch, reward=self.reward_scale.scale(batch.reward))
        return inspect_values(
            whole_chunks(scaled), lambda obs: self.chooser(obs).flatten(1),
            lambda obs, chunk: self.plain_outputs(self.critic, obs, chunk),
            lambda obs, chunk: self.plain_outputs(self.target_critic, obs, chunk).mean(0),
        )  # fmt: skip

    def update(self, batch: Batch) -> tuple[dict[str, Tensor], Tensor]:
        """One step of the critics, and of the flow every `actor_interval`.

        Returns:
            Detached metrics, the flow's those of its last step, and the critics' error of every
            row, (B,); where its chunk is cut, and may be whole when the episode has gone on, the
            mean of the others.
        """
        self.updates += 1
        update_actor = self.updates % self.actor_interval == 0
        with self.products:
            return self.finish(self.cuda_graphs.run(self._step, batch, update_actor), batch)

    def _step(self, batch: Batch, update_actor: bool) -> UpdateResult:
        with self.train_mode(batch) as batch:
            with torch.no_grad():
                after = self._best(batch.next_obs, self.config.next_candidates).flatten(1)
                value = self.plain_outputs(self.target_critic, batch.next_obs, after).mean(0)
                target = self.reward_scale.scale(batch.reward) + batch.discount * value
            loss, metrics, error = chunk_loss(
                lambda obs, chunk: self.plain_outputs(self.critic, obs, chunk), batch, target,
                batch_norm=self.uses_batch_norm,
            )  # fmt: skip
            actor_metrics = self._update_actor(batch) if update_actor else {}
            self.critic_optimizer.step(loss)
            soft_update(self._targets, self._sources, self.config.tau)
            return UpdateResult(metrics, actor_metrics, error)

    def policy(self) -> nn.Module:
        """The best of proposals from the same noises, and a queue around it."""
        return self._plans.policy

    def state_dict(self) -> dict[str, Any]:
        """All parts, the counter, RNG, and the plans that exploring has not done yet."""
        return {**super().state_dict(), "plans": self._plans.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`: the next update and the next action are bit-equal."""
        super().load_state_dict(state)
        self._plans.load_state_dict(state["plans"])

    def _update_actor(self, batch: Batch) -> dict[str, Tensor]:
        """Flow matching alone: of every chunk the actions that were done, as its row weighs."""
        counted = batch.weight[:, None] * batch.extra["valid"]  # (B, H)
        with self.autocast():
            loss = flow_matching(
                self.actor, batch.obs, batch.extra["chunk"], counted, self.generator
            )
        self.actor_optimizer.step(loss)
        return {"actor_loss": loss.detach()}

    def _best(self, obs: Obs, candidates: int) -> Tensor:
        """The best of so many fresh proposals, (B, H, A)."""
        count = len(next(iter(obs.values())))
        shape = (candidates, count, *self.actor.chunk_shape)
        noise = torch.randn(shape, generator=self.generator, device=self.device)
        with self.autocast():
            return self.chooser.choose(obs, noise)

    def _parts(self) -> dict[str, Any]:
        own = {"target_critic": self.target_critic, "chooser": self.chooser}
        inside = ("actor", "critic")
        return {n: part for n, part in super()._parts().items() if n not in inside} | own


def check_no_steps(n_step: int, chunk_length: int) -> None:
    """Refuse returns of another length than the chunks'.

    Raises:
        ConfigError: `n_step` was set.
    """
    if n_step != 1:
        raise ConfigError(
            f"learner.n_step={n_step} was asked of a learner whose returns are as long as "
            f"its chunks; set learner.chunk_length, which is {chunk_length}, and leave "
            "learner.n_step out"
        )


def chunk_loss(
    q: Callable[[Obs, Tensor], Tensor], batch: Batch, target: Tensor, *, batch_norm: bool
) -> tuple[Tensor, dict[str, Tensor], Tensor]:
    """Squared error of critics of chunks; cut chunks do not count.

    Args:
        q: Critics of observations and chunks (B, H * A) -> values (E, B).
        batch: `extra` has "chunk" (B, H, A) and "valid" (B, H).
        target: Of the values, (B,).
        batch_norm: The critics have batch normalisation.

    Returns:
        The loss; detached metrics; and the error of every row, (B,): where its chunk is cut, and
        may be whole when the episode has gone on, the mean of the others.
    """
    whole = batch.extra["valid"][:, -1]
    weight = batch.weight * whole
    judged = replace(batch, weight=weight)
    if batch_norm:  # nor may rows of cut chunks meet the others
        judged = without_invalid(judged)
    value = q(judged.obs, judged.extra["chunk"].flatten(1))  # (E, B)
    error = value - target
    loss = (weight * error * error).mean(-1).sum()  # each critic as if it were alone
    missed = error.detach().abs().mean(0)  # (B,)
    usual = (missed * whole).sum() / whole.sum().clamp_min(1)
    metrics = {
        "critic_loss": loss.detach(), "q_mean": value.detach().mean(),
        "whole_chunks": whole.float().mean(),
    }  # fmt: skip
    return loss, metrics, torch.where(whole, missed, usual)


class ChunkPlans:
    """Chunks on their way: of a deterministic policy, and of exploring, which draws its own."""

    def __init__(
        self, chooser: nn.Module, spec: EnvSpec, *, chunk_length: int, replan_interval: int
    ) -> None:
        """Nothing is planned yet.

        Args:
            chooser: Obs -> chunks (N, H, A), or actions (N, A) where H is 1.
            spec: Environment that is acted in.
            chunk_length: H.
            replan_interval: Actions of a chunk that are done before the next one.
        """
        self.policy: nn.Module = chooser
        """The deterministic policy: the chooser, with a queue around it where H is more than 1."""
        if chunk_length > 1:
            self.policy = QueuedPolicy(
                chooser, chunk_length=chunk_length, replan_interval=replan_interval
            )
        self._length, self._interval = chunk_length, replan_interval
        self._action_size, self._device = spec.action_size, spec.device
        self._queue: ChunkQueue | None = None
        self._worlds = 0

    def explore(self, obs: Obs, propose: Callable[[Obs], Tensor]) -> Tensor:
        """Next actions, (N, A), of chunks (N, H, A) that are proposed where a plan is over."""
        count = len(next(iter(obs.values())))
        queue = self._queue
        if queue is None or self._worlds != count:
            queue = self._start(count)
        if bool(queue.due.any()):  # waits for the device: planning costs far more
            queue.put(propose(obs))
        return queue.take()

    def begin(self, mask: Tensor) -> None:
        """Throw the plans of the masked worlds away, (N,) bool."""
        begin_episodes(self.policy, mask)
        if self._queue is not None and len(mask) == self._worlds:
            self._queue.reset(mask)
        else:
            self._queue = None

    def state_dict(self) -> dict[str, Tensor]:
        """Plans that exploring has not done yet."""
        plans = {} if self._queue is None else self._queue.state_dict()
        return {name: plan.clone() for name, plan in plans.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state_dict`."""
        self._queue = None
        if state:
            queue = self._start(len(state["plan"]))
            queue.load_state_dict({name: plan.to(self._device) for name, plan in state.items()})

    def _start(self, count: int) -> ChunkQueue:
        zeros = torch.zeros(count, self._action_size, device=self._device)
        queue = ChunkQueue(zeros, self._length, self._interval)
        self._queue, self._worlds = queue, count
        return queue


def whole_chunks(batch: Batch) -> Batch:
    """Rows whose chunk is whole, with chunks as their actions, (B, H * A).

    Raises:
        ConfigError: There is none, so that critics would learn nothing.
    """
    whole = batch.extra["valid"][:, -1]
    if not bool(whole.any()):
        length = batch.extra["valid"].shape[1]
        raise ConfigError(
            f"none of {len(whole)} stored steps begins a whole chunk of {length} actions: episodes "
            "end, or rows are invalid, before; set a smaller learner.chunk_length, or "
            "training.offline.held_out=0 if few episodes were held out"
        )
    taken = batch.each(lambda tensor: tensor[whole])
    return replace(taken, action=taken.extra["chunk"].flatten(1))
