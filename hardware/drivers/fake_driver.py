"""A driver without a robot: ideal joints or a flying point, with the faults of a real one."""

import math
from collections import deque
from dataclasses import dataclass

import numpy as np

from hardware.control.clock import Clock
from robot_rl.core.errors import ConfigError, ShapeError, StaleStateError
from robot_rl.core.observation import RobotState
from robot_rl.core.quaternion import from_rotation_vector, multiply, normalize, rotate
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import (
    BodyRateCommand,
    CommandKind,
    JointCommand,
    RobotCommand,
    RotorCommand,
)

GRAVITY = 9.81
"""[m/s^2]"""


_STEP = 1e-3
"""Longest step of the body [s]."""
_LONGEST = 10.0
"""Longest time that a body moves in one go [s]; a clock may leap by hours."""
_INERTIA = 0.1
"""Of every joint [kg m^2]."""
_HOVER_THRUST, _LAG = 0.5, 0.03
"""Fraction of the largest thrust that carries a drone; time constant of its inner loop [s]."""


class JointBody:
    """Joints in MIT mode, each an inertia: I q'' = clip(kp (q_d - q) + kd (dq_d - dq) + tau).

    No gravity, no friction, no coupling, and stops that only a limiter keeps it from.
    """

    def __init__(self, spec: RobotSpec) -> None:
        joints = spec.joints
        self._effort_limit = np.array([[joint.effort_limit for joint in joints]], float)
        self._damping = np.array([[joint.damping for joint in joints]], float)
        self.q = np.array([[joint.default_position for joint in joints]], float)
        """(1, J) [rad]."""
        self.dq = np.zeros_like(self.q)
        """(1, J) [rad/s]."""
        self.tau = np.zeros_like(self.q)
        """(1, J) [N m]."""
        self._opening = np.ones((1, 1))
        self.relax()

    def accept(self, command: RobotCommand) -> RobotCommand:
        """Follow a joint command; its motors clip the sum of the law's torques only."""
        if not isinstance(command, JointCommand):
            raise ShapeError(f"this robot takes JointCommand, got {type(command).__name__}")
        self._command = command
        if command.gripper is not None:
            self._opening = np.clip(command.gripper, 0.0, 1.0)
        return command

    def relax(self) -> None:
        """Damping without stiffness."""
        zero = np.zeros_like(self.q)
        self._command = JointCommand(q=self.q, dq=zero, tau=zero, kp=zero, kd=self._damping)

    def step(self, dt: float) -> None:
        """Semi-implicit Euler."""
        c = self._command
        law = c.kp * (c.q - self.q) + c.kd * (c.dq - self.dq) + c.tau
        self.tau = np.clip(law, -self._effort_limit, self._effort_limit)
        self.dq = self.dq + dt * self.tau / _INERTIA
        self.q = self.q + dt * self.dq

    def fields(self) -> dict[str, np.ndarray]:
        """Joints, and the gripper that is always where it was told to be."""
        return {
            "joint_position": self.q,
            "joint_velocity": self.dq,
            "joint_effort": self.tau,
            "gripper_opening": self._opening,
        }


class FlyingBody:
    """A mass with thrust along its z axis; its inner loop reaches body rates with a lag.

    Rotor commands give their mean as thrust and no rotation: there is no model of the frame.
    """

    def __init__(self, spec: RobotSpec) -> None:
        self._rotors = len(spec.rotors)
        self.position = np.zeros((1, 3))
        """(1, 3) [m], world."""
        self.orientation = np.array([[1.0, 0.0, 0.0, 0.0]])
        """(1, 4), wxyz."""
        self.velocity = np.zeros((1, 3))
        """(1, 3) [m/s], world."""
        self.rates = np.zeros((1, 3))
        """(1, 3) [rad/s], body."""
        self._force = np.array([[0.0, 0.0, GRAVITY]])
        self.relax()

    def accept(self, command: RobotCommand) -> RobotCommand:
        """Follow rotor speeds or body rates."""
        if isinstance(command, RotorCommand):
            speed = np.clip(np.nan_to_num(np.asarray(command.speed, float)), 0.0, 1.0)
            if speed.shape != (1, self._rotors):
                raise ShapeError(f"this robot has {self._rotors} rotors, got {speed.shape}")
            self._rates, self._thrust = np.zeros((1, 3)), float(speed.mean())
            return RotorCommand(speed=speed)
        if isinstance(command, BodyRateCommand):
            thrust = np.clip(np.nan_to_num(np.asarray(command.thrust, float)), 0.0, 1.0)
            self._rates, self._thrust = np.asarray(command.rates_b, float), float(thrust[0, 0])
            return BodyRateCommand(rates_b=self._rates, thrust=thrust)
        raise ShapeError(f"this robot takes rotors or body rates, got {type(command).__name__}")

    def relax(self) -> None:
        """Rotors off."""
        self._rates, self._thrust = np.zeros((1, 3)), 0.0

    def step(self, dt: float) -> None:
        """Semi-implicit Euler above a ground that nothing bounces off."""
        grounded = self.position[0, 2] <= 0.0 and self._thrust <= _HOVER_THRUST
        target = np.zeros((1, 3)) if grounded else self._rates
        self.rates = self.rates + (1.0 - math.exp(-dt / _LAG)) * (target - self.rates)
        turn = from_rotation_vector(self.rates * dt)
        self.orientation = normalize(multiply(self.orientation, turn))
        push = np.array([[0.0, 0.0, GRAVITY * self._thrust / _HOVER_THRUST]])
        weight = np.array([[0.0, 0.0, GRAVITY]])
        acceleration = rotate(self.orientation, push) - weight
        self.velocity = self.velocity + dt * acceleration
        self.position = self.position + dt * self.velocity
        self._force = push
        if self.position[0, 2] <= 0.0 and self.velocity[0, 2] <= 0.0:
            self.position[0, 2] = 0.0
            self.velocity, self._force = np.zeros((1, 3)), weight

    def fields(self) -> dict[str, np.ndarray]:
        """The base."""
        return {
            "position_w": self.position,
            "orientation_w": self.orientation,
            "linear_velocity_w": self.velocity,
            "angular_velocity_b": self.rates,
            "linear_acceleration_b": self._force,
        }


