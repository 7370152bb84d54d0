"""EXPO (Dong et al. 2025, arXiv:2507.07986): edit what an imitator proposes, and choose by critics.

A flow learns to do as was done where it went well, and nothing else. An editor, a Gaussian actor
that sees observation and action, learns to add to it, within a fifth of the range, what the critics
value. What acts is the candidate, proposed or edited, that the smallest of two target critics drawn
at random values most; the critics' target takes the same choice at the next observation. Source:
EXPO-FT (arXiv:2605.25477), kevin-on/expo-ft 10f44b3, agents/alg/expo_ft.py. Deviations:

- The imitator is a flow of vectors, no vision-language-action model. It learns from those rows of
  the minibatch that are stored experience (`Batch.extra["source"]`), which should be successes, or
  from all rows where none is named. There successes have minibatches of their own.
- Edited actions are cut off at the ends of their range, as executed ones are.
- A next value that is not a number stays one, and stops the run. There it becomes 0.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from policies.networks.edited import EditedChunk
from policies.networks.flow import FlowPolicy, FlowPolicyConfig, picked
from policies.networks.q_ensemble import QEnsemble, QEnsembleConfig
from policies.networks.residual import ResidualActor, ResidualActorConfig
from robot_rl.core.base_action import BASE_ACTION
from robot_rl.core.env import EnvSpec, Obs
from robot_rl.core.errors import ConfigError
from robot_rl.core.learner import Phase
from robot_rl.core.moving import moving_copy, soft_update
from robot_rl.core.transition import Batch
from robot_rl.learners.cloning import flow_matching
from robot_rl.learners.cuda_graphs import UpdateResult
from robot_rl.learners.networks import (
    repeat_obs,
    seed_weights,
    some_members,
)
from robot_rl.learners.off_policy import MaximumEntropyConfig, OffPolicyLearner, Temperature
from robot_rl.learners.optimization import Optimizer, Reduce, check_ranges
from robot_rl.learners.qc import ChunkPlans, check_no_steps, chunk_loss, whole_chunks
from robot_rl.learners.values import inspect_values

_MAX_DRAWS = 10_000
"""Sets of critics that the deployed policy takes the mean over."""


@dataclass(kw_only=True)
class EXPOConfig(MaximumEntropyConfig):
    """Hyperparameters; the defaults are the authors'."""

    target_entropy_per_action: float = -0.5
    """Target entropy divided by the number of entries of a chunk [nat]."""
    edit_lr: float = 3e-4
    """Step size of the editor."""
    chunk_length: int = 1
    """H: actions that are proposed, edited and valued at once; `n_step` is as many."""
    replan_interval: int = 1
    """Actions of a chunk that are done before the next one; the authors do all of them."""
    candidates: int = 8
    """Chunks that the flow proposes where one is to be done; as many edits are added."""
    next_candidates: int = 8
    """The same for the value of what comes next; fewer cost less."""
    drawn_members: int = 2
    """Target critics drawn at random, of which the smallest counts."""
    actor: FlowPolicyConfig = field(default_factory=FlowPolicyConfig)
    """Velocity network of the proposals."""
    edit: ResidualActorConfig = field(
        default_factory=lambda: ResidualActorConfig(scale=0.2, initial_std=0.2)
    )
    """Editor, and how far it may go."""
    critic: QEnsembleConfig = field(default_factory=lambda: QEnsembleConfig(members=10))
    """Value networks of chunks; they choose on the robot too, and so see what the actor sees."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, {
            "edit_lr": (0, 1), "chunk_length": (1, 1000),
            "replan_interval": (1, self.chunk_length), "candidates": (1, 1e6),
            "next_candidates": (1, 1e6), "drawn_members": (1, self.critic.members),
        })  # fmt: skip
        check_no_steps(self.n_step, self.chunk_length)
        draws = math.comb(self.critic.members, self.drawn_members)
        if draws > _MAX_DRAWS:
            raise ConfigError(
                f"learner.drawn_members={self.drawn_members} of learner.critic.members="
                f"{self.critic.members} can be drawn in {draws:,} ways, over all of which the "
                f"deployed policy takes the mean; expected at most {_MAX_DRAWS:,}"
            )


class EXPO(OffPolicyLearner):
    """Three networks: a flow of chunks, their editor, and critics."""

    learns_offline = True
    """Offline the flow imitates; nothing is valued."""

    def __init__(
        self, config: EXPOConfig, spec: EnvSpec, *, seed: int, stream_seed: int | None = None,
        reduce: Reduce | None = None,
    ) -> None:  # fmt: skip
        """Make networks, targets, and the policy of them; arguments as of `OffPolicyLearner`."""
        self.config = config
        self.chunk_length = length = config.chunk_length
        """H: actions of a chunk."""
        seed_weights(seed)
        width, entries = spec.groups["actor"].shape[0], length * spec.action_size
        self.actor = FlowPolicy(config.actor, width, spec.action_size, length)
        self.edit = ResidualActor(config.edit, width, entries).to(spec.device)
        self.critic = QEnsemble(config.critic, "actor", width, entries)
        noise = torch.randn(config.candidates, *self.actor.chunk_shape)
        super().__init__(
            config, spec, self.actor, self.critic, seed=seed, stream_seed=stream_seed,
            reduce=reduce,
        )  # fmt: skip
        self.n_step = length
        self.target_critic = moving_copy(self.critic)
        self.chooser = EditedChunk(
            self.actor, self.edit, self.target_critic, noise,
            members=config.critic.members, drawn=config.drawn_members,
        ).to(spec.device)  # fmt: skip
        self.edit_optimizer = Optimizer(
            self.edit.parameters(), config.edit_lr, config, after_step=self.edit.constrain,
            reduce=reduce, interval=config.actor_interval,
        )  # fmt: skip
        self.temperature = Temperature(
            config, target_entropy=config.target_entropy(entries), device=spec.device,
            reduce=reduce, interval=config.actor_interval,
        )  # fmt: skip
        self._log_scale = entries * math.log(config.edit.scale)
        self._targets = list(self.target_critic.parameters())
        self._sources = list(self.critic.parameters())
        self._plans = ChunkPlans(
            self.chooser, spec, chunk_length=length, replan_interval=config.replan_interval
        )

    @torch.no_grad()
    def act(self, obs: Obs, explore: bool) -> Tensor:
        """Actions, (N, A), in [-1, 1]: of plans, which exploring draws candidates for anew."""
        if not explore:
            return self._plans.policy(obs)
        return self._plans.explore(obs, self._plan)

    def begin(self, mask: Tensor) -> None:
        """Throw the plans of the masked worlds away, (N,) bool."""
        self._plans.begin(mask)

    def begin_phase(self, phase: Phase) -> None:
        """Offline the flow steps in every update, and nothing else does."""
        self.follow_phase(phase)

    def update(self, batch: Batch) -> tuple[dict[str, Tensor], Tensor]:
        """One step of the critics; in the last of `actor_interval`, of flow, editor, temperature.

        Offline one of the flow alone.

        Args:
            batch: `extra` has "chunk", "valid", and "source" where there is stored experience.

        Returns:
            Detached metrics, the actor's those of its last step, and the critics' error of every
            row, (B,); where its chunk is cut, the mean of the others.
        """
        self.updates += 1
        update_actor = self.updates % self.actor_interval == 0
        offline = self._phase is Phase.offline
        with self.products:
            result = self.cuda_graphs.run(self._step, batch, update_actor, offline)
            return self.finish(result, batch)

    def _step(self, batch: Batch, update_actor: bool, offline: bool) -> UpdateResult:
        with self.train_mode(batch) as batch:
            if offline:
                return UpdateResult({}, self._imitate(batch), torch.zeros_like(batch.reward))
            metrics, error = self._update_critic(batch)
            soft_update(self._targets, self._sources, self.config.tau)
            actor_metrics: dict[str, Tensor] = {}
            if update_actor:
                actor_metrics = {**self._imitate(batch), **self._update_edit(batch)}
        return UpdateResult(metrics, actor_metrics, error)

    def _update_critic(self, batch: Batch) -> tuple[dict[str, Tensor], Tensor]:
        with torch.no_grad():
            after, edited = self._best(batch.next_obs, self.config.next_candidates)
            value = self._least(batch.next_obs, after)  # of critics drawn anew
            target = self.reward_scale.scale(batch.reward) + batch.discount * value
        loss, metrics, error = chunk_loss(
            lambda obs, chunk: self.plain_outputs(self.critic, obs, chunk), batch, target,
            batch_norm=self.uses_batch_norm,
        )  # fmt: skip
        self.critic_optimizer.step(loss)
        return {**metrics, "edited": edited.float().mean()}, error

    def _imitate(self, batch: Batch) -> dict[str, Tensor]:
        """Flow matching: of every stored chunk the actions that were done, as its row weighs."""
        source = batch.extra.get("source")
        rows = batch.weight if source is None else batch.weight * (source > 0)
        with self.autocast():
            loss = flow_matching(
                self.actor, batch.obs, batch.extra["chunk"], rows[:, None] * batch.extra["valid"],
                self.generator,
            )  # fmt: skip
        self.actor_optimizer.step(loss)
        return {"actor_loss": loss.detach()}

    def _update_edit(self, batch: Batch) -> dict[str, Tensor]:
        """Steps of editor and temperature; what is edited are the batch's own chunks, as coded."""
        weight = batch.weight * batch.extra["valid"][:, -1]
        alpha = self.temperature.value()
        seen = {"actor": batch.obs["actor"], BASE_ACTION: batch.extra["chunk"].flatten(1)}
        with self.autocast():
            chunk, log_prob = self.edit.sample(seen, self.generator)
        log_prob = log_prob - self._log_scale  # of what is added, not of it in units of the scale
        with self.eval_mode(self._critic):
            value = self.plain_outputs(self.critic, batch.obs, chunk).mean(0)
        loss = (weight * (alpha * log_prob - value)).mean()
        self.edit_optimizer.step(loss)
        self.temperature.step(log_prob, weight)
        return {
            "edit_loss": loss.detach(), "entropy": -log_prob.detach().mean(), "temperature": alpha
        }  # fmt: skip

    def _plan(self, obs: Obs) -> Tensor:
        chunk, _ = self._best(obs, self.config.candidates)
        return chunk.unflatten(1, self.actor.chunk_shape)

    def _best(self, obs: Obs, count: int) -> tuple[Tensor, Tensor]:
        """The best of fresh candidates, (B, H * A), and where that is an edit, (B,) bool."""
        rows = len(obs["actor"])
        noise = torch.randn(
            count, rows, *self.actor.chunk_shape, generator=self.generator, device=self.device
        )
        with self.autocast():
            chunks = self.chooser.candidates(
                obs, noise, lambda seen: self.edit.explore(seen, self.generator)
            )
        seen = repeat_obs({"actor": obs["actor"]}, 2 * count)
        value = self._least(seen, chunks.flatten(0, 1)).unflatten(0, (2 * count, rows))
        best = value.argmax(0)
        return picked(chunks, best), best >= count

    def _least(self, obs: Obs, chunk: Tensor) -> Tensor:
        """Smallest value among target critics drawn without replacement, (B,)."""
        members, count = self._targets[0].shape[0], self.config.drawn_members
        draw = torch.rand(members, generator=self.generator, device=self.device)
        with self.autocast():
            q = some_members(self.target_critic, draw.argsort()[:count], obs, chunk)
        return q.squeeze(-1).float().amin(0)

    def observe_stored(self, obs: Obs) -> None:
        """Take observations, groups (B, ...), into the normalisers."""
        super().observe_stored(obs)
        self.edit.update_statistics(obs)

    @torch.no_grad()
    def inspect(self, batch: Batch) -> dict[str, Tensor]:
        """Values of stored, random and chosen chunks, and the error of a plain target.

        Raises:
            ConfigError: No chunk is whole, so that the critics would learn nothing.
        """
        scaled = replace(batch, reward=self.reward_scale.scale(batch.reward))
        return inspect_values(
            whole_chunks(scaled), lambda obs: self.chooser(obs).flatten(1),
            lambda obs, chunk: self.plain_outputs(self.critic, obs, chunk),
            lambda obs, chunk: self.plain_outputs(self.target_critic, obs, chunk).amin(0),
        )  # fmt: skip

    def policy(self) -> nn.Module:
        """The best candidate from the same noises, and a queue around it."""
        return self._plans.policy

    def state_dict(self) -> dict[str, Any]:
        """All parts, the counter, RNG, and the plans that exploring has not done yet."""
        return {**super().state_dict(), "plans": self._plans.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`: the next update and the next action are bit-equal."""
        super().load_state_dict(state)
        self._plans.load_state_dict(state["plans"])

    def _parts(self) -> dict[str, Any]:
        # The chooser has the flow, the editor and the target critics inside.
        parts = {name: part for name, part in super()._parts().items() if name != "actor"}
        return parts | {
            "chooser": self.chooser, "edit_optimizer": self.edit_optimizer,
            "temperature": self.temperature,
        }  # fmt: skip
