"""Bundles of any run; of one that led an end effector with the law that follows its policy."""

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from configs.schema import RunConfig
from hardware.control.world import GOAL, SENSED
from hardware.learning.hardware_env import HardwareEnv
from policies.bundle import load_bundle
from policies.export import export_bundle
from robot_rl.cli.bundling import (
    Exported,
    export_run,
    network_and_chunks,
    origin_of,
    seen_cameras,
    told_config,
)
from robot_rl.cli.components import load_policy
from robot_rl.cli.learning.environment import led_robot
from robot_rl.cli.learning.led_robot import LedRobot, LedRobotConfig
from robot_rl.cli.learning.options import begun_with
from robot_rl.cli.learning.twin_robot import TwinRobot, TwinRobotConfig
from robot_rl.core.action import POSE_AXES
from robot_rl.core.episodic import begin_episodes
from robot_rl.core.observation import IMAGE_PREFIX, RobotState
from robot_rl.core.pose_target import TARGET_OFFSET
from robot_rl.core.robot_command import CommandKind
from robot_rl.training.runs.run_folder import RunFolder
from sim.adapters.gymnasium_config import GymnasiumConfig

_TRIAL_STEPS = 100


def robot_of(run: RunFolder, config: RunConfig) -> LedRobot | None:
    """Robot that a run learned on by displacing its end effector; None for every other run.

    Raises:
        ConfigError: The robot cannot be led so any more, or nothing says how it was led.
    """
    if not run.is_of_learn:
        return None
    options = begun_with(run)
    if options.driver == "sim":
        return None
    robot = led_robot(config, options)
    return robot if robot.action_map.kind is CommandKind.pose else None


def trial_robot(robot: LedRobot, config: RunConfig) -> TwinRobot:
    """A simulated robot with the same actions, to compare a bundle on with its network."""
    if isinstance(robot, TwinRobot):
        return robot
    led: dict[str, Any] = {one.name: getattr(robot.led, one.name) for one in fields(LedRobotConfig)}
    del led["reset"]  # a simulated world is put back by itself
    return TwinRobot(config, TwinRobotConfig(**led))


def export_policy(run: RunFolder, config: RunConfig, which: str, path: Path) -> Exported:
    """Export the policy of any run, load the bundle and fly it, or lead the robot with it.

    Raises:
        BundleError: The network cannot be exported, or `path` holds something else.
        CheckpointError: There is no such checkpoint.
        ConfigError: The environment describes no robot, or the robot cannot be led so any more.
        StorageError: The folder cannot be written.
    """
    if config.robot is None and isinstance(config.env, GymnasiumConfig):
        from robot_rl.cli.env_bundling import export_env_run

        return export_env_run(run, config, which, path)
    robot = robot_of(run, config)
    if robot is None:
        return export_run(run, config, which, path)
    with closing(trial_robot(robot, config).lockstep_env()) as env:
        policy = load_policy(run, config, env.spec, which)
        write_learned(path, policy.module, config, robot, origin_of(run, config, policy))
        return Exported(
            path=path, difference=largest_difference(path, policy.module, robot, env), num_envs=1,
            steps=_TRIAL_STEPS, led=True,
        )  # fmt: skip


def write_learned(
    path: Path, policy: nn.Module, config: RunConfig, robot: LedRobot,
    provenance: Mapping[str, Any],
) -> Path:  # fmt: skip
    """Write a bundle of a policy whose actions are those of `robot`."""
    network, chunks = network_and_chunks(policy)
    chunks |= seen_cameras(config, network)
    widths = dict(robot.read_widths)
    if any(term.term == SENSED + TARGET_OFFSET for term in config.task.actor):
        widths[SENSED + TARGET_OFFSET] = len(POSE_AXES)
    return export_bundle(
        path, policy=network, **chunks, terms=config.task.actor, robot=config.robot.spec,
        action_map=robot.action_map, control_dt=robot.control_dt,
        goal_widths={n.removeprefix(GOAL): w for n, w in widths.items() if n.startswith(GOAL)},
        sensed_widths={
            n.removeprefix(SENSED): w for n, w in widths.items() if n.startswith(SENSED)
        },
        initial_action=[config.robot.initial_action] * robot.action_map.size,
        provenance={
            **provenance, "config": told_config(config), "loop": robot.pose_control.to_dict()
        },
    )  # fmt: skip


def largest_difference(path: Path, policy: nn.Module, robot: LedRobot, env: HardwareEnv) -> float:
    """Largest difference of the bundle's actions from those of torch, in steps of the robot."""
    runner = load_bundle(
        path, robot=robot.narrowed[0], control_dt=robot.control_dt, ramp=False, pictures=True
    )  # fmt: skip
    obs, starts, worst = env.reset(seed=0), True, 0.0
    for _ in range(_TRIAL_STEPS):
        if starts:
            runner.reset()
            begin_episodes(policy, torch.ones(1, dtype=torch.bool))
        readings = env.readings
        assert readings.state is not None  # an episode runs
        with torch.no_grad():
            expected = policy(obs)
        runner.act(
            RobotState(_narrow(readings.state.fields, readings.state.fields)),
            _narrow(readings.goal, runner.spec.goal_widths),
            _narrow({**readings.sensed, **env.target_offset}, runner.spec.sensed_widths),
            {name: obs[IMAGE_PREFIX + name][:, -1].numpy() for name in runner.spec.cameras},
        )  # fmt: skip
        worst = max(worst, float(np.abs(runner.last_action - expected.numpy()).max()))
        step = env.step(expected)
        runner.remember(step.action.numpy())
        starts = bool(step.ended)
        obs = env.reset() if starts else step.obs
    return worst


def _narrow(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, np.ndarray]:
    return {name: np.asarray(values[name], np.float32) for name in names}
