"""Processes beside the actor on a robot's computer: its loop, its console, a simulated person."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from configs.schema import RunConfig
from hardware.control.ipc import CommandLayout, ExecutedSubscriber, StatusSubscriber
from hardware.control.process import RobotChannels
from hardware.control.realtime import LOOP_PRIORITY, request_realtime
from hardware.control.request_socket import NoRobotError, send_request
from hardware.control.safety import SafetyState
from hardware.learning.operation import TOWARDS_POLICY
from hardware.teleop.actor_socket import ActorConnection, NoActorError
from hardware.teleop.intent import StickConfig
from hardware.teleop.robot_port import ChannelPort
from hardware.teleop.simulated_person import PersonConfig
from hardware.teleop.teleoperator import TeleopConfig, Teleoperator
from robot_rl.cli.learning.options import LearnOptions
from robot_rl.cli.learning.twin_robot import RESPONSE, Judge, TwinRobot
from robot_rl.cli.teleoperation.person_process import run_simulated_person
from robot_rl.cli.teleoperation.twin_person import person_rule
from robot_rl.core.robot_command import RobotCommand
from robot_rl.core.seeding import derive_seed

_PATIENCE = 1.0
"""Time between two requests of a simulated person who finds nobody's hand on the robot [s]."""


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
    robot, channels = TwinRobot(config, options.twin), RobotChannels(options.channels)
    rule = person_rule(config, "person=console")
    labels = options.twin.judge is Judge.person
    status, asked_at = StatusSubscriber(channels.status), 0.0
    with (
        contextlib.closing(ActorConnection(options.channels)) as actor,
        contextlib.closing(status),
    ):

        def asked() -> bool:
            """Look at the actor; where the robot waits for a person, let it go on."""
            nonlocal asked_at
            actor.poll()
            safety = status.safety
            request = TOWARDS_POLICY.get(safety) if safety else None
            if safety is SafetyState.ESTOP:  # somebody must look why
                request = None
            waits = actor.snapshot.get("phase") == "waiting"
            if request and waits and time.monotonic() > asked_at + _PATIENCE:
                asked_at = time.monotonic()
                with contextlib.suppress(NoRobotError):
                    send_request(channels.operator, request)
            return over()

        def say(label: str, pressed: float) -> None:
            if labels:
                with contextlib.suppress(NoActorError):  # it has died, and the episode with it
                    actor.send(
                        label, "simulated person", t=time.time() - time.monotonic() + pressed
                    )

        run_simulated_person(
            robot.narrowed[0], channels, rule, robot.person_target(), robot.world_widths,
            until=asked, skill=PersonConfig(response=RESPONSE), on_label=say,
            seed=derive_seed(config.seed, "person") >> 32,
            episode=lambda: int(actor.snapshot.get("episode", -1)),
            over=lambda: actor.snapshot.get("phase") not in ("running", "evaluating"),
        )  # fmt: skip


def _teleoperator(robot: TwinRobot, options: LearnOptions) -> Teleoperator:
    """A person's hand on the robot process."""
    (spec, limits), channels = robot.narrowed, RobotChannels(options.channels)
    kind = robot.action_map.kind
    executed = ExecutedSubscriber(channels.executed, CommandLayout(spec, kind))

    def followed() -> RobotCommand | None:
        newest = executed.newest()
        return None if newest is None else newest.setpoint

    port = ChannelPort(spec, channels, kind)
    config = TeleopConfig(stick=StickConfig(deadband=[0.0] * 6))  # the console has applied it
    return Teleoperator(port, robot.person_target(), config, limits=limits, followed=followed)
