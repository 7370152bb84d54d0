"""From typed configs to parts: the one place where the rooms of the house meet."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from policies.gaussian_actor import GaussianActor, GaussianActorConfig
from policies.q_ensemble import QEnsemble, QEnsembleConfig
from robot_rl.core.env import BatchEnv, EnvSpec
from robot_rl.core.errors import ConfigError, DeviceError, SpecMismatchError
from robot_rl.core.seeding import derive_seed
from robot_rl.learners.optimization import Reduce
from robot_rl.learners.sac import SAC, SACConfig
from robot_rl.learners.values import make_values
from sim.adapters.gymnasium_config import GymnasiumConfig
from sim.env import SimEnv


@dataclass(kw_only=True)
class SACLearnerConfig(SACConfig):
    """SAC and the networks that are handed to it."""

    actor: GaussianActorConfig = field(default_factory=GaussianActorConfig)
    """Policy network."""
    critic: QEnsembleConfig = field(default_factory=QEnsembleConfig)
    """Action-value networks."""

    def __post_init__(self) -> None:
        """Refuse a target of more members than there are."""
        super().__post_init__()
        if self.target_members > self.critic.members and not self.target_replacement:
            raise ConfigError(
                f"learner.target_members {self.target_members} asks for more critics than "
                f"learner.critic.members has, {self.critic.members}"
            )


def build_sac(
    config: SACLearnerConfig, spec: EnvSpec, *, seed: int, stream_seed: int | None = None,
    reduce: Reduce | None = None,
) -> SAC:  # fmt: skip
    """SAC for an environment; critics read the group `critic` where there is one.

    Args:
        config: Hyperparameters and networks.
        spec: What is observed and done.
        seed: Of the initial weights.
        stream_seed: Of exploration and of sampled actions; the same by default.
        reduce: Joins the gradients of several processes.
    """
    group = "critic" if "critic" in spec.groups else "actor"
    torch.manual_seed(derive_seed(seed, "initial weights"))
    actor = GaussianActor(config.actor, spec.groups["actor"].shape[0], spec.action_size)
    width = make_values(config.values, spec.device).width
    critic = QEnsemble(config.critic, group, spec.groups[group].shape[0], spec.action_size, width)
    return SAC(
        config, actor, critic, action_size=spec.action_size, device=spec.device,
        seed=seed if stream_seed is None else stream_seed, reduce=reduce,
    )  # fmt: skip


@dataclass(kw_only=True)
class SimEnvConfig:
    """Worlds of our own: the task and the robot say all there is to say."""


def build_env(
    task: Any,
    robot: Any,
    *,
    make_task: Callable[..., Any],
    make_simulation: Callable[..., Any],
    num_envs: int,
    device: torch.device,
    seed: int,
    evaluation: bool,
) -> SimEnv:
    """Worlds with a robot and a task.

    Args:
        task: Config of the task.
        robot: Config of the robot.
        make_task: Builds the task.
        make_simulation: Builds the worlds.
        num_envs: N.
        device: Where the worlds live.
        seed: Seed of starts, goals, parameters and sensor noise.
        evaluation: Begin at the task's evaluation starts, all worlds at once.

    Raises:
        SpecMismatchError: The task is for another kind of robot.
    """
    if not isinstance(task.randomization, robot.randomization_type):
        raise SpecMismatchError(
            f"a task with {type(task.randomization).__name__} was asked of robot "
            f"'{robot.spec.name}', which takes {robot.randomization_type.__name__}; choose a task "
            "and a robot that go together, such as task=hover robot=crazyflie or task=reach "
            "robot=panda"
        )
    simulation = make_simulation(
        robot,
        task.randomization,
        num_worlds=num_envs,
        device=device,
        seed=seed,
        **robot.simulation_arguments(task, evaluation=evaluation),
    )
    return SimEnv(
        simulation,
        make_task(
            task,
            num_worlds=num_envs,
            control_dt=simulation.control_dt,
            device=device,
            evaluation=evaluation,
            **robot.task_arguments(simulation, task),
        ),
        actor_terms=task.actor,
        critic_terms=task.critic,
        action_map=robot.action_map(task),
        initial_action=robot.initial_action,
        seed=seed,
        stagger=not evaluation,
    )


def build_sim_env(
    config: SimEnvConfig,
    *,
    task: Any,
    robot: Any,
    make_task: Callable[..., Any],
    make_robot: Callable[..., Any],
    num_envs: int,
    device: torch.device,
    seed: int,
    evaluation: bool,
) -> SimEnv:
    """Our own worlds, by the rules that hold for every environment a run may choose."""
    return build_env(
        task, robot, make_task=make_task, make_simulation=make_robot, num_envs=num_envs,
        device=device, seed=seed, evaluation=evaluation,
    )  # fmt: skip


def build_gymnasium_env(
    config: GymnasiumConfig, *, num_envs: int, device: torch.device, seed: int, evaluation: bool
) -> BatchEnv:
    """Worlds of a Gymnasium environment; evaluated from starts like those of training."""
    from sim.adapters.gymnasium_make import make_gymnasium_env  # takes a while: not for all

    return make_gymnasium_env(config, num_envs=num_envs, device=device, seed=seed)


def pick_device(name: str) -> torch.device:
    """The device that a config names.

    Raises:
        DeviceError: It does not exist here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    unknown = DeviceError(f"device '{name}' is unknown; known: auto, cpu, cuda, cuda:<index>")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise unknown from None
    if device.type not in ("cpu", "cuda"):
        raise unknown
    if device.type == "cuda" and not torch.cuda.is_available():
        raise DeviceError(
            f"device '{name}' was asked for, but torch {torch.__version__} finds no CUDA device; "
            "use device=cpu or device=auto"
        )
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise DeviceError(
            f"device '{name}' was asked for, but this machine has {torch.cuda.device_count()} "
            "CUDA device(s), counted from cuda:0"
        )
    return device
