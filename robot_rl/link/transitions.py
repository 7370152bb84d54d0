"""Transitions out of frames, and what corrections make of them, in any order of arrival.

A transition needs the frame behind it: its observation is the true successor. The outcome of a step
is always what its frame said, seen through all corrections of its episode in the order of their key
presses. So the same records give the same outcomes in whatever order they come:

    success, fail   the step ends the episode so, with the value as its reward; later steps are void
    reward          the steps get the value as their reward
    discard         the steps are void: they must not be learned from; undiscard takes that back
    segment         the steps are of another segment
    undo            an earlier correction of the episode does not count

A frame holds the newest picture of each camera. The stack that the policy saw is the one of the
frame before, moved on by that picture; at an episode's start all of its frames are the first one.
"""

import math
import sys
from array import array
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robot_rl.link.corrections import Correction
from robot_rl.link.records import Frame, Record
from robot_rl.link.store import Begun

Episode = tuple[str, int]
"""Session, and number of the episode in it."""
_SUMMARIZED = 200


class Outcome(NamedTuple):
    """Judgement of a step as it stands."""

    reward: float
    terminated: bool
    truncated: bool
    valid: bool
    success: bool
    segment: str


@dataclass(frozen=True)
class Transition:
    """A step with its true successor."""

    episode: Episode
    index: int
    frame: Frame
    next_obs: Mapping[str, NDArray[Any]]
    outcome: Outcome
    measured: bool
    """False where the robot itself, or a NaN, voids the step: no label makes it valid."""
    ends_intervention: bool
    """The person's part of the episode ends with this step."""


@dataclass(frozen=True)
class Changed:
    """New outcome of a transition that was handed out before."""

    episode: Episode
    index: int
    outcome: Outcome


@dataclass(frozen=True)
class Ended:
    """No further transition of an episode will come."""

    episode: Episode


Event = Transition | Changed | Ended


@dataclass(frozen=True, kw_only=True)
class EpisodeSummary:
    """An ended episode as it is judged now; steps that are void do not count."""

    total: float
    """Sum of rewards."""
    steps: int
    success: bool
    terminated: bool
    intervened: int
    """Steps that a person acted in."""
    aided: bool
    """A person acted in the last of its steps or before, even if that step is void."""
    version: int
    """Version of the weights that it began with."""


class _Steps:
    """Steps of one episode, as their frames said; few bytes each, as none is ever forgotten."""

    __slots__ = (
        "_flags", "_indices", "_rewards", "_segments", "corrections", "ended", "order", "version",
    )  # fmt: skip

    def __init__(self) -> None:
        self._indices, self._rewards = array("l"), array("d")
        self._flags, self._segments = array("B"), list[str]()
        self.ended, self.version = False, 0
        self.corrections: dict[str, Correction] = {}
        self.order: tuple[Correction, ...] = ()
        """Those that count, by time."""

    def add(self, index: int, outcome: Outcome, *, intervened: bool, version: int) -> None:
        if not self._indices:
            self.version = version
        self._indices.append(index)
        self._rewards.append(outcome.reward)
        flags = (outcome.terminated, outcome.truncated, outcome.valid, outcome.success, intervened)
        self._flags.append(sum(bool(flag) << k for k, flag in enumerate(flags)))
        self._segments.append(sys.intern(outcome.segment))

    def originals(self) -> Iterator[tuple[int, Outcome]]:
        """Index and outcome of each step, before any correction."""
        rows = zip(self._indices, self._rewards, self._flags, self._segments, strict=True)
        for index, reward, flags, segment in rows:
            terminated, truncated, valid, success = (bool(flags >> k & 1) for k in range(4))
            yield index, Outcome(reward, terminated, truncated, valid, success, segment)

    def judged(self) -> Iterator[tuple[Outcome, bool]]:
        """Outcome of each step as it stands, and True if a person acted in it."""
        for (index, one), flags in zip(self.originals(), self._flags, strict=True):
            yield judge(index, one, self.order), bool(flags >> 4 & 1)


