"""Commands of persons at the robot: labels become corrections, wishes go to the learner.

The console speaks to the actor by messages {"id", "do", ..., "operator", "t"}; every one is
answered, once. A label belongs to the step that was under way when the key was pressed, not to the
one at which the message was read.
"""

import time
import uuid
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from robot_rl.core.errors import ConfigError, RobotRLError
from robot_rl.link.client import LinkClient
from robot_rl.link.records import SEGMENTS, Correction
from robot_rl.link.spool import Spool

LEARNER_WISHES = ("pause_learning", "resume_learning", "rollback")
"""Commands that the learner fulfils."""
_REMEMBERED_STEPS, _REMEMBERED_COMMANDS, _REMEMBERED_LABELS = 20_000, 1000, 100


class Console(Protocol):
    """The consoles that are connected to an actor."""

    def poll(self) -> list[dict[str, Any]]:
        """Commands since the last call; never blocks."""
        ...

    def answer(self, command_id: str, ok: bool, why: str = "") -> None:
        """Answer a command."""
        ...

    def tell(self, snapshot: Mapping[str, Any]) -> None:
        """Send the present state; never blocks."""
        ...


class EpisodeControl(Protocol):
    """What commands do to the actor's episodes."""

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

    def mark(self, segment: str) -> None:
        """Steps belong to this segment from now on; empty goes back to who acts."""
        ...

    def evaluate(self, episodes: int) -> None:
        """Act without exploration in so many episodes from the next one on."""
        ...


class StepTimes:
    """Beginnings of the newest steps, to find the one that a key press belongs to."""

    def __init__(self) -> None:
        self._stamps: deque[float] = deque(maxlen=_REMEMBERED_STEPS)
        self._places: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED_STEPS)

    def add(self, episode: int, index: int, stamp: float) -> None:
        """A step begins at a time [unix s]."""
        self._stamps.append(stamp)
        self._places.append((episode, index))

    def at(self, pressed: float) -> tuple[int, int] | None:
        """Episode and index of the step under way at a time; None before the first."""
        place = bisect_right(self._stamps, pressed) - 1
        return self._places[place] if place >= 0 else None

    def last(self, episode: int) -> int | None:
        """Index of the newest step of an episode."""
        found = (index for name, index in reversed(self._places) if name == episode)
        return next(found, None)


class OperatorCommands:
    """Fulfils commands between two steps."""

    def __init__(
        self, console: Console, control: EpisodeControl, spool: Spool, link: LinkClient
    ) -> None:
        """Join the parts."""
        self._console, self._control, self._spool, self._link = console, control, spool, link
        self.times = StepTimes()
        """To be told of every step."""
        self._done: dict[str, tuple[bool, str]] = {}
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

    def _fulfil(self, do: str, command: Mapping[str, Any]) -> tuple[bool, str]:
        if do not in self._known:
            return False, f"'{do}' is not offered by this robot"
        try:
            return True, self._known[do](command)
        except (RobotRLError, TypeError, ValueError) as error:
            return False, str(error)

    def _answer(self, name: str, ok: bool, why: str) -> None:
        self._done[name] = ok, why
        for old in list(self._done)[:-_REMEMBERED_COMMANDS]:
            del self._done[old]
        self._console.answer(name, ok, why)

    def _label(self, command: Mapping[str, Any]) -> str:
        """Success or failure at the time of the key press; ends the episode, if it runs on."""
        pressed = float(command.get("t", time.time()))
        place = self.times.at(pressed)
        if place is None:
            raise ConfigError("no step was under way when this was pressed")
        episode, index = place
        do = str(command["do"])
        value = float(command.get("value", do == "success"))
        self._correct(command, do, episode, index=index, value=value)
        if self._control.running and episode == self._control.episode:
            self._control.end_episode(do)
        return f"episode {episode} ends with {do} at step {index}"

    def _relabel(self, command: Mapping[str, Any]) -> str:
        """Success, failure or a reward for an episode by its number."""
        kind, episode = str(command.get("kind", "")), self._number(command)
        if kind not in ("success", "fail", "reward", "undiscard"):
            raise ConfigError(f"kind '{kind}' is unknown; known: success, fail, reward, undiscard")
        last = self.times.last(episode)
        index = int(command.get("index", (last or 0) if kind in ("success", "fail") else 0))
        until, value = int(command.get("until", -1)), float(command.get("value", kind == "success"))
        self._correct(command, kind, episode, index=index, until=until, value=value)
        return f"episode {episode}: {kind}"

    def _discard(self, command: Mapping[str, Any]) -> str:
        """Throw an episode away: by its number, or the one under way at the key press."""
        episode = self._number(command)
        self._correct(command, "discard", episode)
        if self._control.running and episode == self._control.episode:
            self._control.end_episode("discarded")
        return f"episode {episode} is not learned from"

    def _undo(self, command: Mapping[str, Any]) -> str:
        """Take the newest label back, or the one that is named."""
        wanted = str(command.get("target", ""))
        found = [one for one in self._labels if wanted in ("", one.id)]
        if not found:
            raise ConfigError("there is no label of this session to undo")
        label = found[-1]
        self._correct(command, "undo", label.episode, session=label.session, text=label.id)
        self._labels.remove(label)
        return f"{label.kind} of episode {label.episode} is undone"

    def _segment(self, command: Mapping[str, Any]) -> str:
        """Name the steps from now on, or some steps of an episode."""
        name = str(command.get("name", ""))
        if name and name not in SEGMENTS:
            raise ConfigError(f"segment '{name}' is unknown; known: {', '.join(SEGMENTS)}")
        if "index" not in command:
            self._control.mark(name)
            return f"steps are '{name}' from now on" if name else "steps are named by who acts"
        episode = self._number(command)
        until, index = int(command.get("until", -1)), int(command["index"])
        self._correct(command, "segment", episode, index=index, until=until, text=name)
        return f"steps of episode {episode} are '{name}'"

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

    def _number(self, command: Mapping[str, Any]) -> int:
        """Episode that a command names, or the one under way when the key was pressed."""
        if "episode" in command:
            return int(command["episode"])
        place = self.times.at(float(command.get("t", time.time())))
        if place is None:
            raise ConfigError("no episode has begun yet")
        return place[0]

    def _correct(
        self, command: Mapping[str, Any], kind: str, episode: int, **values: Any
    ) -> Correction:  # fmt: skip
        session = str(values.pop("session", command.get("session", self._spool.session)))
        correction = Correction(
            id=uuid.uuid4().hex, session=session, episode=episode, kind=kind,
            operator=str(command.get("operator", "")), time=float(command.get("t", time.time())),
            **values,
        )  # fmt: skip
        self._spool.append(correction)
        if kind != "undo":
            self._labels.append(correction)
        return correction


class NoConsole:
    """Nobody is connected."""

    def poll(self) -> list[dict[str, Any]]:
        """No commands."""
        return []

    def answer(self, command_id: str, ok: bool, why: str = "") -> None:
        """There is nobody to answer."""

    def tell(self, snapshot: Mapping[str, Any]) -> None:
        """There is nobody to tell."""
