"""Measured state of a robot, and the observations of it: the same in simulation and on the robot.

An observation is a list of terms, each with a scale, a clip and a history. Histories are
term-major, oldest frame first: a term of width w and history H takes H * w consecutive entries. At
an episode's start a history is filled with the first frame.

A term is a function of `ObservationInputs`, at the end of this file. A plug-in adds its own with
`actor_term`. A bundle names the terms it needs, and a robot computer may have no torch: a module
with terms imports none, and has an entry point of its own where the rest of a plug-in does.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from array_api_compat import array_namespace

from robot_rl.core import quaternion
from robot_rl.core.env_selection import Array, EnvSelection, SelectedRows
from robot_rl.core.errors import ConfigError, ShapeError, SpecMismatchError, unknown_name
from robot_rl.core.plugins import Registry


class Mirrored(Enum):
    """Effect of exchanging left and right on columns; the first six may be repeated."""

    vector = "vector"
    """(x, y, z): y flips."""
    pseudovector = "pseudovector"
    """(x, y, z) of a rotation, an angular velocity, a torque: x and z flip."""
    quaternion = "quaternion"
    """wxyz: x and z flip."""
    rotation = "rotation"
    """Matrix, row-major: entries with one y in row or column flip."""
    wrench = "wrench"
    """A force, then a torque."""
    ground_motion = "ground motion"
    """(forward, to the left, turning to the left): the last two flip."""
    same = "same"
    """Any number of columns that stay."""
    opposite = "opposite"
    """Any number of columns that flip, such as a clock that is half a cycle ahead there."""
    joints = "joints"
    """One per joint."""
    action = "action"
    """One action, as the robot's action map makes commands of it."""
    feet = "feet"
    """One per foot, without a direction."""


_FIELDS = {
    "position_w": ("vector", "position of the base, (N, 3), [m]"),
    "orientation_w": ("quaternion", "attitude of the base, unit quaternion wxyz, (N, 4)"),
    "linear_velocity_w": ("vector", "velocity of the base, (N, 3), [m/s], world axes"),
    "angular_velocity_b": (
        "pseudovector",
        "angular velocity of the base, (N, 3), [rad/s], body axes",
    ),
    "linear_acceleration_b": ("vector", "specific force at the IMU, (N, 3), [m/s^2], body axes"),
    "end_effector_position_b": ("vector", "position of the end effector, (N, 3), [m], base axes"),
    "end_effector_orientation_b": (
        "quaternion",
        "attitude of the end effector, (N, 4), wxyz, base axes",
    ),
    "gripper_opening": ("same", "opening of the gripper as a fraction of the largest, (N, 1)"),
    "joint_position": ("joints", "(N, J), [rad] or [m], joint order of the spec"),
    "joint_velocity": ("joints", "(N, J), [rad/s] or [m/s], joint order of the spec"),
    "joint_effort": ("joints", "(N, J), [N m] or [N], joint order of the spec"),
    "foot_force": ("feet", "normal force at every foot, (N, F), [N], foot order of the spec"),
    "wrench_ee": (
        "wrench",
        "(N, 6), force [N] and torque [N m] that the end effector is held with, its axes",
    ),
}
STATE_FIELDS = {name: meaning for name, (_, meaning) in _FIELDS.items()}
"""Every field that a `RobotState` can have. A robot declares those that it measures as sensors."""
FIELD_KINDS = {name: Mirrored(kind) for name, (kind, _) in _FIELDS.items()}
"""Kind of each of them under a mirror."""


class _Measured:
    """Field of a `RobotState`, read as an attribute; its meaning stands in `STATE_FIELDS`."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, state: "RobotState", owner: type | None = None) -> Array:
        return state.field(self._name)


class RobotState:
    """Measured state, batch-first; has only the fields it was made with."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Array]) -> None:
        """Hold fields of `STATE_FIELDS`, name -> array (N, width), without copying them."""
        for name in values:
            if name not in STATE_FIELDS:
                raise SpecMismatchError(unknown_name("state field", name, STATE_FIELDS))
        self._values = values

    @property
    def fields(self) -> Mapping[str, Array]:
        """All fields by name."""
        return self._values

    position_w = _Measured()
    orientation_w = _Measured()
    linear_velocity_w = _Measured()
    angular_velocity_b = _Measured()
    linear_acceleration_b = _Measured()
    end_effector_position_b = _Measured()
    end_effector_orientation_b = _Measured()
    gripper_opening = _Measured()
    joint_position = _Measured()
    joint_velocity = _Measured()
    joint_effort = _Measured()
    foot_force = _Measured()
    wrench_ee = _Measured()

    def field(self, name: str) -> Array:
        """A field by its name.

        Raises:
            SpecMismatchError: The robot does not measure it.
        """
        try:
            return self._values[name]
        except KeyError:
            raise SpecMismatchError(
                f"'{name}' ({STATE_FIELDS[name]}) was asked for, but this robot measures only "
                f"{sorted(self._values)}; declare a sensor or an estimator for it in the RobotSpec"
            ) from None


