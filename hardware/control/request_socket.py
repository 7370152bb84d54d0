"""Requests of people on the robot's own computer, without ROS 2: a datagram socket.

Any number of programs may send, none waits for another, and what is sent while the robot process is
suspended is done when it goes on. ROS 2 services reach the loop through its bridge
(`ipc.RequestPublisher`), which may be dead; this path needs the robot process only.
"""

import errno
import socket

from hardware.control.ipc import channel_path
from hardware.control.robot_loop import OperatorRequests
from hardware.control.safety import OPERATOR_REQUESTS, Condition
from robot_rl.core.errors import RobotRLError

_BY_NAME = {request.value: request for request in OPERATOR_REQUESTS}
_LONGEST = 64
_MOST_PER_TICK = 16


class NoRobotError(RobotRLError):
    """No robot process takes requests under this name."""


class RequestSocket:
    """The robot process's end. Removes its file when closed."""

    def __init__(self, name: str, requests: OperatorRequests) -> None:
        """Listen; the caller holds a channel of this robot, so that a file left here is a dead one.

        Args:
            name: Of the channel; see `RobotChannels.operator`.
            requests: Where requests are handed on to.
        """
        self._path, self._requests = channel_path(name), requests
        self._path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(str(self._path))

    def poll(self) -> None:
        """Hand on what was asked for. Real-time: never blocks; bytes that are none are dropped."""
        for _ in range(_MOST_PER_TICK):
            try:
                said = self._socket.recv(_LONGEST)
            except OSError:  # nothing there
                return
            request = _BY_NAME.get(said.decode(errors="replace"))
            if request is not None:
                self._requests.ask(request)

    def close(self) -> None:
        """Stop listening; allowed more than once."""
        if self._socket.fileno() >= 0:
            self._path.unlink(missing_ok=True)
            self._socket.close()


def send_request(name: str, request: Condition) -> None:
    """Ask the loop of a robot process on this computer for something. Never waits.

    Args:
        name: Of the channel; see `RobotChannels.operator`.
        request: One of `OPERATOR_REQUESTS`.

    Raises:
        NoRobotError: Nobody listens there, or may not be asked by this user.
    """
    path = channel_path(name)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        try:
            sender.sendto(request.value.encode(), str(path))
        except OSError as error:
            why = error.strerror or str(error)
            if error.errno in (errno.EAGAIN, errno.ENOBUFS):  # the latter on macOS
                why = "it has not read the requests of before: is the robot process suspended?"
            raise NoRobotError(f"the robot '{name}' could not be asked: {why}") from None


def is_listening(name: str) -> bool:
    """True if a robot process takes requests under this name; a suspended one does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        return probe.connect_ex(str(channel_path(name))) == 0


def remove_dead_socket(name: str) -> None:
    """Remove the file of a robot process that was killed; one that somebody listens to stays."""
    path = channel_path(name)
    if path.is_socket() and not is_listening(name):
        path.unlink(missing_ok=True)
