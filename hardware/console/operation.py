"""The console without its web server: who may do what, and what becomes of it.

A command is checked, logged with the person's name and sent to whoever does it: the robot process,
the teleoperator in this process, or the actor. Its reply comes once it is known what became of it.
The stop and the hold are everybody's. One thread calls all of this; nothing here waits.
"""

import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hardware.console.access import Client, OperatorLock
from hardware.console.action_log import ActionLog
from hardware.console.actor_arguments import ACTOR_ARGUMENTS, SEGMENTS, Actor, read_arguments
from hardware.console.robot_view import AUTHORITY, RobotView
from hardware.console.stick import SILENT_SECONDS, DriveSettings, StickMessage, StickStream
from hardware.console.teleop_thread import Teleoperator
from hardware.console.timeline import TimelineRecorder, running_episode
from hardware.console.video import VideoStream
from hardware.control.safety import Condition, SafetyState
from hardware.teleop.actor_socket import LEARNER_WISHES, Answer, NoActorError
from hardware.teleop.input_device import DeviceGoneError, HostDevice
from hardware.teleop.intervention import SegmentKind
from robot_rl.core.errors import ConfigError

_S, _C = SafetyState, Condition
ROBOT_COMMANDS = {
    "stop": (_C.ESTOP_PRESSED, (_S.ESTOP,)),
    "hold": (_C.HOLD, (_S.HOLD,)),
    "disarm": (_C.DISARM, (_S.SAFE_STOP, _S.PASSIVE)),
    "reset_stop": (_C.RESET, (_S.PASSIVE,)),
    "arm": (_C.ARM, (_S.ARMING, _S.READY)),
    "policy": (_C.ENABLE_POLICY, (_S.POLICY,)),
}
"""Commands of the robot's loop, and the states that each leads to."""
EVERYBODY = frozenset({"stop", "hold", "acquire", "ask", "note"})
"""Commands that need no lock."""
_LABELS = ("success", "fail", "discard")
_ROBOT_SECONDS, _ACTOR_SECONDS, _LEAD_SECONDS = 0.5, 3.0, 1.0
"""Longest waits for what a command leads to [s]."""
_LEARNER_SECONDS = 10.0
"""Longest wait for the learner's answer [s]: the link gives up after 5 s, and says why."""
_FRESH_SECONDS = 1.0
"""Age of an actor's snapshot that is still recorded [s]."""
_GRACE_SECONDS = 5.0
"""Time for which the page offers to undo a label [s]."""
_OLDEST_PRESS = 5.0
"""Age of a key press whose time is believed [s]."""
_OLDEST_MOTION = 1.0
"""Age of a command that lets the robot move [s]: nobody wants it any more."""
_LEADING = frozenset({"take_over", "give_back", "rewind", "segment"})
"""Commands of the teleoperator."""
_NO_TELEOPERATION = "this console has no teleoperation for this robot"
_MOVING = frozenset({"arm", "policy", "take_over", "give_back", "rewind"})
_HOST = "host"
"""Connection of the stick at this computer."""
_REMEMBERED = 512
_TWO_WAYS = 1.0
"""Age of a stop or hold up to which another of its id is the same one by another way [s]."""
_HISTORY, _ROW_SECONDS = 300, 0.2


@dataclass(frozen=True)
class Reply:
    """End of a command."""

    id: str
    code: int
    """As of HTTP: 200, 400 malformed, 409 another is operator, 410 too old, 422 refused, 503 nobody
    there, 504 no answer."""
    why: str = ""

    @property
    def as_json(self) -> dict[str, Any]:
        """The reply as the page gets it."""
        return {"type": "reply", "id": self.id, "code": self.code, "ok": self.code == 200,
                "why": self.why}  # fmt: skip


OnReply = Callable[[Reply], None]


@dataclass
class _Pending:
    """A command whose end is not known yet."""

    id: str
    do: str
    client: Client
    reply: OnReply
    until: float
    done: Callable[[], bool] | None = None
    """True as soon as the robot does it; None for a command of the actor, which answers."""
    refusal: Callable[[], str] = lambda: ""
    """Reason of a refusal, as soon as there is one."""
    details: dict[str, Any] = field(default_factory=dict)


