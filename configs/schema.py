"""Typed schemas of everything that a run can be told, and who builds the parts from them.

One line of `COMPONENTS` makes an environment, a robot, a task or a learner known; `register` does
so for a plug-in or a program. A YAML file of its group extends the schema `<name>_schema` and
states only what differs. Only `compose.py` knows Hydra.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from operator import attrgetter
from typing import Any

import torch
from torch import nn

from configs.builders import (
    SimEnvConfig,
    build_gymnasium_env,
    build_isaaclab_env,
    build_mjlab_env,
    build_mujoco_simulation,
    build_sim_env,
)
from robot_rl.core.env import BatchEnv
from robot_rl.core.errors import ConfigError, unknown_name
from robot_rl.core.observation import TERMS, TermConfig
from robot_rl.core.plugins import (
    Plugin,
    Registry,
    failed_plugins,
    installed_plugins,
    load_plugins,
)
from robot_rl.core.robot import RobotKind
from robot_rl.learners.cloning import ACT, BC, ACTConfig, BCConfig, Flow, FlowConfig
from robot_rl.learners.cql import CQL, CQLConfig
from robot_rl.learners.discrete_sac import DiscreteSAC, DiscreteSACConfig
from robot_rl.learners.distill import Distill, DistillConfig, make_student
from robot_rl.learners.dsac_t import DSACT, DSACTConfig
from robot_rl.learners.expo import EXPO, EXPOConfig
from robot_rl.learners.flash_sac import FlashSAC, FlashSACConfig
from robot_rl.learners.h2o import H2O, H2OConfig
from robot_rl.learners.hil_serl import HILSERL, HILSERLConfig
from robot_rl.learners.iql import IQL, IQLConfig
from robot_rl.learners.mentor import MENTOR, MENTORConfig
from robot_rl.learners.qc import QC, QCConfig
from robot_rl.learners.residual import Residual, ResidualConfig
from robot_rl.learners.sac import SAC, SACConfig
from robot_rl.learners.silri import SiLRI, SiLRIConfig
from robot_rl.learners.td3 import TD3, TD3Config
from robot_rl.learners.values import RewardScaling
from robot_rl.rewards.env import RewardConfig
from robot_rl.training.config import ClusterConfig, OnlineConfig, TrainerConfig
from robot_rl.training.ranks import check_memory
from robot_rl.training.reporting.mirrors import LoggingConfig
from sim.adapters.gymnasium_config import GymnasiumConfig
from sim.adapters.torch_envs.config import IsaacLabConfig, MjlabConfig
from sim.reward_terms import REWARD_TERMS
from sim.robots.joint_robot import JointRobotConfig
from sim.robots.multirotor_robot import MultirotorConfig
from sim.robots.multirotor_simulation import MultirotorSimulation
from sim.tasks.arms.drawer import DrawerConfig, DrawerTask
from sim.tasks.arms.lift import LiftConfig, LiftTask
from sim.tasks.arms.peg import PegConfig, PegTask
from sim.tasks.arms.reach import ReachConfig, ReachTask
from sim.tasks.control.ball_in_cup import BallInCupConfig, BallInCupTask
from sim.tasks.control.cartpole import CartpoleConfig, CartpoleTask
from sim.tasks.flights.gates import GatesConfig, GatesTask
from sim.tasks.flights.hover import HoverConfig, HoverTask
from sim.tasks.flights.landing import LandingConfig, LandingTask
from sim.tasks.flights.tracking import TrackingConfig, TrackingTask
from sim.tasks.hands.reorient import ReorientConfig, ReorientTask
from sim.tasks.legs.climb import ClimbConfig, ClimbTask
from sim.tasks.legs.clutter import ClutterConfig, ClutterTask
from sim.tasks.legs.motion import MotionTask, MotionTaskConfig
from sim.tasks.legs.stand_up import StandUpConfig, StandUpTask
from sim.tasks.legs.velocity import VelocityConfig, VelocityTask

_MOST_THREADS = 1024


@dataclass(kw_only=True)
class RunConfig:
    """A training run from end to end."""

    env: Any = None
    """Environment: a file of configs/env."""
    task: Any = None
    """Task: a file of configs/task; none where the environment says it."""
    robot: Any = None
    """Robot: a file of configs/robot; none where the environment says it."""
    learner: Any = None
    """Learner: a file of configs/learner."""
    reward: RewardConfig = field(default_factory=RewardConfig)
    """Learned reward, in place of the task's."""
    training: TrainerConfig = field(default_factory=TrainerConfig)
    """Length, evaluation and checkpoints."""
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    """Processes on other machines that collect."""
    online: OnlineConfig = field(default_factory=OnlineConfig)
    """Learning on a robot."""
    logging: LoggingConfig = field(default_factory=LoggingConfig)
    """Places of metrics beside the run folder."""
    seed: int = 0
    """Seed of everything random."""
    num_envs: int = 1024
    """Worlds simulated at once."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:<index>."""
    threads: int = 1
    """CPU threads of torch and of a compiled update, whose critics they share; one is usually
    fastest for small networks."""
    rank_timeout_seconds: float = 1800.0
    """With torchrun: how long processes wait for each other, evaluations included [s]."""
    video: bool = True
    """Film a few flights of the trained policy at the end; takes about ten seconds."""
    profile: bool = False
    """Measure where the time goes and record a trace (docs/training.md)."""
    runs: str = "runs"
    """Folder in which the run's folder is made."""

    def __post_init__(self) -> None:
        for name, lowest in (("num_envs", 1), ("threads", 1), ("seed", 0)):
            if getattr(self, name) < lowest:
                raise ConfigError(f"{name} must be at least {lowest}, got {getattr(self, name)}")
        if self.threads > _MOST_THREADS:
            raise ConfigError(f"threads must be at most {_MOST_THREADS:,}, got {self.threads:,}")
        if not self.rank_timeout_seconds > 0:
            raise ConfigError(
                f"rank_timeout_seconds must be above 0, got {self.rank_timeout_seconds}"
            )
        scaling = getattr(self.learner, "reward_scale", RewardScaling.none)
        if self.training.offline.updates and scaling is not RewardScaling.none:
            raise ConfigError(
                f"learner.reward_scale={scaling.value} knows collected rewards alone, and would "
                "change the size of all rewards after an offline phase, which "
                f"training.offline.updates={self.training.offline.updates} asks for: set "
                "learner.reward_scale=none, or training.offline.updates=0"
            )
        mixed = self.training.prior.run and self.training.prior.share > 0
        if mixed and scaling is not RewardScaling.none:
            raise ConfigError(
                f"learner.reward_scale={scaling.value} knows collected rewards alone, and would "
                "divide the stored ones of training.prior.run by a size that they do not have: set "
                "learner.reward_scale=none, with learner.values that hold the returns where there "
                "are such, or leave training.prior.run out"
            )
        if not self.runs:
            raise ConfigError("runs is empty; expected the folder that the run's folder goes into")


