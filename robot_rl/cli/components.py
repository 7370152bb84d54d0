"""Learner, policy and simulation of a run, from its configuration or out of its folder."""

import math
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from configs.compose import from_plain
from configs.schema import RunConfig, component_of, make_env, parts_of_program
from policies.networks.frozen import CorrectedPolicy, FrozenBase, base_folder, read_base
from policies.networks.images import ImagePolicy
from policies.networks.residual import ResidualActor
from robot_rl.cli.simulated_cameras import camera_inputs
from robot_rl.core.base_action import BaseActionEnv
from robot_rl.core.env import BatchEnv, EnvSpec
from robot_rl.core.env_wrapper import EnvWrapper
from robot_rl.core.errors import CheckpointError, ConfigError, SpecMismatchError
from robot_rl.core.learner import Learner
from robot_rl.core.observation import TermConfig
from robot_rl.core.robot import RobotSpec
from robot_rl.learners.residual import ResidualConfig
from robot_rl.training.ranks import Ranks, seed_of
from robot_rl.training.runs.run_folder import RunFolder, RunName, find_runs
from robot_rl.training.storage.checkpoint import CheckpointStore
from robot_rl.training.storage.durable import storage_errors
from sim.env import SimEnv

if TYPE_CHECKING:
    from robot_rl.training.prior_episodes import ObservationAugmenter


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
        ConfigError: It needs a teacher, and none is named or found; or it gives numbers where one
            of a few choices is asked for, or the other way round.
        SpecMismatchError: The teacher does not fit.
    """
    ranks = ranks or Ranks()
    component = component_of(config.learner)
    if spec.discrete != component.discrete:
        where = f"'{getattr(config.env, 'id', component_of(config.env).name)}'"
        raise ConfigError(
            f"learner={component.name} gives numbers, and an action of {where} is one of "
            f"{spec.action_size} choices; expected learner=discrete_sac"
            if spec.discrete
            else f"learner={component.name} chooses one of a few actions, and an action of {where} "
            f"has {spec.action_size} numbers; expected another, such as learner=sac"
        )
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
    learner = config.learner
    if getattr(learner, "compile", False):  # a library of updates takes a minute where none is
        learner = replace(learner, compile=False)
    return make_learner(replace(config, learner=learner), spec).policy()


def seen_groups(config: RunConfig) -> tuple[str, ...]:
    """Observation groups of the worlds that a run's policy sees.

    Policies that clone, and residuals, have no choice.
    """
    return tuple(getattr(config.learner.actor, "groups", ("actor",)))


def load_teacher(config: RunConfig, spec: EnvSpec) -> nn.Module:
    """The best policy of the run that a learner names as its teacher, or of the checkpoint.

    Raises:
        ConfigError: It plans, or corrects a base: what it does depends on more than what it sees.
    """
    noiseless = config.learner.noiseless_teacher
    run = open_teacher(config.learner.teacher, noiseless=noiseless)
    teacher = from_plain(run.config())
    if noiseless:
        teacher = noiseless_teacher(run.path, teacher)
        if config.task is not None and config.task.critic != teacher.task.critic:
            raise ConfigError(
                "learner.noiseless_teacher=true is for robot-rl train, whose worlds show the "
                "teacher its terms without noise; set learner.noiseless_teacher=false"
            )
    check_teacher(str(run.path), teacher, config, seen_groups(teacher))
    named = config.learner.teacher
    module = load_policy(run, teacher, spec, named if is_checkpoint(Path(named)) else "best").module
    if not hasattr(module, "groups"):
        raise ConfigError(
            f"learner.teacher={run.path}: a policy of learner="
            f"{component_of(teacher.learner).name} cannot teach; expected one of an actor that "
            "answers each observation by itself, such as sac, td3, dsac_t or iql"
        )
    return module


def run_name(config: RunConfig, chosen: Mapping[str, str]) -> RunName:
    """Name of a run: its task and robot, or the id of its foreign environment."""
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


def next_commands(run: RunFolder, config: RunConfig, total_steps: int | None) -> dict[str, str]:
    """Lines to type after a run: `evaluate`, `export` and `resume`.

    They are commands, or lines of Python where a script registered a part that no command knows.

    Args:
        total_steps: Length to resume with; None keeps it.
    """
    if not (parts := parts_of_program(config)):
        where = shlex.quote(str(run.path))
        longer = "" if total_steps is None else f" training.total_steps={total_steps}"
        return {
            "evaluate": f"robot-rl evaluate run={where}",
            "export": f"robot-rl export run={where}",
            "resume": f"{train_command(run)} resume={where}{longer}",
        }
    opened = f"robot_rl.load_run({str(run.path)!r})"
    longer = "" if total_steps is None else f"total_steps={total_steps}"
    where = f", in the script that registers {' and '.join(parts)}"
    return {
        "evaluate": f"{opened}.evaluate(){where}",
        "export": f"{opened}.export(){where}",
        "resume": f"{opened}.resume({longer}){where}",
    }


def run_path(name: str, runs: str = "runs", *, of_learn: bool | None = None) -> Path:
    """Folder of a run by its path, or of the newest run in `runs` by the word latest.

    Args:
        of_learn: The newest of `robot-rl learn` is meant, or of `robot-rl train`; None is that of
            either.

    Raises:
        ConfigError: `latest` was asked for and there is none.
    """
    if name != "latest":
        return Path(name)
    found = [
        path for path in find_runs(runs)
        if of_learn is None or RunFolder.open(path).is_of_learn == of_learn
    ]  # fmt: skip
    if not found:
        what, command = "run", "train one with: robot-rl train"
        if of_learn:
            what, command = "run of robot-rl learn", "begin one with: robot-rl learn task=..."
        raise ConfigError(f"there is no {what} in {runs}; {command}")
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


_KEPT = "base"
"""Folder in a run: policies by their number."""


def make_base(config: RunConfig, spec: EnvSpec, count: int) -> FrozenBase:
    """The base of a residual's run, at work in `count` envs.

    Args:
        config: The run.
        spec: Of its bare worlds.
        count: Envs.

    Raises:
        BundleError: It is damaged, recurs, or is an ensemble of chunks.
        ConfigError: None is named, or one is not there.
        SpecMismatchError: It observes or does something else, or is for another robot.
    """
    assert isinstance(config.learner, ResidualConfig)
    terms = cameras = None
    if config.task is not None:
        terms = config.task.actor
        cameras = camera_inputs(config, spec.control_dt)
    policies = read_base(config.learner.base, spec, terms, cameras)
    return FrozenBase(policies, count, spec.action_size)


def with_base(config: RunConfig, env: BatchEnv) -> BatchEnv:
    """The worlds, with what the base would do where the run is one of a residual."""
    if not isinstance(config.learner, ResidualConfig):
        return env
    return BaseActionEnv(env, make_base(config, env.spec, env.spec.num_envs))


def bare_env(env: BatchEnv) -> BatchEnv:
    """The worlds themselves, without what a base would do and a learned reward."""
    while isinstance(env, EnvWrapper):
        env = env.env
    return env


def observation_augmenter(config: RunConfig, spec: EnvSpec) -> "ObservationAugmenter | None":
    """Adds the base's actions to stored episodes; None without a base."""
    if not isinstance(config.learner, ResidualConfig):
        return None
    from robot_rl.training.prior_episodes import BaseActions  # pyarrow is an extra

    return BaseActions(make_base(config, spec, 1), spec)