@dataclass(frozen=True, kw_only=True)
class ObservationInputs:
    """Everything that an actor's term may read: only what a robot has too."""

    state: RobotState
    """Measured state of the robot."""
    goal: Mapping[str, Array]
    """Goals of the task by name, each (N, width), world frame unless named otherwise."""
    last_action: Array
    """Action accepted in the previous step, (N, A), in [-1, 1]."""
    sensed: Mapping[str, Array] = field(default_factory=dict[str, Array])
    """Further inputs by name, each (N, width): an object's pose, a height scan, a base action."""

    def take(self, rows: EnvSelection) -> "ObservationInputs":
        """The same inputs for the picked envs only."""
        return ObservationInputs(
            state=RobotState(SelectedRows(rows, self.state.fields)),
            goal=SelectedRows(rows, self.goal),
            last_action=rows.take(self.last_action),
            sensed=SelectedRows(rows, self.sensed),
        )


Term = Callable[[ObservationInputs], Array]

IMAGE_PREFIX = "image/"
"""Begins the names of observation groups that are images."""
SENSED_PREFIX = "sensed/"
"""A term named `sensed/<name>` is the input `<name>` of `ObservationInputs.sensed` as it is."""
GOAL_PREFIX = "goal/"
"""A term named `goal/<name>` is the goal `<name>` as it is."""
STATE_PREFIX = "state/"
"""A term named `state/<field>` is the field of `RobotState` as it is."""
OFFSET_PREFIX = "offset/"
"""A term named `offset/<name>` is the way from the sensed place `<name>` to the end effector,
(N, 3), [m], base axes: what half a millimetre matters for is no difference of two large numbers."""
GAP_PREFIX = "gap/"
"""A term named `gap/<name>` is the way from the goal `<name>` to what is sensed under that name,
such as from where a cube shall be to the cube."""

_PREFIXES = (SENSED_PREFIX, GOAL_PREFIX, STATE_PREFIX, OFFSET_PREFIX, GAP_PREFIX)


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
    average: int = 0
    """Steps over which the scaled entry is averaged since the episode's beginning, where the
    average is 0, older steps counting less: m <- m + (x - m) / average. A constant error becomes
    visible in it, which is how a policy can act on its integral. 0 shows the entry itself."""

    def __post_init__(self) -> None:
        if self.history < 1:
            raise ConfigError(f"term '{self.term}': history must be at least 1, got {self.history}")
        if self.average < 0 or (self.average and self.history > 1):
            raise ConfigError(
                f"term '{self.term}': average must be 0 or the number of its steps, without a "
                f"history; got average {self.average} and history {self.history}"
            )
        if self.clip is not None and not self.clip > 0:
            raise ConfigError(f"term '{self.term}': clip must be positive, got {self.clip}")

    def to_dict(self, width: int) -> dict[str, Any]:
        """Plain values for JSON; what is not clipped does not speak of it."""
        clip = {} if self.clip is None else {"clip": self.clip}
        average = {"average": self.average} if self.average else {}
        plain = {"term": self.term, "width": width, "scale": self.scale, "history": self.history}
        return plain | clip | average


