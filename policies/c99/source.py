"""Writes a policy bundle as C99: one header and one source file that need nothing but math.h.

Everything is read from the bundle, which is checked and replayed first: terms and action map from
its `spec.json`, the network from its ONNX graph, the self-test from its golden sequences.

The self-test is a `main` in C that replays the golden sequences. After every step the recorded
action becomes the last one: rounding does not build up where a policy answers strongly to its own
actions, and every step is a test of its own. All of it is compiled with `-DPOLICY_SELF_TEST` only,
and it alone uses stdio.h.
"""

import io
import json
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from policies.bundle import load_bundle
from policies.c99.literals import (
    array,
    check_name,
    indented,
    loop,
    number,
    quoted,
    remark,
    strings,
)
from policies.c99.network import NetworkSource, NetworkWriter, read_graph
from policies.c99.observation import (
    Input,
    command_fields,
    command_lines,
    inputs_of,
    observation_lines,
)
from policies.runner import PolicySpec
from robot_rl.core.errors import ConfigError, StorageError

COMPILE = "gcc -std=c99 -O2 -Wall -Wextra -Werror -pedantic -DPOLICY_SELF_TEST {name}.c -lm"
"""Command that makes the self-test."""


def write_c99(bundle: Path, folder: Path, name: str = "policy") -> list[Path]:
    """Write `<name>.h` and `<name>.c`; returns them.

    Args:
        folder: Where to write; is made if it is not there, older files of these names go.
        name: Begins the names of the files and of everything that they declare.

    Raises:
        BundleError: The bundle is damaged.
        ConfigError: It has a term, an operation or a name that has no form in C99 here.
        StorageError: The folder cannot be written.
    """
    check_name(name, "the policy's name")
    spec = load_bundle(bundle).spec
    if spec.chunk_length > 1:
        raise ConfigError(
            f"the policy in {bundle} gives chunks of {spec.chunk_length} actions, and C99 code "
            "here gives one; deploy the bundle itself, or train with learner.chunk_length=1"
        )
    with np.load(io.BytesIO((bundle / "golden.npz").read_bytes()), allow_pickle=False) as archive:
        golden = dict(archive)
    network = NetworkWriter(read_graph((bundle / "policy.onnx").read_bytes()), name).write()
    digest = json.loads((bundle / "spec.json").read_bytes())["digest"]
    texts = {
        f"{name}.h": _header(spec, network, name, digest),
        f"{name}.c": [*_source(spec, network, name), "", *self_test_lines(spec, golden, name)],
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, lines in texts.items():
            draft = folder / f".{file}.partial"
            draft.write_text("\n".join(lines) + "\n", encoding="ascii")
            draft.replace(folder / file)
    except OSError as error:
        raise StorageError(
            f"{folder} cannot be written: {error.strerror}; free space or choose another folder"
        ) from error
    return [folder / file for file in texts]


def _header(spec: PolicySpec, network: NetworkSource, name: str, digest: str) -> list[str]:
    prefix, robot = name.upper(), spec.robot
    limits = spec.caller.target_speed_limit if spec.caller else None
    names = {"joint": robot.joint_names, "rotor": robot.rotors}
    return [
        f"/* A policy for robot '{remark(robot.name)}' in C99, written by robot_rl from the bundle",
        f"   {digest}.",
        "",
        f"       static {name}_state state;",
        f"       {name}_reset(&state);                          an episode starts",
        f"       {name}_step(&state, &inputs, &command);        every {spec.control_dt:g} s",
        "",
        "   All memory is in the state; instances do not know of each other. Nothing is allocated,",
        "   nothing blocks, no loop is of unknown length. All numbers are floats of 32 bits.",
        *_duties(spec),
        "*/",
        f"#ifndef {prefix}_H",
        f"#define {prefix}_H",
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        f"#define {prefix}_ROBOT {quoted(robot.name)}",
        f"#define {prefix}_ROBOT_VERSION {robot.version}",
        f"#define {prefix}_BUNDLE {quoted(digest)}",
        f"#define {prefix}_PERIOD {number(spec.control_dt)} /* [s] from one step to the next */",
        f"#define {prefix}_OBSERVATION_SIZE {spec.observation_size}",
        f"#define {prefix}_ACTION_SIZE {spec.action_map.size}",
        *(f"#define {prefix}_{k.upper()}_COUNT {len(v)}" for k, v in names.items() if v),
        *(f"extern const char *const {name}_{k}_names[{len(v)}];" for k, v in names.items() if v),
        *(
            [f"extern const float {name}_target_speed_limit[{len(limits)}]; /* [rad/s], [m/s] */"]
            if limits
            else []
        ),
        "",
        *_declared_inputs(inputs_of(spec), name),
        "",
        "typedef struct {",
        *(
            f"    float {one.name}[{one.size}]; /* {remark(one.meaning)} */"
            for one in command_fields(spec.action_map, name)
        ),
        f"}} {name}_command;",
        "",
        "/* One instance; to be read, if at all, through the functions only. */",
        "typedef struct {",
        f"    float observation[{prefix}_OBSERVATION_SIZE]; /* with all histories */",
        f"    float last_action[{prefix}_ACTION_SIZE]; /* in [-1, 1] */",
        *([f"    float recurrent[{len(spec.initial_state)}];"] if spec.initial_state else []),
        *(f"    float work_{i}[{size}];" for i, size in enumerate(network.work)),
        "    int starting; /* the next step is the first of an episode */",
        f"}} {name}_state;",
        "",
        "/* What a step answers; unless it is OK the command is left as it was: stop the robot,",
        "   look at its state estimate and reset. */",
        f"enum {{ {prefix}_OK = 0, {prefix}_BAD_OBSERVATION = 1, {prefix}_BAD_ACTION = 2 }};",
        "",
        "/* Start an episode: the next step fills the histories with its inputs. Comes first. */",
        f"void {name}_reset({name}_state *s);",
        "",
        "/* From inputs to a command; call it once every period. */",
        f"int {name}_step({name}_state *s, const {name}_inputs *in, {name}_command *command);",
        "",
        "/* Say what the robot really did where safety or a person changed the command: the next",
        "   observation shows it as the last action. */",
        f"void {name}_accept({name}_state *s, const {name}_command *command);",
        "",
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "",
        f"#endif /* {prefix}_H */",
    ]


def _speeds(limits: Sequence[float] | None, name: str) -> list[str]:
    return array("float", f"{name}_target_speed_limit", np.array(limits)) if limits else []


def _duties(spec: PolicySpec) -> list[str]:
    """Lines of a comment: what the caller does around the policy, as training did."""
    caller = spec.caller
    if caller is None:
        return []
    lines = ["", "   The caller does what training did:"]
    if caller.arming_pose:
        pose = ", ".join(f"{value:.6g}" for value in caller.arming_pose)
        lines += textwrap.wrap(f"- brings the joints to ({pose}) before the first step;", 90)
    if caller.target_speed_limit is not None:
        lines += [
            "- moves the targets of the joints no faster than target_speed_limit, from where the",
            "  joints are at an episode's start: the command says where they shall arrive;",
        ]
    if caller.gravity_compensation is not None:
        says = "bears" if caller.gravity_compensation else "does not bear"
        lines += [f"- {says} the weight of the links beside the command (gravity compensation);"]
    for name, clock in spec.clocks.items():
        moving = f"while goal {clock.moves} asks to move, else zeros"
        lines += textwrap.wrap(
            f"- fills the goal {name} with sine and cosine of {clock.period:g} s {moving};",
            90,
        )
    if (clip := spec.playback) is not None:
        ends = "again and again" if clip.repeats else "and holds the last one"
        seconds = clip.length * spec.control_dt
        if clip.facing:
            ends += f"; {clip.facing} turned to where the robot looks at the first"
        lines += textwrap.wrap(
            f"- fills the goals {', '.join(clip.goals)} with the rows of policy.playback in "
            f"spec.json, one per step, {seconds:.3g} s long, {ends};",
            90,
        )
    return [lines[0], lines[1], *(f"   {remark(line)}" for line in lines[2:])]


def _declared_inputs(inputs: Sequence[Input], name: str) -> list[str]:
    joints = f"order of {name}_joint_names"
    lines = ["/* Everything that the policy reads. */", "typedef struct {"]
    for group in dict.fromkeys(one.group for one in inputs):
        lines.append("    struct {")
        lines += [
            f"        float {one.name}[{one.width}]; "
            f"/* {remark(one.meaning.replace('joint order of the spec', joints))} */"
            for one in inputs
            if one.group == group
        ]
        lines.append(f"    }} {group};")
    return [*lines, f"}} {name}_inputs;"]


def _source(spec: PolicySpec, network: NetworkSource, name: str) -> list[str]:
    names = {"joint": spec.robot.joint_names, "rotor": spec.robot.rotors}
    limits = spec.caller.target_speed_limit if spec.caller else None
    return [
        f"/* See {name}.h. Self-test, which prints the first difference:",
        f"   {COMPILE.format(name=name)} */",
        f'#include "{name}.h"',
        "",
        "#include <math.h>",
        "",
        "#ifdef __FAST_MATH__",
        '#error "compile without -ffast-math: it removes the checks for NaN"',
        "#endif",
        "",
        *(line for k, v in names.items() if v for line in strings(f"{name}_{k}_names", v)),
        *(line.removeprefix("static ") for line in _speeds(limits, name)),
        "",
        *network.constants,
        "",
        *network.functions,
        "",
        *observation_lines(spec, name),
        "",
        *command_lines(spec.action_map, name),
        "",
        *_steps(spec, name),
    ]


def _steps(spec: PolicySpec, name: str) -> list[str]:
    prefix = name.upper()
    fills = {"last_action": spec.initial_action, "recurrent": spec.initial_state}
    return [
        "static int all_finite(const float *values, int size)",
        "{",
        "    for (int i = 0; i < size; ++i) {",
        "        if (!isfinite(values[i])) {",
        "            return 0;",
        "        }",
        "    }",
        "    return 1;",
        "}",
        "",
        f"void {name}_reset({name}_state *s)",
        "{",
        *(
            f"    s->{field}[{i}] = {number(value)};"
            for field, values in fills.items()
            for i, value in enumerate(values)
        ),
        "    s->starting = 1;",
        "}",
        "",
        f"int {name}_step({name}_state *s, const {name}_inputs *in, {name}_command *command)",
        "{",
        f"    float action[{prefix}_ACTION_SIZE];",
        "    observe(s, in);",
        "    s->starting = 0;",
        f"    if (!all_finite(s->observation, {prefix}_OBSERVATION_SIZE)) {{",
        f"        return {prefix}_BAD_OBSERVATION;",
        "    }",
        "    run_network(s, action);",
        f"    if (!all_finite(action, {prefix}_ACTION_SIZE)) {{",
        f"        return {prefix}_BAD_ACTION;",
        "    }",
        f"    for (int i = 0; i < {prefix}_ACTION_SIZE; ++i) {{",
        "        s->last_action[i] = clip(action[i], -1.0f, 1.0f);",
        "    }",
        "    make_command(action, command);",
        f"    return {prefix}_OK;",
        "}",
    ]


TOLERANCE = 1e-5
"""Largest difference to what torch did: of an observation and an action per entry of magnitude up
to 1, of a command's entry in parts of its range. The same sums in another order differ by 1e-6."""

_COMPARE = [
    "static float largest = 0.0f; /* difference so far, in parts of what is allowed */",
    "",
    "/* Allowed is a share of the range low..high; without one, of the magnitude, at least 1. */",
    "static int differs(const char *what, int row, const float *got, const float *expected,",
    "                   const float *low, const float *high, int size)",
    "{",
    "    for (int i = 0; i < size; ++i) {",
    "        const float unit = low ? high[i] - low[i] : fmaxf(1.0f, fabsf(expected[i]));",
    "        const float allowed = TOLERANCE * unit, difference = fabsf(got[i] - expected[i]);",
    "        if (!(difference <= allowed)) {",
    '            printf("%s, entry %d: step %d of sequence %d: got %.9g, expected %.9g, "',
    '                   "allowed difference %.3g\\n", what, i, row % STEPS, row / STEPS,',
    "                   (double)got[i], (double)expected[i], (double)allowed);",
    "            return 1;",
    "        }",
    "        largest = fmaxf(largest, difference / allowed);",
    "    }",
    "    return 0;",
    "}",
    "",
]


def self_test_lines(spec: PolicySpec, golden: Mapping[str, np.ndarray], name: str) -> list[str]:
    """Lines of the self-test, from the recording of a bundle, (T, N, ...) each."""
    steps, worlds = golden["reset"].shape
    inputs = [(one.group, one.name) for one in inputs_of(spec)]
    fields = command_fields(spec.action_map, name)
    wanted = [
        *(f"{group}/{entry}" for group, entry in inputs),
        *("observation", "action"),
        *(f"command/{one.name}" for one in fields),
    ]
    lines = [
        "#ifdef POLICY_SELF_TEST",
        "#include <stdio.h>",
        "",
        f"#define STEPS {steps}",
        f"#define SEQUENCES {worlds}",
        f"#define TOLERANCE {number(TOLERANCE)}",
        "",
        *array("unsigned char", "golden_reset", _by_world(golden["reset"])),
    ]
    for key in wanted:
        lines += array("float", _golden(key), _by_world(golden[key]))
    return [
        *lines,
        "",
        *_COMPARE,
        *_check_row(spec, name),
        *_MAIN.format(
            name=name, size=spec.action_map.size, fill="\n".join(_fill(inputs, golden))
        ).splitlines(),
        "#endif",
    ]


_MAIN = """
int main(void)
{{
    static {name}_state state;
    static {name}_inputs inputs;
    static {name}_command command;
    for (int row = 0; row < STEPS * SEQUENCES; ++row) {{
        if (golden_reset[row]) {{
            {name}_reset(&state);
        }}
{fill}
        const int status = {name}_step(&state, &inputs, &command);
        if (status) {{
            printf("step %d of sequence %d answers %d\\n", row % STEPS, row / STEPS, status);
            return 1;
        }}
        if (row_differs(row, &state, &command)) {{
            return 1;
        }}
        for (int i = 0; i < {size}; ++i) {{
            state.last_action[i] = golden_action[row][i];
        }}
    }}
    printf("%d steps in %d sequences agree; the largest difference is %.2g of what is allowed\\n",
           STEPS * SEQUENCES, SEQUENCES, (double)largest);
    return 0;
}}"""


def _by_world(values: np.ndarray) -> np.ndarray:
    """(T, N, ...) -> (N * T, ...): every sequence in one piece."""
    return np.swapaxes(values, 0, 1).reshape(-1, *values.shape[2:])


def _golden(key: str) -> str:
    return "golden_" + key.replace("/", "_")


def _fill(inputs: list[tuple[str, str]], golden: Mapping[str, np.ndarray]) -> list[str]:
    lines: list[str] = []
    for group, entry in inputs:
        key = f"{group}/{entry}"
        body = f"inputs.{group}.{entry}[i] = {_golden(key)}[row][i];"
        lines += indented(indented(loop(golden[key].shape[-1], body)))
    return lines


def _check_row(spec: PolicySpec, name: str) -> list[str]:
    calls, start = list[str](), 0
    for term, width in zip(spec.terms, spec.widths, strict=True):
        size = width * term.history
        what = quoted(f"observation term '{term.term}'")
        got = f"state->observation + {start}, golden_observation[row] + {start}"
        calls.append(f"differs({what}, row, {got}, NULL, NULL, {size})")
        start += size
    action = f'"action", row, state->last_action, golden_action[row], NULL, NULL, {name.upper()}'
    calls.append(f"differs({action}_ACTION_SIZE)")
    for one in command_fields(spec.action_map, name):
        span = "NULL, NULL"
        if one.start is not None:
            span = f"action_low + {one.start}, action_high + {one.start}"
        got = f"command->{one.name}, golden_command_{one.name}[row]"
        calls.append(f'differs("command {one.name}", row, {got}, {span}, {one.size})')
    return [
        f"static int row_differs(int row, const {name}_state *state,",
        f"                       const {name}_command *command)",
        "{",
        "    return " + "\n        || ".join(calls) + ";",
        "}",
    ]
