"""The real loop, with a driver, senders, a person and a clock that do everything wrong."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hardware.control.limits import JointLimits, make_limiter
from hardware.control.monitors import SafetyLimits, SafetyMonitor, StampedCommand
from hardware.control.robot_loop import OperatorRequests, RobotLoop
from hardware.control.safety import OPERATOR_REQUESTS, Condition, SafetyState
from hardware.control.stopping import StopConfig, make_stopping
from robot_rl.core.errors import StaleStateError
from robot_rl.core.observation import RobotState
from robot_rl.core.robot import RobotSpec, SensorSpec
from robot_rl.core.robot_command import BodyRateCommand, JointCommand, RobotCommand, RotorCommand
from tests.hardware.control.robots import multirotor, two_joints
from tests.matrices import split

C, S = Condition, SafetyState
PERIOD = 0.002
SCENE = 250
"""Ticks after which somebody else does wrong, more or less often."""
RATES = (0.0, 0.0, 0.002, 0.02, 0.3)
"""Shares of ticks in which somebody does wrong."""
WEIRD = (math.nan, math.inf, -math.inf, 0.0, -0.0, -1.0, 1e-320, 1e300, -1e300)
ASKED = {
    (S.ESTOP, S.PASSIVE): {C.RESET}, (S.SAFE_STOP, S.PASSIVE): {C.RESET, C.DISARM},
    (S.PASSIVE, S.ARMING): {C.ARM}, (S.HOLD, S.READY): {C.ARM},
    (S.READY, S.POLICY): {C.ENABLE_POLICY}, (S.HUMAN, S.POLICY): {C.ENABLE_POLICY},
    (S.READY, S.HUMAN): {C.HAND_TO_HUMAN}, (S.POLICY, S.HUMAN): {C.HAND_TO_HUMAN},
}  # fmt: skip
"""Changes that lead toward motion, or out of a stop, and what must have been asked for."""
MORE_RESTRICTED = {
    S.ARMING: {S.HOLD, S.SAFE_STOP, S.ESTOP}, S.HOLD: {S.SAFE_STOP, S.ESTOP},
    S.READY: {S.HOLD, S.SAFE_STOP, S.ESTOP}, S.POLICY: {S.HOLD, S.SAFE_STOP, S.ESTOP},
    S.HUMAN: {S.HOLD, S.SAFE_STOP, S.ESTOP}, S.SAFE_STOP: {S.ESTOP}, S.PASSIVE: {S.ESTOP},
    S.ESTOP: set(),
}  # fmt: skip
"""Changes that need nobody's request."""


ONWARD = {
    S.ESTOP: C.RESET, S.SAFE_STOP: C.RESET, S.PASSIVE: C.ARM, S.HOLD: C.ARM,
    S.READY: C.ENABLE_POLICY, S.POLICY: C.HAND_TO_HUMAN, S.HUMAN: C.ENABLE_POLICY,
}  # fmt: skip
"""Requests that lead on."""


def walker() -> RobotSpec:
    """Two joints, and a base whose attitude is measured."""
    spec = two_joints()
    return replace(spec, sensors={**spec.sensors, "orientation_w": SensorSpec()})


ROBOTS = {"joints": two_joints, "walker": walker, "drone": multirotor}


