"""The learner's end of the link: takes records of any number of robots, gives weights.

Calls, all with a deadline set by the robot:
    hello    a session begins or comes back; the answer says how many of its records are stored
    push     records from a number on; the answer is the cumulative acknowledgement
    poll     the robot's state and version; the answer has the newest version and numbers of the
             learner
    weights  a piece of a version, from a place on
    control  a wish of a person (pause_learning, rollback, ...), done once by its id; the answer
             says what came of it, or that it is pending: then the robot asks again
No call waits for another robot, and none holds a thread while nothing is sent, so that robots come
and go, die and come back without touching each other.
"""

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

from robot_rl.core.errors import RobotRLError
from robot_rl.link.messages import PROTOCOL, MessageError, field_of, pack, unpack
from robot_rl.link.records import FrameSpec
from robot_rl.link.store import ExperienceStore
from robot_rl.link.transport import Security, Server
from robot_rl.link.weights import WeightStore

PIECE = 1 << 16
"""Bytes of a piece of weights: what a slow link carries within the deadline of a call."""
ANSWER_SECONDS = 8.0
"""Longest wait of a wish for the learner [s]; after it the wish is not done."""
_SILENT_SECONDS = 5.0
_LAST_VERSION = 10**11
"""Largest number of weights that is believed: one every second for 3,000 years."""
_REMEMBERED = 1000


class ControlError(RobotRLError):
    """A wish that the learner cannot fulfil."""


@dataclass
class RobotState:
    """One robot as the learner sees it."""

    session: str
    told: Mapping[str, Any] = field(default_factory=dict)
    """The newest state that it told."""
    heard: float = 0.0
    """Time of its last call, monotonic [s]."""

    @property
    def silent_seconds(self) -> float:
        """Time since its last call [s]."""
        return time.monotonic() - self.heard

    @property
    def connected(self) -> bool:
        """True if it was heard within a few seconds."""
        return self.silent_seconds < _SILENT_SECONDS


class Controls(Protocol):
    """Fulfils wishes of persons."""

    def __call__(self, do: str, arguments: Mapping[str, Any]) -> Future[str]:
        """Begin it without waiting; the future gets a remark, or a `ControlError`: why not."""
        ...


