"""The processes beside the person's own: robot, its ROS 2 neighbours, policy."""

from collections.abc import Callable
from typing import Any

import numpy as np

from hardware.control.clock import MonotonicClock
from hardware.control.process import RobotProcess
from hardware.control.realtime import (
    BRIDGE_PRIORITY,
    POLICY_PRIORITY,
    freeze_existing_objects,
    request_priority,
    request_realtime,
)
from hardware.ros.policy_node import PolicyNode, PolicyTick
from hardware.ros.robot_bridge import RobotBridge
from hardware.ros.robot_link import RobotLink
from hardware.ros.session import RosSession
from robot_rl.cli.deployment.parts import LOOP_NODE, DeploymentParts
from robot_rl.cli.deployment.process_signals import Leaving, as_process, tell
from robot_rl.cli.deployment.worlds import make_driver
from robot_rl.core.errors import NonFiniteError, SpecMismatchError
from robot_rl.core.robot_command import JointCommand

_LOOKS_PER_PERIOD, _LONGEST_REST = 4, 0.001
"""How often the link looks for what the loop wrote, but at least so often [s]."""
_FIRST_SAMPLE_SECONDS = 20.0
_ROBOT_SILENCE = 1.0
"""Age of the loop's status after which there is no robot process any more [s]."""


RunsRobot = Callable[[RobotProcess, Any, Callable[[], bool]], None]
"""Runs a robot process, given its driver too, until what comes last says to end, once per tick."""
WatchesPolicy = Callable[[PolicyNode], Callable[[], PolicyTick]]
"""From a policy node to what is called once per control period in the place of its `tick`."""


@as_process
def run_robot(
    parts: DeploymentParts,
    leaving: Leaving,
    run: RunsRobot = lambda process, driver, until: process.run(until),
) -> None:
    """The robot process: ends with a stopped robot at SIGTERM, or when it is left alone.

    Args:
        parts: Of the deployment.
        leaving: Whether to end.
        run: What is done with the process; measurements look on while they let it run.
    """
    clock = MonotonicClock()
    with make_driver(parts, clock, leaving) as driver:
        process = RobotProcess(
            driver.robot, name=parts.channels.robot, clock=clock, period=parts.period,
            gain_sets=parts.gain_names, controllers=parts.controllers(driver.on_setpoint),
            limits=parts.limits,
            setpoint=parts.setpoint, stop=parts.stop,
        )  # fmt: skip

        def between_ticks() -> bool:
            driver.between_ticks(process.loop.requests)
            return leaving()

        request_realtime()
        run(process, driver.robot, between_ticks)


@as_process
def run_bridge(parts: DeploymentParts, leaving: Leaving) -> None:
    """The robot's topics and services; may die at any time."""
    clock = MonotonicClock()
    leaving.with_care()
    request_priority(BRIDGE_PRIORITY)
    session = RosSession(LOOP_NODE, namespace=parts.namespace, domain=parts.domain)
    bridge = RobotBridge(
        session, parts.robot, name=parts.channels.robot, clock=clock, gain_sets=parts.gain_sets,
        period=parts.period, world=parts.world_widths, setpoint=parts.setpoint,
    )  # fmt: skip

    def over() -> bool:
        """Orphaned, it is still heard while the robot stops."""
        if leaving.asked or not leaving.orphaned:
            return leaving.asked
        status = bridge.status
        return status is None or clock.now() - status.time > _ROBOT_SILENCE

    try:
        _attend(lambda asked: bridge.poll(asked=asked), session, bridge.rest, over)
    finally:
        bridge.close()
        session.close()


@as_process
def run_link(parts: DeploymentParts, leaving: Leaving) -> None:
    """What talks to somebody else's node; outlives the robot process that it speaks for."""
    clock = MonotonicClock()
    leaving.with_care()
    request_priority(BRIDGE_PRIORITY)
    session = RosSession("link", namespace=parts.namespace, domain=parts.domain)
    link = RobotLink(
        session, parts.robot, name=parts.channels.robot, clock=clock, wiring=parts.wiring,
        period=parts.period, gain_sets=parts.gain_sets, silence=parts.limits.command_lost,
    )  # fmt: skip
    told, begin = _Told(shadow=False), clock.now()
    rest = min(parts.period / _LOOKS_PER_PERIOD, _LONGEST_REST)

    def poll(asked: bool) -> None:
        del asked  # the link has no services
        link.poll()
        if link.heard:
            told.say(f"the robot is not heard: {link.trouble}" if link.trouble else "")
        elif link.others:
            raise SpecMismatchError(
                f"{link.others} other nodes send commands to the robot already; stop them first: "
                f"ros2 topic info -v {parts.wiring.topics['command']} names them"
            )
        elif clock.now() - begin > _FIRST_SAMPLE_SECONDS:
            raise SpecMismatchError(f"the robot's topics do not serve: {link.trouble}")

    try:
        _attend(poll, session, lambda: rest, lambda: leaving() and not link.driving)
    finally:
        link.close()
        session.close()


@as_process
def run_policy(
    parts: DeploymentParts, leaving: Leaving, watched: WatchesPolicy = lambda node: node.tick
) -> None:
    """The policy, at the end of every control period; may die at any time.

    Args:
        parts: Of the deployment.
        leaving: Whether to end.
        watched: Looks on at the node's ticks.
    """
    clock = MonotonicClock()
    leaving.with_care()
    request_priority(POLICY_PRIORITY)
    session = RosSession("policy", namespace=parts.namespace, domain=parts.domain)
    shadow = parts.options.mode == "shadow"
    told, heard = _Told(shadow), not parts.options.record
    try:
        node = PolicyNode(session, parts.load_policy(), goals=parts.goals, shadow=shadow)
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
            elif isinstance(done.command, JointCommand):
                told.compare(done.command.q - node.inputs.state["joint_position"])

        while not leaving():
            if node.wait(clock):
                tick()
    finally:
        session.close()


class _Told:
    """Lines of a process, none of them twice in a row."""

    def __init__(self, shadow: bool) -> None:
        self._shadow, self._last, self._ticks, self._largest = shadow, "", 0, 0.0

    def say(self, line: str) -> None:
        if line.partition("(")[0] != self._last:
            self._last = line.partition("(")[0]
            if line:
                tell(line)

    def compare(self, difference: np.ndarray) -> None:
        """In shadow: how far the policy would have moved the robot, once a second or so."""
        self._last = ""
        self._ticks += 1
        self._largest = max(self._largest, float(abs(difference).max()))
        if self._shadow and self._ticks % 50 == 0:
            tell(f"shadow: targets differ from the pose by up to {self._largest:.3f} rad")
            self._largest = 0.0


def _attend(
    look: Callable[[bool], None], session: RosSession, rest: Callable[[], float],
    over: Callable[[], bool],
) -> None:  # fmt: skip
    """Look after every rest, and at once when a message or a call comes, until it is over."""
    freeze_existing_objects()
    while not over():
        look(session.wait(rest()))
