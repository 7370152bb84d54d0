"""A deployment as its processes get it: settled once by the person's process, plain values only.

Neither configurations nor a simulator are needed to read it: bridge, link and policy start without
them, and so does the robot process where nothing is simulated.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from hardware.control.limits import BodyRateLimiter
from hardware.control.monitors import SafetyLimits
from hardware.control.pipeline import ControllerSet
from hardware.control.process import RobotChannels
from hardware.control.stopping import StopConfig
from hardware.controllers.body_rates import BodyRates, BodyRatesConfig, RotorLayout
from hardware.ros.command_messages import Gains
from hardware.ros.foreign_commands import Wiring
from policies.bundle import load_bundle
from policies.runner import PolicyRunner
from robot_rl.cli.deployment.options import DeployOptions
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import CommandKind, RobotCommand

LOOP_NODE = "loop"
"""Name of the node that speaks for the robot process: its services are `loop/arm` and so on."""


@dataclass(frozen=True, kw_only=True)
class RotorLaws:
    """What the controllers of a drone need to know of it."""

    layout: RotorLayout
    gains: BodyRatesConfig
    hover_thrust: float
    """Share of the largest thrust that carries it."""


@dataclass(frozen=True, kw_only=True)
class DeploymentParts:
    """What the processes of a deployment share; `Deployment.parts` makes it."""

    options: DeployOptions
    robot: RobotSpec
    """The robot at hand."""
    period: float
    """Of the robot's loop [s]."""
    control_dt: float
    """Of the policy [s]."""
    namespace: str
    """Of all topics."""
    domain: int
    """ROS_DOMAIN_ID."""
    channels: RobotChannels
    """Of the robot process."""
    gain_sets: Mapping[str, Gains]
    """Sets of gains that the robot and the policy agree on."""
    setpoint: CommandKind
    """What the policy makes: the robot's own kind of command, or one that a law follows."""
    world_widths: Mapping[str, int]
    """Topics that the world of a robot that is not real fills."""
    goals: Mapping[str, np.ndarray]
    """Goals that hold until a message changes them, (1, width)."""
    limits: SafetyLimits
    """Thresholds of the robot."""
    wiring: Wiring
    """Topics of somebody else's node; empty where there is none."""
    rotors: RotorLaws | None
    """Of a drone; None for joints."""
    arming_pose: tuple[float, ...]
    """Where arming leads the joints [rad]; empty for the robot's default pose."""

    @property
    def stop(self) -> StopConfig:
        """How the robot stands up and stops."""
        if self.rotors is None:
            return StopConfig(pose=self.arming_pose)
        return StopConfig(hover_thrust=self.rotors.hover_thrust)

    @property
    def gain_names(self) -> list[str]:
        """Names of the gain sets, in the order of the channels; one empty name where none are."""
        return [*self.gain_sets] or [""]

    def load_policy(self) -> PolicyRunner:
        """The policy; a bundle of another robot is refused."""
        return load_bundle(self.options.bundle, robot=self.robot, control_dt=self.control_dt)

    def controllers(
        self, on_setpoint: Callable[[RobotCommand], None] | None = None
    ) -> ControllerSet:
        """Controllers that stop the robot, and those between the policy and its driver.

        Args:
            on_setpoint: Is told each setpoint of the policy.
        """
        if self.rotors is None:
            return ControllerSet(on_setpoint=on_setpoint)
        rotors, gains = self.rotors.layout, self.rotors.gains
        # No blending: a mixture of a policy's command with one of before would fly nobody's law.
        controllers = ControllerSet(
            stop=BodyRates(rotors, gains), blend_time=0.0, on_setpoint=on_setpoint
        )
        if self.setpoint is not self.robot.command:
            controllers.by_kind = {self.setpoint: BodyRates(rotors, gains)}
            controllers.limiters = {self.setpoint: BodyRateLimiter()}
        return controllers
