"""A whole robot process on a logical clock: fake driver, loop, and what a test says to it."""

from typing import Any

import numpy as np

from hardware.control.clock import LogicalClock
from hardware.control.limits import JointLimits, Limiter, make_limiter
from hardware.control.monitors import SafetyLimits, SafetyMonitor, StampedCommand
from hardware.control.pipeline import ControllerSet
from hardware.control.robot_loop import OperatorRequests, RobotLoop
from hardware.control.safety import Condition, SafetyState
from hardware.control.stopping import StopConfig, make_stopping
from hardware.drivers.fake_driver import FakeDriver, FaultInjection
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import CommandKind, JointCommand

PERIOD = 0.002


class RecordingDriver(FakeDriver):
    """Remembers every command that reached it, and when it was stopped."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self.received: list[Any] = []
        self.stops = 0

    def write(self, command):
        self.received.append(command)
        return super().write(command)

    def stop(self):
        self.stops += 1
        super().stop()


class Voice:
    """A source of commands: a test says what, the stamp is that of the state in use."""

    def __init__(self):
        self.command: StampedCommand | None = None

    def newest(self):
        return self.command


class Process:
    """A robot process; `ticks` lets time pass."""

    def __init__(
        self, spec: RobotSpec, *, limits: SafetyLimits | None = None,
        limiter: Limiter | None = None, stop: StopConfig | None = None,
        controllers: ControllerSet | None = None, kinds: tuple[CommandKind, ...] = (),
        clock: LogicalClock | None = None,
    ) -> None:  # fmt: skip
        self.clock: Any = clock or LogicalClock()
        self.faults = FaultInjection()
        self.driver: Any = RecordingDriver(spec, self.clock, faults=self.faults)
        self.driver.connect()
        self.policy, self.human = Voice(), Voice()
        self.requests = OperatorRequests()
        self.watch = SafetyMonitor(spec, limits or SafetyLimits(), PERIOD, kinds=kinds)
        self.loop: Any = RobotLoop(
            self.driver, clock=self.clock, period=PERIOD, monitor=self.watch,
            limiter=limiter or make_limiter(spec),
            stopping=make_stopping(spec, stop or StopConfig(ramp_time=0.5, stop_time=0.2)),
            controllers=controllers, requests=self.requests,
            sources={SafetyState.POLICY: self.policy, SafetyState.HUMAN: self.human},
        )  # fmt: skip
        self.history: list[SafetyState] = []
        """State after each tick."""

    @property
    def safety(self):
        return self.loop.safety

    @property
    def q(self):
        return self.driver.body.fields()["joint_position"][0]

    def ticks(self, count=1, *, command=None, person=None, seconds=None):
        """Periods, in each of which policy or person may speak anew."""
        for _ in range(count if seconds is None else round(seconds / PERIOD)):
            now = self.clock.now()
            if command is not None:
                self.policy.command = StampedCommand(command=command, stamp=now)
            if person is not None:
                self.human.command = StampedCommand(command=person, stamp=now)
                self.requests.heartbeat = now
            self.clock.advance(PERIOD)
            self.loop.tick()
            self.history.append(self.loop.safety)

    def act(self, *requests: Condition, **said):
        """Ask, and let a tick pass."""
        for act in requests:
            self.requests.ask(act)
        self.ticks(**said)
        return self.loop.safety

    def until(self, safety: SafetyState, limit=2000, **said) -> int:
        """Ticks until a state is reached."""
        for count in range(1, limit + 1):
            self.ticks(**said)
            if self.loop.safety is safety:
                return count
        raise AssertionError(f"{safety} was not reached: {self.loop.status.trip}")

    def ready(self):
        """Armed, ramped and released."""
        self.ticks()
        self.act(Condition.ARM)
        self.until(SafetyState.HOLD)
        assert self.act(Condition.ARM) is SafetyState.READY
        return self

    def in_policy(self, command):
        """A policy in charge that has spoken until now."""
        self.ready().ticks(command=command)
        assert self.act(Condition.ENABLE_POLICY, command=command) is SafetyState.POLICY
        return self


def to(*q, kp=(40, 20), kd=(4, 2)):
    """A joint command of the two joints."""
    zero = np.zeros((1, 2))
    return JointCommand(q=np.array([q], float), dq=zero, tau=zero, kp=np.array([kp], float),
                        kd=np.array([kd], float))  # fmt: skip


def within(limits: JointLimits, commands, dt=PERIOD, *, speed=True):
    """True where every joint command keeps every limit; with `speed` that of its change too."""
    before = None
    for command in commands:
        assert isinstance(command, JointCommand)
        assert all(np.isfinite(value).all() for value in
                   (command.q, command.dq, command.tau, command.kp, command.kd))  # fmt: skip
        assert np.all((command.q >= limits.lower) & (command.q <= limits.upper))
        assert np.all(abs(command.dq) <= limits.velocity)
        assert np.all(abs(command.tau) <= limits.effort)
        assert np.all((command.kp >= 0) & (command.kp <= limits.stiffness))
        assert np.all((command.kd >= 0) & (command.kd <= limits.damping))
        if speed and before is not None and np.any(before.kp > 0) and np.any(command.kp > 0):
            assert np.all(abs(command.q - before.q) / dt <= limits.velocity + 1e-9)
        before = command
    return True
