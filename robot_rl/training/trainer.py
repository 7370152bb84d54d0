"""The training loop: learn offline where it is asked for, then collect, learn, evaluate, save.

With several processes (`parallel.py`) all run this loop in step, each with its share. Everything
that decides the future is in the checkpoint: networks, targets, optimisers, temperature,
normalisers, random streams, counters, the worlds and the replay. On the CPU a resumed run equals
the uninterrupted one bit for bit, unless the worlds' state cannot be saved: then episodes begin
anew.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from robot_rl.buffers.minibatches import Minibatches, mirror_images_of
from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.buffers.saved_rows import Segments
from robot_rl.core.env import BatchEnv, HasRewardWeights
from robot_rl.core.errors import CheckpointError, LimitError, NonFiniteError
from robot_rl.core.learner import ChunkLearner, Learner, OfflineLearner, Phase
from robot_rl.training.clock import CheckpointSchedule, Clock
from robot_rl.training.collector import Collector
from robot_rl.training.config import Symmetry, TrainerConfig
from robot_rl.training.evaluation import evaluate
from robot_rl.training.finite_watch import FiniteWatch, what_ends_a_run
from robot_rl.training.prior import Prior, open_prior
from robot_rl.training.ranks import Ranks, check_same, save_others, share_of, state_of
from robot_rl.training.schedule import PhaseSchedule
from robot_rl.training.snapshots import snapshot_resets
from robot_rl.training.start import load_start
from robot_rl.training.storage.checkpoint import CheckpointStore

if TYPE_CHECKING:
    from robot_rl.training.prior_episodes import ObservationAugmenter  # pyarrow is an extra

VALIDATION_SEED = 1_000_003
"""Starts that choose the best checkpoint; `robot-rl evaluate` tests on others."""
_LESS = "with a smaller learning rate, or look for a reward or an observation that explodes"


class Trainer:
    """Runs the loop over parts that were made elsewhere."""

    def __init__(
        self,
        config: TrainerConfig,
        *,
        env: BatchEnv,
        evaluation_env: BatchEnv,
        learner: Learner,
        checkpoints: CheckpointStore,
        segments: Segments,
        record: Callable[[Mapping[str, float]], None],
        interval_seconds: float,
        seed: int,
        ranks: Ranks | None = None,
        augment: "ObservationAugmenter | None" = None,
        make_collector: Callable[..., Collector] = Collector,
    ) -> None:
        """Join the parts.

        Args:
            config: The loop's settings.
            env: Worlds to learn in; with several ranks this one's.
            evaluation_env: Worlds to evaluate in; used by rank 0.
            learner: The algorithm.
            checkpoints: Where the state is saved.
            segments: Where the replay's rows are saved.
            record: Takes one record of metrics per interval.
            interval_seconds: Wall time between two records [s].
            seed: Seed of starts, random actions and sampling; another one on every rank.
            ranks: Processes that train together; this one alone by default.
            augment: Adds to episodes of before what the worlds add to observations.
            make_collector: Makes what fills the replay.
        """
        ranks = ranks or Ranks()
        self.config = config
        self.env = env
        self.evaluation_env = evaluation_env
        self.learner = learner
        self._ranks = ranks
        groups = (*learner.actor_groups, *learner.critic_groups)
        wanted = learner.monte_carlo_returns if isinstance(learner, OfflineLearner) else None
        self.replay = ReplayBuffer(
            env.spec,
            groups,
            capacity=config.replay_capacity // ranks.count,
            gamma=learner.gamma,
            n_step=learner.n_step,
            chunks=isinstance(learner, ChunkLearner),
            config=config.replay,
            returns=wanted if wanted is not None and wanted.online else None,
            seed=seed,
        )
        if isinstance(env, HasRewardWeights):
            self.replay.set_reward_weights(env.reward_weights)
        self.prior: Prior | None = None
        """Experience of before."""
        if config.prior.run:
            self.prior = open_prior(
                config.prior, self.replay, env.spec, groups, seed=seed, augment=augment,
                returns=wanted, held_out=config.offline.held_out if config.offline.updates else 0.0,
                copies=ranks.local_count,
            )  # fmt: skip
            self.prior.set_sampling_weights(config.prior)
        self.snapshots = snapshot_resets(config.snapshots, env)
        """States that episodes begin in at first."""
        size = share_of(learner.samples_per_update, ranks, "learner.batch_size")
        images = mirror_images_of(env) if config.symmetry is Symmetry.augment else None
        mixed = self.prior is not None and config.prior.share > 0
        self._minibatches = Minibatches(
            self.replay, size, prior=self.prior.replay if self.prior and mixed else None,
            share=config.prior.share, images=images,
        )  # fmt: skip
        start_steps = config.warm_up_steps if config.begins_trained else config.random_steps
        self.schedule = PhaseSchedule(
            config.offline, learner, self.prior,
            Minibatches(self.prior.replay, size, images=images) if self.prior else None,
            env, start_steps=start_steps,
        )  # fmt: skip
        """Which phases there are, and where the run stands."""
        self.collector = make_collector(
            env, learner, self.replay, random_steps=0 if config.begins_trained else start_steps,
            seed=seed, ranks=ranks,
        )  # fmt: skip
        self._begun = False
        self.seconds = 0.0
        """Wall time spent training, all sessions together [s]."""
        self._checkpoints = checkpoints
        self._segments = segments
        self._record = record
        self._interval_seconds = interval_seconds
        self._seed = seed
        self._learn_metrics: dict[str, Tensor] = {}
        self._watch = FiniteWatch()
        self._kind: type[NonFiniteError] | type[LimitError] = NonFiniteError  # as the worlds say
        self._clock = Clock()
        self._stop = False
        self._schedule = CheckpointSchedule(config.checkpoint_interval, config.checkpoint_seconds)

    @property
    def notes(self) -> list[str]:
        """What is to be said before it begins."""
        told = (self.prior, self.snapshots)
        return [one.sentence for one in told if one is not None]

    def run(self) -> bool:
        """Train until `total_steps`, or until `stop`.

        Returns:
            True if the run came to its planned end. Either way the last state is saved.

        Raises:
            NonFiniteError: A value was NaN or infinite; the last good checkpoint is intact.
            LimitError: The engine had no room for contacts; likewise.
        """
        if self.step == 0:
            self.begin()
            check_same(self.learner.state_dict(), self._ranks)
            self.collector.start(self._seed)
        self._clock.start(self.step)
        while self.step < self.config.length and not self._ranks.any(self._stop):
            offline = self.schedule.advance(self.collector.world_steps) is Phase.offline
            if self._offline_block() if offline else self._online_step():
                self._evaluate_and_save()
                continue
            if self._ranks.any(self._clock.elapsed >= self._interval_seconds):
                self._log({})
            if self._ranks.any(self._schedule.is_due(self.step)):
                self._save_unscored()
        if self.step != self._schedule.step:
            self._save_unscored()
        return self.step >= self.config.length

    def begin(self) -> None:
        """Take over the learner of another run, where one is named; `run` does it by itself.

        Raises:
            ConfigError: It does not fit.
            CheckpointError: It is damaged.
        """
        if self._begun:
            return
        self._begun = True
        if self.config.start.run:
            load_start(self.config.start, self.learner)  # its normalisers are what it acts with
        else:
            self.schedule.warm_start_normalizers()

    @property
    def lost_its_replay(self) -> bool:
        """Whether there are no transitions although the worlds have been stepped."""
        return self.collector.world_steps > 0 and len(self.replay) == 0

    @property
    def step(self) -> int:
        """How far the run is: updates of the offline phase and world-steps."""
        return self.schedule.updates + self.collector.world_steps

    def stop(self) -> None:
        """Ask `run` to save and return after the present step; may be called from a signal."""
        self._stop = True

    def _offline_block(self) -> bool:
        """Some updates from stored experience; returns whether an evaluation is due."""
        assert self.schedule.minibatches is not None
        with self._clock.learning():
            self._update(self.schedule.minibatches, self.schedule.block(), 0.0)
        return self.schedule.evaluation_is_due

    def _online_step(self) -> bool:
        """One step of all worlds and what is learned of it; returns as `_offline_block`."""
        before = self.collector.world_steps
        with self._clock.collecting():
            self.collector.collect()
        self.schedule.advance(self.collector.world_steps)  # the last warm-up step
        with self._clock.learning():
            self._learn()
        interval, now = self.config.evaluation_interval, self.collector.world_steps
        return now // interval > before // interval or now >= self.config.total_steps

    def _learn(self) -> None:
        updates = self.config.updates_per_step
        # A run that goes on without its replay fills it again before it learns.
        enough = min(self.schedule.start_steps // self._ranks.count, self.replay.capacity)
        warming = self.collector.world_steps < self.schedule.start_steps
        if warming or updates == 0 or len(self.replay) < enough:
            return
        progress = min(1.0, self.collector.world_steps / self.config.total_steps)
        self._update(self._minibatches, updates, progress)

    def _update(self, minibatches: Minibatches, count: int, progress: float) -> None:
        for minibatch in minibatches.draw(count, progress):
            self._watch.see_batch(minibatch)
            metrics, error = self.learner.update(minibatch)
            self._learn_metrics = {f"train/{name}": value for name, value in metrics.items()}
            self._watch.see_metrics(self._learn_metrics)
            minibatches.update_priorities(minibatch, error)
        self.collector.policy_version += count

    def _evaluate_and_save(self) -> None:
        self._checked(weights=True)  # else the evaluation would blame the policy's actions
        with self._clock.aside():
            summary, score = self._ranks.first(self._evaluate) or ({}, None)
        self.schedule.record_diagnostics()
        self._log(summary)
        self._save(score)

    def _evaluate(self) -> tuple[dict[str, float], float]:
        """What the policy reaches, and the score that the best is chosen by."""
        result = evaluate(self.evaluation_env, self.learner.policy(), seed=VALIDATION_SEED)
        score = result.success_rate if result.judged else float(result.returns.mean())
        return result.summary(), score

    def _log(self, extra: Mapping[str, float]) -> None:
        learned = {**self._checked(), **self.schedule.inspected()}
        if self.config.begins_trained:
            learned |= self.schedule.phase_metric()
        step = self.step
        self.seconds += self._clock.session_part()
        self._record(
            {
                "step": step,
                "seconds": self.seconds,
                **self.collector.statistics(),
                **learned,
                **extra,
                **self._clock.pop(step),
            }
        )

    def _checked(self, *, weights: bool = False) -> dict[str, float]:
        """The learner's metrics, means over all ranks, after looking for what is not a number.

        Args:
            weights: Look at all that the learner keeps, too: a loss tells of a step only after it.
        """
        if found := self._ranks.problem(self._not_finite(weights), self._watch.earliest()):
            raise self._kind(found)
        values = torch.tensor([float(value) for value in self._learn_metrics.values()])
        means = self._ranks.total(values) / self._ranks.count
        return dict(zip(self._learn_metrics, means.tolist(), strict=True))

    def _not_finite(self, weights: bool) -> str:
        """Sentence about what was not a number on this rank."""
        worlds = ""  # what they found: the cause, or actions of a policy that is broken already
        try:
            self.env.check()
        except (NonFiniteError, LimitError) as error:
            worlds, self._kind = str(error), type(error)
        learner, hint = self.learner if weights else None, _LESS
        told = what_ends_a_run(
            self._watch, learner, f"by step {self.step}", self._checkpoints, hint
        )
        return ". The worlds report: ".join(filter(None, (told, worlds)))

    def _save_unscored(self) -> None:
        """Write a checkpoint to resume from; it can never be the best."""
        self._checked(weights=True)
        self._save(None)

    def _save(self, score: float | None) -> None:
        """Write a checkpoint of what was just checked."""
        with self._clock.aside():
            step, state = self.step, self.state_dict()
            self._ranks.first(lambda: self._checkpoints.save(step, state, score=score))
        self._schedule.saved(step)

    def state_dict(self) -> dict[str, Any]:
        """The whole run; all ranks must ask for it."""
        self.seconds += self._clock.session_part()
        own = {
            "learner": self.learner.state_dict(),
            "env": self.env.state_dict(),
            "collector": self.collector.state_dict(),
            "replay": self.replay.state_dict(self._segments if self.config.save_replay else None),
            "prior": {} if self.prior is None else self.prior.state_dict(),
            "snapshots": {} if self.snapshots is None else self.snapshots.state_dict(),
            "seconds": self.seconds,
            "course": self.schedule.state_dict(),
        }
        return {
            **own,
            "policy": self.learner.policy().state_dict(),  # for those who only play it
            "ranks": save_others(own, self._ranks, self._segments),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state_dict`: the whole run's, of which a rank takes its part.

        Raises:
            CheckpointError: It was written by another number of ranks, or by another version.
        """
        state = state_of(state, self._ranks, self._segments)
        try:
            self.learner.load_state_dict(state["learner"])
        except KeyError as error:
            raise CheckpointError(
                f"the learner's state in the checkpoint has no entry {error}, which this program "
                "needs; go on with the version of robot_rl that wrote it (provenance.json names it)"
            ) from error
        self.env.load_state_dict(state["env"])
        self.collector.load_state_dict(state["collector"])
        self.replay.load_state_dict(state["replay"], self._segments)
        if self.prior is not None:
            self.prior.load_state_dict(state["prior"])
        if self.snapshots is not None:
            self.snapshots.load_state_dict(state.get("snapshots", {}))
        self.seconds = float(state["seconds"])
        if "course" in state:  # not in checkpoints of before there were phases
            self.schedule.load_state_dict(state["course"])
        self._begun = True
        if not self.env.spec.resumable:
            self.collector.begin_anew()
        self._schedule.saved(self.step)
