"""A twin, its loop and a person in one process, as fast as it goes."""

import torch

from configs.schema import RunConfig
from configs.twin_builder import build_twin
from hardware.control.clock import LogicalClock
from hardware.control.limits import make_limiter
from hardware.control.monitors import SafetyLimits, SafetyMonitor, StampedCommand
from hardware.control.robot_loop import RobotLoop
from hardware.control.safety import Condition, SafetyState
from hardware.control.stopping import StopConfig, make_stopping
from hardware.controllers.cartesian_impedance import CartesianImpedanceConfig
from hardware.teleop.robot_port import LoopPort
from robot_rl.cli.control_laws import PoseControl, RotorControl, chain_of
from robot_rl.core.errors import ConfigError
from robot_rl.core.robot_command import CommandKind, RobotCommand
from sim.twin import Twin

_LONGEST_ARMING = 2000
"""Ticks after which an arm that is not ready counts as stuck."""


class Voice:
    """Setpoints in the loop's own process: a `CommandSource`."""

    def __init__(self) -> None:
        self.command: StampedCommand | None = None

    def send(self, command: StampedCommand) -> None:
        """Leave a setpoint."""
        self.command = command

    def newest(self) -> StampedCommand | None:
        """The newest setpoint, the same object while there is no newer one."""
        return self.command


def person_control(config: RunConfig, twin: Twin) -> RotorControl | PoseControl:
    """Control of a robot that a person leads by poses."""
    if twin.spec.rotors:
        return RotorControl.of(config.robot)
    law = CartesianImpedanceConfig(gravity=False, coriolis=False)
    return PoseControl(robot=twin.spec, chain=chain_of(twin), law=law, speed=0.25)


class TwinSession:
    """One robot on a logical clock. `begin` puts it to an episode's start, armed and ready."""

    def __init__(self, config: RunConfig, *, seed: int = 0) -> None:
        """Build the twin, and the control laws that follow a person.

        Raises:
            ConfigError: The robot is neither an arm nor a drone.
        """
        self.clock = LogicalClock()
        """Time that passes with the ticks."""
        self.twin = build_twin(config, seed=seed, now=self.clock.now)
        """The robot."""
        self.twin.connect()
        self.control = person_control(config, self.twin)
        """Control laws that follow a person."""
        flies = bool(self.twin.spec.rotors)
        self.limits = SafetyLimits.for_flight() if flies else SafetyLimits()
        """Thresholds of the loop."""
        self._hover = config.robot.model.hover_thrust if flies else None
        self.policy, self.human = Voice(), Voice()
        self.followed: RobotCommand | None = None
        """Setpoint that was followed last."""
        self.loop, self.port = self._made()

    @property
    def ticks_per_control(self) -> int:
        """Ticks of the loop in a control step of the task."""
        return self.twin.steps_per_control

    def begin(self, seed: int) -> None:
        """Put the robot to the start of an episode, armed; the world stands still meanwhile.

        Raises:
            ConfigError: It cannot be armed there.
        """
        self.twin.begin(seed)
        self.policy.command = self.human.command = self.followed = None
        self.loop, self.port = self._made()
        self.twin.frozen = True
        self.loop.requests.ask(Condition.ARM)
        for _ in range(_LONGEST_ARMING):
            self.tick()
            if self.loop.safety is SafetyState.READY:
                break
            if self.loop.safety is SafetyState.HOLD:
                self.loop.requests.ask(Condition.ARM)
        else:
            raise ConfigError(f"the twin cannot be armed: {self.loop.status.trip}")
        self.twin.frozen = False

    @torch.no_grad()
    def tick(self) -> None:
        """One period of the loop."""
        self.clock.advance(self.twin.period)
        self.loop.tick()

    def _follow(self, setpoint: RobotCommand) -> None:
        self.followed = setpoint
        self.twin.on_setpoint(setpoint)

    def _made(self) -> tuple[RobotLoop, LoopPort]:
        """A loop that knows nothing of the episode before, and a person's access to it."""
        twin, spec = self.twin, self.twin.spec
        monitor = SafetyMonitor(
            spec, self.limits, twin.period, kinds=[spec.command, CommandKind.pose]
        )
        loop = RobotLoop(
            twin, clock=self.clock, period=twin.period, monitor=monitor,
            limiter=make_limiter(spec), stopping=make_stopping(spec, self._stop_config()),
            controllers=self.control.controllers(self._follow),
            sources={SafetyState.POLICY: self.policy, SafetyState.HUMAN: self.human},
        )  # fmt: skip
        measured = monitor.measured
        port = LoopPort(loop, state=lambda: (measured.state, measured.stamp), send=self.human.send)
        return loop, port

    def _stop_config(self) -> StopConfig:
        """Arms are armed where they are: the world stands still, and no spring is wound up."""
        if self._hover is not None:
            return StopConfig(hover_thrust=self._hover)
        limits = [joint.position_limit for joint in self.twin.spec.joints]
        measured = self.twin.read().joint_position[0]
        pairs = zip(measured, limits, strict=True)
        return StopConfig(pose=tuple(min(max(float(q), low), high) for q, (low, high) in pairs))
