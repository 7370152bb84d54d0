"""Observation terms and action map of a bundle as C99, entry by entry as numpy does them.

The observation of an instance is its memory too: a term's frames lie in it, oldest first, and move
up by one in every step, or are averaged in place.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from policies.c99.literals import array, check_name, indented, loop, number, remark
from policies.runner import PolicySpec
from robot_rl.core.action import ActionMap
from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import (
    GAP_PREFIX,
    GOAL_PREFIX,
    OFFSET_PREFIX,
    SENSED_PREFIX,
    STATE_FIELDS,
    STATE_PREFIX,
    TermConfig,
)
from robot_rl.core.robot_command import CommandKind

_WAY = "(in->state.position_w[{k}] - (i < 3 ? in->goal.position_w : in->goal.preview_w)[{k}])"
_WAY_X, _WAY_Y, _WAY_Z = (_WAY.format(k=k) for k in range(3))
"""From the next gate, or the one after it, to the robot."""

ENTRIES = {
    # term: its entry i; `rotation` is the rotation matrix of the base
    "position_error_w": "in->state.position_w[i] - in->goal.position_w[i]",
    "velocity_error_w": "in->state.linear_velocity_w[i] - in->goal.linear_velocity_w[i]",
    "preview_w": "in->goal.preview_w[i] - in->state.position_w[i % 3]",
    "gate_offsets":
        f"(i % 3 == 0 ? {_WAY_X} * in->goal.gate_normals_w[i]"
        f" + {_WAY_Y} * in->goal.gate_normals_w[i + 1]"
        f" : i % 3 == 1 ? {_WAY_Y} * in->goal.gate_normals_w[i - 1]"
        f" - {_WAY_X} * in->goal.gate_normals_w[i] : {_WAY_Z})",
    "orientation_matrix": "rotation[i]",
    "goal_orientation_b":
        "rotation[i / 3] * in->goal.orientation_matrix_w[i % 3]"
        " + rotation[3 + i / 3] * in->goal.orientation_matrix_w[3 + i % 3]"
        " + rotation[6 + i / 3] * in->goal.orientation_matrix_w[6 + i % 3]",
    "projected_gravity_b": "-rotation[6 + i]",
    "linear_velocity_w": "in->state.linear_velocity_w[i]",
    "linear_velocity_b":
        "rotation[i] * in->state.linear_velocity_w[0]"
        " + rotation[3 + i] * in->state.linear_velocity_w[1]"
        " + rotation[6 + i] * in->state.linear_velocity_w[2]",
    "angular_velocity_b": "in->state.angular_velocity_b[i]",
    "joint_position": "in->state.joint_position[i]",
    "joint_velocity": "in->state.joint_velocity[i]",
    "end_effector_error_b":
        "in->state.end_effector_position_b[i] - in->goal.end_effector_position_b[i]",
    "last_action": "s->last_action[i]",
}  # fmt: skip
"""Terms by name as the core defines them; a term of a task's own has no form in C99."""
_PREFIXES = {
    STATE_PREFIX: "in->state.{name}[i]",
    GOAL_PREFIX: "in->goal.{name}[i]",
    SENSED_PREFIX: "in->sensed.{name}[i]",
    GAP_PREFIX: "in->sensed.{name}[i] - in->goal.{name}[i]",
    OFFSET_PREFIX: "in->state.end_effector_position_b[i] - in->sensed.{name}[i]",
}
_READ = re.compile(r"in->(state|goal|sensed)\.(\w+)")
_BATCH = re.compile(r",? ?\(N, \w+\)|^, ")
"""Shapes in the descriptions of `STATE_FIELDS`."""
_ROTATION = [
    "/* Rotation matrix body to world of a unit quaternion wxyz, row-major. */",
    "static void rotation_matrix(const float *q, float *matrix)",
    "{",
    "    const float w = 2.0f * q[0], x = 2.0f * q[1], y = 2.0f * q[2], z = 2.0f * q[3];",
    "    const float wx = w * q[1], wy = w * q[2], wz = w * q[3];",
    "    const float xx = x * q[1], xy = x * q[2], xz = x * q[3];",
    "    const float yy = y * q[2], yz = y * q[3], zz = z * q[3];",
    "    matrix[0] = 1.0f - (yy + zz);",
    "    matrix[1] = xy - wz;",
    "    matrix[2] = xz + wy;",
    "    matrix[3] = xy + wz;",
    "    matrix[4] = 1.0f - (xx + zz);",
    "    matrix[5] = yz - wx;",
    "    matrix[6] = xz - wy;",
    "    matrix[7] = yz + wx;",
    "    matrix[8] = 1.0f - (xx + yy);",
    "}",
    "",
]
_LIMITED = [
    "/* Within [-limit, limit]; NaN stays NaN. */",
    "static float limited(float value, float limit)",
    "{",
    "    return value > limit ? limit : value < -limit ? -limit : value;",
    "}",
    "",
]
_AVERAGE = [
    "/* Average over the steps of an episode, older ones counting less; at its start it is 0. */",
    "static void average(float *mean, const float *frame, int width, float share, int starting)",
    "{",
    "    for (int i = 0; i < width; ++i) {",
    "        mean[i] = starting ? 0.0f : mean[i] + (frame[i] - mean[i]) * share;",
    "    }",
    "}",
    "",
]
_PUSH = [
    "/* Put a frame behind the others of a term; at an episode's start all frames are this one. */",
    "static void push(float *frames, const float *frame, int width, int count, int starting)",
    "{",
    "    const int newest = (count - 1) * width;",
    "    for (int i = 0; i < newest; ++i) {",
    "        frames[i] = starting ? frame[i % width] : frames[i + width];",
    "    }",
    "    for (int i = 0; i < width; ++i) {",
    "        frames[newest + i] = frame[i];",
    "    }",
    "}",
    "",
]


