"""Processes beside the actor on a robot's computer: its loop, its console, a simulated person."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from configs.schema import RunConfig, component_of
from hardware.control.clock import MonotonicClock
from hardware.control.ipc import ArraySubscriber, CommandLayout, ExecutedSubscriber
from hardware.control.process import RobotChannels
from hardware.control.realtime import LOOP_PRIORITY, request_realtime
from hardware.control.world import SENSED
from hardware.teleop.actor_socket import ActorConnection, NoActorError
from hardware.teleop.robot_port import ChannelPort
from hardware.teleop.simulated_person import PersonView, SimulatedPerson
from hardware.teleop.targets import JointTarget, PoseTarget, TargetConfig
from hardware.teleop.teleoperator import TELEOP_PERIOD, Teleoperator
from robot_rl.cli.learning.options import LearnOptions
from robot_rl.cli.learning.twin_robot import Judge, LedBy, TwinRobot
from robot_rl.cli.teleoperation.demonstrations import RULES
from robot_rl.cli.teleoperation.human_control import chain_of
from robot_rl.core.errors import ConfigError, unknown_name
from robot_rl.core.robot_command import RobotCommand
from robot_rl.core.seeding import derive_seed


def run_loop(config: RunConfig, options: LearnOptions, over: Callable[[], bool]) -> None:
    """The robot process: ticks until asked to end, then stops the robot.

    Raises:
        ChannelBusyError: Another process runs this robot.
    """
    robot = TwinRobot(config, options.twin)
    _ = robot.world_widths  # builds a world, which takes time: before anything ticks
    started: list[bool] = []

    def asked() -> bool:
        if not started:
            request_realtime(LOOP_PRIORITY)
            started.append(True)
        return over()

    robot.run_robot(options.channels, asked, seed=derive_seed(config.seed, "loop") >> 32)


def run_console(folder: Path, config: RunConfig, options: LearnOptions) -> None:
    """The page in the browser, with a person's hand on the robot, until SIGINT or SIGTERM."""
    from robot_rl.cli.console import cameras_of, serve_console, server_config  # aiohttp: an extra

    served = server_config(options.host, options.port)
    robot = TwinRobot(config, options.twin)
    hand = _teleoperator(robot, options)
    with cameras_of(config.robot, options.channels) as cameras:
        serve_console(
            options.channels, robot.narrowed[0], served, folder=folder, cameras=cameras,
            teleoperator=hand,
        )  # fmt: skip


def run_person(config: RunConfig, options: LearnOptions, over: Callable[[], bool]) -> None:
    """A simulated person who watches, takes over and labels, until asked to end.

    Raises:
        ConfigError: They do not know the task.
    """
    robot = TwinRobot(config, options.twin)
    task = component_of(config.task).name
    if task not in RULES:
        raise ConfigError(unknown_name("task of a simulated person", task, RULES))
    clock, hand = MonotonicClock(), _teleoperator(robot, options)
    target = _target_config(robot)
    person = SimulatedPerson(
        hand, RULES[task](), seed=derive_seed(config.seed, "person") >> 32,
        speeds=(target.linear_speed, target.angular_speed),
    )  # fmt: skip
    actor = ActorConnection(options.channels)
    eyes = _Eyes(robot, hand, options)
    episode, due = -1, clock.now()
    with contextlib.closing(hand), contextlib.closing(actor), contextlib.closing(eyes):
        while not over():
            clock.sleep_until(due)
            now = clock.now()
            due = max(due + TELEOP_PERIOD, now)
            actor.poll()
            snapshot = actor.snapshot
            running = snapshot.get("phase") in ("running", "evaluating")
            if running and snapshot.get("episode") != episode:
                episode = int(snapshot["episode"])
                person.begin(now)
            view = eyes.look(over=not running)
            if view is None:
                continue
            person.tick(view, now)
            hand.tick(now)
            label = person.take_label(now)
            if label is not None and options.twin.judge is Judge.person:
                said, pressed = label
                with contextlib.suppress(NoActorError):  # it has died: it will not know the episode
                    actor.send(said, "simulated person", t=time.time() - (now - pressed))


class _Eyes:
    """Robot and scene as a person sees them."""

    def __init__(self, robot: TwinRobot, hand: Teleoperator, options: LearnOptions) -> None:
        channels = RobotChannels(options.channels)
        self._port = hand.port
        self._world = ArraySubscriber(channels.world, robot.world_widths)
        self._sensed: dict[str, np.ndarray] = {}

    def look(self, *, over: bool) -> PersonView | None:
        """The newest of both; None before there is a robot."""
        if (newer := self._world.newer()) is not None:
            named = newer[0].items()
            self._sensed = {n.removeprefix(SENSED): v for n, v in named if n.startswith(SENSED)}
        state = self._port.state()
        if state is None or not self._sensed:
            return None
        return PersonView(state=state[0], sensed=self._sensed, over=over)

    def close(self) -> None:
        """Let go of the channel."""
        self._world.close()


def _target_config(robot: TwinRobot) -> TargetConfig:
    """Speeds at which a person moves the target as an action of a policy can."""
    config = robot.config
    return TargetConfig.for_actions(config.translation, config.rotation, robot.control_dt)


def _teleoperator(robot: TwinRobot, options: LearnOptions) -> Teleoperator:
    """A person's hand on the robot process: poses, or joints where policies move joints.

    Raises:
        ConfigError: The robot has no end effector.
    """
    spec, limits = robot.narrowed
    if "end_effector_position_b" not in spec.sensors:
        raise ConfigError(
            f"'{spec.name}' has no end effector that a person could lead; take person=none"
        )
    channels, kind = RobotChannels(options.channels), robot.action_map.kind
    target = _target_config(robot)
    moved: Any = PoseTarget(target)
    if robot.config.led_by is LedBy.joint:
        moved = JointTarget(spec, chain_of(robot.make_twin(seed=0)), target)
    executed = ExecutedSubscriber(channels.executed, CommandLayout(spec, kind))

    def followed() -> RobotCommand | None:
        newest = executed.newest()
        return None if newest is None else newest.setpoint

    port = ChannelPort(spec, channels, kind)
    return Teleoperator(port, moved, limits=limits, followed=followed)
