"""From what a robot measures to what a policy sees: the same lines in simulation and on the robot.

An observation is a list of terms (`observation_terms.py`), each with a scale, a clip and a history.
Histories are term-major, oldest frame first: a term of width w and history H takes H * w
consecutive entries. At an episode's start a history is filled with the first frame.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from array_api_compat import array_namespace

from robot_rl.core.array import Array
from robot_rl.core.errors import ConfigError, ShapeError, unknown_name
from robot_rl.core.observation_terms import (
    TERMS,
    ObservationInputs,
    Term,
    end_effector_offset,
    entry,
    goal_entry,
)
from robot_rl.core.rows import EnvSelection

SENSED_PREFIX = "sensed/"
"""A term named `sensed/<name>` is the input `<name>` of `ObservationInputs.sensed` as it is."""
GOAL_PREFIX = "goal/"
"""A term named `goal/<name>` is the goal `<name>` as it is."""
STATE_PREFIX = "state/"
"""A term named `state/<field>` is the field of `RobotState` as it is."""
OFFSET_PREFIX = "offset/"
"""A term named `offset/<name>` is the way from the sensed place `<name>` to the end effector,
(N, 3), [m], base axes: what half a millimetre matters for is no difference of two large numbers."""

_PREFIXES = (SENSED_PREFIX, GOAL_PREFIX, STATE_PREFIX, OFFSET_PREFIX)


@dataclass(kw_only=True)
class TermConfig:
    """One entry of an observation."""

    term: str = ""
    """Name in `TERMS`."""
    scale: float = 1.0
    """Factor applied to every entry."""
    clip: float | None = None
    """Largest magnitude of a scaled entry; none leaves all as they are. The same term twice, once
    with a large scale and a clip, shows the last millimetres of a long way."""
    history: int = 1
    """Number of frames, the current one included."""

    def __post_init__(self) -> None:
        """Refuse empty histories, and clips that leave nothing."""
        if self.history < 1:
            raise ConfigError(f"term '{self.term}': history must be at least 1, got {self.history}")
        if self.clip is not None and not self.clip > 0:
            raise ConfigError(f"term '{self.term}': clip must be positive, got {self.clip}")

    def to_dict(self, width: int) -> dict[str, Any]:
        """Plain values for JSON; what is not clipped does not speak of it."""
        clip = {} if self.clip is None else {"clip": self.clip}
        plain = {"term": self.term, "width": width, "scale": self.scale, "history": self.history}
        return plain | clip


class ObservationMap:
    """Builds the observation of N worlds, or of one robot, and keeps its histories.

    Real-time: after construction `update` allocates only the arrays it returns and never blocks.
    """

    def __init__(self, terms: Sequence[TermConfig], example: ObservationInputs) -> None:
        """Check every term against an example of its inputs.

        Args:
            terms: What to observe, in order.
            example: Inputs of N worlds; only shapes, type and device matter.

        Raises:
            ConfigError: A term is unknown.
            SpecMismatchError: A term reads what the robot does not measure or the task not set.
        """
        if not terms:
            raise ConfigError("an observation needs at least one term, got none")
        self._xp = array_namespace(example.last_action)
        self.terms = list(terms)
        self._functions: list[Term] = []
        self._histories: list[_History | None] = []
        self.widths: list[int] = []
        """Width of one frame of each term."""
        for config in self.terms:
            function = _term(config.term)
            value = function(example)
            self.widths.append(int(value.shape[-1]))
            self._functions.append(function)
            self._histories.append(_History(value, config.history) if config.history > 1 else None)

    @property
    def size(self) -> int:
        """D: width of the whole observation."""
        return sum(w * t.history for w, t in zip(self.widths, self.terms, strict=True))

    def layout(self) -> list[dict[str, Any]]:
        """Terms with their widths, in order, as of `TermConfig.to_dict`."""
        return [t.to_dict(w) for w, t in zip(self.widths, self.terms, strict=True)]

    def update(self, inputs: ObservationInputs, out: Array | None = None) -> Array:
        """Push one frame into every history and observe all worlds.

        Args:
            inputs: Inputs of all N worlds.
            out: Where to write, (N, D); None makes a new array.

        Returns:
            `out`, (N, D).
        """
        parts: list[Array] = []
        for config, function, history in self._each():
            frame = _scaled(function(inputs), config)
            if history is not None:
                history.push(frame)
                frame = history.window()
            parts.append(frame)
        return self._join(parts, out)

    def look(self, inputs: ObservationInputs, out: Array | None = None) -> Array:
        """Observe all worlds again without pushing a frame, as `update` otherwise.

        Terms with a history show the frames they hold.
        """
        parts = [
            _scaled(function(inputs), config) if history is None else history.window()
            for config, function, history in self._each()
        ]
        return self._join(parts, out)

    def begin(self, rows: EnvSelection, inputs: ObservationInputs) -> None:
        """Start an episode in the picked worlds, as `reset`; `look` then shows it."""
        picked = inputs.take(rows) if any(self._histories) else inputs
        for config, function, history in self._each():
            if history is not None:
                history.fill(rows, _scaled(function(picked), config))

    def reset(self, rows: EnvSelection, inputs: ObservationInputs) -> Array:
        """Start an episode in the picked worlds: fill their histories with the current frame.

        Args:
            rows: Worlds that start anew.
            inputs: Inputs of all N worlds, after the reset.

        Returns:
            Observation of the picked worlds, (count, D), a new array.
        """
        picked = inputs.take(rows)
        parts: list[Array] = []
        for config, function, history in self._each():
            frame = _scaled(function(picked), config)
            if history is not None:
                frame = history.fill(rows, frame)
            parts.append(frame)
        return self._join(parts, None)

    def state_dict(self) -> dict[str, Array]:
        """Copies of the histories by position of their term, each (N, H * w)."""
        return {
            str(i): array_namespace(history.window()).asarray(history.window(), copy=True)
            for i, history in enumerate(self._histories)
            if history is not None
        }

    def load_state_dict(self, state: Mapping[str, Array]) -> None:
        """Restore the histories of `state_dict`."""
        for i, history in enumerate(self._histories):
            if history is not None:
                history.load(state[str(i)])

    def _join(self, parts: Sequence[Array], out: Array | None) -> Array:
        # `out` is no part of the array standard, but numpy and torch have it.
        return self._xp.concat(parts, axis=-1, out=out)

    def _each(self) -> "zip[tuple[TermConfig, Term, _History | None]]":
        return zip(self.terms, self._functions, self._histories, strict=True)


class _History:
    """The last H frames of one term.

    Frames are written into a buffer twice as long as the history, so that the window is a plain
    slice and old frames move only about every H-th push.
    """

    def __init__(self, frame: Array, length: int) -> None:
        xp = array_namespace(frame)
        count, width = frame.shape
        self._width = width
        self._size = length * width
        self._end = self._size  # column behind the newest frame
        self._frames = xp.zeros((count, 2 * self._size), dtype=frame.dtype, device=frame.device)

    def push(self, frame: Array) -> None:
        if self._end == 2 * self._size:
            kept = self._size - self._width
            self._frames[:, :kept] = self._frames[:, self._end - kept :]
            self._end = kept
        self._frames[:, self._end : self._end + self._width] = frame
        self._end += self._width

    def window(self) -> Array:
        """(N, H * w), a view."""
        return self._frames[:, self._end - self._size : self._end]

    def fill(self, rows: EnvSelection, frame: Array) -> Array:
        xp = array_namespace(frame)
        repeated = xp.tile(frame, (1, self._size // self._width))  # (count, H * w)
        rows.put(self.window(), repeated)
        return repeated

    def load(self, window: Array) -> None:
        if tuple(window.shape) != tuple(self.window().shape):
            raise ShapeError(
                f"observation history: expected shape {tuple(self.window().shape)}, "
                f"got {tuple(window.shape)}"
            )
        self._end = self._size
        self._frames[:, : self._size] = window


def is_term(name: str) -> bool:
    """Whether a term of this name can be in an observation."""
    return name in TERMS or name.startswith(_PREFIXES)


def _term(name: str) -> Term:
    if name.startswith(SENSED_PREFIX):
        return lambda inputs: entry(inputs.sensed, name[len(SENSED_PREFIX) :], "sensed input")
    if name.startswith(OFFSET_PREFIX):
        return lambda inputs: end_effector_offset(inputs, name[len(OFFSET_PREFIX) :])
    if name.startswith(GOAL_PREFIX):
        return lambda inputs: goal_entry(inputs, name[len(GOAL_PREFIX) :])
    if name.startswith(STATE_PREFIX):
        return lambda inputs: inputs.state.field(name[len(STATE_PREFIX) :])
    if name not in TERMS:
        raise ConfigError(unknown_name("observation term", name, TERMS))
    return TERMS[name]


def _scaled(value: Array, config: TermConfig) -> Array:
    value = value if config.scale == 1.0 else value * config.scale
    if config.clip is None:
        return value
    return array_namespace(value).clip(value, -config.clip, config.clip)
