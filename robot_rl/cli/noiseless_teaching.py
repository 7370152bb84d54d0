"""Teachers that learned on measurements and answer to the true state (`learner.noiseless_teacher`).

A run is given what its teacher needs to see, and the checkpoint of it that does best there.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from configs.builders import run_device
from configs.compose import from_plain
from configs.schema import RunConfig
from robot_rl.cli.build import make_evaluation_env
from robot_rl.cli.components import (
    check_teacher,
    is_checkpoint,
    load_policy,
    noiseless_teacher,
    open_teacher,
)
from robot_rl.core.errors import CheckpointError, ConfigError
from robot_rl.training.evaluation import evaluate
from robot_rl.training.reporting.console import format_count, format_percent
from robot_rl.training.runs.run_folder import RunFolder
from robot_rl.training.storage.checkpoint import CheckpointStore
from robot_rl.training.trainer import VALIDATION_SEED


def taught_config(config: RunConfig, say: Callable[[str], None] = print) -> RunConfig:
    """The run with what its teacher needs to see, if that is noiseless: as its group `critic`.

    Of a teacher's run each checkpoint is tried on the true state, in the run's evaluation episodes,
    and the one that succeeds most teaches. Which one was best on measurements says little of that.

    Args:
        say: Is told each one.

    Raises:
        CheckpointError: None of its checkpoints can be used.
        ConfigError: There is no such teacher, or it sees something else than measurements.
    """
    if not getattr(config.learner, "noiseless_teacher", False):
        return config
    named = config.learner.teacher
    run = open_teacher(named, noiseless=True)
    teacher = noiseless_teacher(run.path, from_plain(run.config()))
    check_teacher(str(run.path), teacher, config, ())
    for whose, one in (("", config), (f" of {run.path}", teacher)):
        if wanted := getattr(getattr(one.learner.actor, "encoder", None), "estimate", None):
            raise ConfigError(
                "learner.noiseless_teacher=true shows the teacher its own terms as group critic, "
                f"which learner.actor.encoder.estimate={wanted}{whose} would be compared with; "
                "leave estimates out, or set learner.noiseless_teacher=false"
            )
    config = replace(config, task=replace(config.task, critic=teacher.task.critic))
    if not is_checkpoint(Path(named)):
        best = _best(run, teacher, config, say)
        config = replace(config, learner=replace(config.learner, teacher=str(best)))
    return config


def _best(
    run: RunFolder, teacher: RunConfig, config: RunConfig, say: Callable[[str], None]
) -> Path:  # fmt: skip
    """The checkpoint that does best on the true state, the newest among equals."""
    torch.set_num_threads(config.threads)
    checkpoints = CheckpointStore(run.checkpoints, read_only=True)
    checkpoints.load("latest")  # tells of a run without any
    env = make_evaluation_env(config, run_device(config))
    tried: list[tuple[float, float, Path]] = []
    for step in checkpoints.steps():
        path = checkpoints.path_of(step)
        try:
            module = load_policy(run, teacher, env.spec, str(path)).module
        except CheckpointError as error:
            say(f"teacher at step {format_count(step)} is left out: {error}")
            continue
        found = evaluate(env, module.to(env.spec.device), seed=VALIDATION_SEED)
        tried.append((found.success_rate, float(found.returns.mean()), path))
        told = f"{format_percent(found.success_rate)} of " if found.judged else ""
        say(
            f"teacher at step {format_count(step)}: {told}{found.success.numel()} episodes on the "
            f"true state, return {tried[-1][1]:.4g}"
        )
    env.close()
    if not tried:
        raise CheckpointError(f"no checkpoint in {run.checkpoints} can teach; train another run")
    return max(tried)[2]
