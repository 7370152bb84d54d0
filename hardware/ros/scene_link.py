"""Goals and measurements of the scene on their way from topics to a learning environment.

    goal/<name>, sensed/<name> ---> channel `world` ---> actor, simulated person

What a simulated robot process tells of its world, somebody else's nodes tell here: a camera's
tracker, a calibrated fixture. Nothing goes on before every one of them has spoken, and the channel
is as old as the oldest of the measurements in it.
"""

import math
from collections.abc import Mapping

import numpy as np

from hardware.control.clock import Clock
from hardware.control.ipc import ArrayPublisher
from hardware.control.world import GOAL, SENSED
from hardware.ros.message_parts import clock_offset, to_nanoseconds
from hardware.ros.robot_inputs import GOAL_TYPE, SENSED_TYPE, put_row
from hardware.ros.session import RosSession
from robot_rl.core.errors import ShapeError


class SceneLink:
    """Hears goals and further inputs, and publishes the channel `world` of a robot."""

    def __init__(
        self, session: RosSession, channel: str, widths: Mapping[str, int], clock: Clock
    ) -> None:
        """Subscribe.

        Args:
            session: In whose namespace the topics lie.
            channel: Name of the channel, `RobotChannels.world`.
            widths: `goal/<name>` and `sensed/<name>` -> numbers; the channel's fields in order.
            clock: Of the robot's loop.
        """
        self._session, self._clock = session, clock
        self._values = {name: np.full((1, width), np.nan) for name, width in widths.items()}
        self._stamps = {name: -math.inf for name in widths if name.startswith(SENSED)}
        self._heard = {
            name: session.listen(
                name, *(GOAL_TYPE if name.startswith(GOAL) else SENSED_TYPE),
                latched=name.startswith(GOAL),
            )
            for name in widths
        }  # fmt: skip
        self._channel = ArrayPublisher(channel, dict(widths))
        self._wrong: dict[str, str] = {}  # newest message of a topic, where it could not be read
        self.trouble = ""
        """Reason why nothing goes on; empty where something does."""

    def poll(self) -> None:
        """Carry over what has come; waits for nothing."""
        came = False
        for name, heard in self._heard.items():
            message = heard.take()
            if message is None:
                continue
            sensed = name in self._stamps
            try:
                put_row(self._values[name], message.position if sensed else message.data, name)
            except ShapeError as error:  # another node's, or one that is set up wrongly
                self._wrong[name] = str(error)
                continue
            came = True
            self._wrong.pop(name, None)
            if sensed:
                self._stamps[name] = self._arrived(to_nanoseconds(message.header.stamp))
        silent = [name for name, value in self._values.items() if np.isnan(value).any()]
        unheard = [f"nothing has come yet on {', '.join(silent)}"] if silent else []
        self.trouble = "; ".join([*self._wrong.values(), *unheard])
        if came and not silent:
            oldest = min(self._stamps.values(), default=self._clock.now())
            self._channel.send(self._values, oldest)

    def close(self) -> None:
        """Remove the channel; allowed more than once."""
        self._channel.close()

    def _arrived(self, stamp: int) -> float:
        """Time of a measurement on the loop's clock [s]; one that lies ahead is of now."""
        offset = clock_offset(self._session.now, self._clock.now)
        return min((stamp - offset) * 1e-9, self._clock.now())
