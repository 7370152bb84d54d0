"""The training loop: collect, store, sample, update, evaluate, save.

With several processes (`ranks.py`) all run this loop in step, each with its share. Everything that
decides the future is in the checkpoint: networks, targets, optimisers, temperature, normalisers,
random streams, counters, the envs and the replay. On the CPU a resumed run equals the
uninterrupted one bit for bit, unless the envs' state cannot be saved: then episodes begin anew.

Prior data, reset states, mirror images, offline phases and collectors elsewhere are built outside
(`assembly.py`) and handed in: the loop does not know them.
"""

import copy
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from robot_rl.buffers.minibatches import Minibatches
from robot_rl.core.env import BatchEnv
from robot_rl.core.errors import CheckpointError, LimitError, NonFiniteError
from robot_rl.core.learner import Learner, Phase
from robot_rl.core.transition import Batch
from robot_rl.training.averaging import PolicyAverage
from robot_rl.training.collector import Collector
from robot_rl.training.config import TrainerConfig
from robot_rl.training.evaluation import Evaluator
from robot_rl.training.late_evaluations import EvaluationProcess, Found, LateEvaluations
from robot_rl.training.ranks import Ranks, check_same, save_others, state_of
from robot_rl.training.schedule import PhaseSchedule
from robot_rl.training.storage.checkpoint import CheckpointStore, Score

_logger = logging.getLogger(__name__)

VALIDATION_SEED = 1_000_003
"""Starts that choose the best checkpoint; `robot-rl evaluate` tests on others."""
_REMEDY = "with a smaller learning rate, or look for a reward or an observation that explodes"


class Stored(Protocol):
    """Data beside the replay that a run depends on; its state says which data these are."""

    @property
    def sentence(self) -> str:
        """The data, in one line for the console."""
        ...

    def state_dict(self) -> Mapping[str, Any]:
        """Digest and random streams."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with the same data, or refuse others."""
        ...


