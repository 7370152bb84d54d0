"""The bridge of a robot process to ROS 2: channels on one side, topics on the other.

| topic or service | type | what |
|---|---|---|
| measurements | see `state_messages` | every new state of the loop |
| `joint_command` and the like | see `command_messages` | a policy's commands, to the loop |
| `gain_sets` | std_msgs/String, JSON, latched | stiffness and damping of each joint, by set |
| `safety/state` | diagnostic_msgs/DiagnosticStatus, latched | state, conditions, last trip, age |
| `safety/estop` | std_msgs/Bool, latched | whether the emergency stop is latched |
| `/diagnostics` | diagnostic_msgs/DiagnosticArray | lateness and stages of the loop |
| `robot_description` | std_msgs/String, latched | URDF of the robot |
| `/tf` | tf2_msgs/TFMessage | odom -> base_link, where position and attitude are measured |
| `~/estop`, `~/reset_estop`, `~/hold`, `~/policy` | std_srvs/Trigger | requests of people |
| `~/arm` | std_srvs/SetBool | arm, or stop softly |
| `~/get_state` and the like | lifecycle_msgs | see `introspection`; read-only |

Both diagnostics become STALE where the robot process does not answer for a quarter of a second, and
say for how long; what they hold is then that old.

It may be killed at any time: the robot then hears no commands any more and stops by itself.
"""

import json
import math
from array import array
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hardware.control.clock import Clock
from hardware.control.ipc import (
    ArraySubscriber,
    CommandLayout,
    CommandPublisher,
    RequestPublisher,
    StatusSubscriber,
)
from hardware.control.monitors import StampedCommand
from hardware.control.process import RobotChannels
from hardware.control.robot_loop import SILENT_SECONDS, RobotStatus, silence_of
from hardware.control.safety import Condition, SafetyState
from hardware.control.world import OUTCOME
from hardware.ros.command_messages import CommandMessages, Gains
from hardware.ros.compat import message
from hardware.ros.introspection import lifecycle_of, mirror_lifecycle
from hardware.ros.message_parts import clock_offset, put_stamp
from hardware.ros.robot_description import RobotDescription
from hardware.ros.session import RosSession
from hardware.ros.state_messages import state_topics
from hardware.ros.streams import CommandReader, StateWriter
from hardware.teleop.velocity_goal import GOAL as STEERED
from hardware.teleop.velocity_goal import VelocityGoalReader
from robot_rl.core.errors import SpecMismatchError
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import CommandKind

_TELL_SECONDS, _DIAGNOSE_SECONDS = 0.1, 1.0
_EAGER_SECONDS, _IDLE_SECONDS = 2e-4, 1e-3
"""Rest before a state that is due is looked for, and one of a loop that is silent."""
_OK, _WARN, _ERROR, _STALE = b"\x00", b"\x01", b"\x02", b"\x03"
_RESTRICTIVE = (Condition.ESTOP_PRESSED, Condition.HOLD, Condition.DISARM)
"""Requests that reach a loop which does not answer, when it goes on."""
_LEVELS = {SafetyState.SAFE_STOP: _WARN, SafetyState.HOLD: _WARN, SafetyState.ESTOP: _ERROR}


