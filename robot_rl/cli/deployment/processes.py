"""The processes beside the operator's own: robot, its ROS 2 side, policy."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hardware.control.clock import Clock, MonotonicClock
from hardware.control.ipc import ArrayPublisher, channel_path
from hardware.control.process import RobotProcess
from hardware.control.realtime import (
    BRIDGE_PRIORITY,
    POLICY_PRIORITY,
    freeze_existing_objects,
    request_priority,
    request_realtime,
)
from hardware.control.robot_loop import RobotLoop, StampedDriver
from hardware.control.world import OUTCOME, EpisodeSubscriber, WorldEpisodes
from hardware.drivers.fake_driver import FakeDriver
from hardware.drivers.ipc_driver import IpcDriver
from hardware.registry import OWN_DRIVERS, plugin_driver
from hardware.ros.camera_inputs import CameraInputs
from hardware.ros.introspection import offer_parameters
from hardware.ros.policy_node import PolicyNode, PolicyTick
from hardware.ros.robot_bridge import RobotBridge
from hardware.ros.robot_link import RobotLink
from hardware.ros.session import RosSession
from hardware.teleop.estop_button import serve_estop
from hardware.teleop.velocity_goal import VelocityGoalReader
from robot_rl.cli.deployment.options import LOOP_NODE, DeploymentParts
from robot_rl.cli.deployment.options_file import left_beside
from robot_rl.cli.deployment.signals import StopRequest, as_process, tell
from robot_rl.core.errors import NonFiniteError, SpecMismatchError
from robot_rl.core.robot_command import (
    BodyRateCommand,
    JointCommand,
    RobotCommand,
    RotorCommand,
)

if TYPE_CHECKING:
    from sim.twin import Twin

_MAX_AGE = 0.2
"""Of a sample, times the patience [s]; the loop's monitors react long before."""
_NODE_SECONDS = 60.0
"""Longest wait for somebody else's node; its own process gives up earlier, with a reason."""


class DrivenRobot:
    """A driver, and what it has to tell between two ticks."""

    def __init__(
        self, parts: DeploymentParts, robot: StampedDriver, twin: "Twin | None" = None
    ) -> None:
        """Open the channel of the world, where the robot lives in one of ours."""
        self.robot = robot
        """The driver of the loop."""
        self._twin = twin
        widths = parts.world_widths
        judged = OUTCOME in widths
        self._episodes = None if twin is None else WorldEpisodes(twin, judged=judged)
        self._requests = EpisodeSubscriber(parts.channels.episodes)
        self._world = ArrayPublisher(parts.channels.world, widths) if widths else None
        self._scene: ArrayPublisher | None = None
        if twin is not None and parts.drawn_cameras:
            # Simulators: not where nothing is simulated.
            from sim.twin_cameras import scene_fields, scene_widths

            self._scene_fields = partial(scene_fields, twin.simulation)
            self._scene = ArrayPublisher(parts.channels.scene, scene_widths(twin.simulation))
        self._steered = VelocityGoalReader(parts.channels)
        self._still = {name: np.zeros((1, width)) for name, width in widths.items()}
        given = {f"goal/{name}": value for name, value in parts.goals.items()}
        self._given = {name: value for name, value in given.items() if name in widths}

    def between_ticks(self, loop: RobotLoop, clock: Clock) -> None:
        """Begin episodes, publish the world; tell the loop who else commands the robot."""
        requests = loop.requests
        if isinstance(self.robot, IpcDriver):
            requests.publishers = max(requests.publishers, self.robot.publishers)
            requests.doubled = self.robot.doubled
        if self._episodes is not None:
            self._episodes.between_ticks(loop, self._requests.newest(), clock)
        if self._twin is not None and self._scene is not None:
            self._scene.send(self._scene_fields(), self._twin.stamp)
        if self._world is not None:
            stamp = self.robot.stamp
            self._world.send(self._steered.put_into(self._values(), clock.now()), stamp)

    def on_setpoint(self, setpoint: RobotCommand) -> None:
        """Take what the policy asks for: a simulated world's rewards look at it."""
        if self._twin is not None and self._episodes is not None:
            self._episodes.on_setpoint()
            self._twin.on_setpoint(setpoint)

    def close(self) -> None:
        """Let go of the robot, where its process has not come to that, and remove the channel."""
        self.robot.close()
        self._requests.close()
        self._steered.close()
        for channel in (self._world, self._scene):
            if channel is not None:
                channel.close()

    def _values(self) -> Mapping[str, np.ndarray]:
        """Of a simulated world, but for goals that were given; a fake robot's inputs are still."""
        fields = self._still if self._episodes is None else self._episodes.fields()
        return {**fields, **self._given}


