"""The control loop: read, check, decide, control, limit, write, at a fixed rate.

The loop never raises outward. What fails becomes a condition, the robot is stopped, and the reason
is in the status. Every limit is enforced here, after any policy and any person.
"""

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

from hardware.control.clock import ROUNDING, Clock, Latencies, Latency
from hardware.control.limits import Limiter
from hardware.control.monitors import (
    COMMANDED_STATES,
    CommandSource,
    SafetyMonitor,
    StampedCommand,
    TickInputs,
)
from hardware.control.pipeline import CommandPipeline, ControllerSet
from hardware.control.safety import (
    DRIVEN,
    EMERGENCIES,
    FAULTS,
    OPERATOR_REQUESTS,
    PAUSES,
    WITHHOLDING,
    Condition,
    SafetyState,
    deciding_rule,
    refusals,
)
from hardware.control.stopping import Stopping
from robot_rl.core.errors import ConfigError, StaleStateError
from robot_rl.core.observation import RobotState
from robot_rl.core.robot_command import RobotCommand
from robot_rl.core.robot_driver import RobotDriver


class OperatorRequests:
    """Requests since the last tick, the person's heartbeat, and how many send commands.

    Real-time on both sides: appending, popping and assigning are atomic in Python, so nobody waits.
    """

    def __init__(self) -> None:
        self._asked: deque[Condition] = deque(maxlen=64)
        self.heartbeat = -math.inf
        """Time at which the person was heard last, clock of the loop [s]."""
        self.publishers = 1
        """Number of senders of commands to this robot."""
        self.doubled = ""
        """Measurements that come from more than one sender, in words; empty where none do."""
        self.estop_down = False
        """An emergency button is held down, as the bridge says."""
        self.button_down = False
        """The stop button of this robot is held down, or silent."""

    def ask(self, request: Condition) -> None:
        """Ask for something in the next tick."""
        if request not in OPERATOR_REQUESTS:
            known = ", ".join(sorted(known.value for known in OPERATOR_REQUESTS))
            raise ConfigError(f"'{request.value}' cannot be asked for; known: {known}")
        self._asked.append(request)

    def take(self) -> set[Condition]:
        """Requests of this tick."""
        taken = {self._asked.popleft() for _ in range(len(self._asked))}
        down = self.estop_down or self.button_down
        return taken | {Condition.ESTOP_PRESSED} if down else taken


@dataclass(frozen=True, kw_only=True)
class RobotStatus:
    """The loop after a tick."""

    time: float
    """Of the tick, clock of the loop [s]."""
    ticks: int
    """Ticks so far."""
    safety: SafetyState
    """State of the machine."""
    conditions: frozenset[Condition]
    """Everything that was true in the tick."""
    trip: str
    """Last change of state that trouble caused: from where, to where, and why; or empty."""
    refused: str
    """Reason why the last refused request was refused; empty where none was refused since."""
    state_age: float
    """Age of the sample in use [s]; infinite before the first."""
    clamped: int
    """Ticks in which a limit changed the command."""
    replaced: int
    """Ticks in which an entry of the command was no number."""
    missed: int
    """Periods missed so far."""
    trips: int = 0
    """Changes of state that trouble caused so far."""
    withheld: int = 0
    """Times that people held, disarmed or stopped the robot, or were lost while in charge, since
    somebody was last in charge: while it is not 0, only a person may hand it to a policy."""
    oldest_command: float = 0.0
    """Largest age that a policy's command had while it was followed [s]; 0 before any."""
    latencies: Mapping[str, Latency] = field(default_factory=dict)
    """By stage, of the last time that they were summed up; empty in the loop's own status."""