@dataclass(frozen=True)
class Component:
    """One thing that can be chosen and built."""

    group: str
    """Config group: env, robot, task or learner."""
    name: str
    """YAML files of the group extend `<name>_schema`."""
    config: type
    """Its dataclass."""
    build: Callable[..., Any]
    """Builds it from its dataclass: its class, or for an `env` a function of `builders.py`."""
    needs: tuple[str, ...] = ()
    """Groups that an environment is made of; a run of it has no choice in the others of
    `ENV_PARTS`. A learner may need a `teacher`."""
    policy: Callable[..., nn.Module] | None = None
    """Builds a learner's policy alone, for those that need more than a policy does."""
    discrete: bool = False
    """A learner chooses among a few actions (`EnvSpec.discrete`)."""


_ENV_BYTES = 2000
"""Memory of one env, at least: measured with hover, the smallest [B]."""
ENV_PARTS = ("task", "robot")
"""Groups that some environments are made of."""

COMPONENTS = (
    Component("env", "sim", SimEnvConfig, build_sim_env, needs=ENV_PARTS),
    Component("env", "gymnasium", GymnasiumConfig, build_gymnasium_env),
    Component("env", "mjlab", MjlabConfig, build_mjlab_env),
    Component("env", "isaaclab", IsaacLabConfig, build_isaaclab_env),
    Component("robot", "multirotor", MultirotorConfig, MultirotorSimulation),
    Component("robot", "joint_robot", JointRobotConfig, build_mujoco_simulation),
    Component("task", "hover", HoverConfig, HoverTask),
    Component("task", "tracking", TrackingConfig, TrackingTask),
    Component("task", "gates", GatesConfig, GatesTask),
    Component("task", "landing", LandingConfig, LandingTask),
    Component("task", "reach", ReachConfig, ReachTask),
    Component("task", "lift", LiftConfig, LiftTask),
    Component("task", "peg", PegConfig, PegTask),
    Component("task", "drawer", DrawerConfig, DrawerTask),
    Component("task", "reorient", ReorientConfig, ReorientTask),
    Component("task", "cartpole", CartpoleConfig, CartpoleTask),
    Component("task", "ball_in_cup", BallInCupConfig, BallInCupTask),
    Component("task", "velocity", VelocityConfig, VelocityTask),
    Component("task", "climb", ClimbConfig, ClimbTask),
    Component("task", "clutter", ClutterConfig, ClutterTask),
    Component("task", "motion", MotionTaskConfig, MotionTask),
    Component("task", "stand_up", StandUpConfig, StandUpTask),
    Component("learner", "sac", SACConfig, SAC),
    Component("learner", "discrete_sac", DiscreteSACConfig, DiscreteSAC, discrete=True),
    Component("learner", "cql", CQLConfig, CQL),
    Component("learner", "h2o", H2OConfig, H2O),
    Component("learner", "residual", ResidualConfig, Residual),
    Component("learner", "hil_serl", HILSERLConfig, HILSERL),
    Component("learner", "silri", SiLRIConfig, SiLRI),
    Component("learner", "td3", TD3Config, TD3),
    Component("learner", "mentor", MENTORConfig, MENTOR),
    Component("learner", "dsac_t", DSACTConfig, DSACT),
    Component("learner", "flash_sac", FlashSACConfig, FlashSAC),
    Component("learner", "iql", IQLConfig, IQL),
    Component("learner", "qc", QCConfig, QC),
    Component("learner", "expo", EXPOConfig, EXPO),
    Component("learner", "bc", BCConfig, BC),
    Component("learner", "flow", FlowConfig, Flow),
    Component("learner", "act", ACTConfig, ACT),
    Component(
        "learner", "distill", DistillConfig, Distill, needs=("teacher",), policy=make_student
    ),
)
"""Every kind of environment, robot engine, task and learner."""


