"""Commands of persons at the robot: labels become corrections, wishes go to the learner.

The console speaks to the actor by messages {"id", "do", ..., "operator", "t"}; every one is
answered, once. A label belongs to the step that the key means (`hardware/teleop/labels.py`), not to
the one at which it was pressed or its message was read.
"""

import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from hardware.teleop.actor_socket import LEARNER_WISHES
from hardware.teleop.labels import StepTimes
from robot_rl.core.errors import ConfigError, RobotRLError
from robot_rl.link.client import Answer
from robot_rl.link.corrections import Correction
from robot_rl.link.records import SEGMENTS, Record
from robot_rl.link.transitions import in_force
from robot_rl.link.weights import Weights

_OUTCOMES = ("success", "fail")
_DISCARDS = ("discard", "undiscard")
_RELABELS = (*_OUTCOMES, *_DISCARDS, "reward", "segment")
_REMEMBERED_COMMANDS, _REMEMBERED_LABELS = 1000, 100
_LATER = 1e-3
"""Time by which a label is taken back later than it was given, whichever message came first [s]."""


class Console(Protocol):
    """The consoles that are connected to an actor."""

    def poll(self) -> list[dict[str, Any]]:
        """Commands since the last call; never blocks."""
        ...

    def answer(self, command_id: str, ok: bool, why: str = "", episode: str = "") -> None:
        """Answer a command."""
        ...

    def tell(self, snapshot: Mapping[str, Any]) -> None:
        """Send the present state; never blocks."""
        ...


class Records(Protocol):
    """Way of an actor's records to the learner's store: a `Spool`, where the learner is remote."""

    @property
    def session(self) -> str:
        """Session of this actor."""
        ...

    @property
    def num_bytes(self) -> int:
        """Bytes that wait."""
        ...

    @property
    def quota_bytes(self) -> int:
        """Bytes beyond which frames are refused."""
        ...

    @property
    def unacknowledged(self) -> int:
        """Records that the learner does not have."""
        ...

    @property
    def full(self) -> str:
        """Sentence about a lack of room; empty where there is some."""
        ...

    def append(self, record: Record) -> int:
        """Take a record, and return its number in the session."""
        ...


class Link(Protocol):
    """Way back from the learner: a `LinkClient`, where it is remote."""

    @property
    def newest(self) -> Weights | None:
        """Newest weights; None before the first."""
        ...

    @property
    def connected(self) -> bool:
        """The learner answers."""
        ...

    @property
    def trouble(self) -> str:
        """Reason why it does not."""
        ...

    @property
    def learner(self) -> Mapping[str, Any]:
        """Metrics of the learner."""
        ...

    def ask(
        self, wish: str, do: str, arguments: Mapping[str, Any], *, lasting: bool = False
    ) -> None:
        """Ask the learner for something, once; where it is lasting, until there is an answer."""
        ...

    def answers(self) -> list[Answer]:
        """Answers that have come since the last call."""
        ...


class EpisodeControl(Protocol):
    """Effects of commands on the actor's episodes."""

    @property
    def running(self) -> bool:
        """An episode is under way."""
        ...

    @property
    def episode(self) -> int:
        """Number of the present episode, or of the next one."""
        ...

    def end_episode(self, reason: str) -> None:
        """Truncate the episode at the end of the present period."""
        ...

    def confirm(self) -> None:
        """Say that what the prompt asks for is done."""
        ...

    def judge(self, episode: int, success: bool | None, *, discarded: bool = False) -> None:
        """A person calls an episode a success or not, or discards it; None takes a label back."""
        ...

    def mark(self, segment: str) -> None:
        """Steps belong to this segment until the policy acts again."""
        ...

    def evaluate(self, episodes: int) -> None:
        """Act without exploration in so many episodes from the next one on."""
        ...


