"""The action map of a bundle as C99: from actions to a command and back."""

from dataclasses import dataclass, field

import numpy as np

from policies.c99.literals import array
from robot_rl.core.action import ActionMap
from robot_rl.core.errors import ConfigError
from robot_rl.core.robot_command import CommandKind


@dataclass(frozen=True, kw_only=True)
class CommandField:
    """One array of the command."""

    name: str
    """Name in C."""
    size: int
    """Number of entries."""
    meaning: str
    """What it is, with unit."""
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
        *(line for one in fields if one.start is not None for line in _reading(one)),
        f"    for (int i = 0; i < {size}; ++i) {{",
        "        const float span = action_high[i] - action_low[i];",
        "        const float action = 2.0f * (values[i] - action_low[i]) / span - 1.0f;",
        "        s->last_action[i] = clip(action, -1.0f, 1.0f);",
        "    }",
        "}",
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
    return [
        f"    for (int i = 0; i < {one.size}; ++i) {{",
        f"        command->{one.name}[i] = {value};",
        "    }",
    ]


def _reading(one: CommandField) -> list[str]:
    return [
        f"    for (int i = 0; i < {one.size}; ++i) {{",
        f"        values[{one.start} + i] = command->{one.name}[i];",
        "    }",
    ]