class ObservationMap:
    """Builds the observation of N envs, or of one robot, and keeps its histories.

    Real-time: after construction `update` allocates only the arrays it returns and never blocks.
    """

    def __init__(self, terms: Sequence[TermConfig], example: ObservationInputs) -> None:
        """Check every term against an example of its inputs: their shapes, type and device.

        Raises:
            ConfigError: A term is unknown.
            SpecMismatchError: A term reads what the robot does not measure or the task not set.
        """
        if not terms:
            raise ConfigError("an observation needs at least one term, got none")
        self._xp = array_namespace(example.last_action)
        self.terms = list(terms)
        self._functions: list[Term] = []
        self._histories: list[_Memory | None] = []
        self.widths: list[int] = []
        """Width of one frame of each term."""
        for config in self.terms:
            function = _term(config.term)
            value = function(example)
            self.widths.append(int(value.shape[-1]))
            self._functions.append(function)
            self._histories.append(_memory(value, config))
        self.size = sum(w * t.history for w, t in zip(self.widths, self.terms, strict=True))
        """D: width of the whole observation."""

    @property
    def remembers(self) -> bool:
        """True if a term has a history, which an episode's beginning fills."""
        return any(self._histories)

    def layout(self) -> list[dict[str, Any]]:
        """Terms with their widths, in order, as of `TermConfig.to_dict`."""
        return [t.to_dict(w) for w, t in zip(self.widths, self.terms, strict=True)]

    def update(self, inputs: ObservationInputs, out: Array | None = None) -> Array:
        """Push one frame into every history and observe all envs, (N, D), in `out` if given."""
        parts: list[Array] = []
        for config, function, history in self._each():
            frame = _scaled(function(inputs), config)
            if history is not None:
                history.push(frame)
                frame = history.window()
            parts.append(frame)
        return self._join(parts, out)

    def look(self, inputs: ObservationInputs, out: Array | None = None) -> Array:
        """Observe all envs as `update` without pushing a frame: histories show what they hold."""
        parts = [
            _scaled(function(inputs), config) if history is None else history.window()
            for config, function, history in self._each()
        ]
        return self._join(parts, out)

    def begin(self, rows: EnvSelection, inputs: ObservationInputs) -> None:
        """Start an episode in the picked envs, as `reset`; `look` then shows it."""
        picked = inputs.take(rows) if self.remembers else inputs
        for config, function, history in self._each():
            if history is not None:
                history.fill(rows, _scaled(function(picked), config))

    def reset(self, rows: EnvSelection, inputs: ObservationInputs) -> Array:
        """Start an episode in the picked envs: fill their histories with the current frame.

        Args:
            inputs: Inputs of all N envs, after the reset; returned is (count, D), a new array.
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

    def _each(self) -> "zip[tuple[TermConfig, Term, _Memory | None]]":
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
        # Views of it, made once: in a step of few envs a slice costs as much as its content.
        self._windows: dict[int, Array] = {}
        self._newest: dict[int, Array] = {}

    def push(self, frame: Array) -> None:
        if self._end == 2 * self._size:
            kept = self._size - self._width
            self._frames[:, :kept] = self._frames[:, self._end - kept :]
            self._end = kept
        self._end += self._width
        if self._end not in self._newest:
            self._newest[self._end] = self._frames[:, self._end - self._width : self._end]
        self._newest[self._end][...] = frame

    def window(self) -> Array:
        """(N, H * w), a view."""
        if self._end not in self._windows:
            self._windows[self._end] = self._frames[:, self._end - self._size : self._end]
        return self._windows[self._end]

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


class _Average:
    """The average of one term over the steps of an episode, older ones counting less."""

    def __init__(self, frame: Array, steps: int) -> None:
        xp = array_namespace(frame)
        self._share = 1.0 / steps
        self._mean = xp.zeros(tuple(frame.shape), dtype=frame.dtype, device=frame.device)

    def push(self, frame: Array) -> None:
        self._mean += (frame - self._mean) * self._share

    def window(self) -> Array:
        """(N, w), the array itself."""
        return self._mean

    def fill(self, rows: EnvSelection, frame: Array) -> Array:
        """Begin episodes: 0, whatever their first frame is."""
        zero = frame * 0.0
        rows.put(self._mean, zero)
        return zero

    def load(self, window: Array) -> None:
        if tuple(window.shape) != tuple(self._mean.shape):
            raise ShapeError(
                f"average of an observation: expected shape {tuple(self._mean.shape)}, "
                f"got {tuple(window.shape)}"
            )
        self._mean[...] = window


_Memory = _History | _Average


def _memory(frame: Array, config: TermConfig) -> _Memory | None:
    """Memory of a term between steps; None where it has none."""
    if config.average:
        return _Average(frame, config.average)
    return _History(frame, config.history) if config.history > 1 else None


def is_term(name: str) -> bool:
    """True if a term of this name can be in an observation."""
    return name.startswith(_PREFIXES) or TERMS.knows(name)


def _term(name: str) -> Term:
    if name.startswith(SENSED_PREFIX):
        return lambda inputs: entry(inputs.sensed, name[len(SENSED_PREFIX) :], "sensed input")
    if name.startswith(OFFSET_PREFIX):
        return lambda inputs: end_effector_offset(inputs, name[len(OFFSET_PREFIX) :])
    if name.startswith(GAP_PREFIX):
        return lambda inputs: goal_gap(inputs, name[len(GAP_PREFIX) :])
    if name.startswith(GOAL_PREFIX):
        return lambda inputs: goal_entry(inputs, name[len(GOAL_PREFIX) :])
    if name.startswith(STATE_PREFIX):
        return lambda inputs: inputs.state.field(name[len(STATE_PREFIX) :])
    return TERMS.find(name)


def _scaled(value: Array, config: TermConfig) -> Array:
    value = value if config.scale == 1.0 else value * config.scale
    if config.clip is None:
        return value
    return array_namespace(value).clip(value, -config.clip, config.clip)


TERMS: Registry[Term] = Registry("observation term")
"""Actor terms by name."""
TERM_KINDS: dict[str, Mirrored] = {}
"""Kind of each of them under a mirror."""


def actor_term(kind: Mirrored) -> Callable[[Term], Term]:
    """Declare an observation term of a plug-in or a program, above its function, which names it.

    It must work for numpy and torch arrays (`array_namespace`): (N, ...) in, (N, width) out.

    Args:
        kind: Effect of a mirror on its columns.

    Raises:
        ConfigError: There is a term of that name.
    """

    def declare(function: Term) -> Term:
        TERMS.add(function.__name__, function)
        TERM_KINDS[function.__name__] = kind
        return function

    return declare


def _actor_term(kind: Mirrored) -> Callable[[Term], Term]:
    """The same for a term of ours."""

    def declare(function: Term) -> Term:
        TERMS[function.__name__], TERM_KINDS[function.__name__] = function, kind
        return function

    return declare


@_actor_term(Mirrored.vector)
def position_error_w(inputs: ObservationInputs) -> Array:
    """Way from the goal to the base, (N, 3), [m], world axes."""
    return inputs.state.position_w - goal_entry(inputs, "position_w")


@_actor_term(Mirrored.vector)
def velocity_error_w(inputs: ObservationInputs) -> Array:
    """Velocity of the base relative to the goal's, (N, 3), [m/s], world axes."""
    return inputs.state.linear_velocity_w - goal_entry(inputs, "linear_velocity_w")


