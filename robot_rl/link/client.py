"""The robot's end of the link: a thread that empties the spool, fetches weights, carries wishes.

Another one brings the spool to the disk. The first connects and connects again with growing pauses,
and every call has a deadline, so that a learner that is gone, hangs or is half open only lets the
spool grow. The control loop never waits for it: it looks at attributes and queues.
"""

import contextlib
import logging
import math
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from robot_rl.core.errors import CheckpointError, RobotRLError
from robot_rl.link.messages import PROTOCOL, field_of, pack, unpack
from robot_rl.link.records import FrameSpec
from robot_rl.link.spool import Spool
from robot_rl.link.transport import Channel, LinkDownError, LinkRefusedError, Security
from robot_rl.link.weights import Weights, WeightStore, decode_weights
from robot_rl.training.storage.durable import sha256

_logger = logging.getLogger(__name__)
_CALL_SECONDS = 10.0
_POLL_SECONDS = 1.0
_BATCH_BYTES, _MOST_RECORDS = 1 << 20, 4096
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
"""Pauses before connecting again [s]; each is spread by half."""
_SYNC_SECONDS = 1.0
"""Time between two calls that bring frames to the disk [s]."""
_PENDING_SECONDS = 0.1
"""Time until a wish that the learner has begun is asked for again [s]."""
_WISH_SECONDS = 5.0
"""Time after which a wish that could not be carried is answered so [s]."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Reply to a wish."""

    id: str
    ok: bool
    why: str


@dataclass(kw_only=True)
class _Wish:
    id: str
    do: str
    arguments: Mapping[str, Any]
    made: float


@dataclass
class _Coming:
    """A version of which a part has come."""

    version: int
    content: bytearray = field(default_factory=bytearray)


