"""A robot whose driver is a plug-in's, in the process of the loop: no node is needed between.

    robot <--- driver, loop <--- channels ---> actor, console

The driver is the one of `robot-rl deploy driver=<name>` (`hardware.registry`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from configs.schema import RunConfig
from hardware.control.clock import MonotonicClock
from hardware.control.ipc import ArrayPublisher
from hardware.control.process import RobotChannels, RobotProcess
from hardware.control.world import GOAL, SENSED
from hardware.registry import plugin_driver
from robot_rl.cli.learning.real_robot import RealRobot, RealRobotConfig
from robot_rl.core.errors import ConfigError


@dataclass(kw_only=True)
class DirectRobotConfig(RealRobotConfig):
    """Actions, rewards and resets of a robot with a driver of a plug-in, and what holds around it.

    Nobody tells goals and further inputs, so all that the policy reads must be named.
    """

    sensed: dict[str, Any] = field(default_factory=dict)
    """Further inputs that always hold, such as the place of a fixture: name -> numbers."""


class DirectRobot(RealRobot):
    """A robot that a plug-in's driver moves."""

    group = "direct"

    def __init__(
        self, run: RunConfig, config: DirectRobotConfig, *, driver: str,
        driver_options: Mapping[str, Any], helped: bool, topics: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """As `RealRobot`; the driver is made by `run_robot`.

        Args:
            driver: Its name in `hardware.registry`.
            driver_options: As the command line gives them.
        """
        super().__init__(run, config, helped=helped, topics=topics)
        self.config = config
        self._driver = driver
        self._driver_options = driver_options

    def check(self) -> None:
        """As `RealRobot.check`, and that nothing is left that nobody tells."""
        super().check()
        known = {*(GOAL + name for name in self._goals), *self.world_widths}
        silent = [name for name in self.read_widths if name not in known]
        if silent:
            raise ConfigError(
                f"the policy reads {', '.join(silent)}, which driver={self._driver} does not "
                "measure: name what always holds, with direct.goal={name: [...]} and "
                "direct.sensed={name: [...]}, or put a ROS 2 node before the robot and take "
                "driver=ros2"
            )

    @cached_property
    def world_widths(self) -> dict[str, int]:
        """Further inputs that hold; the robot process publishes them."""
        return {SENSED + name: row.shape[1] for name, row in self._sensed.items()}

    def run_robot(self, name: str, until: Callable[[], bool], seed: int = 0) -> None:
        """The robot process: ticks until asked to end.

        Raises:
            ChannelBusyError: Another process runs this robot.
            ConfigError: The driver refuses its options.
        """
        clock, channels, (spec, limits) = MonotonicClock(), RobotChannels(name), self.narrowed
        file, world = self.robot_file, self.world_widths
        fields = {SENSED + name: row for name, row in self._sensed.items()}
        driver = plugin_driver(self._driver, spec, clock, self._driver_options)
        process = RobotProcess(
            driver, name=name, clock=clock, period=self.period, spec=spec, limits=limits,
            controllers=self.controllers(None), stop=self.stop, setpoint=self.action_map.kind,
            estop=file is not None and file.estop_device is not None,
        )  # fmt: skip
        scene = ArrayPublisher(channels.world, world) if world else None

        def between_ticks() -> bool:
            if scene is not None:
                scene.send(fields, clock.now())
            return until()

        try:
            process.run(between_ticks)
        finally:
            if scene is not None:
                scene.close()

    @cached_property
    def _sensed(self) -> dict[str, np.ndarray]:
        """Further inputs that hold, (1, width).

        Raises:
            ConfigError: The task has no such input, or the numbers do not fit.
        """
        return self._held("further input", self.config.sensed, self._sample.sensed)