@contextmanager
def make_driver(parts: DeploymentParts, clock: Clock, stop: StopRequest) -> Iterator[DrivenRobot]:
    """The driver that the options name."""
    options = parts.options
    max_age = _MAX_AGE * options.patience
    twin = _make_twin(parts) if options.driver == "twin" else None  # may take a while
    stop.with_care()
    if twin is not None:
        robot: StampedDriver = twin
    elif options.driver == "fake":
        robot = FakeDriver(
            parts.robot, clock, faults=options.faults, max_age=max_age, seed=options.seed
        )
    elif options.driver not in OWN_DRIVERS:
        robot = plugin_driver(options.driver, parts.robot, clock, options.driver_options)
    else:
        robot = IpcDriver(
            parts.robot, clock, measured=parts.channels.measured, sent=parts.channels.sent,
            max_age=max_age, patience=_NODE_SECONDS * options.patience,
            waiting=stop.interrupt_if_asked,
        )  # fmt: skip
    driven = DrivenRobot(parts, robot, twin)
    try:
        yield driven
    finally:
        driven.close()


def _make_twin(parts: DeploymentParts) -> "Twin":
    import torch

    from robot_rl.cli.deployment.plan import Deployment

    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    twin = Deployment(parts.options).make_twin()
    twin.valued = OUTCOME in parts.world_widths  # else whoever looks at rewards says so
    return twin


_LOOKS_PER_PERIOD, _LONGEST_REST = 4, 0.001
"""Polls of the link in a period of the loop, and the longest rest between two [s]."""
_FIRST_SAMPLE_SECONDS = 20.0
_ROBOT_SILENCE = 1.0
"""Age of the loop's status after which there is no robot process any more [s]."""


RunsRobot = Callable[[RobotProcess, Any, Callable[[], bool]], None]
"""Runs a robot process, given its driver too, until what comes last says to end, once per tick."""
WatchesPolicy = Callable[[PolicyNode], Callable[[], PolicyTick]]
"""From a policy node to what is called once per control period in the place of its `tick`."""


def _told_to_consoles(parts: DeploymentParts) -> AbstractContextManager[None]:
    """Context that leaves the deployment's options for consoles in any folder."""
    options = parts.options
    files = {
        name: str(Path(value).resolve())
        for name in ("bundle", "robot_file")
        if (value := getattr(options, name)) and Path(value).exists()
    }
    path = channel_path(parts.channels.deployment)
    return left_beside(path, {**asdict(options), **files, "record": ""})


@as_process
def run_robot(
    parts: DeploymentParts,
    stop: StopRequest,
    run: RunsRobot = lambda process, driver, until: process.run(until),
) -> None:
    """The robot process: ends with a stopped robot at SIGTERM, or when it is left alone.

    Args:
        parts: Of the deployment.
        stop: Whether to end.
        run: What is done with the process; measurements look on while they let it run.
    """
    clock = MonotonicClock()
    with make_driver(parts, clock, stop) as driver:
        process = RobotProcess(
            driver.robot, name=parts.channels.robot, clock=clock, period=parts.period,
            gain_sets=parts.gain_names, controllers=parts.controllers(driver.on_setpoint),
            limits=parts.limits,
            setpoint=parts.setpoint, human_setpoint=parts.human_setpoint, stop=parts.stop,
            spec=parts.robot, estop=parts.estop is not None,
        )  # fmt: skip

        def between_ticks() -> bool:
            driver.between_ticks(process.loop, clock)
            return stop()

        with _told_to_consoles(parts):  # the process has the robot's channels now
            request_realtime()
            run(process, driver.robot, between_ticks)


@as_process
def run_bridge(parts: DeploymentParts, stop: StopRequest) -> None:
    """The robot's topics and services; may die at any time."""
    clock = MonotonicClock()
    stop.with_care()
    request_priority(BRIDGE_PRIORITY)
    session = RosSession(LOOP_NODE, namespace=parts.namespace, domain=parts.domain)
    bridge = RobotBridge(
        session, parts.robot, name=parts.channels.robot, clock=clock, gain_sets=parts.gain_sets,
        period=parts.period, world=parts.world_widths, setpoint=parts.setpoint, urdf=parts.urdf,
        steered=parts.steered,
    )  # fmt: skip
    offer_parameters(session, parts.parameters)

    def over() -> bool:
        """Orphaned, it is still heard while the robot stops."""
        if stop.asked or not stop.orphaned:
            return stop.asked
        status = bridge.status
        return status is None or clock.now() - status.time > _ROBOT_SILENCE

    try:
        _spin(lambda asked: bridge.poll(asked=asked), session, bridge.rest, over)
    finally:
        bridge.close()
        session.close()


@as_process
def run_estop(parts: DeploymentParts, stop: StopRequest) -> None:
    """Stop button of this computer; where it dies, the robot stops."""
    if parts.estop is None:
        return
    stop.with_care()
    request_priority(BRIDGE_PRIORITY)
    serve_estop(parts.estop, parts.channels.estop, MonotonicClock(), stop, tell)


