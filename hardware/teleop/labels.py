"""Labels that people give: pressed late, taken back, put right; as corrections of an episode.

A key is pressed 0.3 to 1 s after the event that it means. Kept is the time of the press; the label
is attributed to the step at which the reward rule itself saw the event, not to the step under the
key. A press is settled after a grace in which `undo` takes it back; only then does it become a
`Correction`, of which every id is applied once, whoever reads it how often.

Pure bookkeeping: times are arguments, and nothing is stored or sent here.
"""

import math
import uuid
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from hardware.teleop.intervention import SegmentKind
from robot_rl.core.errors import ConfigError
from robot_rl.link.corrections import Correction


class LabelKind(Enum):
    """Kind of a correction."""

    success = "success"
    fail = "fail"
    discard = "discard"
    undiscard = "undiscard"
    reward = "reward"
    segment = "segment"


_KEYS = (LabelKind.success, LabelKind.fail, LabelKind.discard)
"""Kinds that a key of the operator's means."""


_SEGMENTS = tuple(kind.value for kind in SegmentKind)


@dataclass(kw_only=True)
class LabelConfig:
    """Times of labels."""

    grace: float = 5.0
    """Time in which a label can be taken back [s]."""
    least_delay: float = 0.3
    """A key is pressed at least so long after its event [s]."""
    most_delay: float = 1.0
    """And at most so long [s]: the reward rule is asked about the steps in between."""

    def __post_init__(self) -> None:
        if not 0 <= self.least_delay <= self.most_delay < math.inf or not self.grace >= 0:
            raise ConfigError(
                f"labels: expected 0 <= least_delay <= most_delay and grace >= 0, got "
                f"{self.least_delay}, {self.most_delay}, {self.grace}"
            )


@dataclass(kw_only=True)
class Label:
    """A key that was pressed."""

    id: str
    """Of the correction that it becomes."""
    episode: int
    """Number of the episode."""
    kind: LabelKind
    """Kind of the label."""
    pressed: float
    """Time of the key [s]."""
    operator: str
    """Person who pressed it."""
    index: int
    """Step that it is attributed to."""


@dataclass
class _Episode:
    """Steps of an episode, as far as labels need them."""

    stamps: list[float] = field(default_factory=list[float])
    hits: list[bool] = field(default_factory=list[bool])
    ended: bool = False
    discarded: bool = False


def attributed_step(stamps: list[float], hits: list[bool], pressed: float, config: LabelConfig,
                    kind: LabelKind) -> int:  # fmt: skip
    """Step that a late key means; 0 where none had begun.

    Success: the first step of the newest run of steps in which the reward rule saw it, if that run
    reaches into the window in which the event can have been; else, and for fail, the last step
    that had begun when the event was latest. A discard is about the whole episode.

    Args:
        stamps: When each step began [s], ascending.
        hits: Whether the reward rule saw success in it.
        pressed: Time of the key [s].
    """
    if kind is LabelKind.discard or not stamps:
        return 0
    latest = bisect_right(stamps, pressed - config.least_delay) - 1
    if kind is LabelKind.success:
        step = bisect_right(stamps, pressed) - 1
        while step >= 0 and stamps[step] >= pressed - config.most_delay:
            if hits[step]:
                while step > 0 and hits[step - 1]:
                    step -= 1
                return step
            step -= 1
    return max(latest, 0)