class UnspeakableError(Exception):
    """An error that cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class Chance:
    """Draws of one adversary: whether it does wrong, and which wrong."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.rate = rng, 0.0

    def wrong(self) -> bool:
        return self.rng.random() < self.rate

    def one_of(self, choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def wrong_time(self, now: float) -> float:
        """A time that is wrong somehow."""
        return self.one_of((now - 0.03, now - 1.0, now + 0.004, now + 0.02, now + 3600.0, *WEIRD))


class WildClock(Chance):
    """Readings that are no numbers or far away, and a time that jumps back and forth."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__(rng)
        self.time = 100.0

    def now(self) -> float:
        self.time += 1e-6
        if self.rate and self.rng.random() < 0.1 * self.rate:
            return self.one_of((*WEIRD, self.time - 0.01, self.time + 5.0, self.time - 5.0))
        return self.time

    def sleep_until(self, deadline: float) -> None:
        self.time = max(self.time, min(deadline, self.time + 1.0))
        if self.wrong():
            self.time += self.one_of((-3600.0, -1.0, -0.01, -1e-4, 0.05, 1.0, 3600.0))


class WildDriver(Chance):
    """Follows at once, mostly; checks all that reaches it."""

    def __init__(self, spec: RobotSpec, clock: WildClock, rng: np.random.Generator) -> None:
        super().__init__(rng)
        self.spec, self._clock = spec, clock
        self.stamp: Any = -math.inf
        self.believed: Callable[[], RobotState | None] = lambda: None
        self._held, self._hand = 0, 0.0
        self.sent: list[RobotCommand] = []
        self._limits = JointLimits.of(spec) if spec.joints else None
        self._fields = {
            name: np.eye(1, 4) if name == "orientation_w" else np.zeros((1, width))
            for name, width in spec.state_widths.items()
        }
        if spec.joints:
            self._fields["joint_position"] = np.array([[j.default_position for j in spec.joints]])

    def connect(self) -> None: ...

    def close(self) -> None: ...

    def read(self) -> Any:
        self._put_back()
        fields = {name: value.copy() for name, value in self._fields.items()}
        self.stamp = self._clock.time
        if not self.wrong():
            return RobotState(fields)
        match int(self.rng.integers(6)):
            case 0:
                raise self.one_of((OSError("cable"), StaleStateError("old"), UnspeakableError()))
            case 1:
                self.stamp = self.wrong_time(self._clock.time)
            case 2:
                return self.one_of((None, RobotState({}), 3, "state"))
            case 3:
                self.stamp = self.one_of((None, "now", [1.0]))
            case _:
                name = self.one_of([*fields])
                fields[name] = self.garbled(fields[name])
        return RobotState(fields)

    def garbled(self, value: np.ndarray) -> Any:
        if self.rng.random() < 0.5:
            value.flat[int(self.rng.integers(value.size))] = self.one_of((*WEIRD, 1.3, 50.0))
            return value
        return self.one_of((0 * value, value[0], value[:, :-1], None, [], "text", 1e200 + value))

    def write(self, command: RobotCommand) -> RobotCommand:
        self._check(command)
        self.sent.append(command)
        if isinstance(command, JointCommand) and np.any(command.kp > 0):
            place = self._fields["joint_position"]
            self._fields["joint_position"] = place + self._pushed(0.5 * (command.q - place))
        if self.rate and self.rng.random() < 0.02 * self.rate:
            raise self.one_of((OSError("cable"), UnspeakableError()))
        return command

    def stop(self) -> None:
        if self.wrong():
            raise OSError("cable")

    def _pushed(self, step: np.ndarray) -> np.ndarray:
        """A step of the joints, of which somebody holds one, or pulls it along."""
        if self.rng.random() < 0.1 * self.rate:
            self._hand = float(self.rng.choice((0.0, -0.02, 0.02)))
            self._held = int(self.rng.integers(1, 100))
        if self._held > 0:
            step[0, 0] = self._hand
            self._held -= 1
        return step

    def _put_back(self) -> None:
        """Let somebody put joints back that were pulled beyond where they can be armed."""
        limits = self._limits
        if limits is not None and self.rng.random() < 0.002:
            place = self._fields["joint_position"]
            self._fields["joint_position"] = np.clip(place, limits.lower, limits.upper)

    def _check(self, command: RobotCommand) -> None:
        try:
            self._within(command)
        except AssertionError as error:  # which the loop would take for the driver's fault
            raise KeyboardInterrupt(f"outside limits: {command}") from error

    def _within(self, command: RobotCommand) -> None:
        if self._limits is None:
            assert isinstance(command, BodyRateCommand)
            assert np.all(abs(command.rates_b) <= (10.0, 10.0, 6.0))
            assert 0.0 <= command.thrust[0, 0] <= 1.0
            return
        assert isinstance(command, JointCommand)
        limits = self._limits
        assert np.all((command.q >= limits.lower) & (command.q <= limits.upper))
        assert np.all(abs(command.dq) <= limits.velocity)
        assert np.all(abs(command.tau) <= limits.effort)
        assert np.all((command.kp >= 0) & (command.kp <= limits.stiffness))
        assert np.all((command.kd >= 0) & (command.kd <= limits.damping))
        if (state := self.believed()) is not None:
            q, dq = state.joint_position, state.joint_velocity
            torque = command.kp * (command.q - q) + command.kd * (command.dq - dq) + command.tau
            assert np.all(abs(torque) <= limits.effort * (1 + 1e-9))


class WildSource(Chance):
    """Commands near the pose, mostly."""

    def __init__(self, spec: RobotSpec, clock: WildClock, rng: np.random.Generator) -> None:
        super().__init__(rng)
        self._spec, self._clock = spec, clock
        self._newest: Any = None
        self._mute = 0

    def newest(self) -> Any:
        self._mute = 80 if self.rng.random() < 0.1 * self.rate else self._mute - 1
        if self._mute < 0 and self.rng.random() < 0.2:
            self._newest = self._speak()
        if self.wrong():
            raise self.one_of((OSError("cable"), UnspeakableError()))
        return self._newest

    def _speak(self) -> Any:
        stamped = StampedCommand(command=self._command(), stamp=self._clock.time)
        if not self.wrong():
            return stamped
        fields = {**vars(stamped.command)}
        name = self.one_of([*fields])
        value = fields[name]
        if value is not None:
            value = value.copy()
            value.flat[0] = self.one_of((*WEIRD, 1e3))
            fields[name] = value
        other: Any = self.one_of(
            (type(stamped.command)(**fields), type(stamped.command)(**{**fields, name: [1.0]}),
             RotorCommand(speed=np.zeros((1, 4))), None, "command")
        )  # fmt: skip
        return self.one_of(
            (
                replace(stamped, command=other),
                replace(stamped, stamp=self.wrong_time(self._clock.time)),
                replace(stamped, gains="stiffest"),
                replace(stamped, fault="three legs"),
                None,
                "command",
            )
        )

    def _command(self) -> RobotCommand:
        if not self._spec.joints:
            return BodyRateCommand(
                rates_b=self.rng.normal(size=(1, 3)), thrust=self.rng.random((1, 1))
            )
        q, zero = np.array([[j.default_position for j in self._spec.joints]]), np.zeros((1, 2))
        return JointCommand(
            q=q + 0.1 * self.rng.normal(size=q.shape), dq=zero, tau=zero,
            kp=np.array([[40.0, 20.0]]) * self.rng.random(), kd=np.array([[4.0, 2.0]]),
        )  # fmt: skip


class WildPeople(Chance):
    """Ask for anything; more often for what leads on, so that every state is seen."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__(rng)
        self.requests = OperatorRequests()

    def speak(self, now: float, safety: SafetyState) -> set[Condition]:
        """Returns what was asked for."""
        requests, asked = self.requests, set[Condition]()
        requests.heartbeat = self.wrong_time(now) if self.wrong() else now
        requests.publishers = self.one_of((2, 0, -1)) if self.wrong() else 1
        requests.doubled = "two hips" if self.rng.random() < 0.2 * self.rate else ""
        requests.estop_down = self.rng.random() < 0.05 * self.rate
        if safety in ONWARD and self.rng.random() < 0.03:
            asked.add(ONWARD[safety])
        if self.rng.random() < 0.01 or self.wrong():
            asked.add(self.one_of(sorted(OPERATOR_REQUESTS, key=lambda one: one.value)))
        for request in asked:
            requests.ask(request)
        return asked


class Scenes:
    """A loop among adversaries; `play` lets ticks pass and checks each."""

    def __init__(self, spec: RobotSpec, seed: int) -> None:
        rngs = np.random.default_rng(seed).spawn(6)
        self._rng = rngs[0]
        self.clock = WildClock(rngs[1])
        self.driver = WildDriver(spec, self.clock, rngs[2])
        sources = {
            S.POLICY: WildSource(spec, self.clock, rngs[3]),
            S.HUMAN: WildSource(spec, self.clock, rngs[4]),
        }
        self.people = WildPeople(rngs[5])
        self._adversaries: list[Chance] = [
            self.clock, self.driver, self.people, *sources.values()
        ]  # fmt: skip
        monitor = SafetyMonitor(spec, SafetyLimits(first_command_jump=1.0), PERIOD)
        self.driver.believed = lambda: monitor.measured.state
        driver: Any = self.driver
        clock: Any = self.clock
        self.loop = RobotLoop(
            driver, clock=clock, period=PERIOD, monitor=monitor,
            limiter=make_limiter(spec), sources=sources, requests=self.people.requests,
            stopping=make_stopping(
                spec, StopConfig(ramp_time=0.05, stop_time=0.1, landing_time=0.1)
            ),
        )  # fmt: skip
        self.seen = Counter[SafetyState]()
        self.causes = Counter[Condition]()

    def play(self, ticks: int) -> None:
        deadline = self.clock.time
        for tick in range(ticks):
            if tick % SCENE == 0:
                for one in self._adversaries:
                    one.rate = RATES[int(self._rng.integers(len(RATES)))]
            before, sent = self.loop.safety, self._last
            asked = self.people.speak(self.clock.time, before)
            written = len(self.driver.sent)
            deadline = self.loop.tick_after(deadline)
            after, status = self.loop.safety, self.loop.status
            self.seen[after] += 1
            self.causes.update(status.conditions)
            assert math.isfinite(deadline)
            assert math.isfinite(status.time)
            if after is not before:
                wanted = ASKED.get((before, after))
                assert after in MORE_RESTRICTED[before] if wanted is None else wanted & asked
            if before is after is S.SAFE_STOP and len(self.driver.sent) > written:
                assert sent is not None
                self._check_stop(sent, self.driver.sent[-1])
            del self.driver.sent[:-1]

    @property
    def _last(self) -> RobotCommand | None:
        return self.driver.sent[-1] if self.driver.sent else None

    def _check_stop(self, before: RobotCommand, now: RobotCommand) -> None:
        """Within a controlled stop no stiffness rises, and rotors that are off stay off."""
        if isinstance(now, JointCommand) and isinstance(before, JointCommand):
            assert np.all(now.kp <= before.kp)
        elif isinstance(now, BodyRateCommand) and isinstance(before, BodyRateCommand):
            assert before.thrust[0, 0] > 0 or now.thrust[0, 0] == 0


@pytest.fixture(autouse=True)
def quiet() -> Any:
    """Measurements of 1e300 overflow; what becomes of them is looked at here."""
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize("seed", range(7))
@pytest.mark.parametrize("robot", ROBOTS.values(), ids=ROBOTS.keys())
def test_nothing_makes_the_loop_raise_move_unasked_or_leave_its_limits(
    robot: Callable[[], RobotSpec], seed: int
) -> None:
    Scenes(robot(), seed).play(1000)


@pytest.mark.slow
@pytest.mark.parametrize("robot", split(ROBOTS, ["joints"]))
def test_nor_does_it_in_many_ticks_in_which_every_state_and_trouble_is_seen(robot: str) -> None:
    scenes = Scenes(ROBOTS[robot](), 1002)
    scenes.play(60_000)
    assert min(scenes.seen[state] for state in S) > 100, scenes.seen
    expected = {C.STATE_INVALID, C.STATE_LATE, C.STATE_LOST, C.DRIVER_FAULT, C.COMMAND_INVALID,
                C.COMMAND_LATE, C.LEASE_LOST, C.OVERRUN, C.SECOND_PUBLISHER,
                C.POLICY_SILENT}  # fmt: skip
    unseen = [condition.value for condition in expected if not scenes.causes[condition]]
    assert not unseen, scenes.causes
