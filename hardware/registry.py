"""Drivers and controllers that plug-ins and programs bring to deployments and to learning robots.

A driver is the door to a robot of one's own, in the process of its loop: no ROS 2 node is needed
between. A controller is a law between the setpoints of a policy and the commands of the driver. The
loop keeps every limit around both.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from hardware.control.clock import Clock
from hardware.control.robot_loop import StampedDriver
from hardware.controllers.controller import Controller
from robot_rl.core.errors import ConfigError
from robot_rl.core.plugins import Registry, unknown_part
from robot_rl.core.robot import RobotSpec

MakeDriver = Callable[[RobotSpec, Clock, Mapping[str, str]], StampedDriver]
"""Makes a driver from the robot within the bounds of its file, the clock of the loop, and the
options of `driver_options=`. It must not connect yet."""
MakeController = Callable[[RobotSpec], Controller]
"""Makes a controller from the robot within the bounds of its file."""

DRIVERS: Registry[MakeDriver] = Registry("driver")
"""Drivers by name, beside our own (twin, ros2, fake)."""
CONTROLLERS: Registry[MakeController] = Registry("controller")
"""Controllers by name; without one a robot has its own."""
OWN_DRIVERS = ("twin", "ros2", "fake")
"""Drivers that deployments have without a plug-in."""


def register_driver(name: str, make: MakeDriver) -> None:
    """Make a driver known, for `robot-rl deploy driver=<name>` and `robot-rl learn driver=<name>`.

    Raises:
        ConfigError: The name is taken.
    """
    if name in OWN_DRIVERS:
        raise ConfigError(f"driver '{name}' exists already, from robot_rl; give yours another name")
    DRIVERS.add(name, make)


def register_controller(name: str, make: MakeController) -> None:
    """Make a controller known, for `robot-rl deploy controller=<name>`.

    It follows setpoints of the kind that its `setpoint` says, in the place of the robot's own law.

    Raises:
        ConfigError: The name is taken.
    """
    CONTROLLERS.add(name, make)


def check_driver(name: str, options: Mapping[str, Any], own: Collection[str]) -> None:
    """Refuse a driver that nobody brings, and options of a plug-in's driver for another one.

    Args:
        own: Names that need no plug-in.

    Raises:
        ConfigError: It is neither one of them nor a plug-in's, or its options are not taken.
    """
    if name not in own and not DRIVERS.knows(name):
        raise ConfigError(unknown_part("driver", name, (*own, *DRIVERS)))
    if options and name in own:
        raise ConfigError(
            f"'driver_options' are for a plug-in's driver, but driver={name}; leave them out, or "
            "choose another driver"
        )


def plugin_driver(
    name: str, robot: RobotSpec, clock: Clock, options: Mapping[str, Any]
) -> StampedDriver:
    """Driver of a plug-in, not connected yet; its options reach it as text."""
    return DRIVERS.find(name)(robot, clock, {key: str(value) for key, value in options.items()})
