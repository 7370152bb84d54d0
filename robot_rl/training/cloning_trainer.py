"""The loop of cloning: learn from demonstrations, look at those held out, evaluate, save.

A step is an update of the learner. Everything that decides the future is in the checkpoint: on the
CPU a resumed run equals the uninterrupted one bit for bit.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from robot_rl.core.env import BatchEnv
from robot_rl.core.errors import NonFiniteError
from robot_rl.core.learner import Learner
from robot_rl.core.transition import Batch
from robot_rl.training.config import TrainerConfig
from robot_rl.training.evaluation import Evaluator
from robot_rl.training.storage.checkpoint import CheckpointStore, Score
from robot_rl.training.trainer import (
    VALIDATION_SEED,
    CheckpointSchedule,
    Clock,
    FiniteWatch,
    what_ends_a_run,
)

if TYPE_CHECKING:  # pyarrow is an extra
    from robot_rl.training.demonstrations import Chunks, Demonstrations

_ROWS = 4096
"""Chunks whose validation loss is computed at once."""


class Cloner(Learner, Protocol):
    """A learner that needs demonstrations alone."""

    def held_out_loss(self, batch: Batch) -> Tensor:
        """Loss of what acts, 0-dim, on demonstrations that it does not learn from."""
        ...


class CloningTrainer:
    """Runs the loop over parts that were made elsewhere."""

    def __init__(
        self,
        config: TrainerConfig,
        *,
        evaluation_env: BatchEnv,
        learner: Cloner,
        demonstrations: "Demonstrations",
        checkpoints: CheckpointStore,
        record: Callable[[Mapping[str, float]], None],
        interval_seconds: float,
        changed: Mapping[str, BatchEnv] | None = None,
    ) -> None:
        """Join the parts.

        Args:
            changed: Envs of further conditions that are evaluated under, by their names.
            config: Its `total_steps` and `evaluation_interval` are updates here.
            interval_seconds: Wall time between two records [s].
        """
        self.config, self.learner, self.demonstrations = config, learner, demonstrations
        self.step = 0
        """Updates done."""
        self.seconds = 0.0
        """Wall time spent training, all sessions together [s]."""
        self.notes = [demonstrations.sentence]
        """Lines to show before it begins."""
        self._evaluator = Evaluator(evaluation_env, changed, seed=VALIDATION_SEED)
        self._checkpoints, self._record = checkpoints, record
        self._interval_seconds = interval_seconds
        self._metrics: dict[str, Tensor] = {}
        self._least, self._stale = float("inf"), 0
        self._watch, self._clock = FiniteWatch(), Clock()
        self._stop = False
        self._schedule = CheckpointSchedule(config.checkpoint_interval, config.checkpoint_seconds)

    lost_its_replay = False
    """There is none."""

    def begin(self) -> None:
        """Nothing is taken over from another run."""

    def run(self) -> bool:
        """Train until `total_steps` or nothing gets better, which is true, or until `stop`.

        Raises:
            NonFiniteError: A value was NaN or infinite; the last good checkpoint is intact.
        """
        if self.step == 0:
            self.learner.observe_stored(self.demonstrations.learned.starts)
        self._clock.start(self.step)
        config = self.config
        while not self._ended and not self._stop:
            with self._clock.spent_on("learn"):
                self._learn()
            if self.step % config.evaluation_interval == 0 or self._ended:
                self._evaluate_and_save()
                continue
            if self._clock.elapsed >= self._interval_seconds:
                self._log({})
            if self._schedule.is_due(self.step):
                self._save_unscored()
        if self.step != self._schedule.step:
            self._save_unscored()
        return self._ended

    def stop(self) -> None:
        """Ask `run` to save and return after the present step; may be called from a signal."""
        self._stop = True

    @property
    def _ended(self) -> bool:
        patience = self.config.demonstrations.patience
        return self.step >= self.config.total_steps or 0 < patience <= self._stale

    def _learn(self) -> None:
        batch = self.demonstrations.draw(self.learner.samples_per_update)
        metrics, _ = self.learner.update(batch)
        self._metrics = {f"train/{name}": value for name, value in metrics.items()}
        self._watch.see_metrics(self._metrics)
        self.step += 1

    def _evaluate_and_save(self) -> None:
        self._check(weights=True)
        with self._clock.spent_on("aside"):
            losses = self._held_out()
            summary, score = self._evaluator.evaluate(self.learner.policy())
        self._log({**losses, **summary})
        self._save(score)

    def _held_out(self) -> dict[str, float]:
        chunks = self.demonstrations.held_out
        if chunks is None:
            return {}
        loss = self._mean_loss(chunks)
        self._stale = 0 if loss < self._least else self._stale + 1
        self._least = min(self._least, loss)
        return {"eval/validation_loss": loss}

    def _mean_loss(self, chunks: "Chunks") -> float:
        """Over all chunks, each step weighing the same but for those at an episode's end."""
        total = 0.0
        device = chunks.obs["actor"].device
        for rows in torch.arange(len(chunks), device=device).split(_ROWS):
            total += float(self.learner.held_out_loss(chunks.take(rows))) * len(rows)
        return total / len(chunks)

    def _log(self, extra: Mapping[str, float]) -> None:
        self._check()
        self.seconds += self._clock.session_part()
        values = {name: float(value) for name, value in self._metrics.items()}
        self._record({
            "step": self.step, "seconds": self.seconds, **values, **extra,
            **self._clock.pop(self.step),
        })  # fmt: skip

    def _check(self, *, weights: bool = False) -> None:
        learner, when = self.learner if weights else None, f"by update {self.step}"
        hint = "with a smaller learning rate"
        if told := what_ends_a_run(self._watch, learner, when, self._checkpoints, hint):
            raise NonFiniteError(told)

    def _save_unscored(self) -> None:
        """Write a checkpoint to resume from; it can never be the best."""
        self._check(weights=True)
        self._save(None)

    def _save(self, score: Score | None) -> None:
        """Write a checkpoint of what was just checked."""
        with self._clock.spent_on("aside"):
            self._checkpoints.save(self.step, self.state_dict(), score=score)
        self._schedule.saved(self.step)

    def state_dict(self) -> dict[str, Any]:
        """The whole run."""
        self.seconds += self._clock.session_part()
        return {
            "learner": self.learner.state_dict(),
            "policy": self.learner.policy().state_dict(),  # for those who only play it
            "demonstrations": self.demonstrations.state_dict(),
            "step": self.step,
            "least": self._least,
            "stale": self._stale,
            "seconds": self.seconds,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state_dict`.

        Raises:
            SpecMismatchError: The demonstrations are others than the run began with.
        """
        self.demonstrations.load_state_dict(state["demonstrations"])
        self.learner.load_state_dict(state["learner"])
        self.step = int(state["step"])
        self._schedule.saved(self.step)
        self._least, self._stale = float(state["least"]), int(state["stale"])
        self.seconds = float(state["seconds"])
