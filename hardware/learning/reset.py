"""Resets between episodes, as data: what is done, in which order, before an episode begins.

    reset:
      tasks: # episodes go through them in turn: a forward and a backward task undo each other
        - name: insert
          steps:
            - move_end_effector: {position: [0.5, 0.0, 0.2], seconds: 2.0}
            - move_gripper: {opening: 0.25}
            - confirm: {prompt: put the peg into the hand}
        - name: retract # begins where the other one ended

A step yields one setpoint per control period, through the policy's channel: nothing blocks, and
the loop's limits hold. A step that is interrupted, because a person takes over or the robot holds,
begins again when the policy is followed: from where the steps before it had led the robot, and
with the gripper as the person left it.

A move that does not get where it leads in 10 s stands where it is and waits for a person, who
confirms for another try or skips it. Times to wait can be skipped too; a move under way cannot,
since what comes next may count on its way.
"""

import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

import numpy as np

from hardware.learning.port import Readings
from hardware.learning.setpoints import LedCommand, between, distance, standing, travel_time
from robot_rl.core import quaternion
from robot_rl.core.action import ActionMap
from robot_rl.core.errors import ConfigError, unknown_name
from robot_rl.core.observation import RobotState
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import CommandKind, JointCommand, PoseCommand, opening_of

_AGAIN_SECONDS = 1.0
"""Time after which a simulated world that does not answer is asked again [s]."""
_ARRIVAL_SECONDS = 10.0
"""Time in which a robot arrives after the last setpoint of a move, before a person is asked [s]."""


@dataclass(kw_only=True)
class ResetContext:
    """Everything that a step of a reset may read and change."""

    readings: Readings
    """Newest; anew in each control period."""
    hold: LedCommand
    """Setpoint that is held now: where the next step begins."""
    action_map: ActionMap
    """Kind and gains of setpoints."""
    dt: float
    """Control period [s]."""
    speed: float
    """Largest speed of the end effector [m/s]."""
    turn_speed: float
    """Largest speed of its rotation, and of each joint [rad/s]."""
    begin_world: Callable[[], int]
    """Asks a simulated world for an episode; returns the number of the request."""
    prompt: str = ""
    """Text for the person: what is waited for; empty where nothing is."""
    progress: float = 0.0
    """Part of the present step that is done, in [0, 1]."""
    confirmed: bool = False
    """The person has confirmed; a step that waited for it takes it back."""
    asks: bool = False
    """The present step waits for the person to confirm."""
    may_skip: bool = False
    """The present step may be skipped: the robot is led nowhere."""

    def begin(self) -> None:
        """Forget what the step before told."""
        self.prompt, self.progress, self.asks, self.may_skip = "", 0.0, False, False

    @property
    def state(self) -> RobotState:
        """Measured state."""
        state = self.readings.state
        assert state is not None  # no step runs without one
        return state


Setpoints: TypeAlias = Iterator[LedCommand]


class ResetStep(Protocol):
    """One step of a reset."""

    def check(self, robot: RobotSpec, action_map: ActionMap) -> None:
        """Refuse a robot that cannot do it; raises ConfigError."""
        ...

    def run(self, reset: ResetContext) -> Setpoints:
        """Setpoint of each control period until the step is done."""
        ...


@dataclass(kw_only=True)
class MoveJoints:
    """Lead the joints to a pose."""

    position: list[float]
    """In the order of the robot's joints [rad]."""
    seconds: float = 2.0
    """Time for it; longer where the reset's speed does not allow it."""
    tolerance: float = 0.05
    """Largest distance of a joint from it at which the step is done [rad]."""

    def check(self, robot: RobotSpec, action_map: ActionMap) -> None:
        """Refuse a pose of another robot, or outside its limits, or one that takes no joints."""
        if action_map.kind is not CommandKind.joint:
            raise ConfigError(
                f"move_joints needs a robot that is led by joint commands; this one takes "
                f"'{action_map.kind.value}': use move_end_effector"
            )
        if len(self.position) != robot.num_joints:
            raise ConfigError(
                f"move_joints: robot '{robot.name}' has {robot.num_joints} joints, got "
                f"{len(self.position)} positions"
            )
        for joint, position in zip(robot.joints, self.position, strict=True):
            low, high = joint.position_limit
            if not low <= position <= high:
                raise ConfigError(
                    f"move_joints: {position} is outside the limits of {joint.name}, "
                    f"{low} to {high}"
                )
        _check_positive("move_joints", seconds=self.seconds, tolerance=self.tolerance)

    def run(self, reset: ResetContext) -> Setpoints:
        """Minimum jerk from where the robot is held."""
        start = reset.hold
        assert isinstance(start, JointCommand)
        end = replace(start, q=np.array([self.position], dtype=np.float64))
        return _led(reset, end, self.seconds, (math.inf, self.tolerance))


