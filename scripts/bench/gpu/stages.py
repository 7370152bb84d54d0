"""The stages of a measurement on a GPU, none longer than a few minutes, each resumable.

What a stage found is in `gpu.json` of the folder before the next one begins; a training that a
stage had no time for goes on in the next.
"""

import json
import math
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from configs.compose import compose
from robot_rl.cli.components import make_sim_env
from robot_rl.cli.evaluation import EvaluateOptions, run_trial
from robot_rl.core.errors import ConfigError
from robot_rl.training.reporting.metrics import read_metrics
from robot_rl.training.runs.provenance import describe_device, package_versions
from robot_rl.training.runs.run_folder import RunState
from scripts.bench.gpu.mjlab_peer import MjlabTraining
from scripts.bench.gpu.plan import WORLDS, World
from scripts.bench.gpu.updates import measure_captured, measure_presets
from scripts.bench.gpu.waiting import until_done
from scripts.bench.simulation import environment_speed
from scripts.bench.timing import interleave
from scripts.proofs.pages.results import write_json
from scripts.proofs.proving.training import ProofError, TrainingJob, train_all

_SAVING_SECONDS = 60.0
"""Left of a stage for a training that is stopped: checkpoint and replay are written."""


@dataclass(kw_only=True)
class GpuBench:
    """Does the next stage, and remembers all of them."""

    device: str
    """Device of the envs and the learner."""
    folder: Path
    """Of results and runs."""
    seconds: float
    """Longest that a stage may take."""
    num_envs: int
    """Worlds of each training."""
    changes: tuple[str, ...] = ()
    """Further overrides of every training."""
    rounds: int = 5
    """Turns of each contender where speeds are measured."""
    episodes: int = 1000
    """Of each check."""
    batches: tuple[int, ...] = (256, 8192)
    """Transitions per update where updates are measured."""
    preset_batch: int | None = None
    """Transitions per update of presets where they are measured; None takes the preset's."""
    mjlab_python: Path | None = None
    """A Python that has mjlab; without one its stages are left out."""

    def __post_init__(self) -> None:
        """Refuse stages that have no time to save."""
        if self.seconds <= _SAVING_SECONDS:
            raise ConfigError(
                f"minutes must be above {_SAVING_SECONDS / 60:g}, which saving a training may "
                f"take, got {self.seconds / 60:g}"
            )

    @property
    def record(self) -> dict[str, Any]:
        """Results of the stages so far."""
        path = self.folder / "gpu.json"
        if not path.exists():
            return {}
        return json.loads(path.read_text())

    def next(self, say: Callable[[str], None]) -> bool:
        """Do one stage.

        Returns:
            Whether another is left.

        Raises:
            ConfigError: The folder has figures of another device or other sizes.
        """
        record = self.record or {"setting": self._setting(), "machine": self._machine()}
        if record["setting"] != self._setting():
            raise ConfigError(
                f"{self.folder} has figures of {record['setting']}, asked for {self._setting()}; "
                "resume with the same, or name another folder (runs=)"
            )
        found = record.setdefault("stages", {})
        stages: dict[str, Callable[[], dict[str, Any] | None]] = {
            "speed": lambda: self._speed(say), "updates": lambda: self._updates(say),
            "presets": lambda: self._presets(say),
        }  # fmt: skip
        for world in WORLDS:
            stages[f"train {world.name}"] = lambda world=world: self._train(world, say)
            stages[f"check {world.name}"] = lambda world=world: self._check(world, say)
        for world in WORLDS:  # peers last: one that fails holds up nothing of ours
            if find_spec("rsl_rl"):
                stages[f"ppo {world.name}"] = lambda world=world: self._ppo(world, say)
            if world.mjlab and self.mjlab_python is not None:
                stages[f"mjlab {world.name}"] = lambda world=world: self._mjlab(world, say)
        left = [name for name in stages if name not in found]
        if not left:
            return False
        name = left[0]
        say(f"stage {name}: {len(stages) - len(left) + 1} of {len(stages)}")
        result = stages[name]()
        if result is not None:
            found[name] = result
            write_json(self.folder / "gpu.json", record, what="the figures")
        return result is None or len(left) > 1

    def _setting(self) -> dict[str, Any]:
        return {"device": self.device, "num_envs": self.num_envs, "changes": list(self.changes)}

    def _machine(self) -> dict[str, Any]:
        return {"device": describe_device(self.device), "packages": package_versions()}

    def _speed(self, say: Callable[[str], None]) -> dict[str, Any]:
        device = torch.device(self.device)
        contenders, closing = {}, []
        for world in WORLDS:
            config = compose([*world.overrides, *self.changes]).config
            env = make_sim_env(
                config, num_envs=self.num_envs, device=device, seed=0, evaluation=False
            )
            env.reset(seed=0)
            closing.append(env)
            contenders[world.name] = until_done(environment_speed(env, 20), device)
        section = interleave(
            f"tasks under random actions, {self.num_envs} worlds, {self.device}", "env-steps/s",
            contenders, rounds=self.rounds,
        )  # fmt: skip
        for line in section.lines():
            say(line)
        for env in closing:
            env.check()
            env.close()
        return section.record()

    def _updates(self, say: Callable[[str], None]) -> dict[str, Any]:
        section = measure_captured(torch.device(self.device), self.batches, rounds=self.rounds)
        for line in section.lines():
            say(line)
        return section.record()

    def _presets(self, say: Callable[[str], None]) -> dict[str, Any]:
        sections: list[dict[str, Any]] = []
        for section in measure_presets(
            torch.device(self.device), rounds=self.rounds, batch=self.preset_batch
        ):
            for line in section.lines():
                say(line)
            sections.append(section.record())
        return {"sections": sections}

    def _job(self, world: World, script: str = "train") -> TrainingJob:
        return TrainingJob(
            label=world.name if script == "train" else f"{world.name}, {script}", seed=1,
            runs=self.folder / "runs", script=script,
            overrides=(*world.overrides, f"num_envs={self.num_envs}", f"device={self.device}",
                       *self.changes),
        )  # fmt: skip

    def _train(self, world: World, say: Callable[[str], None]) -> dict[str, Any] | None:
        """Train on until the end or until the stage's time is over: then None."""
        job = self._job(world)
        try:
            with _alarm(self.seconds - _SAVING_SECONDS):
                train_all([job], workers=1, say=say)
        except _TimeOver:
            say(f"{world.name} goes on in the next stage")
            return None
        return _outcome(job, world)

    def _ppo(self, world: World, say: Callable[[str], None]) -> dict[str, Any]:
        """Train rsl_rl's PPO in the same worlds until its end or until the stage's time is over.

        It cannot be stopped and gone on with: what one stage sees of it counts.
        """
        job = self._job(world, "train_ppo")
        with suppress(_TimeOver), _alarm(self.seconds - _SAVING_SECONDS):
            train_all([job], workers=1, say=say)
        return _outcome(job, world)

    def _mjlab(self, world: World, say: Callable[[str], None]) -> dict[str, Any]:
        """Train mjlab's nearest task with its own PPO for as long as a stage may take."""
        assert self.mjlab_python is not None
        peer = MjlabTraining(
            python=self.mjlab_python, task=world.mjlab, num_envs=self.num_envs,
            device=self.device, seconds=self.seconds - _SAVING_SECONDS,
            folder=self.folder / "mjlab" / world.name,
        )  # fmt: skip
        say(f"mjlab trains {world.mjlab} for {peer.seconds:.0f} s")
        return peer.run()

    def _check(self, world: World, say: Callable[[str], None]) -> dict[str, Any]:
        """Play the policy on the CPU, robots with joints in MuJoCo's own engine."""
        run = self._job(world).find()
        if run is None:
            raise ConfigError(f"the run of {world.name} is no longer in {self.folder / 'runs'}")
        options = EvaluateOptions(run=str(run.path), episodes=self.episodes, video=False)
        trial = run_trial(options, list(world.checked_with))
        error = trial.statistics.get(world.metric, {}).get("mean", math.nan)
        found = {
            "success": trial.result.success_rate,
            "terminated": int(trial.result.terminated.sum()),
            "episodes": self.episodes,
            world.metric: _finite(error),  # nothing where nobody flew to the end
        }
        say(f"{world.name}, {world.about}: {found}")
        trial.env.close()
        return found


def _outcome(job: TrainingJob, world: World) -> dict[str, Any]:
    """Duration of a training, and its evaluations over time."""
    run = job.find()
    if run is None:
        raise ProofError(f"{job.label} had not begun when its time was up; give it more (minutes=)")
    status, records = run.status(), read_metrics(run.metrics_path)
    shown = ["seconds", "step", "eval/success", f"eval/{world.metric}"]
    return {
        "command": job.command(), "config_sha256": job.identity, "run": run.path.name,
        "seconds": status.seconds, "world_steps": status.step,
        "finished": status.state is RunState.FINISHED,
        "evaluations": [{name: _finite(one.get(name)) for name in shown}
                        for one in records if "eval/success" in one],
    }  # fmt: skip


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


class _TimeOver(KeyboardInterrupt):  # what `train_all` lets its trainings save and stop for
    """The stage's time is over."""


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise _TimeOver

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
