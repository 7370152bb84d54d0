"""Typed schemas of everything that a run can be told, and who builds the parts from them.

One line of `COMPONENTS` makes a robot, a task or a learner known. A YAML file of its group extends
the schema `<name>_schema` and states only what differs. Only `compose.py` knows Hydra.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from configs.builders import SACLearnerConfig, build_sac
from robot_rl.core.errors import ConfigError, unknown_name
from robot_rl.training.reporting.sinks import LoggingConfig
from robot_rl.training.trainer import TrainerConfig
from sim.joint_robot import JointRobotConfig
from sim.mujoco_simulation import MujocoSimulation
from sim.multirotor import MultirotorConfig, MultirotorSimulation
from sim.tasks.hover import HoverConfig, HoverTask
from sim.tasks.reach import ReachConfig, ReachTask
from sim.tasks.tracking import TrackingConfig, TrackingTask


@dataclass(kw_only=True)
class RunConfig:
    """A training run from end to end."""

    task: Any = None
    """What is learned: a file of configs/task."""
    robot: Any = None
    """Who learns it: a file of configs/robot."""
    learner: Any = None
    """How it is learned: a file of configs/learner."""
    training: TrainerConfig = field(default_factory=TrainerConfig)
    """How long, how often evaluated and saved."""
    logging: LoggingConfig = field(default_factory=LoggingConfig)
    """Where metrics go beside the run folder."""
    seed: int = 0
    """Seed of everything random."""
    num_envs: int = 1024
    """Worlds simulated at once."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:<index>."""
    threads: int = 1
    """CPU threads of torch; one is usually fastest for networks of this size."""
    video: bool = True
    """Film a few flights of the trained policy at the end; takes about ten seconds."""
    runs: str = "runs"
    """Folder in which the run's folder is made."""

    def __post_init__(self) -> None:
        """Refuse values that no machine can run."""
        for name, lowest in (("num_envs", 1), ("threads", 1), ("seed", 0)):
            if getattr(self, name) < lowest:
                raise ConfigError(f"{name} must be at least {lowest}, got {getattr(self, name)}")
        if not self.runs:
            raise ConfigError("runs is empty; expected the folder that the run's folder goes into")


@dataclass(frozen=True)
class Component:
    """One thing that can be chosen and built."""

    group: str
    """Config group: robot, task or learner."""
    name: str
    """YAML files of the group extend `<name>_schema`."""
    config: type
    """Its dataclass."""
    build: Callable[..., Any]
    """Builds it from its dataclass; `builders.py` shows the arguments of each group."""


COMPONENTS = (
    Component("robot", "multirotor", MultirotorConfig, MultirotorSimulation),
    Component("robot", "joint_robot", JointRobotConfig, MujocoSimulation),
    Component("task", "hover", HoverConfig, HoverTask),
    Component("task", "tracking", TrackingConfig, TrackingTask),
    Component("task", "reach", ReachConfig, ReachTask),
    Component("learner", "sac", SACLearnerConfig, build_sac),
)
"""Every robot engine, task and learner."""


def component_of(config: object) -> Component:
    """The component that a typed config belongs to.

    Raises:
        ConfigError: No line of `COMPONENTS` names its type.
    """
    for component in COMPONENTS:
        if type(config) is component.config:
            return component
    known = [component.config.__name__ for component in COMPONENTS]
    raise ConfigError(unknown_name("config type", type(config).__name__, known))


def find_component(group: str, name: str) -> Component:
    """The component of a group by its name.

    Raises:
        ConfigError: It is not known.
    """
    known = {component.name: component for component in COMPONENTS if component.group == group}
    if name not in known:
        raise ConfigError(unknown_name(f"{group} schema", name, known))
    return known[name]
