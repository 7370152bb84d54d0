"""Processes beside the actor on a robot's computer: loop, cameras, console, a simulated person.

A robot that speaks ROS 2 has two more: the link to its node, and its stop button.
"""

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import torch

from configs.schema import RunConfig
from hardware.control.clock import MonotonicClock
from hardware.control.ipc import CommandLayout, ExecutedSubscriber, StatusSubscriber
from hardware.control.process import RobotChannels
from hardware.control.realtime import (
    BRIDGE_PRIORITY,
    LOOP_PRIORITY,
    request_priority,
    request_realtime,
)
from hardware.control.request_socket import NoRobotError, send_request
from hardware.control.safety import SafetyState
from hardware.learning.operation import TOWARDS_POLICY
from hardware.teleop.actor_socket import ActorConnection, NoActorError
from hardware.teleop.estop_button import serve_estop
from hardware.teleop.input_device import DeviceGoneError, HostDevice, open_device
from hardware.teleop.intent import StickConfig
from hardware.teleop.robot_port import ChannelPort
from hardware.teleop.simulated_person import PersonConfig
from hardware.teleop.teleoperator import TeleopConfig, Teleoperator
from robot_rl.cli.learning.environment import led_robot
from robot_rl.cli.learning.led_robot import LedRobot
from robot_rl.cli.learning.options import LearnOptions
from robot_rl.cli.learning.real_robot import RealRobot
from robot_rl.cli.learning.ros_robot import RosRobot
from robot_rl.cli.learning.twin_robot import TwinRobot
from robot_rl.cli.teleoperation.person_process import run_simulated_person
from robot_rl.cli.teleoperation.twin_person import person_rule
from robot_rl.core.robot_command import RobotCommand
from robot_rl.core.seeding import derive_seed

_NICENESS = 5
"""Of the process that draws: a picture waits for the robot, never the other way round."""
_PATIENCE = 1.0
"""Time between two requests of a simulated person who finds nobody's hand on the robot [s]."""


def run_loop(config: RunConfig, options: LearnOptions, over: Callable[[], bool]) -> None:
    """The robot process: ticks until asked to end, then stops the robot.

    Raises:
        ChannelBusyError: Another process runs this robot.
    """
    robot = led_robot(config, options)
    _ = robot.world_widths, robot.narrowed  # builds a world: before anything ticks
    started: list[bool] = []

    def asked() -> bool:
        if not started:
            request_realtime(LOOP_PRIORITY)
            started.append(True)
        return over()

    robot.run_robot(options.channels, asked, seed=derive_seed(config.seed, "loop") >> 32)


def run_cameras(config: RunConfig, options: LearnOptions, over: Callable[[], bool]) -> None:
    """The process that draws what a simulated robot's cameras see; it may die at any time.

    Raises:
        ChannelBusyError: Another process draws for this robot.
        ConfigError: Nothing can be drawn here.
    """
    os.nice(_NICENESS)
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    TwinRobot(config, options.twin).draw_cameras(options.channels, over)


def run_link(config: RunConfig, options: LearnOptions, over: Callable[[], bool]) -> None:
    """The link to the node of a robot that speaks ROS 2, until asked to end and the robot stops."""
    robot = led_robot(config, options)
    assert isinstance(robot, RosRobot)
    _ = robot.world_widths, robot.narrowed  # builds a world, which takes time and a core
    request_priority(BRIDGE_PRIORITY)  # before the node: threads of DDS inherit it
    robot.run_link(options.channels, over, _say)


def run_estop(options: LearnOptions, over: Callable[[], bool]) -> None:
    """The stop button of this computer; where this process dies, the robot stops."""
    request_priority(BRIDGE_PRIORITY)
    assert options.stop_button is not None
    channel = RobotChannels(options.channels).estop
    serve_estop(options.stop_button, channel, MonotonicClock(), over, _say)


def run_console(
    folder: Path, config: RunConfig, options: LearnOptions, over: Callable[[], bool]
) -> None:
    """The page in the browser, with a person's hand on the robot, until SIGINT or `over`."""
    from robot_rl.cli.console import cameras_of, serve_console, server_config  # aiohttp: an extra

    served = server_config(options.host, options.port)
    robot = led_robot(config, options)
    hand = _teleoperator(robot, options)
    real = robot if isinstance(robot, RealRobot) else None
    topics, domain = (real.camera_topics, real.domain) if real else ({}, None)
    with contextlib.ExitStack() as opened:
        shown = opened.enter_context(
            cameras_of(config.robot, options.channels, topics=topics, domain=domain)
        )
        if isinstance(robot, TwinRobot):
            seen = robot.shown_cameras(options.channels)
            shown = [*(opened.enter_context(contextlib.closing(one)) for one in seen), *shown]
        serve_console(
            options.channels, robot.narrowed[0], served, folder=folder, cameras=shown,
            seen=robot.camera_inputs, teleoperator=hand, stick=_stick(options.stick), over=over,
        )  # fmt: skip


def _stick(text: str) -> HostDevice | None:
    """Device of this computer; where it is unplugged, those of pages count."""
    if not text:
        return None
    try:
        return open_device(text)
    except DeviceGoneError as error:
        _say(f"{error}; sticks of pages count instead until the next start")
        return None


def run_person(config: RunConfig, options: LearnOptions, over: Callable[[], bool]) -> None:
    """A simulated person who watches, takes over and labels, until asked to end.

    Raises:
        ConfigError: They do not know the task.
    """
    robot, channels = led_robot(config, options), RobotChannels(options.channels)
    rule = person_rule(config, "person=console")
    labels = robot.person_labels
    status, asked_at = StatusSubscriber(channels.status), 0.0
    with (
        contextlib.closing(ActorConnection(options.channels)) as actor,
        contextlib.closing(status),
    ):

        def asked() -> bool:
            """Look at the actor; where the robot waits for a person, let it go on.

            What a prompt asks for is done in the time that they take to answer.
            """
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
            elif waits and safety is SafetyState.POLICY and time.monotonic() > asked_at + _PATIENCE:
                asked_at = time.monotonic()
                with contextlib.suppress(NoActorError):
                    actor.send("ready", "simulated person")
            return over()

        def say(label: str, pressed: float) -> None:
            if labels:
                with contextlib.suppress(NoActorError):  # it has died, and the episode with it
                    actor.send(
                        label, "simulated person", t=time.time() - time.monotonic() + pressed
                    )

        run_simulated_person(
            robot.narrowed[0], channels, rule, robot.person_target(), robot.world_widths,
            until=asked, skill=PersonConfig(response=robot.response), on_label=say,
            seed=derive_seed(config.seed, "person") >> 32,
            episode=lambda: int(actor.snapshot.get("episode", -1)),
            over=lambda: actor.snapshot.get("phase") not in ("running", "evaluating"),
        )  # fmt: skip


def _say(line: str) -> None:
    print(line, flush=True)


def _teleoperator(robot: LedRobot, options: LearnOptions) -> Teleoperator:
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