class Trainer:
    """Runs the loop over parts that were made elsewhere."""

    def __init__(
        self, config: TrainerConfig, *, learner: Learner, collector: Collector,
        minibatches: Minibatches, schedule: PhaseSchedule, evaluation_env: BatchEnv,
        checkpoints: CheckpointStore, record: Callable[[Mapping[str, float]], None],
        interval_seconds: float, ranks: Ranks, stored: Mapping[str, Stored],
        warm_start: Callable[[], None], changed: Mapping[str, BatchEnv] | None = None,
        beside: EvaluationProcess | None = None,
    ) -> None:  # fmt: skip
        """Join the parts.

        Args:
            record: Takes a record per interval. What was found beside comes later, as a record of
                its step without seconds.
            changed: Envs of further conditions that are evaluated under, by their names.
            beside: Process that evaluates meanwhile; None evaluates here.
            interval_seconds: Wall time between two records [s].
            stored: Data beside the replay, by the name of its state in the checkpoint.
        """
        self.config = config
        self.env, self.replay = collector.env, collector.replay
        self.evaluation_env = evaluation_env
        self._evaluator = Evaluator(evaluation_env, changed, seed=VALIDATION_SEED)
        self.learner, self.collector, self.schedule = learner, collector, schedule
        self.stored = stored
        self._average: PolicyAverage | None = None
        if config.policy_average and ranks.rank == 0:  # others neither evaluate nor save
            self._average = PolicyAverage(learner.policy(), config.policy_average)
        self.seconds = 0.0
        """Wall time spent training, all sessions together [s]."""
        self._minibatches, self._checkpoints, self._record = minibatches, checkpoints, record
        self._interval_seconds, self._ranks, self._warm_start = interval_seconds, ranks, warm_start
        self._late = LateEvaluations(beside, checkpoints, self._evaluate_state, self._found)
        self._any = ranks.any if ranks.count > 1 else bool
        self._overlaps = (
            config.overlap and self.env.spec.steps_beside and not learner.changes_settings
        )
        # Whether gradients are recorded is a thread's own.
        self._thread = ThreadPoolExecutor(1, "envs", torch.set_grad_enabled, (False,))
        self._begun = self._ready = False
        self._learn_metrics: dict[str, Tensor] = {}
        self._watch = FiniteWatch()
        self._kind: type[NonFiniteError] | type[LimitError] = NonFiniteError  # as the envs say
        self._clock = Clock()
        self._stop = False
        self._saves = CheckpointSchedule(config.checkpoint_interval, config.checkpoint_seconds)

    def run(self) -> bool:
        """Train until `total_steps`, which is true, or until `stop`; the last state is saved.

        Raises:
            NonFiniteError: A value was NaN or infinite; the last good checkpoint is intact.
            LimitError: The engine had no room for contacts; likewise.
        """
        if self.step == 0:
            self.begin()
            check_same(self.learner.state_dict(), self._ranks)
            self.collector.start()
        self._late.begin()
        try:
            if self._late.state and not self._late.are_on:  # as a stopped run has left them
                self._finish_evaluations()
            self._clock.start(self.step)
            while self.step < self.config.length and not self._any(self._stop):
                self.train_step()
            if self.step != self._saves.step:
                self._save_unscored()
            ended = self.step >= self.config.length
            return ended and (not self._late.state or self._finish_evaluations())
        finally:
            self._late.close()

    def train_step(self) -> None:
        """Collect a step of all envs and learn from the replay, or learn offline; then report."""
        self._late.take()
        self._advance()
        if self.schedule.phase is Phase.offline:
            evaluation_due = self._learn_offline()
        else:
            evaluation_due = self._collect_and_learn()
        if evaluation_due:
            self._evaluate_and_save()
            return
        if self._any(self._clock.elapsed >= self._interval_seconds):
            self._log({})
        if self._any(self._saves.is_due(self.step)):
            self._save_unscored()

    def _advance(self) -> None:
        """Enter the next phase when it is time; there is none after the online one."""
        if self.schedule.phase is not Phase.online:
            self.schedule.advance(self.collector.env_steps)

    def _collect_and_learn(self) -> bool:
        """One step of all envs, then or meanwhile updates; returns whether an evaluation is due."""
        before, interval = self.collector.env_steps, self.config.evaluation_interval
        if self._overlaps:
            with self._clock.spent_on("collect"):
                step = self._thread.submit(self.env.step, self.collector.act())
            try:
                self._learn()
            except BaseException:
                wait([step])
                if trouble := step.exception():
                    _logger.error("the envs failed in the same step: %s", trouble)
                raise
            with self._clock.spent_on("collect"):
                wait([step])
                self.collector.store(step.result())
        else:
            with self._clock.spent_on("collect"):
                self.collector.collect()
            self._learn()
        now = self.collector.env_steps
        return now // interval > before // interval or now >= self.config.total_steps

    def _learn(self) -> None:
        """The updates after a step; none while the replay fills, anew after a resume without it."""
        done = self.collector.env_steps
        self._advance()  # the last warm-up step is learned from already
        if not self._ready:
            start = self.schedule.start_steps
            # One at least: where nothing comes before learning, the first step may be on its way.
            enough = max(1, min(start // self._ranks.count, self.replay.capacity))
            full = self.replay.added >= enough and len(self.replay) > 0
            self._ready = done >= start and full
        if self._ready and self.config.updates_per_step:
            with self._clock.spent_on("learn"):
                progress = min(1.0, done / self.config.total_steps)
                self._update(self._minibatches, self.config.updates_per_step, progress)

    def _learn_offline(self) -> bool:
        """Some updates from stored experience; returns whether an evaluation is due."""
        assert self.schedule.minibatches is not None
        with self._clock.spent_on("learn"):
            self._update(self.schedule.minibatches, self.schedule.block(), 0.0)
        return self.schedule.evaluation_is_due

    def _update(self, minibatches: Minibatches, count: int, progress: float) -> None:
        for batch in minibatches.draw(count, progress, look=self._watch.see_batch):
            metrics, error = self.learner.update(batch)
            self._learn_metrics = {f"train/{name}": value for name, value in metrics.items()}
            self._watch.see_metrics(self._learn_metrics)
            minibatches.update_priorities(batch, error)
        if self._average is not None:
            self._average.take(count)
        self.collector.policy_version += count

    def begin(self) -> None:
        """Prepare the learner of a new run; `run` does it by itself.

        Raises:
            ConfigError: The learner of another run was named, and does not fit.
            CheckpointError: It is damaged.
        """
        if not self._begun:
            self._begun = True
            self._warm_start()
            if self._average is not None:
                self._average.begin_anew()

    @property
    def notes(self) -> list[str]:
        """Lines to show before it begins."""
        return [one.sentence for one in self.stored.values()]

    @property
    def lost_its_replay(self) -> bool:
        """True if there are no transitions although the envs have been stepped."""
        return self.collector.env_steps > 0 and len(self.replay) == 0

    @property
    def policy(self) -> nn.Module:
        """The policy that is evaluated and saved: the learner's, or its mean."""
        return self.learner.policy() if self._average is None else self._average.policy

    @property
    def step(self) -> int:
        """Steps done: updates of the offline phase and env-steps."""
        return self.schedule.updates + self.collector.env_steps

    def stop(self) -> None:
        """Ask `run` to save and return after the present step; may be called from a signal."""
        self._stop = True

    def _evaluate_and_save(self) -> None:
        self._checked(weights=True)  # else the evaluation would blame the policy's actions
        if self._late.are_on:
            self._save_and_evaluate_beside()
            return
        with self._clock.spent_on("aside"), self._saving_replay():
            summary, score = self._ranks.first(self._evaluate) or ({}, None)
        self.schedule.record_diagnostics()
        self._log(summary)
        self._save(score)

    def _save_and_evaluate_beside(self) -> None:
        """Save a checkpoint whose score comes later, at the latest at the next evaluation."""
        self._finish_evaluations()
        self.schedule.record_diagnostics()
        self._log({})
        self._late.expect(self.step, settled=self._is_settled())
        self._save(None)
        self._late.ask(self.step)

    def _finish_evaluations(self) -> bool:
        """Wait for scores; false where a stop was asked for before they were there."""
        with self._clock.spent_on("aside"):
            return self._late.finish(lambda: self._stop)

    def _evaluate_state(self, policy: Mapping[str, Any]) -> Found:
        """Evaluate a policy of before, in this process."""
        module = copy.deepcopy(self.policy)
        module.load_state_dict(policy)
        return self._evaluator.evaluate(module)

    def _found(self, step: int, found: Found) -> None:
        self._record({"step": step, **found[0]})

    def _is_settled(self) -> bool:
        return self.collector.weighs_as(self.evaluation_env.spec.reward_weights)

    @contextmanager
    def _saving_replay(self) -> Iterator[None]:
        """Write the replay's new rows while the body changes neither them nor the checkpoints.

        Disk and digests take as long as an evaluation, and hold the interpreter rarely.
        """
        if not (self._overlaps and self.config.save_replay):
            yield
            return
        saving = self._thread.submit(self.replay.save_rows, self._checkpoints.segments)
        try:
            yield
        finally:
            wait([saving])
        saving.result()

    def _evaluate(self) -> tuple[dict[str, float], Score]:
        """Metrics of the policy, and the score that the best is chosen by."""
        summary, score = self._evaluator.evaluate(self.policy)
        return summary, replace(score, settled=self._is_settled())

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
        envs = ""  # what they found: the cause, or actions of a policy that is broken already
        try:
            self.env.check()
        except (NonFiniteError, LimitError) as error:
            envs, self._kind = str(error), type(error)
        learner, hint = self.learner if weights else None, _REMEDY
        told = what_ends_a_run(
            self._watch, learner, f"by step {self.step}", self._checkpoints, hint
        )
        return ". The envs report: ".join(filter(None, (told, envs)))

    def _save_unscored(self) -> None:
        """Write a checkpoint to resume from; it can never be the best."""
        self._checked(weights=True)
        self._save(None)

    def _save(self, score: Score | None) -> None:
        """Write a checkpoint of what was just checked."""
        with self._clock.spent_on("aside"):
            step, state = self.step, self.state_dict()
            self._ranks.first(lambda: self._checkpoints.save(step, state, score=score))
        self._saves.saved(step)

    def state_dict(self) -> dict[str, Any]:
        """The whole run; all ranks must ask for it."""
        self.seconds += self._clock.session_part()
        segments = self._checkpoints.segments
        own = {
            "learner": self.learner.state_dict(),
            "env": self.env.state_dict(),
            "collector": self.collector.state_dict(),
            "replay": self.replay.state_dict(segments if self.config.save_replay else None),
            **{name: one.state_dict() for name, one in self.stored.items()},
            "seconds": self.seconds,
            "course": self.schedule.state_dict(),
        }
        return {
            **own,
            "policy": self.policy.state_dict(),  # for those who only play it
            **({} if self._average is None else {"averaged_updates": self._average.seen}),
            "ranks": save_others(own, self._ranks, segments),
            **({"unscored": waiting} if (waiting := self._late.state) else {}),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state_dict`: the whole run's, of which a rank takes its part.

        Raises:
            CheckpointError: It was written by another number of ranks, or by another version.
        """
        segments = self._checkpoints.segments
        self._late.restore(state.get("unscored", ()))
        state = state_of(state, self._ranks, segments)
        try:
            self.learner.load_state_dict(state["learner"])
        except KeyError as error:
            raise CheckpointError(
                f"the learner's state in the checkpoint has no entry {error}, which this program "
                "needs; resume with the version of robot_rl that wrote it (see provenance.json)"
            ) from error
        if self._average is not None:
            self._average.begin_anew()
            if seen := state["averaged_updates"]:
                self._average.policy.load_state_dict(state["policy"])
                self._average.seen = seen
        self.env.load_state_dict(state["env"])
        self.collector.load_state_dict(state["collector"])
        self.replay.load_state_dict(state["replay"], segments if self.config.save_replay else None)
        for name, one in self.stored.items():
            one.load_state_dict(state.get(name, {}))
        self.seconds = float(state["seconds"])
        if "course" in state:  # not in checkpoints of before there were phases
            self.schedule.load_state_dict(state["course"])
        self._begun = True
        if not self.env.spec.resumable:
            self.collector.begin_anew()
        self._saves.saved(self.step)


class Clock:
    """Splits wall time into collecting, learning and the rest."""

    def __init__(self) -> None:
        self._spent = {"collect": 0.0, "learn": 0.0, "aside": 0.0}
        self._interval_start = self._session_mark = time.perf_counter()
        self._start_step = 0

    def start(self, step: int) -> None:
        """Begin the first interval at a step."""
        self._interval_start = self._session_mark = time.perf_counter()
        self._start_step = step

    @contextmanager
    def spent_on(self, what: str) -> Iterator[None]:
        """Count the wall time of the body as `collect`, `learn`, or `aside` of steps per second."""
        start = time.perf_counter()
        yield
        self._spent[what] += time.perf_counter() - start

    @property
    def elapsed(self) -> float:
        """Wall time of the interval so far [s]."""
        return time.perf_counter() - self._interval_start

    def session_part(self) -> float:
        """Wall time since this was last asked [s]."""
        now = time.perf_counter()
        part, self._session_mark = now - self._session_mark, now
        return part

    def pop(self, step: int) -> dict[str, float]:
        """Rates of the interval; starts the next one."""
        elapsed = max(self.elapsed, 1e-9)
        working = max(elapsed - self._spent["aside"], 1e-9)
        record = {
            "time/steps_per_second": (step - self._start_step) / working,
            "time/collect_fraction": self._spent["collect"] / elapsed,
            "time/learn_fraction": self._spent["learn"] / elapsed,
        }
        self._spent.update(collect=0.0, learn=0.0, aside=0.0)
        self._interval_start, self._start_step = time.perf_counter(), step
        return record


class CheckpointSchedule:
    """Times of checkpoints beside those that follow evaluations."""

    def __init__(self, interval: int, seconds: float) -> None:
        """Count from now.

        Args:
            interval: Steps between two checkpoints; 0 counts none.
            seconds: Wall time between two checkpoints [s]; 0 looks at no clock.
        """
        self.step = -1
        """Step of the last checkpoint; -1 before the first."""
        self._interval, self._seconds = interval, seconds
        self._saved_at = time.monotonic()

    def saved(self, step: int) -> None:
        """Note that there is a checkpoint of a step: one that was written, or resumed from."""
        self.step, self._saved_at = step, time.monotonic()

    def is_due(self, step: int) -> bool:
        """True if one is due at a step. Ranks decide together: their clocks differ."""
        if self._interval and step // self._interval > max(0, self.step) // self._interval:
            return True
        return 0 < self._seconds <= time.monotonic() - self._saved_at


_SHOWN = 5
"""Names that a sentence tells of one look."""


class FiniteWatch:
    """The first look at which each named tensor was not finite; later ones excuse nothing."""

    def __init__(self) -> None:
        self._looks = 0
        self._first: dict[tuple[str, ...], Tensor] = {}

    def see_batch(self, batch: Batch) -> None:
        """Look at all sampled numbers."""
        entries = {"reward": batch.reward, "action": batch.action}
        for side, groups in (("obs", batch.obs), ("next_obs", batch.next_obs)):
            entries |= {f"{side}.{name}": group for name, group in groups.items()}
        floats = {f"sampled {name}": t for name, t in entries.items() if t.is_floating_point()}
        ends = [torch.stack(t.aminmax()) for t in floats.values()]  # a NaN is both ends
        self._remember(tuple(floats), torch.stack(ends).isfinite().all(-1))

    def see_metrics(self, metrics: Mapping[str, Tensor]) -> None:
        """Look at 0-dim tensors."""
        if metrics:
            self._remember(tuple(metrics), torch.stack(list(metrics.values())).isfinite())

    def found(self) -> list[list[str]]:
        """Names that were not finite, by look, earliest first; waits for the device."""
        first: dict[str, float] = {}
        for names, looks in self._first.items():
            for name, look in zip(names, looks.tolist(), strict=True):
                # A metric may be seen in the company of others, later.
                first[name] = min(look, first.get(name, torch.inf))
        times = sorted({look for look in first.values() if look < torch.inf})
        return [[name for name, look in first.items() if look == time] for time in times]

    def earliest(self) -> float:
        """The first look that found something, else infinite; waits for the device."""
        return min((float(looks.min()) for looks in self._first.values()), default=torch.inf)

    def _remember(self, names: tuple[str, ...], finite: Tensor) -> None:
        self._looks += 1
        now = torch.where(finite, torch.inf, float(self._looks))
        self._first[names] = torch.minimum(self._first[names], now) if names in self._first else now


def what_ends_a_run(
    watch: FiniteWatch, learner: Any, when: str, checkpoints: CheckpointStore, hint: str
) -> str:
    """Sentence about what was not a number; empty where everything was. Waits for the device.

    Args:
        learner: Looked at too, all that it keeps; None leaves it out.
        when: Such as "by step 100".
    """
    found = watch.found()
    if learner is not None and not found:
        kept = not_finite(learner.state_dict(), "the learner")
        found = [kept] if kept else []
    if not found:
        return ""
    told = ", then ".join(
        " and ".join(names[:_SHOWN]) + f" and {len(names) - _SHOWN} more" * (len(names) > _SHOWN)
        for names in found
    )
    left = "the last checkpoint is intact: resume it"
    if not checkpoints.steps():
        left = "there is no checkpoint yet: begin anew"
    return f"{told} became NaN or infinite {when}; {left} {hint}"


def not_finite(state: Any, name: str) -> list[str]:
    """Names of the tensors in a state that hold a NaN or an infinity; waits for the device."""
    tensors = list(_tensors(state, name))
    if not tensors:
        return []
    finite = torch.stack([tensor.isfinite().all() for _, tensor in tensors]).tolist()
    return [name for (name, _), good in zip(tensors, finite, strict=True) if not good]


def _tensors(state: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(state, Tensor):
        if state.is_floating_point() and state.numel():
            yield name, state
    elif isinstance(state, Mapping):
        for key, value in state.items():
            yield from _tensors(value, f"{name}.{key}")
    elif isinstance(state, list | tuple):
        for i, value in enumerate(state):
            yield from _tensors(value, f"{name}.{i}")