@dataclass(kw_only=True)
class MoveEndEffector:
    """Lead the end effector to a pose in the base's axes."""

    position: list[float]
    """[m]"""
    orientation: list[float] = field(default_factory=list)
    """Quaternion wxyz; empty for the present one."""
    relative: bool = False
    """`position` is added to the present one: a retreat."""
    seconds: float = 2.0
    """Time for it; longer where the reset's speed does not allow it."""
    tolerance: float = 0.02
    """Largest distance from it at which the step is done [m]."""
    turn_tolerance: float = 0.1
    """Largest angle from it at which the step is done [rad]."""

    def check(self, robot: RobotSpec, action_map: ActionMap) -> None:
        """Refuse a robot that takes no poses, and a pose that is none."""
        if action_map.kind is not CommandKind.pose:
            raise ConfigError(
                f"move_end_effector needs a robot that is led by pose commands; this one takes "
                f"'{action_map.kind.value}': use move_joints"
            )
        if len(self.position) != 3 or len(self.orientation) not in (0, 4):
            raise ConfigError(
                f"move_end_effector takes 3 positions and 4 or no entries of a quaternion, got "
                f"{self.position} and {self.orientation}"
            )
        if self.orientation and not 0.99 < np.linalg.norm(self.orientation) < 1.01:
            raise ConfigError(f"move_end_effector: {self.orientation} is no unit quaternion")
        _check_positive(
            "move_end_effector", seconds=self.seconds, tolerance=self.tolerance,
            turn_tolerance=self.turn_tolerance,
        )  # fmt: skip

    def run(self, reset: ResetContext) -> Setpoints:
        """Minimum jerk from where the robot is held."""
        start = reset.hold
        assert isinstance(start, PoseCommand)
        position = np.array([self.position], dtype=np.float64)
        turn = start.orientation_w
        if self.orientation:
            turn = quaternion.normalize(np.array([self.orientation], dtype=np.float64))
        if self.relative:
            position = start.position_w + position
        end = replace(start, position_w=position, orientation_w=turn)
        return _led(reset, end, self.seconds, (self.tolerance, self.turn_tolerance))


@dataclass(kw_only=True)
class MoveGripper:
    """Open or close the gripper, and give it time; what it holds may keep it from getting there."""

    opening: float
    """Fraction of the largest, in [0, 1]."""
    seconds: float = 1.0
    """Time for it."""

    def check(self, robot: RobotSpec, action_map: ActionMap) -> None:
        """Refuse a robot without a gripper."""
        if robot.gripper is None:
            raise ConfigError(f"move_gripper: robot '{robot.name}' has no gripper")
        if not 0 <= self.opening <= 1:
            raise ConfigError(f"move_gripper.opening must lie in [0, 1], got {self.opening}")
        _check_positive("move_gripper", seconds=self.seconds)

    def run(self, reset: ResetContext) -> Setpoints:
        """The opening, for its time."""
        end = replace(reset.hold, gripper=np.array([[self.opening]]))
        return _held(reset, end, self.seconds)


@dataclass(kw_only=True)
class Wait:
    """Stand still."""

    seconds: float
    """Time for it."""

    def check(self, robot: RobotSpec, action_map: ActionMap) -> None:
        """Refuse a time that is none."""
        _check_positive("wait", seconds=self.seconds)

    def run(self, reset: ResetContext) -> Setpoints:
        """The setpoint that is held, for that time."""
        return _held(reset, reset.hold, self.seconds)


@dataclass(kw_only=True)
class Relax:
    """Follow the measured pose, so that what the end effector presses against lets it go."""

    seconds: float = 0.5
    """Time for it."""

    def check(self, robot: RobotSpec, action_map: ActionMap) -> None:
        """Refuse a time that is none."""
        _check_positive("relax", seconds=self.seconds)

    def run(self, reset: ResetContext) -> Setpoints:
        """The measured pose of each period, with the gripper as it is held."""
        opening = reset.hold.gripper
        grip = None if opening is None else float(opening[0, 0])
        for _ in _held(reset, reset.hold, self.seconds):
            yield standing(reset.action_map, reset.state, grip)