@dataclass(frozen=True, kw_only=True)
class Input:
    """One array that the caller fills."""

    group: str
    """state, goal or sensed."""
    name: str
    """Its name there, and in C."""
    width: int
    """Number of entries."""
    meaning: str
    """Unit and axes, as far as the bundle knows them."""


def inputs_of(spec: PolicySpec) -> list[Input]:
    """Inputs of the terms of a policy, in the order of the bundle; other sensors are not asked for.

    Raises:
        ConfigError: A term has no form in C99, a name cannot stand in C, or nothing is read.
    """
    widths = {
        "state": spec.robot.state_widths,
        "goal": spec.goal_widths,
        "sensed": spec.sensed_widths,
    }
    text = " ".join(_entry(term.term) for term in spec.terms)
    read = set(_READ.findall(text))
    if "rotation[" in text:
        read.add(("state", "orientation_w"))
    if not read:
        raise ConfigError("the policy reads neither sensors nor goals; C99 is not written for that")
    return [
        Input(
            group=group,
            name=check_name(name, f"the {group} entry"),
            width=width,
            meaning=_meaning(group, name),
        )
        for group, entries in widths.items()
        for name, width in entries.items()
        if (group, name) in read
    ]


def observation_lines(spec: PolicySpec, name: str) -> list[str]:
    """Function `observe(state, inputs)` of the policy `name` in C, and what it calls."""
    rotation = any("rotation[" in _entry(term.term) for term in spec.terms)
    head = f"static void observe({name}_state *s, const {name}_inputs *in)"
    limits = any(term.clip is not None for term in spec.terms)
    averages = any(term.average for term in spec.terms)
    helpers = [
        *(_ROTATION if rotation else []),
        *(_LIMITED if limits else []),
        *(_AVERAGE if averages else []),
        *(_PUSH if any(not term.average for term in spec.terms) else []),
    ]
    lines = [*helpers, head, "{"]
    lines += [f"    float frame[{max(spec.widths)}];"]
    if rotation:
        lines += ["    float rotation[9];"]
        lines += ["    rotation_matrix(in->state.orientation_w, rotation);"]
    start = 0
    for term, width in zip(spec.terms, spec.widths, strict=True):
        entry = _entry(term.term)
        if term.scale != 1.0:
            entry = f"({entry}) * {number(term.scale)}"
        if term.clip is not None:
            entry = f"limited({entry}, {number(term.clip)})"
        lines += [
            f"    /* {remark(term.term)} */",
            *indented(loop(width, f"frame[i] = {entry};")),
            f"    {_kept(term, start, width)}",
        ]
        start += width * term.history
    return [*lines, "}"]


def _kept(term: TermConfig, start: int, width: int) -> str:
    """Call that puts a term's frame into the observation."""
    place = f"s->observation + {start}, frame, {width}"
    if term.average:
        return f"average({place}, {number(1.0 / term.average)}, s->starting);"
    return f"push({place}, {term.history}, s->starting);"


def _entry(term: str) -> str:
    for prefix, entry in _PREFIXES.items():
        if term.startswith(prefix):
            return entry.format(name=term.removeprefix(prefix))
    if term not in ENTRIES:
        raise ConfigError(
            f"observation term '{term}' has no form in C99 here; known: {', '.join(ENTRIES)} and "
            f"{', '.join(f'{prefix}<name>' for prefix in _PREFIXES)}"
        )
    return ENTRIES[term]


def _meaning(group: str, name: str) -> str:
    described: Mapping[str, str] = STATE_FIELDS
    if group != "sensed" and name in described:
        asked = "asked-for " if group == "goal" else ""
        return asked + _BATCH.sub("", described[name]).removeprefix(", ")
    if name == "preview_w":
        return "future goal positions, three entries each, soonest first, [m], world axes"
    return "as the task gave it in training, SI units"


@dataclass(frozen=True, kw_only=True)
class CommandField:
    """One array of the command."""

    name: str
    """Name in C."""
    size: int
    """Number of entries."""
    meaning: str
    """Meaning, with unit."""
    start: int | None = None
    """First of its entries in the mapped action; None where it is constant."""
    values: list[float] = field(default_factory=list[float])
    """Its entries where it is constant."""


