"""A person who takes the robot over without a bump, leads it, and gives it back.

The one class that a console, a device on the host and a simulated person all move a robot through.
It asks, and the robot's loop decides: every limit, the lease, and whether a hand-over is near
enough are checked in `hardware/control`, after this. Nothing here waits or sleeps.

    teleoperator.set_intent({"axes": [...], "clutch": True}, now)   # each message of the device
    teleoperator.tick(now)                                          # 50 times a second

The lease lasts as long as intents come. When they stop, the target stands at once, after
`lease_late` the loop lets the robot stand, after `lease_lost` it holds: nobody has it then, and in
particular not the policy.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from hardware.control.monitors import SafetyLimits, StampedCommand
from hardware.control.robot_loop import RobotStatus, silence_of
from hardware.control.safety import Condition, SafetyState
from hardware.controllers.handover import min_jerk
from hardware.teleop.intent import Floats, Intent, StickConfig, shaped
from hardware.teleop.intervention import Intervention, InterventionTracker, SegmentKind
from hardware.teleop.rewind import Rewind
from hardware.teleop.robot_port import RobotPort
from hardware.teleop.targets import Target
from robot_rl.core.observation import RobotState
from robot_rl.core.robot_command import RobotCommand

TELEOP_PERIOD = 0.02
"""Time between two ticks [s]: 50 Hz."""
_LONGEST_STEP = 0.1
"""Longest time that one tick integrates [s]: a program that was suspended does not leap."""
_ANSWER_SECONDS = 0.2
"""Time in which the loop grants a request or says why it does not [s]."""
_READ_SECONDS = 0.02
"""Time in which a request certainly reaches a tick of the loop [s]: refusals are read after it."""
_PATH_ENDS = frozenset(
    {SafetyState.PASSIVE, SafetyState.ARMING, SafetyState.SAFE_STOP, SafetyState.ESTOP}
)
"""States in which the robot moves by itself or by hand: what follows is another path."""
_AUTHORITY = {
    SafetyState.POLICY: "policy",
    SafetyState.HUMAN: "human",
    SafetyState.HOLD: "nobody",
    SafetyState.READY: "nobody",
}


@dataclass(kw_only=True)
class TeleopConfig:
    """Behaviour of a teleoperator."""

    stick: StickConfig = field(default_factory=StickConfig)
    """Response of the stick."""
    blend_time: float = 0.4
    """Time of a hand-over, as of the loop's `ControllerSet` [s]: for the progress that is shown."""
    path_seconds: float = 20.0
    """Length of the path that can be rewound [s]."""
    gains: str = ""
    """Name of the set of gains of a person's commands."""