@dataclass(kw_only=True)
class BeginWorld:
    """Let the simulated world begin an episode of its own."""

    def check(self, robot: RobotSpec, action_map: ActionMap) -> None:
        """Any robot; a port without a simulated world refuses it."""

    def run(self, reset: ResetContext) -> Setpoints:
        """The measured pose, until the newest measurement is one of the new episode."""
        while True:
            number = reset.begin_world()
            for _ in range(max(2, round(_AGAIN_SECONDS / reset.dt))):
                yield standing(reset.action_map, reset.state)
                outcome = reset.readings.outcome
                begun = outcome is not None and outcome.begun == number
                if begun and outcome is not None and reset.readings.state_stamp > outcome.since:
                    reset.hold = standing(reset.action_map, reset.state)
                    return
            reset.prompt = "the simulated world does not answer"


@dataclass(kw_only=True)
class Confirm:
    """Wait for a person: who has put things back where they belong, and left the workspace."""

    prompt: str
    """Text that asks for it."""

    def check(self, robot: RobotSpec, action_map: ActionMap) -> None:
        """Refuse a question that asks nothing."""
        if not self.prompt:
            raise ConfigError("confirm needs a prompt that says what to do, got ''")

    def run(self, reset: ResetContext) -> Setpoints:
        """The setpoint that is held, until a person confirms after the question was asked."""
        return _asked(reset, self.prompt)


_STEPS: dict[str, type] = {
    "move_joints": MoveJoints,
    "move_end_effector": MoveEndEffector,
    "move_gripper": MoveGripper,
    "wait": Wait,
    "relax": Relax,
    "begin_world": BeginWorld,
    "confirm": Confirm,
}


def reset_step(values: Mapping[str, Any]) -> ResetStep:
    """A step from plain values: its name -> its fields, such as {"wait": {"seconds": 1.0}}.

    Raises:
        ConfigError: The step or a field is unknown or missing.
    """
    if len(values) != 1:
        raise ConfigError(
            f"a step of a reset is one name with its fields, got {dict(values)}; known: "
            f"{', '.join(_STEPS)}"
        )
    ((name, given),) = values.items()
    if name not in _STEPS:
        raise ConfigError(unknown_name("step of a reset", name, _STEPS))
    try:
        made: ResetStep = _STEPS[name](**(given or {}))
    except TypeError as error:
        raise ConfigError(f"step '{name}' of a reset: {error}") from None
    return made


@dataclass(kw_only=True)
class TaskReset:
    """A task, and the way to the start of its episodes."""

    name: str = "task"
    """Of the task: rewards are chosen by it."""
    steps: list[dict[str, Any]] = field(default_factory=list)
    """Steps in order, each a name with its fields; see `reset_step`."""


@dataclass(kw_only=True)
class ResetConfig:
    """Tasks that episodes go through in turn, and how fast a robot is led."""

    tasks: list[TaskReset] = field(default_factory=lambda: [TaskReset()])
    """One task; or a pair, forward and backward, of which each ends where the other begins."""
    speed: float = 0.1
    """Largest speed of the end effector while it is led [m/s]."""
    turn_speed: float = 0.5
    """Largest speed of its rotation, and of each joint [rad/s]."""

    def __post_init__(self) -> None:
        names = [task.name for task in self.tasks]
        if not names or len(set(names)) != len(names):
            raise ConfigError(f"a reset needs tasks with distinct names, at least one; got {names}")
        _check_positive("reset", speed=self.speed, turn_speed=self.turn_speed)


@dataclass(frozen=True)
class ResetProgress:
    """Present step of a reset, for people."""

    step: str
    """Name of the step, as in a config."""
    number: int
    """Place among the steps, from 1."""
    count: int
    """Steps of the reset."""
    seconds: float
    """Time that it has taken so far [s]."""
    asks: bool
    """It waits for a person to confirm."""
    may_skip: bool
    """It may be skipped."""