@as_process
def run_link(parts: DeploymentParts, stop: StopRequest) -> None:
    """The link to somebody else's node; outlives the robot process that it speaks for."""
    clock = MonotonicClock()
    stop.with_care()
    request_priority(BRIDGE_PRIORITY)
    session = RosSession("link", namespace=parts.namespace, domain=parts.domain)
    link = RobotLink(
        session, parts.robot, name=parts.channels.robot, clock=clock, wiring=parts.wiring,
        period=parts.period, gain_sets=parts.gain_sets, silence=parts.limits.command_lost,
    )  # fmt: skip
    told, begin = _Lines(shadow=False), clock.now()
    rest = min(parts.period / _LOOKS_PER_PERIOD, _LONGEST_REST)

    def poll(asked: bool) -> None:
        del asked  # the link has no services
        link.poll()
        if link.heard:
            trouble = f"the robot is not heard: {link.trouble}" if link.trouble else link.doubled
            told.say(trouble)
        elif link.others:
            raise SpecMismatchError(
                f"{link.others} other nodes send commands to the robot already; stop them first: "
                f"ros2 topic info -v {parts.wiring.topics['command']} names them"
            )
        elif clock.now() - begin > _FIRST_SAMPLE_SECONDS:
            raise SpecMismatchError(f"the robot's topics do not serve: {link.trouble}")

    try:
        _spin(poll, session, lambda: rest, lambda: stop() and not link.driving)
    finally:
        link.close()
        session.close()


@as_process
def run_policy(
    parts: DeploymentParts, stop: StopRequest, watched: WatchesPolicy = lambda node: node.tick
) -> None:
    """The policy, at the end of every control period; may die at any time.

    Args:
        parts: Of the deployment.
        stop: Whether to end.
        watched: Looks on at the node's ticks.
    """
    clock = MonotonicClock()
    stop.with_care()
    request_priority(POLICY_PRIORITY)
    session = RosSession("policy", namespace=parts.namespace, domain=parts.domain)
    shadow = parts.options.mode == "shadow"
    told, heard = _Lines(shadow), not parts.options.record
    try:
        runner = parts.load_policy()
        cameras = CameraInputs(
            session, runner.spec.cameras, parts.cameras, control_dt=parts.control_dt,
            drawn=bool(parts.drawn_cameras), patience=parts.options.patience,
        )  # fmt: skip
        node = PolicyNode(session, runner, goals=parts.goals, cameras=cameras, shadow=shadow)
        decide = watched(node)
        freeze_existing_objects()

        def tick() -> None:
            nonlocal heard
            heard = heard or node.recorders > 0
            if not heard:  # once only: a recorder that dies later disturbs nobody
                told.say("the policy waits: for the recorder")
                return
            try:
                done = decide()
            except NonFiniteError as error:
                told.say(str(error))
                return
            if done.command is None:
                told.say(f"the policy waits: {done.waits_for}")
            else:
                told.look(done.command, node.inputs.state)

        while not stop():
            if node.wait(clock):
                tick()
    finally:
        session.close()


class _Lines:
    """Lines of a process, none of them twice in a row."""

    def __init__(self, shadow: bool) -> None:
        self._shadow, self._last, self._ticks = shadow, "", 0
        self._span = math.inf, -math.inf

    def say(self, line: str) -> None:
        if line.partition("(")[0] != self._last:
            self._last = line.partition("(")[0]
            if line:
                tell(line)

    def look(self, command: RobotCommand, state: Mapping[str, np.ndarray]) -> None:
        """In shadow: what the policy would have done, once a second or so."""
        self._last = ""
        if not self._shadow:
            return
        self._ticks += 1
        if isinstance(command, JointCommand):
            asked = abs(command.q - state["joint_position"])
            line = "targets differ from the pose by up to {1:.3f} rad"
        elif isinstance(command, RotorCommand):
            asked, line = command.speed, "the rotors would turn at {0:.2f} to {1:.2f} of full speed"
        elif isinstance(command, BodyRateCommand):
            asked, line = (
                abs(command.rates_b),
                "body rates of up to {1:.2f} rad/s would be asked for",
            )
        else:
            return
        self._span = min(self._span[0], float(asked.min())), max(self._span[1], float(asked.max()))
        if self._ticks % 50 == 0:
            tell("shadow: " + line.format(*self._span))
            self._span = math.inf, -math.inf


def _spin(
    look: Callable[[bool], None], session: RosSession, rest: Callable[[], float],
    over: Callable[[], bool],
) -> None:  # fmt: skip
    """Look after every rest, and at once when a message or a call comes, until it is over."""
    freeze_existing_objects()
    while not over():
        look(session.wait(rest()))