@dataclass(kw_only=True)
class FaultInjection:
    """Faults of a fake robot; may be changed at any time."""

    delay: float = 0.0
    """Age of every sample when it arrives [s]."""
    noise: float = 0.0
    """Multiple of the noise that the spec's sensors declare."""
    dropout: float = 0.0
    """Share of samples that never arrive, in [0, 1]."""
    frozen: bool = False
    """No new sample arrives."""
    no_number: bool = False
    """The first field of every new sample is NaN."""
    read_error: str = ""
    """Reading raises this."""
    write_error: str = ""
    """Writing raises this."""


class FakeDriver:
    """A `StampedDriver` without a robot. The body moves when somebody reads or writes."""

    def __init__(
        self, spec: RobotSpec, clock: Clock, *, faults: FaultInjection | None = None,
        max_age: float = 0.2, seed: int = 0,
    ) -> None:  # fmt: skip
        """Make a robot.

        Args:
            spec: What it is; measured fields that its body does not have are zero.
            max_age: Of the newest sample, beyond which reading raises [s].
        """
        kinds = (CommandKind.joint, CommandKind.rotors, CommandKind.body_rates)
        if spec.command not in kinds:
            raise ConfigError(
                f"robot '{spec.name}' takes '{spec.command.value}' commands, which no fake body "
                f"follows; known: {', '.join(kind.value for kind in kinds)}"
            )
        self.spec = spec
        self.faults = faults or FaultInjection()
        jointed = spec.command is CommandKind.joint
        self.body = JointBody(spec) if jointed else FlyingBody(spec)
        self.connected = False
        self._clock, self._max_age = clock, max_age
        self._rng = np.random.default_rng(seed)
        self._time = clock.now()
        self._underway: deque[tuple[float, RobotState]] = deque(maxlen=1000)
        self._newest: tuple[float, RobotState] | None = None

    @property
    def stamp(self) -> float:
        """Measurement time of what `read` gave last [s]."""
        return -math.inf if self._newest is None else self._newest[0]

    def connect(self) -> None:
        """Begin to measure; the first sample is of now."""
        self.connected = True
        self._newest = None
        self._underway.clear()
        self._underway.append((self._catch_up(), self._sample()))

    def read(self) -> RobotState:
        """Newest sample that has arrived."""
        if self.faults.read_error:
            raise OSError(self.faults.read_error)
        now = self._catch_up()
        lost = self.faults.frozen or self._rng.random() < self.faults.dropout
        if self.connected and not lost:
            self._underway.append((now, self._sample()))
        while self._underway and self._underway[0][0] + self.faults.delay <= now:
            self._newest = self._underway.popleft()
        age = now - self.stamp
        if not self.connected or self._newest is None or age > self._max_age:
            raise StaleStateError(
                f"a sample of robot '{self.spec.name}' was asked for; the newest is {age:.3f} s "
                f"old, at most {self._max_age} s are allowed; connect it, or look at its faults"
            )
        return self._newest[1]

    def write(self, command: RobotCommand) -> RobotCommand:
        """Follow a command from now on."""
        if self.faults.write_error:
            raise OSError(self.faults.write_error)
        self._catch_up()
        return self.body.accept(command)

    def stop(self) -> None:
        """Damping, or rotors off."""
        self._catch_up()
        self.body.relax()

    def close(self) -> None:
        """Stop, and measure no more."""
        self.stop()
        self.connected = False
        self._newest = None

    def _catch_up(self) -> float:
        now = self._clock.now()
        if not math.isfinite(now):
            return self._time
        passed = min(now - self._time, _LONGEST)
        steps = math.ceil(passed / _STEP - 1e-6)
        for _ in range(steps):
            self.body.step(passed / steps)
        self._time = now
        return now

    def _sample(self) -> RobotState:
        fields = self.body.fields()
        values: dict[str, np.ndarray] = {}
        for index, (name, width) in enumerate(self.spec.state_widths.items()):
            true = fields.get(name)
            if true is None:  # an attitude that nobody models is none
                true = np.eye(1, width) if width == 4 else np.zeros((1, width))
            noise = self.faults.noise * self.spec.sensors[name].noise
            values[name] = true + noise * self._rng.standard_normal((1, width))
            if self.faults.no_number and index == 0:
                values[name] = np.full((1, width), np.nan)
        return RobotState(values)