class Reset:
    """One reset under way: yields a setpoint per control period until its steps are done."""

    def __init__(self, steps: Sequence[ResetStep], context: ResetContext) -> None:
        self._steps, self.context = list(steps), context
        self._number = 0
        self._back: ResetStep | None = None  # to where an interrupted step begins
        self._running: Setpoints | None = None
        self._periods = 0  # of the present step

    @property
    def done(self) -> bool:
        """True once every step is."""
        return self._number == len(self._steps) and self._back is None

    @property
    def progress(self) -> float:
        """Part of all steps that is done, in [0, 1]."""
        count = len(self._steps)
        number = self._number - (self._back is not None)
        return 1.0 if self.done else max(number + self.context.progress, 0.0) / count

    @property
    def present(self) -> ResetProgress | None:
        """The present step; None once all are done."""
        if self.done:
            return None
        context = self.context
        return ResetProgress(
            step=_name_of(self._step), number=min(self._number + 1, len(self._steps)),
            count=len(self._steps), seconds=self._periods * context.dt, asks=context.asks,
            may_skip=context.may_skip,
        )  # fmt: skip

    @property
    def _step(self) -> ResetStep:
        return self._steps[self._number] if self._back is None else self._back

    def skip(self) -> None:
        """Go on to the next step, from where the robot is held.

        Raises:
            ConfigError: There is none, or it must not be skipped.
        """
        if self.done:
            raise ConfigError("all steps of the reset are done: there is none to skip")
        if not self.context.may_skip:
            raise ConfigError(
                f"step '{_name_of(self._step)}' of the reset cannot be skipped now; waits, grips "
                "and moves that did not get there can: confirm what it asks for, or begin the "
                "reset anew"
            )
        self._end_step()

    def _end_step(self) -> None:
        self._number += self._back is None
        self._back = self._running = None
        self._periods = 0
        self.context.begin()

    def advance(self, readings: Readings) -> LedCommand:
        """Setpoint of the next control period; what is held once all is done."""
        self.context.readings = readings
        while not self.done:
            if self._running is None:
                self._running = self._step.run(self.context)
            setpoint = next(self._running, None)
            if setpoint is not None:
                self.context.hold = setpoint
                self._periods += 1
                return setpoint
            self._end_step()
        return self.context.hold

    def interrupt(self, readings: Readings) -> LedCommand:
        """Stand where the robot is: nobody follows the policy. The present step begins again.

        Before it the robot is led back to where the last step that says a place led it, or the
        simulated world begins anew: a person may have left the robot anywhere.
        """
        self.context.readings, self._running, self._periods = readings, None, 0
        self.context.begin()
        opening = self.context.hold.gripper
        executed = readings.executed
        if executed is not None and executed.setpoint is not None:
            followed = opening_of(executed.setpoint)
            opening = opening if followed is None else followed
        grip = None if opening is None else float(opening[0, 0])
        self.context.hold = standing(self.context.action_map, self.context.state, grip)
        places = [
            k for k, step in enumerate(self._steps[: self._number + 1]) if _says_a_place(step)
        ]
        if places and isinstance(self._steps[places[-1]], BeginWorld):
            self._number = places[-1]
        elif places and places[-1] < self._number:
            self._back = self._steps[places[-1]]
        return self.context.hold


def _name_of(step: ResetStep) -> str:
    return next(name for name, made in _STEPS.items() if type(step) is made)


def _says_a_place(step: ResetStep) -> bool:
    """True if a step ends at a place of its own, wherever it began."""
    relative = isinstance(step, MoveEndEffector) and step.relative
    return isinstance(step, BeginWorld | MoveJoints | MoveEndEffector) and not relative


def _led(
    reset: ResetContext, end: LedCommand, seconds: float, tolerance: tuple[float, float]
) -> Generator[LedCommand]:
    """Lead to a setpoint and wait until the robot is there; after a while, for a person."""
    opening = end.gripper
    while True:
        start = reset.hold
        duration = max(seconds, travel_time(start, end, reset.speed, reset.turn_speed))
        count = math.ceil(duration / reset.dt)
        for number in range(1, count + 1):
            reset.progress = number / count
            yield between(start, end, number / count)
        left = ""
        for _ in range(math.ceil(_ARRIVAL_SECONDS / reset.dt)):
            way, turn = distance(standing(reset.action_map, reset.state), end)
            if way <= tolerance[0] and turn <= tolerance[1]:
                return
            left = f"{1e3 * way:.0f} mm and {turn:.2f} rad are left"
            reset.prompt = f"not there yet: {left}"
            yield end
        # What it may press against is let go.
        grip = None if opening is None else float(opening[0, 0])
        reset.hold, reset.may_skip = standing(reset.action_map, reset.state, grip), True
        yield from _asked(
            reset, f"not there after {_ARRIVAL_SECONDS:.0f} s: {left}. See what is in the way, "
            "then confirm for another try, or skip this step",
        )  # fmt: skip
        reset.begin()


def _asked(reset: ResetContext, prompt: str) -> Generator[LedCommand]:
    """Hold until a person confirms after this was asked."""
    reset.confirmed, reset.asks, reset.prompt = False, True, prompt
    while not reset.confirmed:
        yield reset.hold


def _held(reset: ResetContext, setpoint: LedCommand, seconds: float) -> Generator[LedCommand]:
    count = math.ceil(seconds / reset.dt)
    reset.may_skip = True
    for number in range(1, count + 1):
        reset.progress = number / count
        yield setpoint


def _check_positive(what: str, **values: float) -> None:
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise ConfigError(f"{what}.{name} must be a number > 0, got {value}")