def playable(config: RunConfig, spec: EnvSpec, policy: nn.Module) -> nn.Module:
    """A policy that acts in worlds as they are: a residual brings its base."""
    actor = policy.actor if isinstance(policy, ImagePolicy) else policy
    if not isinstance(actor, ResidualActor):
        return policy
    corrector = policy if isinstance(policy, ImagePolicy) else actor
    return CorrectedPolicy(corrector, make_base(config, spec, spec.num_envs))


def keep_base(run: RunFolder, config: RunConfig) -> None:
    """Copy the base into the run's folder: where it came from may go.

    Raises:
        StorageError: The disk refused.
    """
    if not isinstance(config.learner, ResidualConfig):
        return
    with storage_errors("keep the base policy in", run.path):
        for number, name in enumerate(config.learner.base.paths):
            kept = run.path / _KEPT / f"{number}{Path(name).suffix}"
            kept.parent.mkdir(exist_ok=True)
            given = base_folder(name)
            if given.is_dir():
                shutil.copytree(given, kept)
            else:
                shutil.copyfile(given, kept)


def kept_base(run: RunFolder, config: RunConfig) -> RunConfig:
    """The config with the base that lies in the run's folder."""
    if not isinstance(config.learner, ResidualConfig):
        return config
    base = config.learner.base
    kept = [run.path / _KEPT / f"{i}{Path(name).suffix}" for i, name in enumerate(base.paths)]
    paths = [str(k) if k.exists() else name for k, name in zip(kept, base.paths, strict=True)]
    return replace(config, learner=replace(config.learner, base=replace(base, paths=paths)))


_PLANT = "sensed/plant"
"""Term that shows the drawn parameters as parts of their ranges: it means what the ranges say."""


