"""The golden sequences of a bundle as a `main` in C that replays them.

After every step the recorded action becomes the last one: rounding does not build up where a policy
answers strongly to its own actions, and every step is a test of its own. All of it is compiled with
`-DPOLICY_SELF_TEST` only, and it alone uses stdio.h.
"""

from collections.abc import Mapping

import numpy as np

from policies.c99.command import command_fields
from policies.c99.literals import array, number, quoted
from policies.c99.observation import inputs_of
from policies.runner import PolicySpec

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
    """Lines of the self-test.

    Args:
        spec: What surrounds the network.
        golden: The recording of a bundle, (T, N, ...) each.
        name: Name of the policy in C.
    """
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
        *_main_lines(name, spec.action_map.size, _fill(inputs, golden)),
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


def _main_lines(name: str, size: int, fill: list[str]) -> list[str]:
    return _MAIN.format(name=name, size=size, fill="\n".join(fill)).splitlines()


def _by_world(values: np.ndarray) -> np.ndarray:
    """(T, N, ...) -> (N * T, ...): every sequence in one piece."""
    return np.swapaxes(values, 0, 1).reshape(-1, *values.shape[2:])


def _golden(key: str) -> str:
    return "golden_" + key.replace("/", "_")


def _fill(inputs: list[tuple[str, str]], golden: Mapping[str, np.ndarray]) -> list[str]:
    lines: list[str] = []
    for group, entry in inputs:
        key = f"{group}/{entry}"
        lines += [
            f"        for (int i = 0; i < {golden[key].shape[-1]}; ++i) {{",
            f"            inputs.{group}.{entry}[i] = {_golden(key)}[row][i];",
            "        }",
        ]
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
