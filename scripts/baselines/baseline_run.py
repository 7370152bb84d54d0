"""Other people's learners as runs of ours: evaluated and logged alike, so that curves compare."""

import io
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from configs.builders import run_device
from configs.schema import RunConfig, make_env
from robot_rl.cli.components import run_name
from robot_rl.core.env import Obs
from robot_rl.core.errors import NonFiniteError
from robot_rl.training.evaluation import evaluate
from robot_rl.training.reporting.console import Console
from robot_rl.training.reporting.metrics import MetricLog
from robot_rl.training.reporting.mirrors import open_sinks
from robot_rl.training.runs.provenance import collect_provenance
from robot_rl.training.runs.run_folder import RunFolder, RunState
from robot_rl.training.storage.durable import replace_file, storage_errors
from robot_rl.training.trainer import VALIDATION_SEED
from scripts.baselines.settings import PPOSettings, SB3Settings, plain_baseline

if TYPE_CHECKING:
    from configs.compose import Composition


class BaselineTraining(ABC):
    """The loop around a foreign learner; nothing of it can be resumed or exported."""

    title = ""
    """Of the console's first line."""
    name = ""
    """In the run's name, where ours have their learner."""

    def __init__(self, config: RunConfig, *, device: torch.device) -> None:
        """Make the worlds to evaluate in.

        Args:
            config: The run; its learner is not used.
            device: Where all of it lives.
        """
        self.config = config
        self.steps, self.seconds, self._evaluating = 0, 0.0, 0.0
        self._evaluation_env = make_env(
            config, num_envs=config.training.evaluation_episodes, device=device,
            seed=VALIDATION_SEED, evaluation=True,
        )  # fmt: skip
        torch.manual_seed(config.seed)

    @abstractmethod
    def iterate(self) -> Mapping[str, float]:
        """Train a little; counts `steps`, and returns losses by name."""

    @abstractmethod
    def mean_return(self) -> float:
        """Mean return of the training's episodes that ended lately; NaN where there is none."""

    @abstractmethod
    def policy(self) -> Callable[[Obs], Tensor]:
        """The deterministic policy: observations (N, D) by group -> actions (N, A)."""

    @abstractmethod
    def weights(self) -> Mapping[str, Tensor]:
        """Of the actor."""

    def run(self, run: RunFolder) -> None:
        """Train to the end, with a line per evaluation."""
        config, total = self.config, self.config.training.total_steps
        sinks = open_sinks(
            config.logging, run.path, name=run.path.name, group=self.name,
            run_config=run.config(), resume_step=None,
        )  # fmt: skip
        console = Console(quiet=config.logging.quiet)
        with MetricLog(run.metrics_path, sinks) as metrics, console:
            console.start(total, 0, f"{self.title} -> {run.path}")
            for record in self._records():
                metrics.write(record)
                console.interval(record)
                self.mark(run, RunState.RUNNING)
            self._save(run)

    def mark(self, run: RunFolder, state: RunState, reason: str = "") -> None:
        """Say in the run's folder how it stands."""
        run.mark(
            state, step=self.steps, total_steps=self.config.training.total_steps,
            seconds=self.seconds, reason=reason,
        )  # fmt: skip

    def _records(self) -> Iterator[dict[str, float]]:
        """Records of the evaluations; `seconds` counts them too, as it does for our learners."""
        total, interval = self.config.training.total_steps, self.config.training.evaluation_interval
        begun, start = 0, time.perf_counter()
        while self.steps < total:
            losses = {name: value for name, value in self.iterate().items() if value}
            bad = [name for name, value in losses.items() if not math.isfinite(value)]
            if bad:
                raise NonFiniteError(
                    f"{', '.join(bad)} became NaN or infinite at step {self.steps}"
                )
            if self.steps // interval > begun // interval or self.steps >= total:
                before = time.perf_counter()
                evaluated = evaluate(self._evaluation_env, self.policy(), seed=VALIDATION_SEED)
                self.seconds = time.perf_counter() - start
                self._evaluating += time.perf_counter() - before
                begun = self.steps
                yield {**self._record(losses), **evaluated.summary()}

    def _record(self, losses: Mapping[str, float]) -> dict[str, float]:
        return {
            "step": self.steps,
            "seconds": self.seconds,
            "rollout/return": self.mean_return(),
            "time/steps_per_second": self.steps / (self.seconds - self._evaluating),
            **{f"train/{name}": float(value) for name, value in losses.items()},
        }

    def _save(self, run: RunFolder) -> None:
        content = io.BytesIO()
        torch.save(dict(self.weights()), content)
        path = run.checkpoints / "actor.pt"
        with storage_errors("save the actor", path):
            replace_file(path, content.getvalue())


def train_baseline(
    make: Callable[[RunConfig, Any, torch.device], BaselineTraining],
    settings: PPOSettings | SB3Settings,
    composition: "Composition",
) -> None:
    """Train a baseline into a run's folder, whose state says how it ended.

    Args:
        make: Joins a run's configuration, the settings and a device.
        settings: The baseline's own.
        composition: The run.
    """
    device = run_device(composition.config)
    config = replace(composition.config, device=str(device))
    torch.set_num_threads(config.threads)
    training = make(config, settings, device)
    plain = plain_baseline(settings, config)
    name = run_name(config, {**composition.chosen, "learner": training.name})
    origin = collect_provenance(plain, seed=config.seed, device=config.device)
    with RunFolder.create(config.runs, name, plain, origin) as run:
        try:
            training.run(run)
        except KeyboardInterrupt:
            training.mark(run, RunState.INTERRUPTED, "stopped by SIGINT")
            raise
        except BaseException as error:
            training.mark(run, RunState.FAILED, str(error).partition("\n")[0])
            raise
        training.mark(run, RunState.FINISHED)
