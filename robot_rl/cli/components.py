"""Learner, policy and simulation of a run, from its configuration or out of its folder."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from configs.compose import from_plain
from configs.schema import RunConfig, component_of, make_env
from robot_rl.cli.base_policy import kept_base, playable
from robot_rl.cli.teachers import check_teacher, open_teacher
from robot_rl.core.env import EnvSpec
from robot_rl.core.errors import CheckpointError, ConfigError
from robot_rl.core.learner import Learner
from robot_rl.training.ranks import Ranks, seed_of
from robot_rl.training.runs.run_folder import RunFolder, RunName, find_runs
from robot_rl.training.storage.checkpoint import CheckpointStore
from sim.env import SimEnv


def make_sim_env(
    config: RunConfig, *, num_envs: int, device: torch.device, seed: int, evaluation: bool
) -> SimEnv:
    """Worlds of our own, for what looks into them.

    Raises:
        ConfigError: The run was made in a foreign environment.
    """
    component = component_of(config.env)
    if not component.needs:  # before such an environment is started for nothing
        raise ConfigError(
            f"this needs a robot and worlds of our own; the run's environment is "
            f"'{component.name}', which describes no robot"
        )
    env = make_env(config, num_envs=num_envs, device=device, seed=seed, evaluation=evaluation)
    assert isinstance(env, SimEnv)
    return env


def make_learner(config: RunConfig, spec: EnvSpec, ranks: Ranks | None = None) -> Learner:
    """The untrained learner of a run: equal weights on all ranks, random streams of its own.

    Raises:
        ConfigError: It needs a teacher, and none is named or found.
        SpecMismatchError: The teacher does not fit.
    """
    ranks = ranks or Ranks()
    component = component_of(config.learner)
    given = {"teacher": load_teacher(config, spec)} if "teacher" in component.needs else {}
    return component.build(
        config.learner, spec, seed=config.seed, stream_seed=seed_of(config.seed, ranks),
        reduce=ranks.reduce, **given,
    )  # fmt: skip


def make_policy(config: RunConfig, spec: EnvSpec) -> nn.Module:
    """The untrained policy of a run; nobody needs to teach it any more."""
    alone = component_of(config.learner).policy
    if alone is not None:
        return alone(config.learner, spec, seed=config.seed)
    return make_learner(config, spec).policy()


def seen_groups(config: RunConfig) -> tuple[str, ...]:
    """Observation groups of the worlds that a run's policy sees.

    Policies that clone, and residuals, have no choice.
    """
    return tuple(getattr(config.learner.actor, "groups", ("actor",)))


def load_teacher(config: RunConfig, spec: EnvSpec) -> nn.Module:
    """The best policy of the run that a learner names as its teacher.

    Args:
        config: The student's run.
        spec: The student's environment.

    Raises:
        ConfigError: It plans, or corrects a base: what it does depends on more than what it sees.
    """
    run = open_teacher(config.learner.teacher)
    teacher = from_plain(run.config())
    check_teacher(str(run.path), teacher, config, seen_groups(teacher))
    module = load_policy(run, teacher, spec, "best").module
    if not hasattr(module, "groups"):
        raise ConfigError(
            f"learner.teacher={run.path}: a policy of learner="
            f"{component_of(teacher.learner).name} cannot teach; expected one of an actor that "
            "answers each observation by itself, such as sac, td3, dsac_t or iql"
        )
    return module


def run_name(config: RunConfig, chosen: Mapping[str, str]) -> RunName:
    """Name of a run: its task and robot, or the id of its foreign environment.

    Args:
        config: The run.
        chosen: Name chosen in each config group.
    """
    foreign = {"task": str(getattr(config.env, "id", chosen["env"])), "robot": chosen["env"]}
    named = {**foreign, **chosen}
    return RunName(
        task=named["task"], robot=named["robot"], learner=named["learner"], seed=config.seed
    )


def train_command(run: RunFolder) -> str:
    """Command that resumes a run when `resume=...` follows: in as many processes as it began."""
    count = run.provenance().get("ranks", 1)
    return (
        "robot-rl train"
        if count == 1
        else f"torchrun --nproc-per-node {count} -m robot_rl.cli train"
    )


def run_path(name: str, runs: str = "runs") -> Path:
    """Folder of a run by its path, or of the newest run in `runs` by the word latest.

    Raises:
        ConfigError: `latest` was asked for and there is none.
    """
    if name != "latest":
        return Path(name)
    found = find_runs(runs)
    if not found:
        raise ConfigError(f"there is no run in {runs}; train one with: robot-rl train")
    return found[-1]


@dataclass(frozen=True, kw_only=True)
class TrainedPolicy:
    """A policy out of a checkpoint."""

    module: nn.Module
    """Deterministic, normaliser inside: Obs -> (N, A)."""
    checkpoint: Path
    """Folder that it was read from."""
    step: int
    """World-steps that it was trained for."""
    score: float | None
    """Success rate on validation starts, or mean return where the environment judges no success;
    None where it was not measured."""


def load_policy(run: RunFolder, config: RunConfig, spec: EnvSpec, which: str) -> TrainedPolicy:
    """The policy of a run.

    Args:
        run: The run's folder; may be training.
        config: Its configuration.
        spec: Environment with the run's observations and actions, of any size.
        which: `best`, `latest`, or the folder of a checkpoint.

    Raises:
        CheckpointError: There is no such checkpoint, it is damaged, or it does not fit.
    """
    if which not in ("best", "latest") and not Path(which).is_dir():
        known = ", ".join(map(str, sorted(run.checkpoints.glob("step_*")))) or "none yet"
        raise CheckpointError(
            f"checkpoint '{which}' does not exist; expected best, latest or the folder of one: "
            f"{known}"
        )
    checkpoint = CheckpointStore(run.checkpoints, read_only=True).load(which)
    module = make_policy(config, spec)
    try:
        module.load_state_dict(checkpoint.state["policy"])
    except (KeyError, RuntimeError) as error:
        raise CheckpointError(
            f"the checkpoint {checkpoint.path} holds no policy of this shape; expected the "
            f"observations and the network of {run.config_path}: evaluate without overrides of "
            "task.actor and learner"
        ) from error
    return TrainedPolicy(
        module=playable(kept_base(run, config), spec, module.eval()),
        checkpoint=checkpoint.path,
        step=checkpoint.step,
        score=checkpoint.score,
    )