@dataclass(frozen=True, kw_only=True)
class Executed:
    """Setpoint that a tick really followed, and whose ticks there have been so far.

    Who reads less often than the loop ticks compares the counts of two readings: they tell what
    happened in between, tick by tick.
    """

    time: float
    """Of the tick, clock of the loop [s]."""
    safety: SafetyState
    """State of the machine in the tick."""
    setpoint: RobotCommand | None = None
    """Setpoint of a policy or a person after blending and the limits of setpoints; None where
    nobody's was followed."""
    answers: float = -math.inf
    """Stamp of the command that it comes from [s]; -inf where nobody's was followed."""
    policy_ticks: int = 0
    """Ticks so far that followed a policy."""
    human_ticks: int = 0
    """Ticks so far in `HUMAN`, also where the person was held still for being silent."""
    other_ticks: int = 0
    """All other ticks so far: the robot stood, was stopped, or a controller failed."""


SILENT_SECONDS = 0.25
"""Age of a loop's status from which on its process counts as one that does not answer [s]."""


def silence_of(status: RobotStatus, now: float) -> str:
    """Sentence about a loop that does not answer; empty where it does.

    Args:
        now: Clock of the loop [s].
    """
    age = now - status.time
    return f"the robot process has not answered for {age:.1f} s" if age > SILENT_SECONDS else ""


@runtime_checkable
class StampedDriver(RobotDriver, Protocol):
    """A driver that says when its newest sample was measured."""

    @property
    def stamp(self) -> float:
        """Measurement time of what `read` gave last, clock of the loop [s]; -inf before."""
        ...


_LONGEST_LATE = 1e6
"""Beyond this lateness it is the clock that is wrong [s]."""
STAGES = ("lateness", "read", "decide", "control", "write", "tick", "answer")
"""Timed stages: how late a tick began, its four parts, all of it; and how old the measurement was
that a command answers when that command was written for the first time."""

_TROUBLE = EMERGENCIES | FAULTS | PAUSES | {Condition.ESTOP_PRESSED, Condition.LEASE_LOST}
_Result = TypeVar("_Result")


