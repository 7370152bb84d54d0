"""From typed configs to worlds: the one place where robots, tasks and environments meet."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from robot_rl.core.env import BatchEnv
from robot_rl.core.errors import DeviceError, SpecMismatchError
from sim.adapters.gymnasium_config import GymnasiumConfig
from sim.adapters.torch_envs.config import IsaacLabConfig, MjlabConfig
from sim.cameras.config import CameraConfig, ImageRenderer, chosen_cameras
from sim.robots.joint_robot import JointRobotConfig, PhysicsEngine
from sim.task import TaskContext

if TYPE_CHECKING:
    from sim.cameras.cameras import SimulatedCameras
    from sim.env import SimEnv


@dataclass(kw_only=True)
class SimEnvConfig:
    """Worlds of our own: the task and the robot say the rest."""

    cameras: list[str] = field(default_factory=list[str])
    """Cameras that are drawn, each the observation group `image/<camera>`; of those that the robot
    or the task's scene declares. Empty for none."""
    renderer: ImageRenderer = ImageRenderer.warp
    """Program that draws: warp, or gl, which is faster on the CPU where meshes are few."""


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
    config: SimEnvConfig | None = None,
) -> "SimEnv":
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
        config: Cameras; None for none.

    Raises:
        ConfigError: A camera is unknown, or cannot be drawn here.
        SpecMismatchError: The task is for another kind of robot.
    """
    from sim.env import SimEnv  # as all that runs, loaded where it is built

    if not isinstance(task.randomization, robot.randomization_type):
        raise SpecMismatchError(
            f"a task with {type(task.randomization).__name__} was asked of robot "
            f"'{robot.spec.name}', which takes {robot.randomization_type.__name__}; choose a task "
            "and a robot that go together, such as task=hover robot=crazyflie or task=reach "
            "robot=panda"
        )
    cameras = chosen_cameras(config.cameras if config else [], robot, task)
    simulation = make_simulation(
        robot,
        task.randomization,
        num_worlds=num_envs,
        device=device,
        seed=seed,
        **robot.simulation_arguments(task, evaluation=evaluation),
        **({"cameras": cameras} if cameras and isinstance(robot, JointRobotConfig) else {}),
    )
    return SimEnv(
        simulation,
        make_task(
            task,
            TaskContext(
                num_envs=num_envs,
                control_dt=simulation.control_dt,
                device=device,
                evaluation=evaluation,
                **robot.task_arguments(simulation, task, simulation.control_dt),
            ),
        ),
        actor_terms=task.actor,
        critic_terms=task.critic,
        action_map=robot.action_map(task),
        initial_action=robot.initial_action,
        seed=seed,
        stagger=not evaluation,
        cameras=_make_cameras(config, cameras, task, simulation, seed) if config else None,
    )


def _make_cameras(
    config: SimEnvConfig, cameras: dict[str, CameraConfig], task: Any, simulation: Any, seed: int
) -> "SimulatedCameras | None":
    if not cameras:
        return None
    from sim.cameras.cameras import SimulatedCameras, make_renderer

    worlds = simulation.engine
    if not hasattr(worlds, "model"):  # a multirotor's, which knows no shapes
        from sim.cameras.flight_scene import FlightScene

        worlds = FlightScene(simulation, cameras)
    return SimulatedCameras(
        cameras, task.randomization.appearance,
        make_renderer(config.renderer, worlds, cameras, simulation.device),
        num_worlds=simulation.num_worlds, device=simulation.device, seed=seed,
    )  # fmt: skip


def build_sim_env(
    config: SimEnvConfig, *, make_robot: Callable[..., Any], **parts: Any
) -> "SimEnv":
    """Our own worlds, by the rules that hold for every environment a run may choose."""
    return build_env(make_simulation=make_robot, config=config, **parts)


def build_gymnasium_env(
    config: GymnasiumConfig, *, num_envs: int, device: torch.device, seed: int, evaluation: bool
) -> BatchEnv:
    """Worlds of a Gymnasium environment; evaluated from starts like those of training."""
    from sim.adapters.gymnasium_make import make_gymnasium_env  # takes a while: not for all

    return make_gymnasium_env(config, num_envs=num_envs, device=device, seed=seed)


def build_mjlab_env(
    config: MjlabConfig, *, num_envs: int, device: torch.device, seed: int, evaluation: bool
) -> BatchEnv:
    """Worlds of a task of mjlab; evaluated from starts like those of training."""
    from sim.adapters.torch_envs.mjlab import make_mjlab_env

    return make_mjlab_env(
        config, num_envs=num_envs, device=device, seed=seed, evaluation=evaluation
    )


def build_isaaclab_env(
    config: IsaacLabConfig, *, num_envs: int, device: torch.device, seed: int, evaluation: bool
) -> BatchEnv:
    """Worlds of a task of Isaac Lab; evaluated from starts like those of training."""
    from sim.adapters.torch_envs.isaaclab_make import make_isaaclab_env

    return make_isaaclab_env(
        config, num_envs=num_envs, device=device, seed=seed, evaluation=evaluation
    )


def build_mujoco_simulation(*parts: Any, **named: Any) -> Any:
    """Robots with joints; only they need the MuJoCo that mjlab cannot be installed beside."""
    from sim.robots.joint_simulation import MujocoSimulation

    return MujocoSimulation(*parts, **named)


def run_device(config: Any) -> torch.device:
    """The device of a run (`RunConfig`): `auto` is the CPU where MuJoCo in C steps its worlds.

    Raises:
        DeviceError: It does not exist here.
    """
    in_c = getattr(config.robot, "engine", None) is PhysicsEngine.batch
    if config.device == "auto" and in_c and isinstance(config.env, SimEnvConfig):
        return torch.device("cpu")
    return pick_device(config.device)


def pick_device(name: str) -> torch.device:
    """The device that a name stands for; CUDA's with its number, as tensors name it.

    Raises:
        DeviceError: It does not exist here.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
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
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device