class OperatorCommands:
    """Fulfils commands between two steps."""

    def __init__(
        self, console: Console, control: EpisodeControl, spool: Records, link: Link
    ) -> None:
        """Join the parts."""
        self._console, self._control, self._spool, self._link = console, control, spool, link
        self.times = StepTimes()
        """To be told of every step."""
        self._done: dict[str, tuple[bool, str, str]] = {}
        self._labelled = ""
        """Episode that the present command is a label of; empty where it is none."""
        self._labels: deque[Correction] = deque(maxlen=_REMEMBERED_LABELS)
        self._known: dict[str, Callable[[Mapping[str, Any]], str]] = {
            "success": self._label, "fail": self._label, "relabel": self._relabel,
            "discard": self._discard, "undo": self._undo, "segment": self._segment,
            "reset": self._end, "end_episode": self._end, "ready": self._ready,
            "evaluate": self._evaluate,
        }  # fmt: skip

    def poll(self) -> None:
        """Fulfil what has come, and hand on answers of the learner."""
        for command in self._console.poll():
            name, do = str(command["id"]), str(command["do"])
            if name in self._done:
                self._console.answer(name, *self._done[name])
            elif do in LEARNER_WISHES:
                keys = ("id", "do", "operator", "t")
                self._link.ask(name, do, {k: v for k, v in command.items() if k not in keys})
            else:
                self._answer(name, *self._fulfil(do, command))
        for answer in self._link.answers():
            self._answer(answer.id, answer.ok, answer.why)

    def _fulfil(self, do: str, command: Mapping[str, Any]) -> tuple[bool, str, str]:
        """Return whether it is done, a sentence, and the episode that it is a label of."""
        self._labelled = ""
        if do not in self._known:
            return False, f"'{do}' is not offered by this robot", ""
        try:
            return True, self._known[do](command), self._labelled
        except RobotRLError as error:
            return False, str(error), ""
        except (TypeError, ValueError, KeyError) as error:
            return False, f"'{do}' came with arguments that cannot be meant: {error}", ""

    def _answer(self, name: str, ok: bool, why: str, episode: str = "") -> None:
        if ok:  # what was refused may be asked for again
            self._done[name] = ok, why, episode
        for old in list(self._done)[:-_REMEMBERED_COMMANDS]:
            del self._done[old]
        self._console.answer(name, ok, why, episode)

    def _label(self, command: Mapping[str, Any]) -> str:
        """Success or failure in the step that the key means; ends the episode, if it runs on."""
        (episode, index), do = self._place(command), str(command["do"])
        self._correct(command, do, episode, index=index, value=float(do == "success"))
        self._judge(self._spool.session, episode)
        if self._control.running and episode == self._control.episode:
            self._control.end_episode(do)
        return f"episode {episode} ends with {do} at step {index}"

    def _relabel(self, command: Mapping[str, Any]) -> str:
        """Judge an episode anew, also one of an earlier session, as the console's review does."""
        asked: Mapping[str, Any] = command.get("correction", {})
        kind, value = str(asked.get("kind", "")), asked.get("value")
        if kind not in _RELABELS:
            raise ConfigError(f"kind '{kind}' is unknown; known: {', '.join(_RELABELS)}")
        text = value if isinstance(value, str) else ""
        if kind == "segment" and text not in SEGMENTS:
            raise ConfigError(f"segment '{text}' is unknown; known: {', '.join(SEGMENTS)}")
        if kind == "reward" and not isinstance(value, int | float):
            raise ConfigError(f"a reward is a number, not {value!r:.40}")
        number = float(value) if isinstance(value, int | float) else float(kind == "success")
        episode, session = int(asked["episode"]), str(asked.get("session") or self._spool.session)
        # A clock that was set back must not let the older label win.
        given = [
            one.time for one in self._labels if (one.session, one.episode) == (session, episode)
        ]
        pressed = max(float(command.get("t", time.time())), max(given, default=0.0) + _LATER)
        self._correct(
            command, kind, episode, index=int(asked.get("from", 0)), value=number, text=text,
            session=session, id=str(asked["id"]), time=pressed,
        )  # fmt: skip
        self._judge(session, episode)
        return f"episode {episode}: {kind}"

    def _discard(self, command: Mapping[str, Any]) -> str:
        """Throw away the episode, the one before it, or the newest part of a person."""
        what = command.get("what", "episode")
        if what == "intervention":
            found = self.times.intervention()
            if found is None:
                raise ConfigError("nobody has intervened yet")
            episode, first, until = found
            self._correct(command, "discard", episode, index=first, until=until)
            return f"steps {first} to {until - 1} of episode {episode} are not learned from"
        episode = self._place(command)[0]
        if what == "last" and self._control.running and episode == self._control.episode:
            episode -= 1
        if episode < 0:
            raise ConfigError("no episode has ended yet")
        self._correct(command, "discard", episode)
        self._judge(self._spool.session, episode)
        if self._control.running and episode == self._control.episode:
            self._control.end_episode("discarded")
        return f"episode {episode} is not learned from"

    def _undo(self, command: Mapping[str, Any]) -> str:
        """Take the newest label back."""
        if not self._labels:
            raise ConfigError("there is no label of this session to undo")
        label = self._labels[-1]
        pressed = max(float(command.get("t", time.time())), label.time + _LATER)
        self._correct(
            command, "undo", label.episode, session=label.session, text=label.id, time=pressed
        )
        self._labels.pop()
        self._judge(label.session, label.episode)
        return f"{label.kind} of episode {label.episode} is undone"

    def _segment(self, command: Mapping[str, Any]) -> str:
        """Name the steps from now on, until the person hands back."""
        kind = str(command.get("kind", ""))
        if kind not in SEGMENTS:
            raise ConfigError(f"segment '{kind}' is unknown; known: {', '.join(SEGMENTS)}")
        self._control.mark(kind)
        return f"steps are '{kind}' until the policy acts again"

    def _end(self, command: Mapping[str, Any]) -> str:
        self._control.end_episode(str(command.get("reason", "ended by a person")))
        return "the episode ends"

    def _ready(self, command: Mapping[str, Any]) -> str:
        self._control.confirm()
        return ""

    def _evaluate(self, command: Mapping[str, Any]) -> str:
        episodes = int(command.get("episodes", 10))
        if not 0 <= episodes <= 1000:
            raise ConfigError(f"{episodes} episodes were asked for; expected 0 to 1000")
        self._control.evaluate(episodes)
        return f"{episodes} episodes without exploration" if episodes else "exploration goes on"

    def _place(self, command: Mapping[str, Any]) -> tuple[int, int]:
        """Episode and step that a key means."""
        find = self.times.success if command["do"] == "success" else self.times.event
        place = find(float(command.get("t", time.time())))
        if place is None:
            raise ConfigError("no step was under way when this was pressed")
        return place

    def _judge(self, session: str, episode: int) -> None:
        """Tell the rates what the labels say of an episode: the last one pressed, as `in_force`."""
        if session != self._spool.session:
            return
        said = in_force(
            [one for one in self._labels if (one.session, one.episode) == (session, episode)]
        )
        outcomes = [one.kind for one in said if one.kind in _OUTCOMES]
        whole = [one.kind for one in said if one.index == 0 and one.until < 0]
        self._control.judge(
            episode, outcomes[-1] == "success" if outcomes else None,
            discarded=[one for one in whole if one in _DISCARDS][-1:] == ["discard"],
        )  # fmt: skip

    def _correct(
        self, command: Mapping[str, Any], kind: str, episode: int, **values: Any
    ) -> Correction:  # fmt: skip
        correction = Correction(**{
            "id": uuid.uuid4().hex, "session": self._spool.session, "episode": episode,
            "kind": kind, "operator": str(command.get("operator", "")),
            "time": float(command.get("t", time.time())), **values,
        })  # fmt: skip
        self._spool.append(correction)
        self._labelled = f"{correction.session}_{correction.episode}"
        if kind != "undo":
            self._labels.append(correction)
        return correction


class NoConsole:
    """Nobody is connected."""

    def poll(self) -> list[dict[str, Any]]:
        """No commands."""
        return []

    def answer(self, command_id: str, ok: bool, why: str = "", episode: str = "") -> None:
        """There is nobody to answer."""

    def tell(self, snapshot: Mapping[str, Any]) -> None:
        """There is nobody to tell."""
