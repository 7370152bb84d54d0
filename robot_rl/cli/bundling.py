"""Policy bundles: written from a run, and flown in the simulator to see that they agree."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from configs.compose import to_plain
from configs.schema import RunConfig
from policies.bundle import load_bundle
from policies.caller import CallerSpec, ValueRange
from policies.export import export_bundle
from policies.networks.frozen import CorrectedGraph, CorrectedPolicy
from policies.networks.images import ImagePolicy, SeeingNetwork
from policies.networks.queued import QueuedPolicy
from policies.runner import PolicyRunner
from robot_rl.cli.components import TrainedPolicy, load_policy, make_sim_env, seen_groups
from robot_rl.cli.simulated_cameras import camera_inputs
from robot_rl.core.env import EnvStep, Obs
from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.episodic import begin_episodes
from robot_rl.core.errors import BundleError
from robot_rl.core.observation import IMAGE_PREFIX, RobotState
from robot_rl.training.runs.run_folder import RunFolder
from robot_rl.training.trainer import VALIDATION_SEED
from sim.env import SimEnv
from sim.robots.joint_robot import JointRobotConfig, PhysicsEngine
from sim.robots.joint_simulation import MujocoSimulation

_TRIAL_WORLDS, _TRIAL_STEPS = 16, 100
_DRAWS = 64
"""Times that starts are drawn in every world to see how far they reach."""


@dataclass(frozen=True, kw_only=True)
class Exported:
    """A bundle that was written and read back."""

    path: Path
    difference: float
    """Largest difference between an action of the bundle and one of torch in a trial."""
    num_envs: int
    """Robots of the trial."""
    steps: int
    """Steps of each."""
    led: bool = False
    """Its policy displaces an end effector."""
    of_robot: bool = True
    """False for a Gymnasium environment's."""

    @property
    def sentence(self) -> str:
        """Agreement with PyTorch, in one line."""
        return (
            f"verified against PyTorch: {self.num_envs} envs x {self.steps} steps, max action "
            f"error {self.difference:.1e}"
        )


def export_run(run: RunFolder, config: RunConfig, which: str, path: Path) -> Exported:
    """Export a run's policy, load the bundle and fly it.

    Raises:
        BundleError: The network cannot be exported, or `path` holds something else.
        CheckpointError: There is no such checkpoint.
        StorageError: The folder cannot be written.
    """
    env = _trial_env(config, evaluation=True)
    policy = load_policy(run, config, env.spec, which)
    _check_measurable(seen_groups(config))
    network, chunks = network_and_chunks(policy.module)
    chunks |= seen_cameras(config, network)
    export_bundle(
        path,
        policy=network,
        **chunks,
        terms=config.task.actor,
        robot=config.robot.spec,
        action_map=env.action_map,
        control_dt=env.spec.control_dt,
        sensed_widths={name: value.shape[-1] for name, value in env.sensed.items()},
        goal_widths={name: goal.shape[-1] for name, goal in env.task.goal.items()},
        clocks=dict(env.task.clocks),
        playback=env.task.playback,
        initial_action=[env.initial_action] * env.spec.action_size,
        caller=_caller(config, env),
        provenance={**origin_of(run, config, policy), "config": told_config(config)},
    )
    bundle = BundlePolicy.load(path, env, policy.module)
    obs = env.reset(seed=VALIDATION_SEED)
    with torch.no_grad():
        for _ in range(_TRIAL_STEPS):
            step = env.step(bundle(obs))
            bundle.on_step(step)
            obs = step.obs
    return Exported(
        path=path, difference=bundle.difference, num_envs=_TRIAL_WORLDS, steps=_TRIAL_STEPS
    )  # fmt: skip


def told_config(config: RunConfig) -> dict[str, Any]:
    """The config as a bundle keeps it: without the folder of all runs, which is its user's."""
    return {name: value for name, value in to_plain(config).items() if name != "runs"}


def origin_of(run: RunFolder, config: RunConfig, policy: TrainedPolicy) -> dict[str, Any]:
    """Origin of a policy, for the provenance of its bundle."""
    origin = run.provenance()
    return {
        "run": {**origin.get("run", {}), "folder": run.path.name},
        "checkpoint": {"step": policy.step, "score": policy.score},
        "git": origin.get("git"),
        "seed": config.seed,
        "trained_with": origin.get("packages"),
    }


def network_and_chunks(policy: nn.Module) -> tuple[nn.Module, dict[str, Any]]:
    """Network to export, and how its chunks or its inner policies are run."""
    if isinstance(policy, QueuedPolicy):
        return policy.network, {
            "chunk_length": policy.chunk_length,
            "replan_interval": policy.replan_interval,
            "ensemble_decay": policy.ensemble_decay,
        }
    if isinstance(policy, CorrectedPolicy):
        graph = CorrectedGraph(policy.actor, policy.base.policies, policy.base.action_size)
        inner = [one.onnx for one in graph.policies]
        return graph, {"initial_state": graph.initial_state, "inner": inner}
    return policy, {}


def seen_cameras(config: RunConfig, network: nn.Module) -> dict[str, Any]:
    """The cameras that a network sees, as the simulation has them: argument of `export_bundle`."""
    if not isinstance(network, ImagePolicy | SeeingNetwork | CorrectedGraph):
        return {}
    known = camera_inputs(config, config.robot.physics_dt * config.robot.decimation)
    images = [name for name in network.groups if name.startswith(IMAGE_PREFIX)]
    names = [name.removeprefix(IMAGE_PREFIX) for name in images]
    return {"cameras": {name: known[name] for name in names}}