class TransitionAssembler:
    """Takes the entries of a store in their order, and hands out what follows from each."""

    def __init__(self, stacks: Mapping[str, int] | None = None) -> None:
        """Begin before the first entry.

        Args:
            stacks: Frames in an observation of each camera, by group.
        """
        self._stacks = dict(stacks or {})
        self._whole: dict[str, int] = {}  # first frame of the session's episode with whole stacks
        self._episodes: dict[Episode, _Steps] = {}
        self._pending: dict[str, Frame] = {}  # newest frame of each session, without successor
        self._sessions: dict[str, str] = {}  # newest session of each robot
        self._ended: deque[Episode] = deque(maxlen=_SUMMARIZED)
        self._given_up = 0
        self.not_finite = 0
        """Steps with a NaN or an infinity, which are void."""
        self.corrections = 0
        """Corrections that were applied."""

    @property
    def unfinished(self) -> int:
        """Steps without a successor: an actor was killed within them."""
        newest = set(self._sessions.values())
        waiting = [one for name, one in self._pending.items() if name not in newest]
        return self._given_up + len(waiting)

    def take(self, entry: Record | Begun) -> list[Event]:
        """All that follows from the next entry."""
        if isinstance(entry, Begun):
            return self._begin(entry)
        return self._correct(entry) if isinstance(entry, Correction) else self._add(entry)

    def summaries(self, count: int) -> Iterator[EpisodeSummary]:
        """The last so many ended episodes that are not discarded, newest first."""
        for name in list(reversed(self._ended))[:count]:
            steps = list(self._episodes[name].judged())
            while steps and not steps[-1][0].valid:
                steps.pop()
            counted = [(one, intervened) for one, intervened in steps if one.valid]
            if counted:
                yield EpisodeSummary(
                    total=sum(one.reward for one, _ in counted), steps=len(counted),
                    success=any(one.success for one, _ in counted),
                    terminated=any(one.terminated for one, _ in counted),
                    intervened=sum(intervened for _, intervened in counted),
                    aided=any(intervened for _, intervened in steps),
                    version=self._episodes[name].version,
                )  # fmt: skip

    def _begin(self, begun: Begun) -> list[Event]:
        """A new session of a robot ends what its last one left open."""
        before = self._sessions.get(begun.robot, "")
        self._sessions[begun.robot] = begun.session
        pending = self._pending.get(before)
        return [] if pending is None else self._end((before, pending.episode))

    def _end(self, name: Episode) -> list[Event]:
        steps = self._steps(name)
        if steps.ended:
            return []
        steps.ended = True
        self._ended.append(name)
        return [Ended(name)]

    def _add(self, frame: Frame) -> list[Event]:
        session, name = frame.session, (frame.session, frame.episode)
        before = self._pending.get(session)
        events: list[Event] = []
        follows = (
            before is not None
            and before.episode == frame.episode
            and before.index + 1 == frame.index
        )
        frame = self._stacked(frame, before if follows else None)
        if before is not None and follows:
            events.append(self._join(before, frame))
        elif before is not None:  # the actor gave the episode up without a last frame
            self._given_up += 1
            events += self._end((session, before.episode))
        self._pending[session] = frame
        if frame.action is None:
            del self._pending[session]
            events += self._end(name)
        return events

    def _stacked(self, frame: Frame, before: Frame | None) -> Frame:
        """The frame with what the policy saw in place of the newest pictures."""
        if not self._stacks:
            return frame
        obs = dict(frame.obs)
        for name, depth in self._stacks.items():
            newest = frame.obs[name][None]
            earlier = newest.repeat(depth - 1, 0) if before is None else before.obs[name][1:]
            obs[name] = np.concatenate([earlier, newest])
        if before is None:  # frames before an index beyond 0 were lost
            torn = frame.index > 0
            self._whole[frame.session] = torn * (frame.index + max(self._stacks.values()) - 1)
        return replace(frame, obs=obs)

    def _join(self, frame: Frame, following: Frame) -> Transition:
        name = (frame.session, frame.episode)
        steps = self._steps(name)
        finite = _is_finite(frame) and all(_is_finite_array(g) for g in following.obs.values())
        self.not_finite += frame.valid and not finite
        valid = frame.valid and finite and frame.index >= self._whole.get(frame.session, 0)
        original = Outcome(
            frame.reward if math.isfinite(frame.reward) else 0.0, frame.terminated,
            frame.truncated and not frame.terminated, valid, frame.success,
            frame.segment,
        )  # fmt: skip
        outcome = judge(frame.index, original, steps.order)
        steps.add(frame.index, original, intervened=frame.intervened, version=frame.policy_version)
        goes_on = following.action is not None and following.intervened
        return Transition(
            name, frame.index, frame, following.obs, outcome, original.valid,
            frame.intervened and not goes_on,
        )  # fmt: skip

    def _correct(self, correction: Correction) -> list[Event]:
        name = (correction.session, correction.episode)
        steps = self._steps(name)
        if correction.id in steps.corrections:
            return []
        self.corrections += 1
        steps.corrections[correction.id] = correction
        before, steps.order = steps.order, in_force(list(steps.corrections.values()))
        events: list[Event] = []
        for index, original in steps.originals():
            outcome = judge(index, original, steps.order)
            if outcome != judge(index, original, before):
                events.append(Changed(name, index, outcome))
        return events

    def _steps(self, name: Episode) -> _Steps:
        return self._episodes.setdefault(name, _Steps())


def in_force(corrections: Sequence[Correction]) -> tuple[Correction, ...]:
    """Corrections that count, by the time of their key presses, without those that are undone."""
    undone: set[str] = set()
    kept: list[Correction] = []
    for one in sorted(corrections, key=lambda one: (one.time, one.id), reverse=True):
        if one.id in undone:
            continue
        if one.kind == "undo":
            undone.add(one.text)
        else:
            kept.append(one)
    return tuple(reversed(kept))


def judge(index: int, original: Outcome, corrections: Sequence[Correction]) -> Outcome:
    """Outcome of a step, through corrections in order; the last label ends the episode.

    The reward of the step that it ends at is the label's, also where a `reward` came later.
    """
    reward, segment, discarded = original.reward, original.segment, False
    end: Correction | None = None
    for one in corrections:
        if one.kind in ("success", "fail"):
            end = one
            continue
        if not (one.index <= index and (one.until < 0 or index < one.until)):
            continue
        if one.kind == "reward":
            reward = one.value
        elif one.kind == "segment":
            segment = one.text
        else:
            discarded = one.kind == "discard"
    valid = original.valid and not discarded and (end is None or index <= end.index)
    if end is None or index != end.index:
        return original._replace(reward=reward, valid=valid, segment=segment)
    return Outcome(end.value, True, False, valid, end.kind == "success", segment)


def _is_finite(frame: Frame) -> bool:
    groups = [*frame.obs.values(), *([] if frame.action is None else [frame.action])]
    return math.isfinite(frame.reward) and all(_is_finite_array(one) for one in groups)


def _is_finite_array(values: NDArray[Any]) -> bool:
    return values.dtype == np.uint8 or bool(np.isfinite(values).all())
