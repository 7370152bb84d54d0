"""The policy's node: measurements in, commands out, once per control period.

A period ends as soon as its measurements have come (`DecisionTiming`). The node decides nothing
about safety: the robot's side does, and does not trust this one. What is refused here is refused so
that a person reads why.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from hardware.control.clock import Clock
from hardware.control.safety import SafetyState
from hardware.ros.camera_inputs import CameraInputs
from hardware.ros.command_messages import CommandMessages, Gains
from hardware.ros.compat import message
from hardware.ros.policy_step import STEP_TOPIC, STEP_TYPE, PolicyStep, StepMessages, decide
from hardware.ros.robot_inputs import RobotInputs
from hardware.ros.session import RosSession
from hardware.ros.streams import CommandWriter
from policies.runner import PolicyRunner, PolicySpec
from robot_rl.core.errors import StaleStateError
from robot_rl.core.robot_command import CommandKind, RobotCommand

_SLACK = 0.25
"""Lead with which a sample may end a period [periods]."""
_LARGEST_LEAD = 0.05
"""Of a measurement's stamp [s]."""
_PATIENCE = 1.5
"""Longest wait for a sample that is late [periods]."""


class DecisionTiming:
    """Says when a control period is over; asked after every look at what has come."""

    def __init__(self, control_dt: float, rates: Mapping[str, float]) -> None:
        """Nothing has been decided yet: the first samples are answered at once.

        Args:
            control_dt: Between two decisions [s].
            rates: Topics with stamps, and how often each comes [Hz].
        """
        self._period, self._period_ns = control_dt, round(control_dt * 1e9)
        self._slack = round(_SLACK * control_dt * 1e9)
        self._topics = [name for name, rate in rates.items() if rate * control_dt > 1 - _SLACK]
        """Those that end a control period."""
        self._patience = control_dt * (_PATIENCE if self._topics else 1.0)
        self._due: int | None = None
        self._answered = 0  # stamp of what was decided on last [ns]
        self._decided: float | None = None

    def rest(self, now: float) -> float:
        """Time until a sample may end the period [s]; 0 where it may now."""
        return self._until(1 - _SLACK if self._topics else 1.0, now)

    def spare(self, now: float) -> float:
        """Time until a sample may be expected [s]; 0 where the clock decides."""
        return self._until(1.0, now) if self._topics else 0.0

    def left(self, now: float) -> float:
        """Longest wait for a sample [s]."""
        if self._decided is None:
            return self._patience
        return max(0.0, self._decided + self._patience - now)

    def is_over(self, stamps: Mapping[str, int], now: float) -> bool:
        """True if it is time to decide; the next period has then begun.

        Args:
            stamps: Of the newest message of each topic that has sent one [ns].
        """
        if self._decided is None:
            self._decided = now - (1 - _SLACK) * self._period  # looks from now on
        oldest = min((stamps.get(name, 0) for name in self._topics), default=0)
        in_time = oldest > self._answered and oldest >= (self._due or 0) - self._slack
        if not in_time and self.left(now) > 0:
            return False
        if oldest < self._answered:  # the clock of the stamps was set back: periods count anew
            self._due = None
        self._decided, self._answered = now, oldest
        if in_time and (self._due is None or oldest > self._due + self._period_ns):
            self._due = oldest  # the first one, or the first after a pause
        if self._due is not None:
            self._due += self._period_ns
        return True

    def _until(self, share: float, now: float) -> float:
        """Time until a share of the period is over [s]."""
        if self._decided is None:
            return 0.0
        return max(0.0, self._decided + share * self._period - now)


_SAFETY_TYPE = ("diagnostic_msgs", "DiagnosticStatus")
_STEPS_KEPT = 128
"""For a recorder that has not found the policy yet when the policy has found the recorder."""


@dataclass(frozen=True, kw_only=True)
class PolicyTick:
    """Outcome of one control period."""

    command: RobotCommand | None
    """Decision; None while the policy waits."""
    waits_for: str = ""
    """Reason why nothing was decided."""


def gains_of(spec: PolicySpec) -> dict[str, Gains]:
    """The gain set that a policy was trained with, by a name that says which numbers it holds."""
    action_map = spec.action_map
    joints = spec.robot.num_joints
    if action_map.kind is not CommandKind.joint:
        return {}
    gains = Gains(
        stiffness=np.array([action_map.stiffness[:joints]]),
        damping=np.array([action_map.damping[:joints]]),
    )
    digest = sha256(gains.stiffness.tobytes() + gains.damping.tobytes()).hexdigest()
    return {f"policy:{digest[:8]}": gains}


def command_messages(spec: PolicySpec) -> CommandMessages:
    """Messages of a policy's commands."""
    return CommandMessages(spec.robot, gains_of(spec), spec.action_map.kind)


