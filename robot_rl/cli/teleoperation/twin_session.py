"""A twin of an arm, its loop and a person in one process, as fast as it goes."""

import torch

from configs.schema import RunConfig
from configs.twin_builder import build_twin
from hardware.control.clock import LogicalClock
from hardware.control.limits import PoseLimiter, PoseLimits, make_limiter
from hardware.control.monitors import SafetyLimits, SafetyMonitor
from hardware.control.pipeline import ControllerSet
from hardware.control.robot_loop import RobotLoop
from hardware.control.safety import Condition, SafetyState
from hardware.control.stopping import StopConfig, make_stopping
from hardware.controllers.cartesian_impedance import CartesianImpedance, CartesianImpedanceConfig
from hardware.controllers.chain import KinematicChain
from hardware.teleop.robot_port import LoopPort, Voice
from robot_rl.core.errors import ConfigError
from robot_rl.core.robot_command import CommandKind, RobotCommand
from sim.physics.arm_model import arm_model
from sim.robots.joint_simulation import MujocoSimulation
from sim.twin import Twin

_TIP = "end_effector"
"""Site of the end effector in every arm's model."""
_LONGEST_ARMING = 2000
"""Ticks after which an arm that is not ready counts as stuck."""


def chain_of(twin: Twin) -> KinematicChain:
    """Rigid-body model of a simulated arm, for the control laws of a real one.

    Raises:
        ConfigError: The robot is no arm that MuJoCo simulates.
    """
    if not isinstance(twin.simulation, MujocoSimulation):
        raise ConfigError(f"a chain of links was asked for, but '{twin.spec.name}' is no arm")
    model = twin.simulation.engine.model
    return KinematicChain(**arm_model(model, twin.spec.joint_names, _TIP))


def impedance_of(twin: Twin) -> CartesianImpedance:
    """Cartesian impedance of a simulated arm, which carries its own weight as a Franka does."""
    config = CartesianImpedanceConfig(gravity=False, coriolis=False)
    efforts = [joint.effort_limit for joint in twin.spec.joints]
    return CartesianImpedance(chain_of(twin), efforts, config)


class TwinSession:
    """One arm on a logical clock. `begin` puts it to an episode's start, armed and ready."""

    def __init__(self, config: RunConfig, *, seed: int = 0) -> None:
        """Build the arm's twin; pose setpoints are followed by a Cartesian impedance."""
        torch.set_grad_enabled(False)
        self.clock = LogicalClock()
        """Time that passes with the ticks."""
        self.twin = build_twin(config, seed=seed, now=self.clock.now)
        """The robot."""
        self.twin.connect()
        self.limits = SafetyLimits()
        """Thresholds of the loop."""
        self.policy, self.human = Voice(), Voice()
        self.followed: RobotCommand | None = None
        """Setpoint that was followed last."""
        self.loop, self.port = self._made()

    @property
    def ticks_per_control(self) -> int:
        """Ticks of the loop in a control step of the task."""
        return self.twin.steps_per_control

    def begin(self, seed: int) -> None:
        """Put the arm to the start of an episode, armed; the world stands still meanwhile.

        Raises:
            ConfigError: The arm cannot be armed there.
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
        pose = tuple(float(q) for q in twin.read().joint_position[0])
        limits = [joint.position_limit for joint in spec.joints]
        pose = tuple(min(max(q, low), high) for q, (low, high) in zip(pose, limits, strict=True))
        monitor = SafetyMonitor(
            spec, self.limits, twin.period, kinds=[CommandKind.joint, CommandKind.pose]
        )
        loop = RobotLoop(
            twin, clock=self.clock, period=twin.period, monitor=monitor,
            limiter=make_limiter(spec), stopping=make_stopping(spec, StopConfig(pose=pose)),
            controllers=ControllerSet(
                by_kind={CommandKind.pose: impedance_of(twin)},
                limiters={CommandKind.pose: PoseLimiter(PoseLimits())},
                on_setpoint=self._follow,
            ),
            sources={SafetyState.POLICY: self.policy, SafetyState.HUMAN: self.human},
        )  # fmt: skip
        return loop, LoopPort(loop, monitor, self.human)
