"""Trains a policy: `robot-rl train task=hover seed=1`; `--help` lists the choices."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from configs.catalog import describe_fields
from robot_rl.cli.command_line import Flags
from robot_rl.core.errors import ConfigError
from robot_rl.core.process import keep_freed_memory

if TYPE_CHECKING:
    from configs.compose import Composition

HELP = """Trains a policy in simulated envs; everything it leaves is in one folder below runs/.

usage: robot-rl train [group=name ...] [field=value ...]

{choices}

most used fields:
  seed=1                        seed of everything random
  num_envs=1024                 envs simulated at once
  device=auto                   auto, cpu, cuda or cuda:<index>
  training.total_steps=4e6      length of the run; each task brings its own
  task.start.attitude_deg=90    any field of the task, the robot or the learner
  env.id=Hopper-v5              which environment, with env=gymnasium
  logging.wandb=offline         mirror to Weights & Biases: off, offline, online
  profile=true                  where the time goes: a table at the end, and a trace of 50 steps
  runs=runs                     folder of all runs

several processes or GPUs:
  torchrun --nproc-per-node 2 -m robot_rl.cli train task=hover
                                one run, divided: num_envs, replay and batches are totals
  cluster.collectors=4          one learner, collectors in processes of their own (Ray), on many
                                machines with cluster.address=auto

other:
  resume=runs/...               resume a run (or resume=latest), exactly where it stopped
  once=true                     leave it alone if it was trained already, resume it if half done
  -m, --multirun                one run after another for every combination of a=1,2 and b=3,4;
                                the same command again goes on with what is unfinished
  hydra/launcher=joblib         with -m: several at once (joblib, submitit_local), or in the queue
  hydra.launcher.n_jobs=2       of a cluster (submitit_slurm)
  --cfg job                     print the composed configuration and stop
  --info fields                 print every field with its type, value and meaning, and stop

examples:
  robot-rl train
  robot-rl train task=tracking seed=2 training.total_steps=1e7
  robot-rl train robot.plant=measured learner.gamma=0.98
  robot-rl train experiment=smoke
  robot-rl train env=gymnasium env.id=Hopper-v5 experiment=hopper
  robot-rl train -m seed=0,1,2 learner.n_step=1,3
  robot-rl train -m seed=0,1,2 hydra/launcher=joblib hydra.launcher.n_jobs=2
  robot-rl train resume=latest training.total_steps=2e7"""


@dataclass(kw_only=True)
class TrainOptions:
    """Options of the command beside the fields of a run."""

    resume: str = ""
    """Folder of a run to go on with, or `latest`; empty starts a new one."""
    once: bool | None = None
    """Train what was asked for in these words only once: leave a finished run alone, go on with an
    unfinished one. True with -m where nothing is said."""


def run(words: Sequence[str], flags: Flags) -> int:
    """Train what the command line says."""
    keep_freed_memory()
    for text in words:
        if text.startswith(("hydra/", "hydra.")) and not flags.multirun:
            raise ConfigError(
                f"'{text}' says where the jobs of a sweep run, and this is one: add -m"
            )
    if flags.cfg or flags.info:
        _print_config(words, fields=flags.info)
        return 0
    return _sweep(words) if flags.multirun else _train(words)


def _train(overrides: Sequence[str]) -> int:
    """Train one run, or go on with one; returns the exit code."""
    from configs.compose import compose, read_options

    options, rest = read_options(TrainOptions, overrides)
    if options.resume:
        if options.once is not None:
            raise ConfigError(
                "once=... looks for a run by its settings, and resume=... names one: leave one out"
            )
        from robot_rl.cli.resume import resume

        return resume(options.resume, rest)
    composition = compose(rest)
    if options.once:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise ConfigError("once=true looks for a run in one process: leave torchrun out")
        return _train_once(composition)
    from robot_rl.cli.session import start

    return start(composition.config, composition.chosen)


def _train_once(composition: "Composition") -> int:
    """Train a run unless there is one of the same words already; returns the exit code."""
    from robot_rl.cli.resume import held, newest_runs, resume
    from robot_rl.cli.session import asked_hash, start
    from robot_rl.training.runs.run_folder import RunFolder, RunState

    config = composition.config
    with held(config) as ours:
        path = newest_runs(config.runs).get(asked_hash(config))
        if path is None and ours:
            return start(config, composition.chosen)
        if path is None:
            print("another process has begun with the same run, and will train it")
            return 0
        status = RunFolder.open(path).status()
        if status.state is RunState.FINISHED:
            print(f"finished already: {path}; train it anew with once=false")
        elif status.state is RunState.RUNNING:
            print(f"process {status.pid} on {status.hostname} trains it already: {path}")
        else:
            print(f"goes on with: {path}", flush=True)
            return resume(str(path), [])
    return 0


def _sweep(overrides: Sequence[str]) -> int:
    """Train every combination; returns the exit code."""
    from configs.compose import read_options

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError("-m trains one run after another in one process: leave torchrun out")
    options, rest = read_options(TrainOptions, overrides)
    if options.resume:
        raise ConfigError("-m starts new runs; resume=... goes on with one: leave one of them out")
    from robot_rl.cli.sweep import sweep

    return sweep(rest, _train, once=options.once is not False)


def _print_config(overrides: Sequence[str], *, fields: bool) -> None:
    import yaml

    from configs.compose import compose, to_plain

    config = compose(overrides).config
    print(
        describe_fields(config)
        if fields
        else yaml.safe_dump(to_plain(config), sort_keys=False, allow_unicode=True).rstrip()
    )