class LinkClient:
    """Runs the link in a thread of its own between `start` and `stop`."""

    def __init__(
        self, spool: Spool, weights: WeightStore, *, address: str, robot: str, spec: FrameSpec,
        security: Security, state: Callable[[], Mapping[str, Any]] = dict,
        call_seconds: float = _CALL_SECONDS,
    ) -> None:  # fmt: skip
        """Prepare; nothing is sent before `start`.

        Args:
            spool: Emptied as the learner acknowledges.
            weights: Where versions are kept.
            robot: Name of this robot at the learner.
            spec: Of the frames.
            state: State of the robot, plain values, told to the learner about once a second.
            call_seconds: Deadline of a call [s].

        Raises:
            ConfigError: The address is not allowed without TLS and a token, or the certificate
                cannot be read.
        """
        Channel(address, security).close()  # refuses what cannot be
        self._spool, self._store, self._spec = spool, weights, spec
        self._address, self._robot, self._security = address, robot, security
        self._state, self._call_seconds = state, call_seconds
        self._stop = threading.Event()
        self._wishes: queue.SimpleQueue[_Wish] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="link", daemon=True)
        self._keeper = threading.Thread(target=self._keep, name="spool", daemon=True)
        self._coming: _Coming | None = None
        self._connected_once = False
        self.connected = False
        """The last call was answered."""
        self.trouble = "the link has not connected yet"
        """The reason of a link that is down; empty while it works."""
        self.refused = ""
        """The reason that the learner gave for refusing this robot; empty if it does not."""
        self.learner: Mapping[str, Any] = {}
        """Newest numbers of the learner."""
        self.newest: Weights | None = weights.load_newest()
        """Newest weights, whole and checked; replaced as one object."""

    def start(self) -> None:
        """Begin to connect."""
        self._thread.start()
        self._keeper.start()

    def stop(self, *, empty_seconds: float = 0.0) -> None:
        """End the thread, after waiting so long for the spool to be empty [s]."""
        end = time.monotonic() + empty_seconds
        while self._spool.unacknowledged and time.monotonic() < end and self.connected:
            time.sleep(0.02)
        self._stop.set()
        self._spool.arrived.set()
        for thread in (self._thread, self._keeper):
            if thread.is_alive():
                thread.join(2 * self._call_seconds)

    def ask(
        self, wish: str, do: str, arguments: Mapping[str, Any], *, lasting: bool = False
    ) -> None:
        """Carry a wish of a person to the learner; `answers` tells what came of it.

        Args:
            wish: Name; the learner fulfils each once.
            do: What the learner is asked for.
            arguments: Of it, plain values.
            lasting: Ask until the learner answers, however long it is away.
        """
        made = math.inf if lasting else time.monotonic()
        self._wishes.put(_Wish(id=wish, do=do, arguments=dict(arguments), made=made))
        self._spool.arrived.set()

    def answers(self) -> list[Answer]:
        """Replies since the last call."""
        found = []
        while not self._answers.empty():
            found.append(self._answers.get())
        return found

    def _run(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stop.is_set():
            try:
                with contextlib.closing(Channel(self._address, self._security)) as channel:
                    for _ in self._talk(channel):
                        pause = _FIRST_PAUSE
                        self.connected = self._connected_once = True
                        self.trouble = self.refused = ""
            except LinkDownError as error:
                self._say(str(error))
            except RobotRLError as error:  # refused, or the disk: a person must look at it
                self.refused = str(error)
                self._say(str(error))
                pause = _LONGEST_PAUSE
            except Exception as error:  # a defect must not end the only link
                _logger.exception("the link failed")
                self._say(f"{type(error).__name__}: {error}")
                pause = _LONGEST_PAUSE
            self.connected = False
            self._answer_old_wishes()
            self._stop.wait(pause * random.uniform(0.5, 1.5))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _keep(self) -> None:
        """Bring what has come to the disk, whether or not the learner can be reached."""
        while not self._stop.wait(_SYNC_SECONDS):
            try:
                self._spool.sync()
            except (RobotRLError, OSError) as error:
                self._say(str(error))

    def _talk(self, channel: Channel) -> Iterator[None]:
        """Calls over one channel until one fails; yields after each that succeeded."""
        greeted, polled = set[str](), -_POLL_SECONDS
        while not self._stop.is_set():
            self._spool.arrived.clear()
            behind = False
            for session, first, stop in self._spool.waiting():
                if session not in greeted:
                    first = self._greet(channel, session)
                    greeted.add(session)
                    yield
                if first < stop:
                    self._push(channel, session, first)
                    behind = behind or self._left(session)
                    yield
                if self._left(session):
                    break  # an older session is complete before the next begins at the learner
            for _ in range(self._wishes.qsize()):
                self._carry(channel, self._wishes.get())
                yield
            if time.monotonic() > polled + _POLL_SECONDS:
                self._poll(channel)
                polled = time.monotonic()
                yield
            if self._coming is not None:
                self._fetch(channel, self._coming)
                yield
            elif not behind:
                pending = not self._wishes.empty()
                self._spool.arrived.wait(_PENDING_SECONDS if pending else _POLL_SECONDS / 2)
                self._stop.wait(0.02)  # frames that come together go together

    def _left(self, session: str) -> bool:
        return any(name == session and first < stop for name, first, stop in self._spool.waiting())

    def _greet(self, channel: Channel, session: str) -> int:
        answer = self._call(channel, "hello", {
            "protocol": PROTOCOL, "robot": self._robot, "session": session,
            "spec": self._spec.plain(), "store": self._spool.store,
        })  # fmt: skip
        self._spool.store = field_of(answer, "store", str)
        stored = field_of(answer, "stored", int)
        self._spool.acknowledge(session, stored)
        return stored

    def _push(self, channel: Channel, session: str, first: int) -> None:
        parts = self._spool.batch(session, first, most_bytes=_BATCH_BYTES, most=_MOST_RECORDS)
        about = {"robot": self._robot, "session": session, "first": first}
        answer = self._call(channel, "push", about, parts)
        self._spool.acknowledge(session, field_of(answer, "stored", int))

    def _poll(self, channel: Channel) -> None:
        has = self.newest.version if self.newest else 0
        answer = self._call(channel, "poll", {
            "robot": self._robot, "session": self._spool.session, "version": has,
            "state": self._state(),
        })  # fmt: skip
        self.learner = field_of(answer, "learner", dict)
        version = field_of(answer, "version", int)
        if self._coming is None and version > has:
            self._coming = _Coming(version)

    def _fetch(self, channel: Channel, coming: _Coming) -> None:
        """Take the next piece of a version; it counts once it is whole and right.

        What has come is kept while the link is down, and a newer version waits for its end.
        """
        about = {"robot": self._robot, "version": coming.version, "start": len(coming.content)}
        try:
            message = channel.call("weights", pack(about), self._call_seconds)
        except LinkRefusedError:  # a learner that has begun anew does not have it
            self._coming = None
            raise
        answer, parts = unpack(message)
        coming.content += b"".join(parts)
        if len(coming.content) < field_of(answer, "bytes", int):
            return
        self._coming, content = None, bytes(coming.content)
        if sha256(content) != field_of(answer, "sha256", str):
            raise LinkDownError(
                f"weights of version {coming.version} came damaged; they are asked again"
            )
        try:
            weights = decode_weights(coming.version, content)
        except CheckpointError as error:
            raise LinkDownError(str(error)) from None
        self._store.put(coming.version, content)
        self.newest = weights

    def _carry(self, channel: Channel, wish: _Wish) -> None:
        about = {"id": wish.id, "do": wish.do, "arguments": wish.arguments}
        try:
            answer = self._call(channel, "control", about)
        except LinkDownError:
            self._wishes.put(wish)  # the learner does it once, however often it is told
            raise
        except RobotRLError as error:
            self._answers.put(Answer(id=wish.id, ok=False, why=str(error)))
            return
        if answer.get("pending"):
            self._wishes.put(wish)
            return
        why = field_of(answer, "why", str)
        self._answers.put(Answer(id=wish.id, ok=field_of(answer, "ok", bool), why=why))

    def _call(
        self, channel: Channel, method: str, header: Mapping[str, Any], parts: Any = ()
    ) -> dict[str, Any]:
        return unpack(channel.call(method, pack(header, parts), self._call_seconds))[0]

    def _answer_old_wishes(self) -> None:
        kept = []
        while not self._wishes.empty():
            wish = self._wishes.get()
            if time.monotonic() < wish.made + _WISH_SECONDS:
                kept.append(wish)
            else:
                why = f"the learner cannot be reached: {self.trouble}"
                self._answers.put(Answer(id=wish.id, ok=False, why=why))
        for wish in kept:
            self._wishes.put(wish)

    def _say(self, trouble: str) -> None:
        if trouble != self.trouble:
            if self._connected_once:
                _logger.warning("the link is down: %s", trouble)
            else:
                _logger.info("no link yet: %s", trouble)
        self.trouble = trouble