class _Once:
    """A command that is done once, whoever asks for it again and how often."""

    def __init__(self, began: float) -> None:
        self.began = began
        self._end: Reply | None = None
        self._asked: list[OnReply] = []

    def tell(self, reply: OnReply) -> None:
        """Call this with the command's end, now or when there is one."""
        if self._end is None:
            self._asked.append(reply)
        else:
            reply(self._end)

    def end(self, answer: Reply) -> None:
        """The command has ended so."""
        self._end = answer
        asked, self._asked = self._asked, []
        for reply in asked:
            reply(answer)


class Console:
    """State that all pages share; a page that is reloaded finds it as it was."""

    def __init__(
        self, view: RobotView, actor: Actor, *, teleoperator: Teleoperator | None = None,
        host_stick: HostDevice | None = None, streams: Mapping[str, VideoStream] | None = None,
        folder: Path | None = None, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """Join the parts.

        Args:
            teleoperator: None where nobody can take over.
            host_stick: Device of this computer, which counts in place of those of pages. The
                operator's page must be open all the same: who closes it lets go of the robot.
            streams: Cameras by name.
            folder: Of the run, for the log of actions and the timelines; None writes nothing.
            clock: That of the robot's loop [s].
        """
        self.view, self.actor, self.streams = view, actor, dict(streams or {})
        self._teleoperator, self.clock = teleoperator, clock
        self._host_stick, self._host_stream, self._host_acts = host_stick, StickStream(_HOST), 0
        self.log = ActionLog(folder)
        self._timeline = TimelineRecorder(folder) if folder is not None else None
        self.lock = OperatorLock(self._operator_changed)
        self.settings = DriveSettings()
        self._pending: list[_Pending] = []
        self._done: dict[tuple[str, str], _Once] = {}  # by `do` and id, the newest last
        self._label: dict[str, Any] | None = None
        self._stick: dict[str, Any] = {"axes": [0.0] * 6, "clutch": False, "device": ""}
        self._heard = -math.inf
        self._present = False
        self._stuck = ""
        self._segment: str | None = None
        self._intervention: Mapping[str, Any] | None = None
        self._history: deque[tuple[float, str, float | None, float | None]] = deque(maxlen=_HISTORY)
        self._next_row = -math.inf
        self._episode: str | None = None  # that ran last

    def command(self, client: Client, message: Mapping[str, Any], reply: OnReply) -> None:
        """Do what a page asks for.

        Args:
            message: `id` (any text; the same command with the same one is done once, and answered
                alike; a stop or hold is done again after a second, for senders with one id for
                all), `do`, arguments, and `t`: time of the press, server's clock [s].
            reply: Called once, now or in a later `tick`.
        """
        now = self.clock()
        do, key = message.get("do"), message.get("id")
        if not isinstance(key, str) or not 0 < len(key) <= 64 or not isinstance(do, str):
            reply(Reply(str(key)[:64], 400, "a command needs the texts 'id' and 'do'"))
            return
        command = (do, key)
        known = self._done.get(command)
        if known and (do not in ("stop", "hold") or now - known.began <= _TWO_WAYS):
            known.tell(reply)
            return
        if not any(do in known for known in (ROBOT_COMMANDS, _HERE, _LEADING, ACTOR_ARGUMENTS)):
            reply(Reply(key, 400, f"'{do[:40]}' is no command of this console"))
            return
        holder = self.lock.holder(now)
        if do not in EVERYBODY and holder is not client:
            who = f"{holder.label} is the operator" if holder else "there is no operator"
            reply(Reply(key, 409, f"{who}; '{do}' is for the operator, and you look on"))
            return
        pressed = message.get("t")
        pressed = float(pressed) if isinstance(pressed, int | float) else now
        if do in _MOVING and not now - pressed <= _OLDEST_MOTION:
            reply(Reply(key, 410, f"'{do}' came {now - pressed:.1f} s late and was not done"))
            return
        once = self._done[command] = _Once(now)
        once.tell(reply)
        for old in list(self._done)[:-_REMEMBERED]:
            del self._done[old]

        def end(answer: Reply) -> None:
            if answer.code != 200:  # it may be tried again
                self._done.pop(command, None)
            once.end(answer)

        try:
            self._dispatch(client, do, key, message, pressed, end)
        except ConfigError as error:
            end(Reply(key, 400, str(error)))

    def stick(self, client: Client, stream: StickStream, values: Mapping[str, Any]) -> str:
        """Take the state of a page's stick; returns why it does not count, empty where it does.

        Raises:
            ConfigError: The message is malformed.
        """
        now = self.clock()
        message = StickMessage.of(values)
        if self.lock.holder(now) is not client:
            return "only the operator's stick counts"
        if fault := stream.fault(message, now):
            return fault
        self.lock.hear(client, now)
        self._heard, self._present = now, True
        if self._host_stick is None:
            self._move(message, stream, now)
        return ""

    def _move(self, message: StickMessage, stream: StickStream, now: float) -> None:
        """Hand the operator's stick on."""
        self._stuck = stream.stuck_axis(message, now)
        clutch = message.clutch and not self._stuck
        self._stick = {"axes": list(message.axes), "clutch": clutch, "device": message.device}
        if clutch:
            self.lock.postpone(now)
        if self._teleoperator is not None:
            self._teleoperator.set_intent(self.settings.intent(message, clutch=clutch), now)

    def _follow_host_stick(self, device: HostDevice, now: float) -> None:
        """Hand the stick of this computer on while the operator's page is there; do its buttons."""
        try:
            values = device.poll(now)
        except DeviceGoneError as error:
            self._host_stick = None
            device.close()
            self._let_go(str(error))
            self.log.write(
                "console", "stick",
                why=f"{error}; sticks of pages count again, until the console starts anew",
            )  # fmt: skip
            return
        acts, client = device.take_acts(), self.lock.holder(now)
        if client is None or not self._present:
            return
        message = StickMessage(
            sequence=0, time=now, connection=_HOST, axes=tuple(values["axes"]),
            clutch=values["clutch"], gripper=values["gripper"], device=device.kind,
        )  # fmt: skip
        self._move(message, self._host_stream, now)
        for act in acts:
            self._press(client, act, now)

    def _press(self, client: Client, act: str, now: float) -> None:
        """Do what a button of this computer's stick means; a refusal is in the log."""
        self._host_acts += 1
        wish: dict[str, Any] = {"id": f"{_HOST} {self._host_acts}", "do": act, "t": now}
        told = self._teleoperator.status(now) if self._teleoperator is not None else {}
        if act == "take_over" and told.get("leads"):
            wish["do"] = "give_back"
        elif act == "discard":
            wish["what"] = "episode"
        elif act == "mark":
            recovers = told.get("segment") == SegmentKind.recovery.value
            kind = SegmentKind.correction if recovers else SegmentKind.recovery
            wish |= {"do": "segment", "kind": kind.value}

        def said(reply: Reply) -> None:
            if reply.why:
                self.log.write(client.label, wish["do"], why=reply.why)

        self.command(client, wish, said)

    def leave(self, client: Client) -> None:
        """A page has closed its newest socket: it holds no stick, and asks for nothing."""
        self.release(client, "the page has closed its socket")
        self.lock.withdraw(client)

    def release(self, client: Client, why: str) -> None:
        """Let go of the stick: the page is hidden, has lost its socket, or says so."""
        if self.lock.holder(self.clock()) is client:
            self._let_go(why)

    def tick(self) -> None:
        """Follow what goes on: actor, replies, dead-man, timeline. Call it at 50 Hz."""
        now = self.clock()
        self.lock.holder(now)
        if self._present and now - self._heard > SILENT_SECONDS:
            self._let_go("the operator's page was silent")
        if self._host_stick is not None:
            self._follow_host_stick(self._host_stick, now)
        for answer in self.actor.poll():
            self._answered(answer, now)
        self._follow_episode()
        self._follow_teleoperator(now)
        self._follow_pending(now)
        if now >= self._next_row:
            self._next_row = now + _ROW_SECONDS
            told = [self.actor.snapshot.get(name) for name in ("success_probability", "q")]
            p, q = (one if isinstance(one, int | float) else None for one in told)
            self._history.append((round(now, 2), self._authority(), p, q))
        fresh = self.actor.connected and self.actor.age < _FRESH_SECONDS
        timeline = self._timeline if fresh else None
        if timeline is not None and timeline.wants_line(self.actor.snapshot):
            self._record(timeline, now)

    def _follow_episode(self) -> None:
        """A rewind does not lead back through the reset before an episode."""
        name = running_episode(self.actor.snapshot)
        if name is not None and name != self._episode:
            self._episode = name
            if self._teleoperator is not None:
                self._teleoperator.forget_path()

    def snapshot(self) -> dict[str, Any]:
        """State of everything, as JSON."""
        now = self.clock()
        holder, asker = self.lock.holder(now), self.lock.asker(now)
        actor = dict(self.actor.snapshot)
        age = self.actor.age
        return {
            "type": "state",
            "now": round(now, 4),
            "robot": self.view.snapshot(now),
            "actor": actor,
            "actor_connected": self.actor.connected,
            "actor_age": round(age, 3) if math.isfinite(age) else None,
            "teleop": dict(self._teleoperator.status(now)) if self._teleoperator else None,
            "stick": {
                **self._stick, "present": self._present, "stuck": self._stuck,
                "host": self._host_stick.kind if self._host_stick else "",
                "left": round(max(0.0, SILENT_SECONDS - (now - self._heard)), 3),
            },
            "settings": {
                "speed": self.settings.speed, "frame": self.settings.frame,
                "deadband": self.settings.deadband, "locked": self.settings.locked,
            },
            "operator": {
                "holder": holder.number if holder else None,
                "name": holder.name if holder else "",
                "left": round(self.lock.seconds_left(now), 2),
                "asker": asker.number if asker else None,
                "asker_name": asker.name if asker else "",
                "ask_left": round(self.lock.ask_left(now), 1),
            },
            "label": self._shown_label(now),
            "video": [stream.snapshot(now) for stream in self.streams.values()],
            "log": self.log.newest[-30:],
        }  # fmt: skip

    @property
    def history(self) -> list[tuple[float, str, float | None, float | None]]:
        """Time [s], authority, success probability and Q of the last minute, for a new page."""
        return list(self._history)

    def close(self) -> None:
        """Let go of everything."""
        self._let_go("the console ends")
        if self._teleoperator is not None:
            self._teleoperator.close()
        if self._host_stick is not None:
            self._host_stick.close()
        self.log.close()
        if self._timeline is not None:
            self._timeline.close()

    # Doing

    def _dispatch(
        self, client: Client, do: str, key: str, message: Mapping[str, Any], pressed: float,
        reply: OnReply,
    ) -> None:  # fmt: skip
        now = self.clock()
        if do in ROBOT_COMMANDS:
            self._ask_robot(client, do, key, reply, now)
        elif do in _HERE:
            why, details = _HERE[do](self, client, message)
            self.log.write(client.label, do, why=why, **details)
            reply(Reply(key, 422 if why else 200, why))
        elif do in _LEADING:
            self._lead(client, do, key, message, reply, now)
        else:
            late = now - pressed
            at = time.time() - (late if 0 <= late <= _OLDEST_PRESS else 0.0)
            self._ask_actor(
                client, do, key, read_arguments(do, message) | {"t": round(at, 3)}, reply
            )

    def _ask_robot(self, client: Client, do: str, key: str, reply: OnReply, now: float) -> None:
        request, states = ROBOT_COMMANDS[do]
        before = self._refused()
        why = self.view.ask(request)
        if do in ("stop", "hold", "disarm"):
            self._let_go(f"{client.label}: {do}", hold=False)
        self.log.write(client.label, do, why=why)
        if why:
            reply(Reply(key, 503, why))
            return
        self._pending.append(
            _Pending(
                key, do, client, reply, now + _ROBOT_SECONDS,
                done=lambda: self.view.safety in states,
                refusal=lambda: self._refused() if self._refused() != before else "",
            )
        )  # fmt: skip

    def _lead(
        self, client: Client, do: str, key: str, message: Mapping[str, Any], reply: OnReply,
        now: float,
    ) -> None:  # fmt: skip
        """Ask the teleoperator for the robot, its way back, a part of it, or its end."""
        teleoperator = self._teleoperator
        if teleoperator is None:
            self.log.write(client.label, do, why=_NO_TELEOPERATION)
            reply(Reply(key, 422, _NO_TELEOPERATION))
            return
        arguments = read_arguments(do, message) if do in ACTOR_ARGUMENTS else {}
        if do == "take_over":
            teleoperator.take_over(now)
        elif do == "give_back":
            teleoperator.give_back(now)
        elif do == "segment":
            teleoperator.mark(SegmentKind(arguments["kind"]), now)
        else:
            teleoperator.rewind(arguments["seconds"], now)
        self.log.write(client.label, do, **arguments)

        def done() -> bool:
            status = teleoperator.status(self.clock())
            if do == "rewind":
                return bool(status.get("rewinding"))
            if do == "segment":
                return status.get("segment") == arguments["kind"]
            leads = bool(status.get("leads"))
            return leads if do == "take_over" else not leads and self.view.safety is _S.POLICY

        self._pending.append(
            _Pending(
                key, do, client, reply, now + _LEAD_SECONDS, done=done,
                refusal=lambda: str(teleoperator.status(self.clock()).get("refusal", "")),
            )
        )  # fmt: skip

    def _ask_actor(
        self, client: Client, do: str, key: str, arguments: dict[str, Any], reply: OnReply
    ) -> None:
        now = self.clock()
        try:
            sent = self.actor.send(do, client.label, **arguments)
        except NoActorError as error:
            self.log.write(client.label, do, why=str(error), **arguments)
            reply(Reply(key, 503, str(error)))
            return
        patience = _LEARNER_SECONDS if do in LEARNER_WISHES else _ACTOR_SECONDS
        self._pending.append(
            _Pending(sent, do, client, lambda end: reply(Reply(key, end.code, end.why)),
                     now + patience, details=arguments)
        )  # fmt: skip

    def _answered(self, answer: Answer, now: float) -> None:
        for one in [one for one in self._pending if one.id == answer.id]:
            self._pending.remove(one)
            told = {"result" if answer.ok else "why": answer.why}
            self.log.write(one.client.label, one.do, **told, **one.details)
            one.reply(Reply(one.id, 200 if answer.ok else 422, answer.why))
            if answer.ok:
                self._labelled(one, answer.episode, now)

    def _labelled(self, one: _Pending, episode: str, now: float) -> None:
        """Show a label, and write it into the timeline of the episode that the actor named."""
        if one.do in _LABELS:
            self._label = {
                "do": one.do, "what": one.details.get("what", "episode"), "at": now,
                "operator": one.client.name, "episode": episode,
            }  # fmt: skip
        elif one.do == "undo":
            self._label = None
        if self._timeline is None or not episode or one.do not in (*_LABELS, "undo", "relabel"):
            return
        kind, reason = one.do, one.details.get("reason")
        if one.do == "relabel":
            correction = one.details["correction"]
            kind, value = correction["kind"], correction["value"]
            reason = value if kind != "segment" and isinstance(value, str) else None
        entry = {"kind": kind, "operator": one.client.name, "t": one.details["t"]}
        entry |= {"reason": reason} if reason else {}
        try:
            self._timeline.label(episode, entry)
        except OSError as error:
            self._give_up_timeline(error)

    def _follow_teleoperator(self, now: float) -> None:
        """Log interventions that ended, and tell the actor the part that one has come to."""
        if self._teleoperator is None:
            return
        status = self._teleoperator.status(now)
        one = status.get("intervention")
        if one != self._intervention and one is not None and one["ended"] is not None:
            self.log.write(
                "console", "intervention", waited=round(one["granted"] - one["requested"], 3),
                seconds=round(one["ended"] - one["granted"], 3), interrupted=one["interrupted"],
            )  # fmt: skip
        self._intervention, kind = one, status.get("segment")
        if kind == self._segment or not self.actor.connected:
            return
        self._segment = kind
        if kind in SEGMENTS:
            with contextlib.suppress(NoActorError):
                self.actor.send("segment", "console", kind=kind)

    def _follow_pending(self, now: float) -> None:
        for one in list(self._pending):
            if one.done is not None and one.done():
                self._end(one, 200, "")
            elif why := one.refusal():
                self._end(one, 422, why)
            elif now > one.until and one.done is not None:
                safety = self.view.safety
                where = safety.value if safety else "no robot process"
                self._end(one, 422, f"'{one.do}' did nothing in '{where}'")
            elif now > one.until:
                self._end(one, 504, f"the actor has not answered '{one.do}'")

    def _end(self, one: _Pending, code: int, why: str) -> None:
        self._pending.remove(one)
        if why:
            self.log.write(one.client.label, one.do, why=why)
        one.reply(Reply(one.id, code, why))

    def _refused(self) -> str:
        status = self.view.status
        return status.refused if status is not None else ""

    # Here

    def _acquire(self, client: Client, message: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        return self.lock.acquire(client, self.clock()), {}

    def _ask(self, client: Client, message: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        return self.lock.ask(client, self.clock()), {}

    def _respond(self, client: Client, message: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        grant = message["do"] == "grant"
        if grant:
            self._let_go("the operator handed the lock on")
        return self.lock.respond(client, grant, self.clock()), {}

    def _release(self, client: Client, message: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        self._let_go("the operator gave the lock back")
        self.lock.release(client, self.clock())
        return "", {}

    def _note(self, client: Client, message: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        text = message.get("text")
        if not isinstance(text, str) or not 0 < len(text) <= 2000:
            raise ConfigError("a note has 1 to 2000 characters")
        return "", {"text": text, "episode": self.actor.snapshot.get("episode")}

    def _set(self, client: Client, message: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        values = message.get("values")
        if not isinstance(values, dict):
            raise ConfigError("settings come as 'values'")
        self.settings = self.settings.changed(values)
        return "", {"values": values}

    def _let_go(self, why: str, *, hold: bool = True) -> None:
        """Tell the teleoperator that nobody is at the stick any more, and let the robot hold."""
        if not self._present:
            return
        self._present = False
        self._stick = {"axes": [0.0] * 6, "clutch": False, "device": ""}
        if self._teleoperator is not None:
            self._teleoperator.set_intent(None, self.clock())
        if self.view.safety is _S.HUMAN:
            if hold:  # at once, not when the lease runs out
                self.view.ask(_C.HOLD)
            self.log.write("console", "dead-man released", why=why)

    def _operator_changed(self, client: Client | None) -> None:
        self._let_go("the operator changed")
        self.log.write(client.label if client else "console", "operator",
                       why="" if client else "nobody holds the lock")  # fmt: skip

    def _shown_label(self, now: float) -> dict[str, Any] | None:
        if self._label is None:
            return None
        left = _GRACE_SECONDS - (now - self._label["at"])
        return {**self._label, "left": round(left, 2)} if left > 0 else None

    def _record(self, timeline: TimelineRecorder, now: float) -> None:
        picture = None
        if timeline.wants_picture(now) and self.streams:
            picture = next(iter(self.streams.values())).thumbnail()
        try:
            timeline.record(self.actor.snapshot, self._authority(), now, picture)
        except OSError as error:
            self._give_up_timeline(error)

    def _give_up_timeline(self, error: OSError) -> None:
        self._timeline = None
        self.log.write("console", "timeline", why=f"episodes are not recorded: {error}")

    def _authority(self) -> str:
        safety = self.view.safety
        return AUTHORITY[safety] if safety is not None else "nobody"


_HERE: dict[str, Callable[..., tuple[str, dict[str, Any]]]] = {
    "acquire": Console._acquire, "ask": Console._ask, "grant": Console._respond,
    "deny": Console._respond, "release": Console._release, "note": Console._note,
    "set": Console._set,
}  # fmt: skip
"""Commands that are done in this process, each with the reason of a refusal and what to log."""