@_actor_term(Mirrored.vector)
def preview_w(inputs: ObservationInputs) -> Array:
    """Future goal positions as seen from the base, (N, K * 3), [m], world axes, soonest first."""
    points = goal_entry(inputs, "preview_w")  # (N, K * 3)
    xp = array_namespace(points)
    count = points.shape[-1] // 3
    return points - xp.tile(inputs.state.position_w, (1, count))


@_actor_term(Mirrored.vector)
def gate_offsets(inputs: ObservationInputs) -> Array:
    """Place of the base as seen from the next two gates, (N, 6), [m]: ahead, left, above of each.

    Ahead is where the gate is left when it is flown through. Without a gate, where the goal's
    normal is zero, ahead and left are zero.
    """
    position, normals = inputs.state.position_w, goal_entry(inputs, "gate_normals_w")
    xp = array_namespace(position)
    columns: list[Array] = []
    for i, name in enumerate(("position_w", "preview_w")):
        way = position - goal_entry(inputs, name)[:, :3]
        x, y = normals[:, 3 * i], normals[:, 3 * i + 1]
        columns += [way[:, 0] * x + way[:, 1] * y, way[:, 1] * x - way[:, 0] * y, way[:, 2]]
    return xp.stack(columns, axis=-1)


@_actor_term(Mirrored.rotation)
def orientation_matrix(inputs: ObservationInputs) -> Array:
    """Rotation matrix body to world, row-major, (N, 9)."""
    return quaternion.rotation_matrix(inputs.state.orientation_w)


