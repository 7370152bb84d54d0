"""Keys that a simulated operator presses at the console of `robot-rl learn`, and what they mean.

The operator presses at random moments, also between episodes, and notes each key beside the reply
of the console. Afterwards what the learner has stored is compared with those notes: every key that
was confirmed is there once, no other one is, and each label belongs to the step that its key meant.
Rules of the meaning are written here once more, over what was recorded: an oracle.
"""

import asyncio
import contextlib
import math
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from robot_rl.link.corrections import Correction
from robot_rl.link.records import Frame, Record
from robot_rl.link.store import Begun
from robot_rl.link.transitions import Changed, Transition, TransitionAssembler

_KEYS = {"success": 4, "fail": 4, "discard": 2, "undo": 3}
"""Each key with its weight."""
_PAUSE = 2.0, 6.0
"""Time between two keys [s]."""
_REPLY_SECONDS = 10.0
_LEAST_DELAY, _MOST_DELAY = 0.3, 1.0
"""Time by which people press after what they mean [s]."""
_SAME_SECONDS = 0.5
"""Largest difference between the times of a key and of what was stored of it [s]."""


@dataclass
class Press:
    """A key that was pressed."""

    do: str
    time: float
    """[unix s]."""
    code: int = 0
    """Of the console's reply, 200 where it is done; 0 where none came."""


class KeyPresser:
    """Presses keys in a thread, each through a page of its own. Use it as a context."""

    def __init__(self, address: Callable[[], str], rng: random.Random) -> None:
        """Prepare; `address` is that of the console for one browser, empty without a console."""
        self.presses: list[Press] = []
        """All keys, in order."""
        self._address, self._rng = address, rng
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "KeyPresser":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ends.wait(self._rng.uniform(*_PAUSE)):
            key = self._rng.choices([*_KEYS], [*_KEYS.values()])[0]
            if url := self._address():
                # Where the console is killed meanwhile, the key keeps its code.
                with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError, TypeError):
                    asyncio.run(self._press(url, key))

    async def _press(self, url: str, do: str) -> None:
        origin = url.partition("/?")[0]
        jar, limit = aiohttp.CookieJar(unsafe=True), aiohttp.ClientTimeout(total=_REPLY_SECONDS)
        async with aiohttp.ClientSession(cookie_jar=jar, timeout=limit) as session:
            await session.get(url)
            async with session.ws_connect(f"{origin}/ws", headers={"Origin": origin}) as page:
                await page.send_json({"type": "hello", "name": "simulated operator"})
                await page.send_json(_command("acquire"))
                press, message = Press(do, time.time()), _command(do)
                self.presses.append(press)
                await page.send_json(message)
                while press.code == 0:
                    told = await page.receive_json(timeout=_REPLY_SECONDS)
                    if told.get("type") == "reply" and told["id"] == message["id"]:
                        press.code = int(told["code"])
                await page.send_json(_command("release"))


def _command(do: str) -> dict[str, Any]:
    message = {"type": "command", "id": uuid.uuid4().hex, "do": do, "t": time.monotonic()}
    return message | ({"what": "episode"} if do == "discard" else {})


@dataclass(frozen=True, slots=True)
class _Step:
    """A step as it was recorded; times in [unix s]."""

    episode: int
    index: int
    begin: float
    end: float
    reward: float
    terminated: bool
    truncated: bool
    valid: bool
    success: bool


@dataclass
class _Session:
    """What an actor recorded."""

    steps: list[_Step] = field(default_factory=list[_Step])
    labels: list[Correction] = field(default_factory=list[Correction])
    """Labels and undos, in order."""
    _newest: Frame | None = None

    def add(self, frame: Frame) -> None:
        """Take the next frame, which ends the step of the one before."""
        one = self._newest
        if one is not None and one.action is not None and one.episode == frame.episode:
            self.steps.append(_step(one, frame.stamp))
        self._newest = frame

    @property
    def all_steps(self) -> list[_Step]:
        """The steps, with the one whose end a killed actor did not record."""
        one = self._newest
        cut = one is not None and one.action is not None
        return [*self.steps, _step(one, math.inf)] if one is not None and cut else self.steps


def _step(frame: Frame, end: float) -> _Step:
    return _Step(
        frame.episode, frame.index, frame.stamp, end, frame.reward, frame.terminated,
        frame.truncated, frame.valid, frame.success,
    )  # fmt: skip


