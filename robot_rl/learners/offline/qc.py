"""Q-chunking (Li et al. 2025, arXiv:2507.07969): values of chunks of actions, begun from data.

A flow learns to do as was done, offline and online, and nothing else. Critics value H actions at a
time: what they bring, and what the best chunk is worth that the flow proposes then. What acts is
the best of several proposals, so no action is tried that resembles nothing in the data. Chunks that
an episode's end cuts short teach the flow up to there, and the critics nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import torch
from torch import Tensor, nn

from robot_rl.core.env import Obs
from robot_rl.core.episodic import ChunkQueue, begin_episodes
from robot_rl.core.errors import ConfigError
from robot_rl.core.learner import MonteCarloReturns, Phase
from robot_rl.core.transition import Batch
from robot_rl.learners.captured import Outcome
from robot_rl.learners.imitation.losses import VelocityPolicy, flow_matching
from robot_rl.learners.networks import Actor, Critic, without_invalid
from robot_rl.learners.off_policy import OffPolicyConfig, check_ranges
from robot_rl.learners.off_policy_learner import OffPolicyLearner
from robot_rl.learners.offline.inspection import inspect_values
from robot_rl.learners.optimization import Reduce, autocast, moving_copy, soft_update


class FlowActor(Actor, VelocityPolicy, Protocol):
    """Proposes chunks."""

    @property
    def chunk_shape(self) -> tuple[int, int]:
        """(H, A)."""
        ...


class Chooser(Protocol):
    """The flow and the critics, which it shares with the learner."""

    def to(self, device: torch.device) -> Self:
        """Move to a device."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Of both networks, and the noises that its own proposals begin at."""
        ...

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any:
        """Restore `state_dict`."""
        ...

    def __call__(self, obs: Obs) -> Tensor:
        """The best of its own proposals: chunks (N, H, A), or actions (N, A) where H is 1."""
        ...

    def choose(self, obs: Obs, noise: Tensor) -> Tensor:
        """The best of the chunks, (N, H, A), that noises (S, N, H, A) flow to."""
        ...


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

    def __post_init__(self) -> None:
        """Refuse values outside their range."""
        super().__post_init__()
        check_ranges(self, {
            "chunk_length": (1, 1000), "replan_interval": (1, self.chunk_length),
            "candidates": (1, 1e6), "next_candidates": (1, 1e6),
        })  # fmt: skip
        if self.n_step != 1:
            raise ConfigError(
                f"learner.n_step={self.n_step} was asked of a learner whose returns are as long as "
                f"its chunks; set learner.chunk_length, which is {self.chunk_length}, and leave "
                "learner.n_step out"
            )