REGISTRIES: dict[str, Registry[Component]] = {
    group: Registry(group, {one.name: one for one in COMPONENTS if one.group == group})
    for group in ("env", "robot", "task", "learner")
}
"""The same by group and name, and what was registered."""


def register(component: Component) -> None:
    """Make a part of a plug-in or a program known.

    A plug-in brings a YAML file of the group beside it; without one its config's defaults can be
    chosen by its name.

    Raises:
        ConfigError: The name is taken, or the component is none.
    """
    if component.group not in REGISTRIES:
        raise ConfigError(unknown_name("component group", component.group, REGISTRIES))
    what = f"{component.group} '{component.name}'"
    if not (isinstance(component.config, type) and is_dataclass(component.config)):
        raise ConfigError(f"{what}: expected a dataclass as config, got {component.config!r}")
    if not callable(component.build):
        raise ConfigError(f"{what}: expected what builds it, got {component.build!r}")
    others = {one.config: one for one in known_components()}
    taken = others.get(component.config)
    if taken is not None and (taken.group, taken.name) != (component.group, component.name):
        raise ConfigError(
            f"{what}: its config {component.config.__name__} is that of {taken.group} "
            f"'{taken.name}', and tells the two apart; give it a subclass of its own"
        )
    REGISTRIES[component.group].add(component.name, component, made_of=component.config)


def known_components() -> list[Component]:
    """Components that are known without importing a plug-in."""
    return [one for registry in REGISTRIES.values() for one in registry.values()]


def components() -> list[Component]:
    """All components, those of plug-ins included."""
    load_plugins()
    return known_components()


def component_of(config: object) -> Component:
    """The component that a typed config belongs to.

    Raises:
        ConfigError: Neither a line of `COMPONENTS` nor a plug-in names its type.
    """
    for find in (known_components, components):  # plug-ins only where it is none of ours
        for component in find():
            if type(config) is component.config:
                return component
    known = [component.config.__name__ for component in known_components()]
    told = unknown_name("config type", type(config).__name__, known)
    raise ConfigError("; ".join([told, *failed_plugins().values()]))


def find_component(group: str, name: str) -> Component:
    """The component of a group by its name.

    Raises:
        ConfigError: It is not known.
    """
    return REGISTRIES[group].find(name)


def plugins_of(config: RunConfig) -> dict[str, Plugin]:
    """Plug-ins that bring a part of a run, or a term of an observation or reward, by name."""
    parts = [getattr(config, group) for group in REGISTRIES]
    owners = [
        REGISTRIES[one.group].owners.get(one.name)
        for one in (component_of(part) for part in parts if part is not None)
    ]
    owners += [TERMS.owners.get(name) for name in _terms(config.task)]
    owners += [REWARD_TERMS.owners.get(name) for name in _added_reward_terms(config.task)]
    return {plugin.name: plugin for plugin in owners if plugin is not None}


def parts_of_program(config: RunConfig) -> list[str]:
    """Parts of a run that a program registered, such as "task 'circle'": no command knows them."""
    parts = [getattr(config, group) for group in REGISTRIES]
    used: list[tuple[Registry[Any], str]] = [
        (REGISTRIES[one.group], one.name)
        for one in (component_of(part) for part in parts if part is not None)
    ]
    used += [(TERMS, name) for name in _terms(config.task)]
    used += [(REWARD_TERMS, name) for name in _weight_names(config.task)]
    found = [f"{registry.kind} '{name}'" for registry, name in used
             if registry.owners.get(name, registry) is None]  # fmt: skip
    return list(dict.fromkeys(found))