def noiseless_teacher(where: Path, teacher: RunConfig) -> RunConfig:
    """A teacher that reads the terms of its group `actor` from the true state, as `critic`.

    Raises:
        ConfigError: It sees something else than measurements.
    """
    actor = getattr(teacher.learner, "actor", None)
    groups = list(getattr(actor, "groups", ()))
    if teacher.task is None:
        raise ConfigError(
            f"learner.noiseless_teacher=true needs a teacher of our own worlds (env=sim), whose "
            f"true state is known, and {where} has others; set learner.noiseless_teacher=false"
        )
    if actor is None or groups != ["actor"]:
        raise ConfigError(
            "learner.noiseless_teacher=true needs a teacher that learned on measurements, with "
            f"learner.actor.groups=[actor], and {where} has {groups or 'none'}; set "
            "learner.noiseless_teacher=false: a teacher with the group critic sees the true state "
            "already"
        )
    learner = replace(teacher.learner, actor=replace(actor, groups=["critic"]))
    task = replace(teacher.task, critic=list(teacher.task.actor))
    return replace(teacher, task=task, learner=learner)


def open_teacher(name: str, *, noiseless: bool = False) -> RunFolder:
    """The run that `learner.teacher` names.

    By its folder, by one of its checkpoints, or by a folder of runs, whose newest it is. Runs that
    are taught themselves do not count: the student's own may lie there.

    Args:
        noiseless: It is to be one that learned on measurements.

    Raises:
        ConfigError: Nothing is named, or there is no run.
    """
    sees = "" if noiseless else " learner.actor.groups=[critic]"
    if not name:
        kind = (
            "a run that learned on measurements: learner.noiseless_teacher=true shows it the true "
            "state"
            if noiseless
            else f"a run whose policy may see more than the student, such as one of{sees}"
        )
        raise ConfigError(
            f"learner=distill needs a teacher: give learner.teacher=runs/<run>, {kind}"
        )
    path = Path(name)
    if is_checkpoint(path):
        return RunFolder.open(path.parent.parent)
    found = [] if (path / "config.yaml").is_file() else _possible(path)
    if not found and not (path / "config.yaml").is_file():
        raise ConfigError(
            f"learner.teacher={name} is neither a run nor a folder of runs; train one with: "
            f"robot-rl train ...{sees}"
        )
    return RunFolder.open(found[-1] if found else path)


def is_checkpoint(path: Path) -> bool:
    """True of the folder of a run's checkpoint."""
    return path.parent.name == "checkpoints" and path.is_dir()


def _possible(folder: Path) -> list[Path]:
    return [path for path in find_runs(folder) if "teacher" not in _learner(path)]


def _learner(path: Path) -> dict[str, Any]:
    return RunFolder.open(path).config().get("learner") or {}


def check_teacher(
    where: str, teacher: RunConfig, student: RunConfig, groups: tuple[str, ...]
) -> None:
    """Refuse a teacher of another robot, task, action map, control period or observation.

    Args:
        where: Its folder, for messages.
        teacher: Its configuration.
        student: The run that is to be taught.
        groups: What the teacher sees.

    Raises:
        SpecMismatchError: It does not fit; the message names both sides.
    """
    for part in ("env", "robot", "task"):
        kinds = [_kind(getattr(one, part)) for one in (teacher, student)]
        _same(where, f"kind of {part}", *kinds)
    if student.task is None or student.robot is None:
        _same(where, "environment", str(teacher.env), str(student.env))
        return
    theirs, ours = teacher.robot, student.robot
    assert isinstance(theirs.spec, RobotSpec)
    theirs.spec.check_compatible(ours.spec)
    maps = [one.robot.action_map(one.task).to_dict() for one in (teacher, student)]
    _same(where, "action map", *maps)
    periods = [one.physics_dt * one.decimation for one in (theirs, ours)]
    if not math.isclose(*periods, rel_tol=1e-6):
        _same(where, "control period [s]", *periods)
    for group in groups:
        terms = [getattr(one.task, group, []) for one in (teacher, student)]
        _same(where, f"observation group '{group}'", *(list(map(_told, each)) for each in terms))
        if any(term.term == _PLANT for term in terms[0]):
            ranges = [vars(one.task.randomization) for one in (teacher, student)]
            for name, value in ranges[0].items():
                what = f"task.randomization.{name}, which {_PLANT} is a part of,"
                if name not in ("pushes", "curriculum"):
                    _same(where, what, value, ranges[1][name])


def _kind(part: object) -> str:
    return "none" if part is None else component_of(part).name


def _told(term: TermConfig) -> str:
    """All of a term: two that differ are told differently."""
    clip = "" if term.clip is None else f", clip {term.clip:.12g}"
    average = f", average over {term.average}" if term.average else ""
    return f"{term.term} x {term.scale:.12g}, {term.history} frame(s){clip}{average}"


def _same(where: str, what: str, teacher: object, student: object) -> None:
    if teacher != student:
        raise SpecMismatchError(
            f"learner.teacher: the teacher {where} has another {what} than this run: {teacher}, "
            f"expected {student}; train a teacher in the worlds of the student, or change the "
            "student's"
        )