def _trial_env(config: RunConfig, *, evaluation: bool) -> SimEnv:
    """Envs that any machine has, as the twin of a deployment is: robots with joints in C."""
    robot = config.robot
    if isinstance(robot, JointRobotConfig):
        robot = replace(robot, engine=PhysicsEngine.batch)
    return make_sim_env(
        replace(config, robot=robot), num_envs=_TRIAL_WORLDS, device=torch.device("cpu"),
        seed=VALIDATION_SEED, evaluation=evaluation,
    )  # fmt: skip


def _caller(config: RunConfig, env: SimEnv) -> CallerSpec:
    """Duties around the policy in training; `export_bundle` adds what the policy itself says."""
    robot, ranges = config.robot, config.task.randomization
    ramped = bearing = None
    if isinstance(robot, JointRobotConfig):
        assert isinstance(env.simulation, MujocoSimulation)
        limits = [min(joint.velocity_limit, 1e6) for joint in robot.spec.joints]  # JSON: no inf
        ramped = limits if robot.limit_target_speed else None
        model = env.simulation.engine.model
        bodies = [int(model.joint(joint.name).bodyid[0]) for joint in robot.spec.joints]
        bearing = bool((model.body_gravcomp[bodies] > 0).any())
        own = [joint.actuator_delay for joint in robot.spec.joints]
        further = ranges.actuator_delay
        delay = [min(own) + further[0], max(own) + further[1]]
        late, jitter = ranges.latency, ranges.sensor_jitter[1]
    else:
        delay = list(ranges.action_delay) or [robot.model.action_delay * robot.physics_dt] * 2
        late, jitter = [0.0, 0.0], 1.0
    ages = {
        name: [
            max(0.0, sensor.latency + late[0] - jitter * sensor.jitter),
            sensor.latency + late[1] + jitter * sensor.jitter,
        ]
        for name, sensor in robot.spec.sensors.items()
    }
    return CallerSpec(
        control_dt=env.spec.control_dt,
        loop_dt=robot.loop_dt,
        target_speed_limit=ramped,
        gravity_compensation=bearing,
        start_ranges=_start_ranges(config),
        measurement_age=ages,
        action_delay=[float(value) for value in delay],
    )


def _start_ranges(config: RunConfig) -> dict[str, ValueRange]:
    """Extent of the starts that training draws, by field of the state."""
    env = _trial_env(config, evaluation=False)
    generator = torch.Generator().manual_seed(VALIDATION_SEED)
    everywhere = EnvSelection(torch.ones(_TRIAL_WORLDS, dtype=torch.bool))
    drawn: dict[str, list[Tensor]] = {}
    for _ in range(_DRAWS):
        for name, values in env.task.start(everywhere, generator).robot.fields.items():
            drawn.setdefault(name, []).append(values)
    env.close()
    whole = {name: torch.cat(values) for name, values in drawn.items()}
    return {
        name: ValueRange(low=values.amin(0).tolist(), high=values.amax(0).tolist())
        for name, values in whole.items()
    }


def _check_measurable(groups: Sequence[str]) -> None:
    """Refuse a policy that sees what only a simulator knows."""
    hidden = [name for name in groups if name != "actor"]
    if hidden:
        raise BundleError(
            f"the policy sees the observation group '{hidden[0]}', which no robot measures, and "
            "only `actor` goes into a bundle; distil it into a student (learner=distill "
            "learner.teacher=<this run>) and export that"
        )


class BundlePolicy:
    """Flies simulated robots with a bundle: it measures, remembers and acts as on a robot.

    It reads the simulated sensors and the goals, not the environment's observations; those go to
    torch, if it is there, so that the two can be compared in every step.
    """

    def __init__(self, runner: PolicyRunner, env: SimEnv, reference: nn.Module | None) -> None:
        """Join the parts; use `load`."""
        self._runner, self._env, self._reference = runner, env, reference
        self.difference = 0.0
        """Largest difference between an action and the reference's so far."""

    @classmethod
    def load(cls, path: Path, env: SimEnv, reference: nn.Module | None) -> "BundlePolicy":
        """Load a bundle for the worlds of `env`, whose robot must be the bundle's.

        Raises:
            BundleError: It is damaged or of another version.
            SpecMismatchError: It was made for another robot or control period.
        """
        spec = env.spec
        runner = load_bundle(
            path,
            robot=spec.robot,
            control_dt=spec.control_dt,
            num_robots=spec.num_envs,
            ramp=False,  # the simulated motors do it
            pictures=True,
        )
        policy = cls(runner, env, reference)
        begin_episodes(reference, torch.ones(spec.num_envs, dtype=torch.bool))
        return policy

    def __call__(self, obs: Obs) -> Tensor:
        """Act from the sensors and the newest frames; the rest of `obs` is for the reference."""
        measured = RobotState(_arrays(self._env.simulation.measured.fields))
        pictures = {
            name: obs[IMAGE_PREFIX + name][:, -1].cpu().numpy()
            for name in self._runner.spec.cameras
        }
        self._runner.act(
            measured, _arrays(self._env.task.goal), _arrays(self._env.sensed), pictures
        )
        action = self._runner.last_action
        if self._reference is not None:
            expected = self._reference(obs).cpu().numpy()
            self.difference = max(self.difference, float(np.abs(action - expected).max()))
        return torch.from_numpy(action).to(self._env.spec.device)

    def on_step(self, step: EnvStep) -> None:
        """Start new episodes where the worlds did."""
        self.begin(step.ended)

    def begin(self, mask: Tensor) -> None:
        """Start new episodes in the masked worlds, (N,) bool."""
        self._runner.reset(mask.cpu().numpy())
        begin_episodes(self._reference, mask)


def _arrays(tensors: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {name: tensor.cpu().numpy() for name, tensor in tensors.items()}