class EpisodeLabels:
    """Labels of a session: of the episode that runs, and of the one before it."""

    def __init__(
        self,
        session: str,
        config: LabelConfig | None = None,
        make_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        """Begin a session.

        Args:
            session: Of the steps.
            make_id: Gives an id that was never given before.
        """
        self.session = session
        """Of the steps."""
        self.config = config or LabelConfig()
        """Times."""
        self._make_id = make_id
        self._episodes: dict[int, _Episode] = {}
        self._pending: list[Label] = []
        self.newest: int | None = None
        """Number of the episode that runs, or of the one that ended last."""

    @property
    def running(self) -> bool:
        """True while an episode runs."""
        return self.newest is not None and not self._episodes[self.newest].ended

    def begin(self, episode: int) -> None:
        """An episode begins; it must have a number of its own."""
        if episode in self._episodes:
            raise ConfigError(f"episode {episode} has begun already; expected another number")
        self._episodes[episode] = _Episode()
        self.newest = episode
        kept = {one.episode for one in self._pending} | set(sorted(self._episodes)[-2:])
        self._episodes = {n: one for n, one in self._episodes.items() if n in kept}

    def step(self, stamp: float, hit: bool) -> None:
        """The next step of the episode that runs began at a time [s].

        Args:
            hit: Whether the reward rule sees success in it.
        """
        if not self.running:
            raise ConfigError("a step came outside of an episode; call begin first")
        episode = self._episodes[self.newest or 0]
        episode.stamps.append(stamp)
        episode.hits.append(hit)

    def end(self) -> None:
        """The episode is over; labels about it may still come."""
        if self.newest is not None:
            self._episodes[self.newest].ended = True

    def press(self, kind: LabelKind, now: float, operator: str = "") -> Label | None:
        """A key is pressed: about the episode that runs, or during a reset about the last one.

        Returns:
            The label; None where there is no episode with a step to label.
        """
        if kind not in _KEYS:
            known = ", ".join(one.value for one in _KEYS)
            raise ConfigError(f"'{kind.value}' is no key of labels; known: {known}")
        if self.newest is None or not self._episodes[self.newest].stamps:
            return None
        episode = self._episodes[self.newest]
        index = attributed_step(episode.stamps, episode.hits, now, self.config, kind)
        label = Label(
            id=self._make_id(), episode=self.newest, kind=kind, pressed=now, operator=operator,
            index=index,
        )  # fmt: skip
        self._pending.append(label)
        return label

    def undo(self, now: float) -> Label | None:
        """Take the newest label back that is within its grace; None where there is none."""
        if not self._pending or now - self._pending[-1].pressed > self.config.grace:
            return None
        return self._pending.pop()

    def pending(self, now: float) -> list[tuple[Label, float]]:
        """Labels that can be taken back, the newest last, each with the time that is left [s]."""
        left = [(one, self.config.grace - (now - one.pressed)) for one in self._pending]
        return [(one, seconds) for one, seconds in left if seconds >= 0]

    def settle(self, now: float) -> list[Correction]:
        """Corrections of labels whose grace is over, in the order of their keys; each once.

        Of the outcomes of one episode, the newest counts: an older one that is settled in the same
        call is dropped, and so is a discard of an episode that is discarded already.
        """
        over = [one for one in self._pending if now - one.pressed > self.config.grace]
        self._pending = [one for one in self._pending if now - one.pressed <= self.config.grace]
        newest = {(one.episode, one.kind is LabelKind.discard): one.id for one in over}
        found: list[Correction] = []
        for one in over:
            is_discard = one.kind is LabelKind.discard
            if newest[(one.episode, is_discard)] != one.id:
                continue
            episode = self._episodes.get(one.episode)
            if is_discard and episode is not None:
                if episode.discarded:
                    continue
                episode.discarded = True
            found.append(self._correction(one.episode, one.kind, one.index, one))
        return found

    def discard_steps(
        self, episode: int, since: float, until: float, now: float, operator: str = ""
    ) -> Correction | None:
        """Discard what began within a time, such as one intervention, and keep the episode.

        Args:
            since: [s]
            until: [s]; NaN for everything that follows, of steps that have begun.
            now: Time of the press [s].

        Returns:
            The correction; None where no step that is known began then.
        """
        known = self._episodes.get(episode)
        if known is None:
            return None
        end = math.inf if math.isnan(until) else until
        steps = [i for i, stamp in enumerate(known.stamps) if since <= stamp < end]
        if not steps:
            return None
        return Correction(
            id=self._make_id(), session=self.session, episode=episode,
            kind=LabelKind.discard.value, index=steps[0], until=steps[-1] + 1, operator=operator,
            time=now,
        )  # fmt: skip

    def relabel(
        self, episode: int, kind: LabelKind, index: int, now: float, *, operator: str = "",
        value: float | None = None, text: str = "",
    ) -> Correction:  # fmt: skip
        """Say something about an episode of any age, at once: whoever relabels looks at it.

        Args:
            index: First step that it is about.
            now: Time of the press [s].
            value: Reward of the steps, of the kind `reward` only.
            text: Kind of the segment, of the kind `segment` only.
        """
        if index < 0:
            raise ConfigError(f"a correction begins at a step >= 0, got {index}")
        if (kind is LabelKind.reward) != (value is not None):
            raise ConfigError(f"a correction '{kind.value}' got the value {value}")
        if (kind is LabelKind.segment) != (text in _SEGMENTS):
            raise ConfigError(
                f"a correction '{kind.value}' got the text '{text}'; segments: "
                f"{', '.join(_SEGMENTS)}"
            )
        return Correction(
            id=self._make_id(), session=self.session, episode=episode, kind=kind.value,
            index=index, value=value or 0.0, text=text, operator=operator, time=now,
        )  # fmt: skip

    def _correction(self, episode: int, kind: LabelKind, index: int, label: Label) -> Correction:
        return Correction(
            id=label.id, session=self.session, episode=episode, kind=kind.value,
            index=index, operator=label.operator, time=label.pressed,
        )  # fmt: skip