class Teleoperator:
    """One person's hand on one robot."""

    def __init__(
        self,
        port: RobotPort,
        target: Target,
        config: TeleopConfig | None = None,
        *,
        limits: SafetyLimits | None = None,
        followed: Callable[[], RobotCommand | None] = lambda: None,
    ) -> None:
        """Join the parts.

        Args:
            port: The robot.
            target: The setpoint that the person moves.
            limits: Of the robot's loop: how long a lease lasts.
            followed: Setpoint that the loop followed last, None where that is not known: a
                person's first setpoint is that one, so that a spring keeps its tension.
        """
        self.port = port
        """The robot; another one may take its place while nobody leads."""
        self._target, self._followed = target, followed
        self.config = config or TeleopConfig()
        """Behaviour."""
        self._lease = (limits or SafetyLimits()).lease_lost
        self.interventions = InterventionTracker()
        """The person's newest intervention."""
        self._rewind = Rewind(self.config.path_seconds, TELEOP_PERIOD)
        self._intent: Intent | None = None
        self._heard = -math.inf
        self._ticked = -math.inf
        self._changed = -math.inf
        self._grip = False
        self._shaped: Floats = np.zeros(6)
        self._asked: tuple[Condition, float] | None = None
        self._refusal = ""
        self._rewind_seconds = 0.0
        self._safety: SafetyState | None = None
        self._silence = "no robot process is running"

    def set_intent(self, intent: Mapping[str, Any] | None, now: float) -> None:
        """Take the state of the person's device; None where they let go of it.

        Args:
            intent: As of `Intent.from_dict`; each one renews the lease.
            now: Clock of the loop [s].

        Raises:
            ConfigError: It is none; the person counts as gone until a good one comes.
        """
        self._intent = None
        if intent is not None:
            self._intent, self._heard = Intent.from_dict(intent), now

    def take_over(self, now: float) -> None:
        """Ask for the robot; `status` says whether it was granted, or why not."""
        self._rewind_seconds = 0.0
        self._take(now)

    def _take(self, now: float) -> None:
        self.interventions.request(now)
        if self._safety not in (SafetyState.POLICY, SafetyState.READY, SafetyState.HUMAN):
            held = "unknown" if self._safety is None else self._safety.value
            self._refusal = self._silence or f"a robot in '{held}' cannot be taken over: arm it"
        elif not self._present(now):
            self._refusal = "the robot was not taken over: no device is heard"
        else:
            self._ask(Condition.HAND_TO_HUMAN, now)

    def give_back(self, now: float) -> None:
        """Ask that the policy goes on; refused where it is silent or its command is far away."""
        self._rewind.cancel()
        self._ask(Condition.ENABLE_POLICY, now)

    def rewind(self, seconds: float, now: float) -> None:
        """Go back along the robot's own path, as the person; the robot is taken over if need be.

        Deflections with the clutch down and everything that ends the person's authority end it.

        Args:
            seconds: Length of the path to go back along [s]; 0 ends a rewind that is under way.
        """
        self._rewind_seconds = seconds
        if seconds == 0:
            self._rewind.cancel()
        elif self._safety is SafetyState.HUMAN:
            self._begin_rewind()
        else:
            self._take(now)
            if self._refusal:  # a later take-over is no rewind
                self._rewind_seconds = 0.0

    def mark(self, kind: SegmentKind, now: float) -> None:
        """Say what the person does from now on; refused where they do not lead."""
        self.interventions.mark(kind)
        leads = self.interventions.leads
        self._refusal = "" if leads else f"'{kind.value}' is a part of a take-over: take over first"

    def forget_path(self) -> None:
        """Begin the path anew: the robot was put elsewhere."""
        self._rewind.forget()

    def tick(self, now: float) -> None:
        """Send the setpoint of now; 50 times a second. Real-time: never blocks.

        Args:
            now: Clock of the loop [s].
        """
        dt = min(max(now - self._ticked, 0.0), _LONGEST_STEP) if self._ticked > 0 else 0.0
        self._ticked = now
        status, found = self.port.status(), self.port.state()
        self._observe(status, now)
        if found is None:
            return
        state, stamp = found
        if self._safety is SafetyState.HUMAN:
            self._lead(state, dt, now)
        else:
            self._rewind.cancel()
            self._shaped = np.zeros(6)
            self._target.sync(state, self._followed())
        if self._safety in (SafetyState.POLICY, SafetyState.HUMAN):
            self._rewind.remember(now, *self._target.measured(state))
        if self._present(now):
            self.port.heard(self._heard)
            self.port.send(
                StampedCommand(command=self._target.command(), stamp=stamp, gains=self.config.gains)
            )

    def status(self, now: float) -> dict[str, Any]:
        """Everything that a page shows, plain values.

        Args:
            now: Clock of the loop [s].
        """
        intent = self._intent
        position, _ = self._target.pose()
        return {
            "authority": _AUTHORITY.get(self._safety, "nobody") if self._safety else "unknown",
            "safety": self._safety.value if self._safety else "",
            "leads": self._safety is SafetyState.HUMAN,
            "present": self._present(now),
            "lease_left": max(0.0, self._lease - (now - self._heard)),
            "refusal": self._refusal,
            "asking": self._asked[0].value if self._asked else "",
            "handover": self._handover(now),
            "raw": [0.0] * 6 if intent is None else intent.axes.tolist(),
            "shaped": self._shaped.tolist(),
            "clutch": intent is not None and intent.clutch,
            "target": position.tolist(),
            "segment": self.interventions.kind.value,
            "rewinding": self._rewind.active,
            "rewind_progress": self._rewind.progress,
            "path_seconds": self._rewind.seconds,
            "intervention": _plain(self.interventions.newest),
        }

    def close(self) -> None:
        """Let go of the robot's channels; the loop holds the robot if the person had it."""
        self.port.close()

    def _present(self, now: float) -> bool:
        """The person was heard recently: never longer than the loop's own lease."""
        return self._intent is not None and now - self._heard <= self._lease

    def _observe(self, status: RobotStatus | None, now: float) -> None:
        """Holder of the robot, and the outcome of the last request."""
        before = self._safety
        self._silence = "no robot process is running" if status is None else silence_of(status, now)
        self._safety = None if status is None or self._silence else status.safety
        safety = self._safety or SafetyState.HOLD  # of a silent loop nobody knows who leads
        self.interventions.observe(safety, now)
        if self._safety is not before:
            self._changed = now
        if self._safety in _PATH_ENDS:
            self._rewind.forget()
        if self._safety is SafetyState.HUMAN and before is not SafetyState.HUMAN:
            self._refusal, self._asked = "", None
            if self._rewind_seconds > 0:
                self._begin_rewind()
        elif self._safety is not before and before is not None:
            self._refusal, self._asked, self._rewind_seconds = "", None, 0.0
        if self._asked is None or status is None:
            return
        request, since = self._asked
        if status.time > since + _READ_SECONDS and request.value in status.refused:
            self._refusal, self._asked = status.refused, None
            self._rewind_seconds = 0.0
        elif now - since > _ANSWER_SECONDS:
            self._refusal = self._silence or f"'{request.value}' was not answered"
            self._asked, self._rewind_seconds = None, 0.0

    def _ask(self, request: Condition, now: float) -> None:
        self._refusal = self.port.ask(request)
        self._asked = None if self._refusal else (request, now)

    def _begin_rewind(self) -> None:
        self._refusal = self._rewind.begin(self._rewind_seconds)
        self._rewind_seconds = 0.0
        if self._rewind.active:
            self.interventions.mark(SegmentKind.recovery)

    def _lead(self, state: RobotState, dt: float, now: float) -> None:
        """Move the target by the rewind, or by what the person says."""
        intent = self._intent if self._present(now) else None
        if intent is None:
            self._rewind.cancel()
            self._shaped = np.zeros(6)
            return
        self._shaped = shaped(intent, self.config.stick)
        if self._shaped.any():
            self._rewind.cancel()
        if intent.gripper and not self._grip:
            self._target.turn_gripper(state)
        self._grip = intent.gripper
        if self._rewind.active:
            self._rewind.advance(self._target, state, dt)
        else:
            self._target.advance(self._shaped, intent.frame, state, dt)

    def _handover(self, now: float) -> float:
        """Progress of the blend to whom the robot belongs now, in [0, 1]; 0 for nobody."""
        if self._safety not in (SafetyState.HUMAN, SafetyState.POLICY):
            return 0.0
        share = (now - self._changed) / max(self.config.blend_time, 1e-9)
        return min_jerk(min(max(share, 0.0), 1.0))


def _plain(one: Intervention) -> dict[str, Any] | None:
    """An intervention for JSON, which has no NaN; None where there was none."""
    found = {name: value if math.isfinite(value) else None for name, value in asdict(one).items()}
    return None if found["granted"] is None else found