def _added_reward_terms(task: Any) -> list[str]:
    """Names of a task's reward weights that begin as a package's do, which is imported for them."""
    packages = tuple(f"{one.module.partition('.')[0]}_" for one in installed_plugins())
    names = _weight_names(task)
    return [name for name in names if name.startswith(packages) and REWARD_TERMS.knows(name)]


def _weight_names(task: Any) -> list[str]:
    """Names of a task's reward weights."""
    weights = getattr(task, "reward", None)
    whole = isinstance(weights, Mapping)
    parts = [weights] if whole else getattr(weights, "__dict__", {}).values()
    return [name for part in parts if isinstance(part, Mapping) for name in part]


def _terms(value: Any) -> Iterator[str]:
    """Names of the observation terms in a config."""
    if isinstance(value, TermConfig):
        yield value.term
    elif is_dataclass(value):
        for part in vars(value).values():
            yield from _terms(part)
    elif isinstance(value, list):
        for part in value:
            yield from _terms(part)
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _terms(part)


_NEEDS = (
    ("cluster.", "cluster.collectors"),
    ("training.snapshots.", "training.snapshots.data"),
    ("training.start.checkpoint", "training.start.run"),
    ("training.prior.", "training.prior.run"),
    ("training.offline.", "training.offline.updates"),
    ("training.demonstrations.", "training.demonstrations.data"),
)
"""Fields, or beginnings of fields, and the field without which they do nothing."""
_ELSEWHERE_BESIDE_ROBOTS = ("training.prior.share", "training.offline.")
"""Of these: a share that steps of a person have too, and a phase, of which `robot-rl learn` refuses
all but the number of updates."""


def check_needs(config: RunConfig, keys: Sequence[str], *, beside_robots: bool = False) -> None:
    """Refuse fields that do nothing without another one, which is not set.

    Presets set such fields for whoever sets the other one: only what a user set is looked at.

    Args:
        config: The run.
        keys: Fields that the user set.
        beside_robots: The run is one of `robot-rl learn`.

    Raises:
        ConfigError: There is one.
    """
    for key, (start, other) in itertools.product(keys, _NEEDS):
        elsewhere = beside_robots and key.startswith(_ELSEWHERE_BESIDE_ROBOTS)
        if not key.startswith(start) or key == other or elsewhere or attrgetter(other)(config):
            continue
        if value := attrgetter(key)(config):  # false, 0 and nothing ask for nothing
            raise ConfigError(
                f"{key}={getattr(value, 'value', value)} does nothing without {other}, which is "
                f"not set: set {other} too, or leave {key} out"
            )


def check_robot(config: RunConfig) -> None:
    """Refuse a robot that the task is not for.

    Raises:
        SpecMismatchError: It is of another kind; the message names robots that fit.
    """
    own: RobotKind | None = getattr(config.task, "robot_kind", None)
    by_values: Sequence[RobotKind] = getattr(config.task, "kinds_by_values", ())
    kinds = [*([own] if own else []), *by_values]
    for kind in kinds:
        fit = tuple(name for name in kind.robots if all(name in one.robots for one in kinds))
        replace(kind, robots=fit).check(component_of(config.task).name, config.robot.spec)


def make_env(
    config: RunConfig, *, num_envs: int, device: torch.device, seed: int, evaluation: bool,
    copies: int = 1,
) -> BatchEnv:  # fmt: skip
    """Worlds of a run, to learn in or to evaluate in.

    Args:
        config: The run.
        num_envs: N, which need not be the run's.
        device: Where the tensors live.
        seed: Of everything random in the envs.
        evaluation: Begin at evaluation starts, where there are such.
        copies: Processes of this machine that make as many.

    Raises:
        ConfigError: The device has no memory for so many, or they cannot be made as asked.
        SpecMismatchError: The task is for another kind of robot.
    """
    check_memory(
        num_envs * _ENV_BYTES, device, copies=copies, what=f"{num_envs:,} envs",
        remedy="lower num_envs, or episodes of an evaluation, each of which is played in an env",
    )  # fmt: skip
    component = component_of(config.env)
    if {"task", "robot"} <= set(component.needs):
        check_robot(config)
    parts: dict[str, Any] = {}
    for group in component.needs:
        part = getattr(config, group)
        parts |= {group: part, f"make_{group}": component_of(part).build}
    return component.build(
        config.env, **parts, num_envs=num_envs, device=device, seed=seed, evaluation=evaluation
    )
