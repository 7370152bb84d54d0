"""The link of a robot process to somebody else's node: topics <-> channels.

    their joint_states, imu/data, ... ---> measured channel ---> `IpcDriver` of the loop
    their command topic               <--- sent channel     <---

A sample goes on when a new message of the first topic has come and none of the others is too old;
its stamp is that of the message, on the loop's clock. When the loop falls silent, the last that
their node hears is a stop.
"""

from collections.abc import Mapping

import numpy as np

from hardware.control.clock import Clock
from hardware.control.ipc import (
    TEXT_WIDTH,
    ArrayPublisher,
    CommandLayout,
    CommandSubscriber,
    packed_text,
)
from hardware.control.monitors import StampedCommand
from hardware.control.process import RobotChannels
from hardware.controllers.controller import finite
from hardware.drivers.ipc_driver import DOUBLED, PUBLISHERS, measured_widths
from hardware.ros.command_messages import Gains
from hardware.ros.foreign_commands import COMMAND, JointForm, NativeCommands, Wiring
from hardware.ros.message_parts import clock_offset
from hardware.ros.robot_inputs import RobotInputs
from hardware.ros.session import RosSession
from robot_rl.core.errors import SpecMismatchError, StaleStateError
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import RobotCommand
from robot_rl.core.robot_driver import safe_command

_AHEAD = 50_000_000
"""Largest lead of a stamp [ns]: beyond that an old sample would look young."""
_BACK = 1e-3
"""By how much stamps may go back [s]: what the comparison of two clocks gives."""
_REMEMBER_SECONDS = 1.0
"""Time for which that is said [s]."""
_FRESH = 0.1
"""Age up to which a sample is gone by [s]."""
_COUNT_SECONDS, _FAREWELL_SECONDS = 0.1, 0.5


class RobotLink:
    """One robot that somebody else's node drives."""

    def __init__(
        self, session: RosSession, spec: RobotSpec, *, name: str, clock: Clock, wiring: Wiring,
        period: float, gain_sets: Mapping[str, Gains], silence: float = 0.1,
    ) -> None:  # fmt: skip
        """Open topics and channels.

        Args:
            wiring: Checked: topics and form of commands.
            period: Of the loop [s].
            silence: Age of the loop's newest command after which the node is stopped [s].
        """
        channels = RobotChannels(name)
        self._session, self._clock, self._silence = session, clock, silence
        self._inputs = RobotInputs(
            session, spec, goal_widths={}, sensed_widths={}, names=wiring.topics
        )
        self._measured = ArrayPublisher(channels.measured, measured_widths(spec))
        self._sent = CommandSubscriber(channels.sent, CommandLayout(spec, spec.command))
        self._commands = (
            JointForm(spec, wiring, gain_sets, period) if spec.joints else NativeCommands(spec)
        )
        self._topic = wiring.topics[COMMAND]
        self._publisher = session.publisher(self._topic, self._commands.kind, reliable=True)
        self._safe = safe_command(spec)
        self._last: StampedCommand | None = None
        self.driving = False
        """True while the loop commands the robot."""
        self._stamp = 0
        self._arrived = self._back_until = -np.inf
        self._back = ""
        self._count_at, self._publishers = clock.now(), 1
        self._theirs = [topic for name, topic in wiring.topics.items() if name != COMMAND]
        self._doubled = np.zeros((1, TEXT_WIDTH))
        self.doubled = ""
        """Topics of measurements that more than one node publishes, in words."""
        self.trouble = ""
        """Reason why no sample goes on, or why the loop uses none of them; empty where it does."""

    @property
    def heard(self) -> bool:
        """True once a sample has gone on."""
        return self._stamp > 0

    @property
    def others(self) -> int:
        """Number of others who send commands to the robot."""
        return self._publishers - 1

    def poll(self) -> None:
        """Carry over what has come on either side; call it more often than the loop ticks."""
        now = self._clock.now()
        if now >= self._count_at:
            self._count_senders()
            self._count_at = now + _COUNT_SECONDS
        self._hand_on_sample()
        self._hand_on_command(now)

    def close(self) -> None:
        """Stop the robot and let go of the channels; allowed more than once.

        Waits a moment for their node to have heard the stop: who leaves at once takes it along.
        """
        if self.driving:
            self._stop()
            self._session.deliver(self._publisher, _FAREWELL_SECONDS)
        self._measured.close()
        self._sent.close()

    def _count_senders(self) -> None:
        self._publishers = max(1, self._session.node.count_publishers(self._topic))
        doubled = self._session.doubled(self._theirs)
        if doubled != self.doubled:
            self.doubled = doubled
            self._doubled = packed_text(doubled)[None]

    def _hand_on_sample(self) -> None:
        try:
            self._inputs.poll()
        except SpecMismatchError as error:  # of another node on the topic, or for good
            self.trouble = str(error)
            return
        stamp = self._inputs.stamp
        if stamp == self._stamp and self.heard:
            return
        ros_now = self._session.now()  # after the look: what comes meanwhile is not early
        # Of every topic: one whose clock runs ahead would count as fresh after its sender's end.
        leads = {topic: there - ros_now for topic, there in self._inputs.stamps.items()}
        if ahead := [f"{n} ({lead * 1e-9:.3f} s)" for n, lead in leads.items() if lead > _AHEAD]:
            self.trouble = f"stamps lie in the future: {', '.join(ahead)}; synchronise the clocks"
            return
        try:
            self._inputs.robot_state(ros_now)
        except StaleStateError as error:
            self.trouble = str(error)
            return
        offset = clock_offset(self._session.now, self._clock.now)
        arrived = (min(stamp, ros_now) - offset) * 1e-9
        # On the loop's clock: a step of the system's clock moves stamps and offset alike.
        if (back := self._arrived - arrived) > _BACK:
            self._back_until = self._clock.now() + _REMEMBER_SECONDS
            self._back = f"stamps went back ({back:.3f} s): another sender, or a clock that was set"
        self.trouble = self._back if self._clock.now() < self._back_until else ""
        self._stamp, self._arrived = stamp, arrived
        told = {
            **self._inputs.state, PUBLISHERS: np.array([[self._publishers]]),
            DOUBLED: self._doubled,
        }  # fmt: skip
        self._measured.send(told, arrived)

    def _hand_on_command(self, now: float) -> None:
        newest = self._sent.newest()
        if newest is not None and newest is not self._last:
            self._last = newest
            self.driving = True
            self._publish(newest.command)
        elif self.driving and (newest is None or now - newest.stamp > self._silence):
            self._stop()

    def _stop(self) -> None:
        """The loop has ended or died: a stop, then nothing more."""
        self.driving = False
        self._publish(self._safe)
        last = self._commands.farewell()
        if last is not None:
            self._publisher.publish(last)

    def _publish(self, command: RobotCommand) -> None:
        if not finite(command):
            return
        fresh = self._clock.now() - self._arrived < _FRESH
        state = self._inputs.state if fresh else None
        packed = self._commands.pack(command, state, self._session.now())
        if packed is not None:
            self._publisher.publish(packed)
