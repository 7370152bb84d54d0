"""A robot behind somebody else's ROS 2 node to learn on: robot process and link.

    their node <--- topics ---> link <--- channels ---> loop <--- channels ---> actor, console

The loop with its limits, monitors and stops stands between whoever leads the robot and its node, as
in a deployment (`driver=ros2` of `robot-rl deploy`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from configs.schema import RunConfig
from hardware.control.clock import MonotonicClock
from hardware.control.process import RobotChannels, RobotProcess
from hardware.control.world import GOAL
from hardware.drivers.ipc_driver import IpcDriver
from hardware.ros.command_messages import Gains
from hardware.ros.foreign_commands import Wiring
from hardware.ros.robot_link import RobotLink
from hardware.ros.scene_link import SceneLink
from hardware.ros.session import RosSession
from robot_rl.cli.deployment.options import DriverOptions
from robot_rl.cli.learning.real_robot import RealRobot, RealRobotConfig

GAINS = "robot"
"""Name of the set of gains that commands are made for: those of the robot's description."""
_MAX_AGE = 0.2
"""Of a sample, times the patience [s]; the loop's monitors react long before."""
_NODE_SECONDS = 60.0
"""Longest wait of the loop for a first sample [s]."""
_LOOKS_PER_PERIOD, _LONGEST_REST = 4, 0.001
"""Polls of the link in a period of the loop, and the longest rest between two [s]."""


@dataclass(kw_only=True)
class RosRobotConfig(RealRobotConfig):
    """Topics, actions, rewards and resets of a robot behind a ROS 2 node.

    Goals that `goal` does not name are heard on `goal/<name>`.
    """

    source: str = "/"
    """Namespace of the node's topics."""
    topics: dict[str, str] = field(default_factory=dict)
    """Topics that have other names, and `command`."""
    command: str = ""
    """Form of commands; see `hardware.ros.foreign_commands`."""
    joints: list[str] = field(default_factory=list)
    """Order of the joints in commands."""


class RosRobot(RealRobot):
    """A robot that a node drives; it is first asked for by `run_robot` and `run_link`."""

    group = "ros2"

    def __init__(
        self, run: RunConfig, config: RosRobotConfig, *, helped: bool,
        topics: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """As `RealRobot`."""
        super().__init__(run, config, helped=helped, topics=topics)
        self.config = config

    def check(self) -> None:
        """As `RealRobot.check`, and topics and the form of commands."""
        _ = self.wiring
        super().check()

    @cached_property
    def wiring(self) -> Wiring:
        """Topics of the robot's node, and the form of commands that it takes."""
        config, file = self.config, self.robot_file
        options = DriverOptions(
            driver="ros2", source=config.source, topics=dict(config.topics),
            command=config.command, joints=list(config.joints),
        )  # fmt: skip
        given = file.ros2 if file is not None else {}
        spec = self._run.robot.spec
        return options.wiring(spec, self.namespace, given, grips=self.action_map.gripper)

    @cached_property
    def world_widths(self) -> dict[str, int]:
        """Goals and further inputs that are heard: those that the policy's observation reads."""
        return {
            n: w for n, w in self.read_widths.items() if n.removeprefix(GOAL) not in self._goals
        }

    def run_robot(self, name: str, until: Callable[[], bool], seed: int = 0) -> None:
        """The robot process: waits for the first sample, then ticks until asked to end.

        Raises:
            ChannelBusyError: Another process runs this robot.
            StaleStateError: Its node sends nothing.
        """
        clock, channels, (spec, limits) = MonotonicClock(), RobotChannels(name), self.narrowed
        patience = self.config.patience
        file = self.robot_file

        def waiting() -> None:
            if until():
                raise _EndedError

        driver = IpcDriver(
            spec, clock, measured=channels.measured, sent=channels.sent,
            max_age=_MAX_AGE * patience, patience=_NODE_SECONDS * patience, waiting=waiting,
        )  # fmt: skip
        try:
            process = RobotProcess(
                driver, name=name, clock=clock, period=self.period, spec=spec, limits=limits,
                controllers=self.controllers(None), stop=self.stop,
                setpoint=self.action_map.kind,
                estop=file is not None and file.estop_device is not None,
            )  # fmt: skip
        except _EndedError:
            return

        def between_ticks() -> bool:
            requests = process.loop.requests
            requests.publishers = max(requests.publishers, driver.publishers)
            requests.doubled = driver.doubled
            return until()

        process.run(between_ticks)

    def run_link(self, name: str, until: Callable[[], bool], say: Callable[[str], object]) -> None:
        """The link to the robot's node, and to whoever tells goals and the scene.

        It outlives the robot process that it speaks for, so that their node hears a last stop.

        Args:
            name: Of the robot's channels.
            until: True to end.
            say: Is told why nothing is heard, when that changes.
        """
        clock, (spec, limits) = MonotonicClock(), self.narrowed
        session = RosSession("link", namespace=self.namespace, domain=self.domain)
        link = RobotLink(
            session, spec, name=name, clock=clock, wiring=self.wiring, period=self.period,
            gain_sets=self._gain_sets, silence=limits.command_lost,
        )  # fmt: skip
        scene = SceneLink(session, RobotChannels(name).world, self.world_widths, clock)
        rest, told = min(self.period / _LOOKS_PER_PERIOD, _LONGEST_REST), ""
        try:
            while link.driving or not until():
                session.wait(rest)
                link.poll()
                scene.poll()
                trouble = link.trouble or link.doubled or scene.trouble
                if trouble.partition("(")[0] != told.partition("(")[0]:
                    say(f"over ROS 2: {trouble}" if trouble else "over ROS 2: everything is heard")
                    told = trouble
        finally:
            link.close()
            scene.close()
            session.close()

    @property
    def _gain_sets(self) -> dict[str, Gains]:
        joints = self.narrowed[0].joints
        return {
            GAINS: Gains(
                stiffness=np.array([[joint.stiffness for joint in joints]]),
                damping=np.array([[joint.damping for joint in joints]]),
            )
        }


class _EndedError(Exception):
    """The robot process is to end before its robot was ever heard."""