class RobotBridge:
    """A robot process's topics and services."""

    def __init__(
        self,
        session: RosSession,
        spec: RobotSpec,
        *,
        name: str,
        clock: Clock,
        gain_sets: Mapping[str, Gains],
        period: float = 0.0,
        world: Mapping[str, int] | None = None,
        setpoint: CommandKind | None = None,
        urdf: str = "",
        steered: bool = False,
    ) -> None:
        """Open channels, topics and services.

        Args:
            gain_sets: As the robot process knows them, in the same order.
            period: Of the loop [s]; 0 if it is not known.
            world: Topics that a simulated robot's world fills, `goal/...` or `sensed/...`, with
                their widths; its outcome, which is for a learner, becomes no topic.
            setpoint: Kind of command that the robot process takes; the robot's own if None.
            urdf: Description of the robot; nothing is published if empty.
            steered: A person's velocity goal becomes a topic, once somebody steers; for robots
                whose goals the robot process does not tell.
        """
        channels = RobotChannels(name)
        self._session, self._clock, self._period = session, clock, period
        self._found_at = clock.now()
        self._states, self._status = (
            ArraySubscriber(channels.state, spec.state_widths),
            StatusSubscriber(channels.status),
        )
        self._requests = RequestPublisher(channels.requests)
        self._commands = CommandPublisher(
            channels.policy, CommandLayout(spec, setpoint or spec.command, [*gain_sets] or [""])
        )
        messages = CommandMessages(spec, gain_sets, setpoint)
        kind = message(messages.package, messages.message)
        self._heard = session.newest(messages.topic, kind, raw=True)
        self._orders = CommandReader(self._heard, messages)
        self._topics = [
            StateWriter(
                session.publisher(topic.name, message(topic.package, topic.message)),
                replace(topic, frame_prefix=session.frame_prefix),
                spec.state_widths,
            )
            for topic in state_topics(spec)
        ]
        self._description = RobotDescription(session, spec, urdf)
        self._status_kind = message("diagnostic_msgs", "DiagnosticStatus")
        self._value_kind = message("diagnostic_msgs", "KeyValue")
        self._array_kind = message("diagnostic_msgs", "DiagnosticArray")
        self._bool_kind = message("std_msgs", "Bool")
        self._safety = session.publisher("safety/state", self._status_kind, latched=True)
        self._estop = session.publisher("safety/estop", self._bool_kind, latched=True)
        self._diagnostics = session.publisher("/diagnostics", self._array_kind)
        self._world = ArraySubscriber(channels.world, world or {}) if world else None
        self._world_topics = {
            name: _WorldTopic(session, name) for name in world or {} if name != OUTCOME
        }
        self._steered = VelocityGoalReader(channels) if steered else None
        self._steers = False  # a person, in the last poll
        self._steering: _WorldTopic | None = None
        self._tell_at = self._diagnose_at = clock.now()
        self._told: SafetyState | None = None
        self._silent = self._begun = False
        self._senders = -1
        self.refused = ""
        """Reason why the last command that could not be read was not one."""
        self._tell_gains(spec, gain_sets)
        self._offer_services()

    @property
    def status(self) -> RobotStatus | None:
        """Newest status of the loop."""
        return self._status.newest()

    def rest(self) -> float:
        """Time until the loop may send something [s]: its state is then found at once."""
        now, due = self._clock.now(), self._found_at + self._period - _EAGER_SECONDS
        if now < due:
            return min(due - now, _IDLE_SECONDS)
        return _EAGER_SECONDS if now < due + self._period else _IDLE_SECONDS

    def poll(self, *, asked: bool = True) -> None:
        """Carry over what has come on either side; call it after every `rest`, or more often.

        Args:
            asked: Whether a service may have been called, as `RosSession.wait` says.
        """
        offset = clock_offset(self._session.now, self._clock.now)
        self._publish_steering(offset)
        self._publish_world(offset)  # first: a policy decides when the state has come
        self._publish_state(offset)
        self._count_senders()
        self._hand_on_command(offset)
        if asked:
            self._session.serve()
        now = self._clock.now()
        answered = self._status.time
        self._begun |= answered is not None
        silent = answered is not None and now - answered > SILENT_SECONDS
        turned, self._silent = silent is not self._silent, silent
        tells, diagnoses = turned or now >= self._tell_at, turned or now >= self._diagnose_at
        if not (tells or diagnoses or self._status.safety is not self._told):
            return  # to read a whole status takes long, and nobody asks for it
        status = self._status.newest()
        if status is None:
            self._tell_end()
            return
        if tells or status.safety is not self._told:
            self._tell(status, now)
            self._tell_at = now + _TELL_SECONDS
        if diagnoses:
            self._diagnose(status, now)
            self._diagnose_at = now + _DIAGNOSE_SECONDS

    def close(self) -> None:
        """Let go of the channels; allowed more than once."""
        for box in (self._states, self._status, self._requests, self._commands, self._world,
                    self._steered):  # fmt: skip
            if box is not None:
                box.close()

    def _publish_state(self, offset: int) -> None:
        found = self._states.newer()
        if found is None:
            return
        self._found_at = self._clock.now()
        fields, stamp = found
        for topic in self._topics:
            topic.publish(fields, round(stamp * 1e9) + offset)
        self._description.publish(fields, round(stamp * 1e9) + offset)

    def _publish_world(self, offset: int) -> None:
        found = self._world.newer() if self._world else None
        if found is None:
            return
        fields, stamp = found
        if not math.isfinite(stamp):
            return  # of a robot that has not measured yet
        for name, topic in self._world_topics.items():
            topic.publish(fields[name], round(stamp * 1e9) + offset)

    def _publish_steering(self, offset: int) -> None:
        """Goal of a person who steers; zero, once, where they have given it back."""
        if self._steered is None:
            return
        now = self._clock.now()
        velocity = self._steered.velocity(now)
        self._steers = velocity is not None
        if velocity is None and self._steering is None:
            return
        self._steering = self._steering or _WorldTopic(self._session, STEERED)
        value = np.zeros((1, 3)) if velocity is None else velocity
        self._steering.publish(value, round(now * 1e9) + offset)

    def _other_goals(self) -> int:
        """Others who send the goal that a person steers by: the policy would follow either."""
        if not self._steers or self._steering is None:
            return 0
        return max(0, self._session.node.count_publishers(self._steering.topic) - 1)

    def _count_senders(self) -> None:
        """Number of senders of commands, passed to the loop as soon as it changes."""
        senders = self._heard.publishers + self._other_goals()
        if senders != self._senders:
            self._senders = senders
            self._requests.update(heartbeat=0.0, publishers=senders, estop_down=False)

    def _hand_on_command(self, offset: int) -> None:
        try:
            heard = self._orders.read()
        except SpecMismatchError as error:
            self.refused = str(error)
            self._commands.refuse(self._clock.now(), self.refused)
            return
        if heard is not None:
            command, stamp, gains = heard
            self._commands.send(
                StampedCommand(command=command, stamp=(stamp - offset) * 1e-9, gains=gains)
            )

    def _tell_end(self) -> None:
        """Say once that there is no loop any more."""
        if self._told is not None:
            self._told = None
            text = "the robot process has ended"
            self._safety.publish(self._diagnostic(_STALE, "safety", text, {}))

    def _tell(self, status: RobotStatus, now: float) -> None:
        """Latched state of the safety machine."""
        silence = silence_of(status, now)
        held = ", ".join(sorted(condition.value for condition in status.conditions))
        texts = {
            "conditions": held, "last_trip": status.trip, "refused_act": status.refused,
            "refused_command": self.refused, "clamped_ticks": str(status.clamped),
            "last_state": status.safety.value, "age [s]": f"{now - status.time:.3f}",
        }  # fmt: skip
        level = _STALE if silence else _LEVELS.get(status.safety, _OK)
        text = silence or status.safety.value
        self._safety.publish(self._diagnostic(level, "safety", text, texts))
        if (status.safety is SafetyState.ESTOP) != (self._told is SafetyState.ESTOP) or (
            self._told is None
        ):
            latched = self._bool_kind()
            latched.data = status.safety is SafetyState.ESTOP
            self._estop.publish(latched)
        self._told = status.safety

    def _diagnose(self, status: RobotStatus, now: float) -> None:
        silence = silence_of(status, now)
        texts = {
            f"{stage} {what} [us]": f"{1e6 * seconds:.0f}"
            for stage, one in status.latencies.items()
            for what, seconds in (("p50", one.p50), ("p99", one.p99), ("max", one.longest))
        }
        texts["age [s]"] = f"{now - status.time:.3f}"
        level = _STALE if silence else _WARN if status.missed else _OK
        text = f"{status.ticks} ticks, {status.missed} periods missed"
        if silence:
            text = f"{silence}; until then {text}"
        array = self._array_kind()
        array.header.stamp = self._session.node.get_clock().now().to_msg()
        array.status = [self._diagnostic(level, "control loop", text, texts)]
        self._diagnostics.publish(array)

    def _diagnostic(self, level: bytes, name: str, text: str, values: Mapping[str, str]) -> Any:
        packed = self._status_kind()
        packed.level, packed.name, packed.message = level, name, text
        packed.hardware_id = self._session.node.get_namespace()
        packed.values = [self._value_kind(key=key, value=value) for key, value in values.items()]
        return packed

    def _tell_gains(self, spec: RobotSpec, gain_sets: Mapping[str, Gains]) -> None:
        """For nodes that command: which names of gains are known, and what they mean."""
        kind: Any = message("std_msgs", "String")
        packed, names = kind(), spec.joint_names
        packed.data = json.dumps(
            {
                name: {
                    "stiffness": dict(zip(names, gains.stiffness[0].tolist(), strict=True)),
                    "damping": dict(zip(names, gains.damping[0].tolist(), strict=True)),
                }
                for name, gains in gain_sets.items()
            }
        )
        self._session.publisher("gain_sets", kind, latched=True).publish(packed)

    def _offer_services(self) -> None:
        requests = {
            "estop": Condition.ESTOP_PRESSED, "reset_estop": Condition.RESET,
            "hold": Condition.HOLD, "policy": Condition.ENABLE_POLICY,
        }  # fmt: skip
        for name, request in requests.items():
            self._session.trigger(f"~/{name}", lambda request=request: self._ask(request))
        self._session.switch(
            "~/arm", lambda wanted: self._ask(Condition.ARM if wanted else Condition.DISARM)
        )
        mirror_lifecycle(self._session, self._lifecycle)

    def _lifecycle(self) -> str:
        return lifecycle_of(self._status.newest(), self._clock.now(), begun=self._begun)

    def _ask(self, request: Condition) -> tuple[bool, str]:
        """Pass a request to the loop; `safety/state` says whether it is done."""
        status = self._status.newest()
        if status is None:
            return False, "no robot process answers"
        if silence := silence_of(status, self._clock.now()):
            if request not in _RESTRICTIVE:
                return False, f"{silence}, so '{request.value}' was not passed on"
            self._requests.ask(request)
            return False, f"{silence}; it finds '{request.value}' when it goes on"
        self._requests.ask(request)
        return True, f"asked for '{request.value}' in '{status.safety.value}'; see safety/state"


class _WorldTopic:
    """A goal, latched, or a further input, with its time: as `robot_inputs` reads them.

    A goal is sent when it changes: who comes later gets it nevertheless.
    """

    def __init__(self, session: RosSession, name: str) -> None:
        self._latched = name.startswith("goal/")
        package, kind = (
            ("std_msgs", "Float64MultiArray") if self._latched else ("sensor_msgs", "JointState")
        )
        self._kind = message(package, kind)
        self._publisher = session.publisher(name, self._kind, latched=self._latched)
        self.topic: str = self._publisher.topic_name
        """Full name."""
        self._sent: np.ndarray | None = None

    def publish(self, value: np.ndarray, stamp: int) -> None:
        if self._latched and self._sent is not None and np.array_equal(value, self._sent):
            return
        self._sent = value
        packed = self._kind()
        if self._latched:
            packed.data = array("d", value.ravel())
        else:
            packed.position = array("d", value.ravel())
            put_stamp(packed.header, stamp)
        self._publisher.publish(packed)