@_actor_term(Mirrored.rotation)
def goal_orientation_b(inputs: ObservationInputs) -> Array:
    """Rotation matrix from the base to the goal `orientation_matrix_w`, both row-major, (N, 9)."""
    base = quaternion.rotation_matrix(inputs.state.orientation_w)
    goal = goal_entry(inputs, "orientation_matrix_w")
    xp = array_namespace(base)
    back = xp.permute_dims(xp.reshape(base, (-1, 3, 3)), (0, 2, 1))
    return xp.reshape(xp.matmul(back, xp.reshape(goal, (-1, 3, 3))), (-1, 9))


@_actor_term(Mirrored.vector)
def linear_velocity_w(inputs: ObservationInputs) -> Array:
    """Velocity of the base, (N, 3), [m/s], world axes."""
    return inputs.state.linear_velocity_w


@_actor_term(Mirrored.vector)
def linear_velocity_b(inputs: ObservationInputs) -> Array:
    """Velocity of the base, (N, 3), [m/s], body axes."""
    state = inputs.state
    return quaternion.rotate_inverse(state.orientation_w, state.linear_velocity_w)


@_actor_term(Mirrored.vector)
def projected_gravity_b(inputs: ObservationInputs) -> Array:
    """Direction of gravity, unit vector, (N, 3), body axes: (0, 0, -1) when upright."""
    return -quaternion.rotation_matrix(inputs.state.orientation_w)[:, 6:9]


@_actor_term(Mirrored.pseudovector)
def angular_velocity_b(inputs: ObservationInputs) -> Array:
    """Angular velocity of the base, (N, 3), [rad/s], body axes."""
    return inputs.state.angular_velocity_b


@_actor_term(Mirrored.joints)
def joint_position(inputs: ObservationInputs) -> Array:
    """Joint positions, (N, J), [rad] or [m], joint order of the spec."""
    return inputs.state.joint_position


@_actor_term(Mirrored.joints)
def joint_velocity(inputs: ObservationInputs) -> Array:
    """Joint velocities, (N, J), [rad/s] or [m/s], joint order of the spec."""
    return inputs.state.joint_velocity


@_actor_term(Mirrored.vector)
def end_effector_error_b(inputs: ObservationInputs) -> Array:
    """Way from the goal to the end effector, (N, 3), [m], base axes."""
    goal = goal_entry(inputs, "end_effector_position_b")
    return inputs.state.end_effector_position_b - goal


@_actor_term(Mirrored.action)
def last_action(inputs: ObservationInputs) -> Array:
    """Action accepted in the previous step, (N, A), in [-1, 1]."""
    return inputs.last_action


def end_effector_offset(inputs: ObservationInputs, name: str) -> Array:
    """Way from a sensed place to the end effector, (N, 3), [m], base axes.

    Raises:
        SpecMismatchError: It is not sensed, or no place.
    """
    place, here = entry(inputs.sensed, name, "sensed input"), inputs.state.end_effector_position_b
    if place.shape[-1] != 3:
        raise SpecMismatchError(
            f"an observation term reads the way to the sensed input '{name}', which has "
            f"{place.shape[-1]} entries; a place has 3"
        )
    return here - place


def goal_gap(inputs: ObservationInputs, name: str) -> Array:
    """Way from a goal to what is sensed under the same name, (N, width), in their unit.

    Raises:
        SpecMismatchError: One of them is not given, or they differ in width.
    """
    goal, sensed = goal_entry(inputs, name), entry(inputs.sensed, name, "sensed input")
    if goal.shape != sensed.shape:
        raise SpecMismatchError(
            f"an observation term reads the way from the goal '{name}' to the sensed input of the "
            f"same name, but they have {goal.shape[-1]} and {sensed.shape[-1]} entries"
        )
    return sensed - goal


def goal_entry(inputs: ObservationInputs, name: str) -> Array:
    """A goal by its name; SpecMismatchError where the task does not set it."""
    return entry(inputs.goal, name, "goal")


def entry(values: Mapping[str, Array], name: str, kind: str) -> Array:
    """An input by its name; SpecMismatchError where it is not given."""
    try:
        return values[name]
    except KeyError:
        raise SpecMismatchError(
            f"an observation term reads the {kind} '{name}', which is not given here; "
            f"given: {sorted(values)}"
        ) from None
