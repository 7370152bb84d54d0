"""Messages between the console and the actor, two processes on the robot's computer.

The actor owns a Unix stream socket (`channel_path("<robot>.actor")`), and any number of consoles
connect to it. A line is a JSON object:

    console -> actor   {"id": ..., "do": "success", "operator": "ann", "t": 1764143000.25, ...}
    actor -> console   {"answer": <id>, "ok": true, "why": "", "episode": "<session>_<number>"}
    actor -> console   {"snapshot": {"episode": 3, "phase": "running", ...}}

Neither side ever waits for the other. A console that does not read loses snapshots, never answers;
one that leaves too much unread is disconnected. The console reconnects with growing pauses.
"""

import contextlib
import json
import os
import selectors
import socket
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hardware.control.ipc import channel_path
from robot_rl.core.errors import ConfigError, RobotRLError

COMMANDS = (
    "success", "fail", "discard", "undo", "segment", "reset", "ready", "pause_learning",
    "resume_learning", "rollback", "evaluate", "rewind", "relabel", "end_episode", "skip",
    "freeze_policy", "release_policy",
)  # fmt: skip
"""Known values of `do`."""
LEARNER_WISHES = ("pause_learning", "resume_learning", "rollback")
"""Those of them that the learner fulfils, and the actor hands on."""
LONGEST_LINE = 64 * 1024
"""Bytes of a message; a longer one ends the connection."""
_MOST_UNSENT = 256 * 1024
"""Bytes that wait for a console before it is disconnected."""
_SNAPSHOT_ROOM = 64 * 1024
"""Bytes that may wait while a snapshot is still sent."""
_MOST_CONSOLES = 8
_MOST_PER_POLL = 64
"""Commands of a console that a person can have given between two polls."""
_CHUNK = 64 * 1024
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
"""Pauses between attempts to connect [s]."""


class ActorBusyError(RobotRLError):
    """Another actor of this robot listens."""


class NoActorError(RobotRLError):
    """No actor can be asked."""


@dataclass
class _Peer:
    """A stream socket with the bytes that are under way on both sides."""

    socket: socket.socket
    received: bytearray = field(default_factory=bytearray)
    unsent: bytearray = field(default_factory=bytearray)

    def read_lines(self) -> list[bytes] | None:
        """Whole lines that have come; None where the other side has gone or sends too much."""
        ended = False
        try:
            while len(self.received) <= LONGEST_LINE:
                chunk = self.socket.recv(_CHUNK)
                if not chunk:
                    ended = True
                    break
                self.received += chunk
        except BlockingIOError:
            pass
        except OSError:
            return None
        *lines, rest = bytes(self.received).split(b"\n")
        if len(rest) > LONGEST_LINE or any(len(line) > LONGEST_LINE for line in lines):
            return None
        self.received = bytearray(rest)
        return None if ended and not lines else lines

    def send(self, message: Mapping[str, Any]) -> bool:
        """Send a line, or keep it until there is room; False where the other side has gone."""
        self.unsent += json.dumps(message, separators=(",", ":")).encode() + b"\n"
        return self.flush()

    def flush(self) -> bool:
        """Send what waits; False where the other side has gone or leaves too much unread."""
        try:
            while self.unsent:
                del self.unsent[: self.socket.send(self.unsent)]
        except BlockingIOError:
            pass
        except OSError:
            return False
        return len(self.unsent) <= _MOST_UNSENT


class ActorSocket:
    """The actor's end; one at a time per robot. Use it as a context or `close` it."""

    def __init__(self, robot: str) -> None:
        """Listen for consoles of a robot.

        Raises:
            ActorBusyError: Another actor listens.
        """
        self._path = channel_path(f"{robot}.actor")
        if is_actor_listening(robot):
            raise ActorBusyError(
                f"an actor of robot '{robot}' listens already; end that one first, or give this "
                "one another name: name=..."
            )
        self._path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.setblocking(False)
        mask = os.umask(0o077)  # the socket belongs to this user alone
        try:
            self._listener.bind(str(self._path))
        finally:
            os.umask(mask)
        self._listener.listen(_MOST_CONSOLES)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._peers: dict[socket.socket, _Peer] = {}
        self._askers: dict[str, _Peer] = {}

    @property
    def consoles(self) -> int:
        """Connected consoles."""
        return len(self._peers)

    def poll(self) -> list[dict[str, Any]]:
        """Commands since the last call, each with `id` and `do`. Never blocks.

        A line that is no command is answered with the reason, or dropped where it has no `id`.
        """
        found: list[dict[str, Any]] = []
        for key, _ in self._selector.select(timeout=0):
            if key.fileobj is self._listener:
                self._accept()
                continue
            peer = self._peers[key.fileobj]  # type: ignore[index]
            lines = peer.read_lines()
            if lines is None or len(lines) > _MOST_PER_POLL:
                self._drop(peer)
                continue
            for line in lines:
                if command := self._command(peer, line):
                    found.append(command)
        return found

    def answer(self, command_id: str, ok: bool, why: str = "", episode: str = "") -> None:
        """Answer a command of `poll`, once; for a console that has gone nothing is done.

        Args:
            episode: Name of the episode that a label is of; empty for other commands.
        """
        peer = self._askers.pop(command_id, None)
        if peer is not None and peer.socket in self._peers:
            self._send(peer, {"answer": command_id, "ok": ok, "why": why, "episode": episode})

    def tell(self, snapshot: Mapping[str, Any]) -> None:
        """Send the present state to every console that reads. Never blocks."""
        for peer in list(self._peers.values()):
            if not peer.flush():
                self._drop(peer)
            elif len(peer.unsent) < _SNAPSHOT_ROOM:
                self._send(peer, {"snapshot": snapshot})

    def close(self) -> None:
        """Stop listening; allowed more than once."""
        if self._listener.fileno() < 0:
            return
        for peer in list(self._peers.values()):
            self._drop(peer)
        self._path.unlink(missing_ok=True)
        self._selector.close()
        self._listener.close()

    def __enter__(self) -> "ActorSocket":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._listener.accept()
            if len(self._peers) >= _MOST_CONSOLES:
                connection.close()
                return
            connection.setblocking(False)
            self._peers[connection] = _Peer(connection)
            self._selector.register(connection, selectors.EVENT_READ)

    def _command(self, peer: _Peer, line: bytes) -> dict[str, Any] | None:
        message = _object_of(line)
        if message is None or not isinstance(message.get("id"), str):
            return None
        do = message.get("do")
        if do not in COMMANDS:
            why = f"'{do}' cannot be asked for; known: {', '.join(COMMANDS)}"
            self._send(peer, {"answer": message["id"], "ok": False, "why": why})
            return None
        self._askers[message["id"]] = peer
        return message

    def _send(self, peer: _Peer, message: Mapping[str, Any]) -> None:
        if not peer.send(message):
            self._drop(peer)

    def _drop(self, peer: _Peer) -> None:
        if self._peers.pop(peer.socket, None) is None:
            return
        self._selector.unregister(peer.socket)
        peer.socket.close()
        self._askers = {key: one for key, one in self._askers.items() if one is not peer}