class LinkServer:
    """Serves a store and weights to robots, from its making until `stop`."""

    def __init__(
        self, store: ExperienceStore, weights: WeightStore, *, address: str, security: Security,
        spec: FrameSpec, controls: Controls, metrics: Callable[[str], Mapping[str, Any]],
    ) -> None:  # fmt: skip
        """Listen.

        Args:
            address: `host:port`; port 0 takes a free one.
            spec: Frames that are taken; robots that tell others are refused.
            controls: Fulfils wishes of persons.
            metrics: Numbers of the learner for the console of the robot with this session.

        Raises:
            ConfigError: The address is taken or not allowed.
        """
        self._store, self._weights, self._spec = store, weights, spec
        self._controls, self._metrics = controls, metrics
        self._lock, self._robots = threading.Lock(), dict[str, RobotState]()
        # By robot, first and last poll of the sessions that go on.
        self._polled: dict[str, dict[str, tuple[float, float]]] = {}
        # By robot, the version that it takes over: the disk keeps it for some seconds only.
        self._given: dict[str, tuple[int, bytes, str]] = {}
        self._wishes: dict[str, tuple[float, Future[str]]] = {}  # by id, each with its beginning
        self._server = Server(
            address, security,
            {"hello": self._hello, "push": self._push, "poll": self._poll,
             "weights": self._give_weights, "control": self._control},
        )  # fmt: skip
        self.port = self._server.port
        """Port that it listens at."""

    @property
    def robots(self) -> dict[str, RobotState]:
        """All robots that were heard, by name."""
        with self._lock:
            return dict(self._robots)

    def stop(self) -> None:
        """End all calls."""
        self._server.stop()

    def _hello(self, message: bytes) -> bytes:
        header, _ = unpack(message)
        if header.get("protocol") != PROTOCOL:
            raise MessageError(
                f"the robot speaks version {header.get('protocol')} of the link, the learner "
                f"{PROTOCOL}; install the same version of robot_rl on both"
            )
        self._spec.check(field_of(header, "spec", dict))
        robot, session = field_of(header, "robot", str), field_of(header, "session", str)
        wanted = field_of(header, "store", str)
        if wanted not in ("", self._store.name):
            raise MessageError(
                f"the spool of robot '{robot}' belongs to the learner of store {wanted[:8]}, and "
                f"this one keeps store {self._store.name[:8]}: start the learner of that run, or "
                "give the robot an empty folder"
            )
        stored = self._store.begin(session, robot)
        self._hear(robot, session)
        return pack({"stored": stored, "store": self._store.name})

    def _push(self, message: bytes) -> bytes:
        header, payloads = unpack(message)
        session, first = field_of(header, "session", str), field_of(header, "first", int)
        robot = field_of(header, "robot", str)
        self._check_name(robot, session)
        stored = self._store.append(session, first, payloads, self._spec)
        self._hear(robot, session)
        return pack({"stored": stored})

    def _poll(self, message: bytes) -> bytes:
        header, _ = unpack(message)
        told = field_of(header, "state", dict)
        session = field_of(header, "session", str)
        robot = field_of(header, "robot", str)
        self._check_name(robot, session, polls=True)
        self._hear(robot, session, told)
        self._weights.overtake(min(field_of(header, "version", int), _LAST_VERSION))
        return pack({"version": self._weights.newest, "learner": dict(self._metrics(session))})

    def _give_weights(self, message: bytes) -> bytes:
        header, _ = unpack(message)
        robot, version = field_of(header, "robot", str), field_of(header, "version", int)
        start = field_of(header, "start", int)
        given = self._given.get(robot)
        if given is None or given[0] != version:
            given = self._given[robot] = version, *self._weights.content(version)
        _, content, digest = given
        if not 0 <= start < len(content):
            raise MessageError(
                f"robot '{robot}' asked for weights of version {version} from byte {start} on; "
                f"expected 0 to {len(content) - 1}"
            )
        about = {"version": version, "bytes": len(content), "sha256": digest}
        return pack(about, [content[start : start + PIECE]])

    def _control(self, message: bytes) -> bytes:
        """A wish is fulfilled once: the same id again gets the same answer."""
        header, _ = unpack(message)
        name, do = field_of(header, "id", str), field_of(header, "do", str)
        arguments = field_of(header, "arguments", dict)
        now = time.monotonic()
        with self._lock:
            if name not in self._wishes:
                self._wishes[name] = now, self._controls(do, arguments)
            began, wish = self._wishes[name]
            for old in list(self._wishes)[:-_REMEMBERED]:
                del self._wishes[old]
        if now > began + ANSWER_SECONDS:
            wish.cancel()  # does nothing to one that is under way, or done
        if wish.cancelled():
            why = f"the learner has not answered for {ANSWER_SECONDS:g} s: it was not done"
            return pack({"ok": False, "why": why})
        if not wish.done():
            return pack({"pending": True})
        error = wish.exception()
        return pack({"ok": error is None, "why": str(error) if error else wish.result()})

    def _check_name(self, robot: str, session: str, *, polls: bool = False) -> None:
        """Refuse the newer of two robots that go on under one name: a restart ends the older one.

        Raises:
            MessageError: An older session of this name has polled after this one began to.
        """
        now = time.monotonic()
        with self._lock:
            known = self._polled.setdefault(robot, {})
            for name in [one for one, (_, last) in known.items() if now - last > _SILENT_SECONDS]:
                del known[name]
            began, _ = known.get(session, (now, now))
            if any(first < began < last for first, last in known.values()):
                raise MessageError(
                    f"two robots call themselves '{robot}' at this learner; start this one with "
                    "name=<another>"
                )
            if polls:
                known[session] = began, now

    def _hear(self, robot: str, session: str, told: Mapping[str, Any] | None = None) -> None:
        with self._lock:
            before = self._robots.get(robot)
            told = (before.told if before else {}) if told is None else told
            self._robots[robot] = RobotState(session, told, time.monotonic())