def command_fields(action_map: ActionMap, name: str) -> list[CommandField]:
    """Fields of a command, in order; `name` is that of the policy in C.

    Raises:
        ConfigError: The kind of command has no form in C99.
    """
    if action_map.kind is CommandKind.rotors:
        meaning = f"fraction of the largest rotor speed, in [0, 1], order of {name}_rotor_names"
        return [CommandField(name="speed", size=action_map.size, meaning=meaning, start=0)]
    if action_map.kind is CommandKind.body_rates:
        thrust = "fraction of the largest collective thrust, in [0, 1]"
        return [
            CommandField(name="rates_b", size=3, meaning="[rad/s], body axes", start=0),
            CommandField(name="thrust", size=1, meaning=thrust, start=3),
        ]
    if action_map.kind is CommandKind.joint:
        return _joint_fields(action_map, name)
    raise ConfigError(f"'{action_map.kind.value}' commands have no form in C99 here")


def command_lines(action_map: ActionMap, name: str) -> list[str]:
    """Functions `make_command(action, command)` and `<name>_accept(state, command)` in C."""
    size, fields = action_map.size, command_fields(action_map, name)
    limits = np.array(action_map.limit, np.float32)  # (A, 2) or (0,)
    lines = [
        *array("float", "action_low", np.array(action_map.low, np.float32)),
        *array("float", "action_high", np.array(action_map.high, np.float32)),
    ]
    if action_map.limit:
        lines += array("float", "limit_low", limits[:, 0])
        lines += array("float", "limit_high", limits[:, 1])
    for one in fields:
        if one.start is None and any(one.values):
            lines += array("float", f"command_{one.name}", np.array(one.values, np.float32))
    clip = "        values[i] = clip(values[i], limit_low[i], limit_high[i]);"
    return [
        *lines,
        "",
        *_CLIP,
        f"static void make_command(const float *action, {name}_command *command)",
        "{",
        f"    float values[{size}];",
        f"    for (int i = 0; i < {size}; ++i) {{",
        "        const float half = 0.5f * (action_high[i] - action_low[i]);",
        "        values[i] = action_low[i] + (clip(action[i], -1.0f, 1.0f) + 1.0f) * half;",
        *([clip] if action_map.limit else []),
        "    }",
        *(line for one in fields for line in _assignment(one)),
        "}",
        "",
        f"void {name}_accept({name}_state *s, const {name}_command *command)",
        "{",
        f"    float values[{size}];",
        *(
            line
            for one in fields
            if one.start is not None
            for line in indented(
                loop(one.size, f"values[{one.start} + i] = command->{one.name}[i];")
            )
        ),
        f"    for (int i = 0; i < {size}; ++i) {{",
        "        const float span = action_high[i] - action_low[i];",
        "        const float action = 2.0f * (values[i] - action_low[i]) / span - 1.0f;",
        *(_DECIDED if action_map.reach is not None else []),
        "        s->last_action[i] = clip(action, -1.0f, 1.0f);",
        "    }",
        "}",
    ]


_DECIDED = [
    "        /* What was decided, cut at its limit, is no other action. */",
    "        const float low = 2.0f * (limit_low[i] - action_low[i]) / span - 1.0f;",
    "        const float high = 2.0f * (limit_high[i] - action_low[i]) / span - 1.0f;",
    "        const float gap = action - clip(s->last_action[i], low, high);",
    "        if (gap < 1e-5f && gap > -1e-5f) {",
    "            continue;",
    "        }",
]


_CLIP = [
    "static float clip(float x, float low, float high)",
    "{",
    "    return x < low ? low : x > high ? high : x;",
    "}",
    "",
]


def _joint_fields(action_map: ActionMap, name: str) -> list[CommandField]:
    joints = action_map.size - action_map.gripper
    still = [0.0] * joints
    fields = [
        CommandField(
            name="q", size=joints, start=0,
            meaning=f"position setpoint, [rad] or [m], order of {name}_joint_names",
        ),
        CommandField(name="dq", size=joints, meaning="velocity setpoint, [rad/s]", values=still),
        CommandField(name="tau", size=joints, meaning="torque added, [N m]", values=still),
        CommandField(
            name="kp", size=joints, meaning="stiffness, [N m/rad]", values=action_map.stiffness
        ),
        CommandField(
            name="kd", size=joints, meaning="damping, [N m s/rad]", values=action_map.damping
        ),
    ]  # fmt: skip
    if action_map.gripper:
        meaning = "opening as a fraction of the largest, in [0, 1]"
        fields.append(CommandField(name="gripper", size=1, meaning=meaning, start=joints))
    return fields


def _assignment(one: CommandField) -> list[str]:
    if one.start is not None:
        value = f"values[{one.start} + i]"
    else:
        value = f"command_{one.name}[i]" if any(one.values) else "0.0f"
    return indented(loop(one.size, f"command->{one.name}[i] = {value};"))