class PolicyNode:
    """A policy between a robot's topics."""

    def __init__(
        self,
        session: RosSession,
        runner: PolicyRunner,
        *,
        goals: Mapping[str, np.ndarray] | None = None,
        cameras: CameraInputs | None = None,
        shadow: bool = False,
    ) -> None:
        """Subscribe and publish.

        Args:
            goals: Goals that hold until a message changes them, (1, width).
            cameras: Those that the policy sees; None for none.
            shadow: Publish under `shadow/` what would have been commanded; the robot hears none.
        """
        spec = runner.spec
        self.runner, self._cameras = runner, cameras
        self.inputs = RobotInputs(
            session, spec.robot, goal_widths=spec.goal_widths, sensed_widths=spec.given_widths,
            goals=goals,
        )  # fmt: skip
        self._read = [*self.inputs.rates, *(f"sensed/{name}" for name in spec.given_widths)]
        self._read += cameras.topics if cameras is not None else []
        self._clocks = runner.clocks()
        self._playback = runner.playback()
        self._session = session
        messages = command_messages(spec)
        self.topic = f"{'shadow/' if shadow else ''}{messages.topic}"
        kind = message(messages.package, messages.message)
        self._publisher = session.publisher(self.topic, kind)
        self._commands = CommandWriter(self._publisher, messages, next(iter(gains_of(spec)), ""))
        self._step_kind = message(*STEP_TYPE)
        self._steps = StepMessages(spec, message("std_msgs", "MultiArrayDimension"))
        self._step_publisher = session.publisher(
            STEP_TOPIC, self._step_kind, reliable=True, depth=_STEPS_KEPT
        )
        self._safety = session.listen("safety/state", *_SAFETY_TYPE, latched=True)
        self._in_charge = True
        self._ended, self._number = True, 0
        self._timing = DecisionTiming(spec.control_dt, self.inputs.rates)
        self._rehearsal = 0.0  # how long the last one took [s]

    def wait(self, clock: Clock) -> bool:
        """Sleep until a message has come that may end a control period, or none came in time.

        Returns:
            Whether the period is over: then `tick`.

        Raises:
            SpecMismatchError: Messages do not fit the robot that the policy was trained for.
            ShapeError: A goal or a further input has another width than the policy's.
        """
        now = clock.now()
        if (rest := self._timing.rest(now)) > 0:
            clock.sleep_until(now + rest)
            begin = clock.now()
            if self._timing.spare(begin) > 2 * self._rehearsal:
                self.rehearse()
                self._rehearsal = clock.now() - begin
        self._session.wait(self._timing.left(clock.now()))
        self.inputs.poll()
        if self._cameras is not None:
            self._cameras.poll()
        return self._timing.is_over(self.inputs.stamps, clock.now())

    def rehearse(self) -> None:
        """Do what `tick` will do, for nobody: what has slept for a period is slow at first."""
        if not self._ended:
            self._commands.prepare(self.runner.rehearse(), self.inputs.stamp)

    def tick(self) -> PolicyTick:
        """Decide on what `wait` has seen, publish; once per control period.

        After a pause in the measurements, or one that is not finite, an episode begins anew:
        histories of before would be mixed with what came after. And until the policy is in charge,
        every step is the first one: what it would have done has not been done. While a topic of
        measurements has more than one sender, or they lie in the future, or a picture cannot be
        used, nothing is decided.

        Raises:
            NonFiniteError: An observation or the action is not finite; nothing was published.
        """
        if (told := self._safety.take()) is not None:  # no robot of ours, if nothing ever comes
            self._in_charge = told.message == SafetyState.POLICY.value
        starts, self._ended = self._ended or not self._in_charge, True
        self._run_clocks(starts)
        now = self._session.now()
        if waits_for := self._session.doubled(self._read) or self._ahead(now):
            return PolicyTick(command=None, waits_for=waits_for)
        try:
            command = decide(
                self.runner, self.inputs, now=now, starts=starts, cameras=self._cameras
            )
        except StaleStateError as error:
            return PolicyTick(command=None, waits_for=str(error))
        self._ended = False
        self._commands.publish(command, self.inputs.stamp)
        self._tell_step(starts)
        return PolicyTick(command=command)

    def _ahead(self, now: int) -> str:
        """Topics whose newest measurement lies in the future, in words; ages would be none."""
        ahead = {n: (stamp - now) * 1e-9 for n, stamp in self.inputs.stamps.items()}
        told = [f"{n} ({lead:.3f} s)" for n, lead in ahead.items() if lead > _LARGEST_LEAD]
        return f"measurements lie in the future: {', '.join(told)}" if told else ""

    def _run_clocks(self, starts: bool) -> None:
        """Goals that run by themselves, where nobody sends them."""
        for name, clock in self._clocks.items():
            if name in self.inputs.sent_goals:
                continue
            if starts:
                clock.reset()
            else:
                clock.tick()
            self.inputs.goal[name][:] = clock.value(self.inputs.goal)
        if (clip := self._playback) is None:
            return
        if starts:
            clip.reset(self.inputs.state)
        else:
            clip.tick()
        for name in clip.goals:
            if name not in self.inputs.sent_goals:
                self.inputs.goal[name][:] = clip.value(name)

    def _tell_step(self, starts: bool) -> None:
        """Say what the command came from, where somebody listens: a recorder."""
        self._number += 1
        if not self.recorders:
            return
        packed = self._step_kind()
        self._steps.pack(PolicyStep.of(self._number, starts, self.inputs, self.runner), packed)
        self._step_publisher.publish(packed)

    @property
    def recorders(self) -> int:
        """Number of subscribers to the steps."""
        return int(self._step_publisher.get_subscription_count())

    @property
    def listeners(self) -> int:
        """Number of subscribers to the commands."""
        return int(self._publisher.get_subscription_count())