class LabelCheck:
    """Compares stored labels with the keys that were pressed. Feed it every entry of a store."""

    def __init__(self) -> None:
        """Begin before the first entry."""
        self._sessions: dict[str, _Session] = {}
        self._outcomes: dict[tuple[str, int, int], tuple[float, bool, bool, bool, bool]] = {}
        self._assembler = TransitionAssembler()

    def take(self, entry: Record | Begun) -> int:
        """Take the next entry; returns the transitions that follow from it."""
        session = self._sessions.setdefault(entry.session, _Session())
        if isinstance(entry, Frame):
            session.add(entry)
        elif isinstance(entry, Correction):
            session.labels.append(entry)
        events = self._assembler.take(entry)
        for event in events:
            if isinstance(event, Transition | Changed):
                one, key = event.outcome, (*event.episode, event.index)
                self._outcomes[key] = (
                    one.reward, one.terminated, one.truncated, one.valid, one.success
                )  # fmt: skip
        return sum(isinstance(event, Transition) for event in events)

    def compare(self, presses: Sequence[Press]) -> dict[str, Any]:
        """Counts, and a sentence about everything that is not as it was pressed."""
        wrong, left, late = list[str](), list(presses), 0
        stored = Counter[str]()
        for name, session in self._sessions.items():
            given, steps = list[Correction](), session.all_steps
            for label in session.labels:
                stored[label.kind] += 1
                press = _press_of(label, left)
                if press is None:
                    wrong.append(f"{label.kind} at {label.time:.3f}: stored, and pressed by nobody")
                else:
                    left.remove(press)
                wrong += _misplaced(label, steps, given)
                late += label.kind != "undo" and _is_late(label, steps)
            wrong += self._misjudged(name, session.steps, given)
        wrong += [f"{one.do} at {one.time:.3f}: confirmed, and not stored"
                  for one in left if one.code == 200]  # fmt: skip
        codes = Counter(str(one.code) for one in presses)
        return {"pressed": len(presses), "replies": dict(codes), "stored": dict(stored),
                "late": late, "wrong": wrong}  # fmt: skip

    def _misjudged(
        self, session: str, steps: Sequence[_Step], given: Sequence[Correction]
    ) -> Iterable[str]:
        """Steps whose outcome is not what was recorded, seen through the labels that hold."""
        labels: dict[int, list[Correction]] = {}
        for label in given:
            labels.setdefault(label.episode, []).append(label)
        for step in steps:
            outcome = self._outcomes.get((session, step.episode, step.index))
            if outcome != (expected := _outcome(step, labels.get(step.episode, ()))):
                yield (
                    f"step {step.index} of episode {step.episode}: {outcome} where the keys "
                    f"say {expected}"
                )


def _press_of(label: Correction, presses: Sequence[Press]) -> Press | None:
    """Key that was stored as this label."""
    found = [
        one
        for one in presses
        if one.do == label.kind and abs(one.time - label.time) < _SAME_SECONDS
    ]
    return min(found, key=lambda one: abs(one.time - label.time), default=None)


def _misplaced(
    label: Correction, steps: Sequence[_Step], given: list[Correction]
) -> Iterable[str]:  # fmt: skip
    """A sentence where a label is not of the step that its key meant; moves `given` on."""
    if label.kind == "undo":
        if not given or label.text != given[-1].id:
            yield f"undo at {label.time:.3f}: of another label than the one before it"
        given[:] = [one for one in given if one.id != label.text]
        return
    given.append(label)
    step = _meant(label.kind, label.time, steps)
    index = label.index if label.kind != "discard" or step is None else step.index
    if step is None or (step.episode, step.index) != (label.episode, index):
        meant = "no step" if step is None else f"step {step.index} of episode {step.episode}"
        yield (
            f"{label.kind} at {label.time:.3f}: stored for step {label.index} of episode "
            f"{label.episode}, and {meant} was meant"
        )


def _meant(key: str, pressed: float, steps: Sequence[_Step]) -> _Step | None:
    """Step that a key means.

    A success is that of the newest step that was one up to a second before the key, if there is
    one. Every other key means the step under way 0.3 s before it, or the first one.
    """
    if key == "success":
        seen = [
            one
            for one in steps
            if one.success and one.begin <= pressed and one.end >= pressed - _MOST_DELAY
        ]
        if seen:
            return seen[-1]
    begun = [one for one in steps if one.begin <= pressed - _LEAST_DELAY]
    return begun[-1] if begun else next((one for one in steps if one.begin <= pressed), None)


def _is_late(label: Correction, steps: Sequence[_Step]) -> bool:
    """The key came when its episode was over."""
    ends = [one.end for one in steps if one.episode == label.episode]
    return bool(ends) and label.time > ends[-1]


def _outcome(
    step: _Step, labels: Sequence[Correction]
) -> tuple[float, bool, bool, bool, bool]:  # fmt: skip
    """Reward, terminated, truncated, valid and success of a step, as persons say."""
    valid = step.valid and not any(one.kind == "discard" for one in labels)
    ends = [one for one in labels if one.kind != "discard"]
    if ends and step.index == ends[-1].index:
        good = ends[-1].kind == "success"
        return float(good), True, False, valid, good
    valid = valid and not (ends and step.index > ends[-1].index)
    truncated = step.truncated and not step.terminated
    return step.reward, step.terminated, truncated, valid, step.success