class QC(OffPolicyLearner):
    """Two networks: a flow of chunks, and critics of chunks."""

    monte_carlo_returns: MonteCarloReturns | None = None
    """Nothing beside the transitions."""
    learns_offline = True
    """What nobody has done is not proposed, and so not valued."""

    def __init__(
        self, config: QCConfig, actor: FlowActor, critic: Critic, chooser: Chooser, *,
        action_size: int, device: torch.device, seed: int, reduce: Reduce | None = None,
        wrap: Callable[[Any], nn.Module] = lambda network: network,
    ) -> None:  # fmt: skip
        """Take over the networks.

        Args:
            config: Hyperparameters.
            actor: Trained in place.
            critic: Of what the actor sees and a chunk, (B, H * A); trained in place, its target is
                a copy.
            chooser: Made of these two.
            action_size: A.
            device: Where the networks live.
            seed: Seed of proposals.
            reduce: Joins the gradients of several processes.
            wrap: Makes of the chooser what acts without exploring: a queue around it.
        """
        self.config = config
        self.chooser = chooser.to(device)
        self.actor, self.critic = actor, critic
        super().__init__(config, actor, critic, device=device, seed=seed, reduce=reduce)
        self.chunk_length = config.chunk_length
        """H: actions of a chunk."""
        self.n_step = config.chunk_length
        self.target_critic = moving_copy(self.critic)
        self._targets = list(self.target_critic.parameters())
        self._sources = list(self.critic.parameters())
        self._acting = wrap(self.chooser)
        self._action_size = action_size
        self._queue: ChunkQueue | None = None
        self._worlds = 0

    @torch.no_grad()
    def act(self, obs: Obs, explore: bool) -> Tensor:
        """Actions, (N, A), in [-1, 1]: of plans, which exploring draws proposals for anew."""
        if not explore:
            return self._acting(obs)
        count = len(next(iter(obs.values())))
        queue = self._queue
        if queue is None or self._worlds != count:
            queue = self._start_queue(count)
        if bool(queue.due.any()):  # waits for the device: planning costs far more
            queue.put(self._best(obs, self.config.candidates))
        return queue.take()

    def begin(self, mask: Tensor) -> None:
        """Throw the plans of the masked worlds away, (N,) bool."""
        begin_episodes(self._acting, mask)
        if self._queue is not None and len(mask) == self._worlds:
            self._queue.reset(mask)
        else:
            self._queue = None

    def begin_phase(self, phase: Phase) -> None:
        """Nothing changes: the losses are the same online."""

    @torch.no_grad()
    def inspect(self, batch: Batch) -> dict[str, Tensor]:
        """Values of stored, random and proposed chunks, and the error of the critics' target.

        Raises:
            ConfigError: No chunk is whole, so that the critics would learn nothing.
        """
        whole = batch.extra["valid"][:, -1]
        if not bool(whole.any()):
            raise ConfigError(
                f"none of {len(whole)} stored steps begins a whole chunk of {self.chunk_length} "
                "actions: episodes end, or rows are invalid, before; set a smaller "
                "learner.chunk_length, or training.offline.held_out=0 if few episodes were held out"
            )
        taken = _taken(batch, whole)
        chunks = replace(
            taken, action=batch.extra["chunk"][whole].flatten(1),
            reward=self.reward_scale.scale(taken.reward),
        )  # fmt: skip
        return inspect_values(
            chunks, lambda obs: self.chooser(obs).flatten(1),
            lambda obs, chunk: self._q(self.critic, obs, chunk),
            lambda obs, chunk: self._q(self.target_critic, obs, chunk).mean(0),
        )  # fmt: skip

    def _learn(self, batch: Batch, late: bool) -> Outcome:
        """One step of the critics, and of the flow every `actor_interval`.

        Returns:
            Metrics, and the critics' error of every row, (B,); where its chunk is cut, and may be
            whole when the episode has gone on, the mean of the others.
        """
        whole = batch.extra["valid"][:, -1]
        weight = batch.weight * whole
        with torch.no_grad():
            after = self._best(batch.next_obs, self.config.next_candidates).flatten(1)
            value = self._q(self.target_critic, batch.next_obs, after).mean(0)
            target = self.reward_scale.scale(batch.reward) + batch.discount * value
        judged = replace(batch, weight=weight)
        if self._rows_meet:  # what is cut must not meet the others either
            judged = without_invalid(judged)
        q = self._q(self.critic, judged.obs, judged.extra["chunk"].flatten(1))  # (E, B)
        error = q - target
        critic_loss = (weight * error * error).mean(-1).sum()  # each critic as if it were alone
        acting = self._update_actor(batch) if late else {}
        self._critic_optimizer.step(critic_loss)
        soft_update(self._targets, self._sources, self.config.tau)
        metrics = {
            "critic_loss": critic_loss.detach(), "q_mean": q.detach().mean(),
            "whole_chunks": whole.float().mean(),
        }  # fmt: skip
        missed = error.detach().abs().mean(0)  # (B,)
        usual = (missed * whole).sum() / whole.sum().clamp_min(1)
        return metrics, acting, torch.where(whole, missed, usual)

    def policy(self) -> nn.Module:
        """The best of proposals from the same noises, and a queue around it."""
        return self._acting

    def state_dict(self) -> dict[str, Any]:
        """All parts, the counter, RNG, and the plans that exploring has not done yet."""
        plans = {} if self._queue is None else self._queue.state_dict()
        copied = {name: plan.clone() for name, plan in plans.items()}
        return {**super().state_dict(), "plans": copied}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`: the next update and the next action are bit-equal."""
        super().load_state_dict(state)
        self._queue, plans = None, state["plans"]
        if plans:
            queue = self._start_queue(len(plans["plan"]))
            queue.load_state_dict({n: plan.to(self._device) for n, plan in plans.items()})

    def _update_actor(self, batch: Batch) -> dict[str, Tensor]:
        """Flow matching alone: of every chunk the actions that were done, as its row weighs."""
        counted = batch.weight[:, None] * batch.extra["valid"]  # (B, H)
        with autocast(self._device, self.config.precision):
            loss = flow_matching(
                self.actor, batch.obs, batch.extra["chunk"], counted, self._generator
            )
        self._actor_optimizer.step(loss)
        return {"actor_loss": loss.detach()}

    def _best(self, obs: Obs, candidates: int) -> Tensor:
        """The best of so many fresh proposals, (B, H, A)."""
        count = len(next(iter(obs.values())))
        shape = (candidates, count, *self.actor.chunk_shape)
        noise = torch.randn(shape, generator=self._generator, device=self._device)
        with autocast(self._device, self.config.precision):
            return self.chooser.choose(obs, noise)

    def _q(self, critic: Critic, obs: Obs, chunk: Tensor) -> Tensor:
        with autocast(self._device, self.config.precision):
            return critic(obs, chunk).squeeze(-1).float()  # (E, B)

    def _start_queue(self, count: int) -> ChunkQueue:
        zeros = torch.zeros(count, self._action_size, device=self._device)
        queue = ChunkQueue(zeros, self.chunk_length, self.config.replan_interval)
        self._queue, self._worlds = queue, count
        return queue

    def _parts(self) -> dict[str, Any]:
        own = {"target_critic": self.target_critic, "chooser": self.chooser}
        inside = ("actor", "critic")
        return {n: part for n, part in super()._parts().items() if n not in inside} | own


def _taken(batch: Batch, rows: Tensor) -> Batch:
    """Some rows of a batch, (B,) bool."""
    return Batch(
        obs={name: group[rows] for name, group in batch.obs.items()},
        action=batch.action[rows],
        reward=batch.reward[rows],
        discount=batch.discount[rows],
        next_obs={name: group[rows] for name, group in batch.next_obs.items()},
        weight=batch.weight[rows],
    )