class RobotLoop:
    """One robot. `tick` is one period; `run` keeps the time and ends with a stopped robot."""

    def __init__(
        self, driver: StampedDriver, *, clock: Clock, period: float, monitor: SafetyMonitor,
        limiter: Limiter, stopping: Stopping, controllers: ControllerSet | None = None,
        sources: Mapping[SafetyState, CommandSource] | None = None,
        requests: OperatorRequests | None = None,
        on_sample: Callable[[Mapping[str, Any], float], None] = lambda fields, stamp: None,
    ) -> None:  # fmt: skip
        """Join the parts; `period` is in seconds.

        Args:
            driver: The robot, connected.
            clock: To sleep by; stamps of states and commands are in its time.
            sources: Where the commands of `POLICY` and `HUMAN` come from.
            on_sample: Is told every sample that was read, and its stamp, unless that is no time of
                measurement. Must not block.
        """
        if not 0 < period < math.inf:
            raise ConfigError(f"the loop's period must be a finite time > 0 s, got {period}")
        self._driver, self._clock, self._period = driver, clock, period
        self._monitor, self._stopping, self._on_sample = monitor, stopping, on_sample
        self._sources = dict(sources or {})
        self._pipeline = CommandPipeline(
            controllers or ControllerSet(), limiter, driver.spec.command, stopping.kind
        )
        self.requests = requests or OperatorRequests()
        """Requests of people; any thread may add to them."""
        self.latencies = Latencies(STAGES)
        """Durations of the stages of a tick."""
        self.safety = SafetyState.PASSIVE
        """State of the machine."""
        self._conditions: frozenset[Condition] = frozenset()
        self._faults: dict[Condition, str] = {}
        self._details: dict[Condition, str] = {}
        self._trip = self._refused = ""
        self._withheld = 0
        self._ticks = self._clamped = self._replaced = self._missed = self._trips = 0
        self._oldest_command = 0.0
        self._followed: RobotCommand | None = None
        self._followed_ticks: dict[SafetyState | None, int]
        self._followed_ticks = dict.fromkeys([*COMMANDED_STATES, None], 0)
        reading = clock.now()
        self._time = self._latest = reading if math.isfinite(reading) else 0.0
        self._started = False
        self.answered = -math.inf
        """Measurement time that the command in use answers [s]; -inf while nobody's is."""

    @property
    def status(self) -> RobotStatus:
        """The loop after its last tick."""
        return RobotStatus(
            time=self._time, ticks=self._ticks, safety=self.safety, conditions=self._conditions,
            trip=self._trip, refused=self._refused, trips=self._trips, withheld=self._withheld,
            state_age=max(0.0, self._time - self._monitor.measured.stamp), clamped=self._clamped,
            replaced=self._replaced, missed=self._missed, oldest_command=self._oldest_command,
        )  # fmt: skip

    @property
    def executed(self) -> Executed:
        """Setpoint and counts of the last tick. Real-time: never blocks."""
        ticks, nobody = self._followed_ticks, self._followed is None
        return Executed(
            time=self._time, safety=self.safety, setpoint=self._followed,
            answers=-math.inf if nobody else self.answered,
            policy_ticks=ticks[SafetyState.POLICY], human_ticks=ticks[SafetyState.HUMAN],
            other_ticks=ticks[None],
        )  # fmt: skip

    def run(self, until: Callable[[], bool] = lambda: False, stop_time: float = 30.0) -> None:
        """Tick at the period until asked to end, then stop the robot softly.

        Ctrl-C asks to end too; pressed again, it stops the robot at once.

        Args:
            until: Whether to end; asked once per tick, while the robot stops too.
            stop_time: Longest time that the soft stop may take [s].
        """
        try:
            self._keep_time(until, stop_time)
        finally:
            self._stop_driver()

    def restart(self) -> None:
        """Let controllers and limiters start at the state that is measured next.

        For a simulated robot that is put elsewhere: a target would else come slowly from there.
        """
        self._started = False

    def tick_after(self, deadline: float) -> float:
        """Sleep for a period after a deadline and tick; returns the deadline that was kept.

        Periods that have passed meanwhile are skipped: two ticks at once would help nobody.

        Args:
            deadline: Of the tick before [s].
        """
        now = self._clock.now()
        deadline += self._period
        if not deadline - now <= 2 * self._period:  # the clock went back: nobody sleeps for that
            deadline = (now if math.isfinite(now) else self._latest) + self._period
        self._clock.sleep_until(deadline)
        late = self._clock.now() - deadline
        if not -self._period < late < _LONGEST_LATE:  # nor counts periods by such a clock
            late = 0.0
        self.latencies.add("lateness", late)
        missed = int((late + ROUNDING) / self._period)
        self.tick(missed)
        return deadline + missed * self._period

    def tick(self, missed: int = 0) -> None:
        """One period. Real-time: never blocks, never raises."""
        latencies = self.latencies
        faults, self._faults = self._faults, {}
        begin = self._time = self._begin_tick()
        self._ticks += 1
        self._missed += missed
        sample = self._tried(self._read, Condition.DRIVER_FAULT, (None, -math.inf))
        latencies.add("read", (read := self._now()) - begin)
        faults |= self._faults
        self._faults = {}
        self._decide(begin, read, sample, faults, missed)
        latencies.add("decide", (decided := self._now()) - read)
        good = self._monitor.commanded.good.get(self.safety)
        stamp = -math.inf if good is None else good.stamp
        answers_first, self.answered = stamp > self.answered, stamp
        self._followed = None
        command = self._command(begin)
        person = self.safety is SafetyState.HUMAN
        whose = self.safety if person or self._followed is not None else None
        self._followed_ticks[whose] += 1
        latencies.add("control", (controlled := self._now()) - decided)
        if command is None:
            self._stop_driver()
        else:
            self._tried(lambda: self._driver.write(command), Condition.DRIVER_FAULT, None)
        latencies.add("write", (written := self._now()) - controlled)
        latencies.add("tick", written - begin)
        if answers_first:
            latencies.add("answer", written - stamp)
        if good is not None and self.safety is SafetyState.POLICY:
            self._oldest_command = max(self._oldest_command, begin - stamp)

    def _now(self) -> float:
        """Time that is a number and never goes back, whatever the clock says [s]."""
        reading = self._clock.now()
        if self._latest < reading < math.inf:
            self._latest = reading
        return self._latest

    def _begin_tick(self) -> float:
        """Time of this tick [s].

        A clock that is no number or goes back pauses the robot, and the tick counts as one period
        after what was read last. Where nothing moves, the new time is taken, and nothing that was
        stamped by the old one counts any more.
        """
        reading = self._clock.now()
        if self._latest <= reading < math.inf:
            self._latest = reading
            return reading
        self._faults[Condition.OVERRUN] = (
            f"the clock went back by {self._latest - reading:.3f} s"
            if math.isfinite(reading)
            else f"the clock says {reading}"
        )
        still = self.safety in (SafetyState.PASSIVE, SafetyState.ESTOP)
        if still and math.isfinite(reading):
            self._latest = reading
            self._monitor.forget_times()
        else:
            self._latest += self._period
        return self._latest

    def _keep_time(self, until: Callable[[], bool], stop_time: float) -> None:
        deadline = self._now()
        end: float | None = None
        while end is None or not (self._at_rest() or self._now() > end):
            try:
                deadline = self.tick_after(deadline)
                asked = until()
                if asked and end is None:
                    end = self._ask_to_stop(stop_time)
            except KeyboardInterrupt:
                if end is not None:
                    break
                end = self._ask_to_stop(stop_time)

    def _read(self) -> tuple[RobotState | None, float]:
        try:
            state, stamp = self._driver.read(), float(self._driver.stamp)
        except StaleStateError:
            return None, -math.inf
        fields = state.fields
        if self._monitor.measured.stamp_fault(stamp, self._now()) is None:
            self._tried(lambda: self._on_sample(fields, stamp), Condition.STATE_INVALID, None)
        return state, stamp

    def _newest(self, who: SafetyState) -> StampedCommand | None:
        fault = Condition.COMMAND_INVALID if who is self.safety else Condition.POLICY_SILENT
        return self._tried(self._sources[who].newest, fault, None)

    def _decide(
        self, now: float, read_at: float, sample: tuple[RobotState | None, float],
        faults: Mapping[Condition, str], missed: int,
    ) -> None:  # fmt: skip
        seen = TickInputs(
            now=now, safety=self.safety, state=sample[0], stamp=sample[1], read_at=read_at,
            commands={who: self._newest(who) for who in self._sources},
            heartbeat=self.requests.heartbeat, followed=self._pipeline.followed, missed=missed,
            publishers=self.requests.publishers, doubled=self.requests.doubled,
        )  # fmt: skip
        found = self._tried(lambda: self._monitor.update(seen), Condition.DRIVER_FAULT, frozenset())
        found |= self._tried(
            lambda: self._stopping.conditions(self.safety, now), Condition.DRIVER_FAULT, frozenset()
        )
        faults = {**faults, **self._faults}  # a source or a monitor itself may have failed
        self._faults = {}
        before = self._conditions
        self._conditions = found | self.requests.take() | faults.keys()
        self._details = {**faults, **self._monitor.details}
        if refused := refusals(self.safety, self._conditions):
            self._refused = "; ".join(
                f"'{request.value}' is refused: "
                + (self._explained(reasons) or f"it does nothing in '{self.safety.value}'")
                for request, reasons in refused.items()
            )
        rule = deciding_rule(self.safety, self._conditions)
        causes = frozenset[Condition]() if rule is None else rule.when & self._conditions
        if (self._conditions - before) & WITHHOLDING:
            self._withheld += 1
        if rule is not None and rule.to is not self.safety:
            self._enter(now, rule.to, causes)

    def _enter(self, now: float, after: SafetyState, causes: frozenset[Condition]) -> None:
        before, self.safety = self.safety, after
        if after in COMMANDED_STATES:
            self._withheld = 0
        elif before is SafetyState.HUMAN:  # whatever ended it: a person gives the robot on
            self._withheld = self._withheld or 1
        if causes & _TROUBLE:
            self._trips += 1
            self._trip = f"{before.value} -> {after.value}: {self._explained(causes)}"
        else:
            self._refused = ""
        self._tried(lambda: self._begin(now, before, after), Condition.CONTROLLER_FAULT, None)

    def _explained(self, causes: frozenset[Condition]) -> str:
        """Conditions with what there is to say about them, in the order of the enum."""
        names = ((c.value, self._details.get(c)) for c in Condition if c in causes)
        return ", ".join(f"{name} ({detail})" if detail else name for name, detail in names)

    def _begin(self, now: float, before: SafetyState, after: SafetyState) -> None:
        state = self._monitor.measured.state
        if after is SafetyState.ARMING and state is not None:
            self._pipeline.start(state)
        if before is SafetyState.ESTOP:
            self._monitor.commanded.forget()
        if after in COMMANDED_STATES:
            self._pipeline.switch()
        else:
            self._stopping.enter(after, now, state, self._pipeline.followed)

    def _command(self, now: float) -> RobotCommand | None:
        """Command to send; None where only the driver's own stop is left."""
        state = self._monitor.measured.state
        if state is None:
            return None
        self._tried(lambda: self._follow(now, state), Condition.CONTROLLER_FAULT, None)
        if Condition.CONTROLLER_FAULT in self._faults and self.safety not in COMMANDED_STATES:
            # The stop itself failed: nothing milder is left.
            self._faults[Condition.DRIVER_FAULT] = self._faults[Condition.CONTROLLER_FAULT]
            return None
        return self._pipeline.sent  # of the tick before, where this one's failed

    def _follow(self, now: float, state: RobotState) -> None:
        if not self._started:
            self._pipeline.start(state)
            self._started = True
        good = self._monitor.commanded.good.get(self.safety)
        stops = abrupt = good is None
        if good is None:
            setpoint = self._stopping.setpoint(self.safety, now, state)
        elif self.safety is SafetyState.HUMAN and Condition.LEASE_LATE in self._conditions:
            followed = self._pipeline.followed  # the newest may be far ahead of the robot
            last = followed if isinstance(followed, type(good.command)) else good.command
            setpoint = self._stopping.freeze(last, state)
            stops, abrupt = type(setpoint) is not type(good.command), True
        else:
            setpoint = good.command
        changed = self._pipeline.follow(setpoint, state, self._period, stops=stops, abrupt=abrupt)
        if self._pipeline.sent is not None and self.safety is SafetyState.SAFE_STOP:
            self._stopping.hear(self._pipeline.sent)
        self._followed = None if stops else self._pipeline.followed
        if self._followed is not None:
            self._stopping.note(self._followed, now, state)
        self._clamped += changed[0]
        self._replaced += changed[1]
        if changed[1]:
            self._faults[Condition.CONTROLLER_FAULT] = "the command had entries that are no numbers"

    def _tried(self, call: Callable[[], _Result], fault: Condition, otherwise: _Result) -> _Result:
        """Result of a call; an exception becomes a fault of the next decision."""
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - the loop stops the robot, never the process
            self._faults[fault] = _told(error)
            return otherwise

    def _stop_driver(self) -> None:
        self._tried(self._driver.stop, Condition.DRIVER_FAULT, None)

    def _ask_to_stop(self, stop_time: float) -> float:
        """Ask for a soft stop; returns when patience ends [s]."""
        if self.safety in DRIVEN:
            self.requests.ask(Condition.DISARM)
        return self._now() + stop_time

    def _at_rest(self) -> bool:
        if self.safety is SafetyState.SAFE_STOP:
            return Condition.STOPPING not in self._stopping.conditions(self.safety, self._time)
        return self.safety in (SafetyState.PASSIVE, SafetyState.ESTOP)


def _told(error: Exception) -> str:
    """An exception in words, even one that cannot say them."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - the loop must go on
        return type(error).__name__