@dataclass(frozen=True)
class Answer:
    """Reply of the actor to a command."""

    id: str
    ok: bool
    why: str
    """Reason of a refusal, in words."""
    episode: str = ""
    """Episode that a label is of, `<session>_<number>`; empty for other commands."""


class ActorConnection:
    """The console's end: finds the actor whenever it is there. `poll` it at 10 Hz or more."""

    def __init__(self, robot: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Look for the actor of a robot from the first `poll` on."""
        self._robot, self._clock = robot, clock
        self._path = str(channel_path(f"{robot}.actor"))
        self._peer: _Peer | None = None
        self._pause, self._next_try = _FIRST_PAUSE, -1.0
        self._answers: deque[Answer] = deque(maxlen=256)
        self.snapshot: Mapping[str, Any] = {}
        """The newest state that the actor told; stays when the actor goes."""
        self._told_at = -1.0

    @property
    def connected(self) -> bool:
        """True while the actor's socket is open."""
        return self._peer is not None

    @property
    def age(self) -> float:
        """Age of the snapshot [s]; infinite before the first."""
        return self._clock() - self._told_at if self._told_at >= 0 else float("inf")

    def send(self, do: str, operator: str, **arguments: Any) -> str:
        """Ask the actor for something; the answer comes from `poll`. Never blocks.

        Args:
            do: One of `COMMANDS`.
            arguments: Of this command; `t`, the time of the key press [unix s], is now if absent,
                and `id` is made if absent: the same one again is done once.

        Returns:
            Id of the command.

        Raises:
            ConfigError: Nobody knows this command, or it is too long.
            NoActorError: There is no actor.
        """
        if do not in COMMANDS:
            raise ConfigError(f"'{do}' cannot be asked for; known: {', '.join(COMMANDS)}")
        message = {"id": uuid.uuid4().hex, "t": time.time(), **arguments, "do": do}
        message["operator"] = operator
        if len(json.dumps(message)) > LONGEST_LINE:
            raise ConfigError(f"a command may have {LONGEST_LINE} bytes, '{do}' has more")
        if self._peer is None or not self._peer.send(message):
            self._lose()
            raise NoActorError(
                f"no actor of robot '{self._robot}' is running: nobody takes '{do}'; "
                "start one with: robot-rl learn"
            )
        return str(message["id"])

    def poll(self) -> list[Answer]:
        """Connect, read what came, and return the answers among it. Never blocks."""
        if self._peer is None and self._clock() >= self._next_try:
            self._connect()
        if self._peer is not None:
            lines = self._peer.read_lines()
            if lines is None or not self._peer.flush():
                self._lose()
            for line in lines or ():
                self._take(line)
        answers = list(self._answers)
        self._answers.clear()
        return answers

    def close(self) -> None:
        """Disconnect; allowed more than once."""
        self._lose()
        self._next_try = float("inf")

    def _connect(self) -> None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            connection.connect(self._path)
        except OSError:
            connection.close()
            self._next_try = self._clock() + self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
            return
        self._peer, self._pause = _Peer(connection), _FIRST_PAUSE

    def _take(self, line: bytes) -> None:
        message = _object_of(line)
        if message is None:
            return
        snapshot = message.get("snapshot")
        if isinstance(snapshot, dict):
            self.snapshot, self._told_at = snapshot, self._clock()
        elif isinstance(message.get("answer"), str):
            why, episode = str(message.get("why", "")), str(message.get("episode", ""))
            self._answers.append(Answer(message["answer"], message.get("ok") is True, why, episode))

    def _lose(self) -> None:
        if self._peer is not None:
            self._peer.socket.close()
            self._peer = None
            self._next_try = self._clock() + self._pause


def is_actor_listening(robot: str) -> bool:
    """True if an actor of this robot takes commands."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(str(channel_path(f"{robot}.actor"))) == 0


def _object_of(line: bytes) -> dict[str, Any] | None:
    """The JSON object of a line; None where it is none."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None
