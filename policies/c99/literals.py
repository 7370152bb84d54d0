"""Numbers, arrays and names as C99 writes them."""

import re
import textwrap

import numpy as np

from robot_rl.core.errors import ConfigError

INDENT = "    "
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_KEYWORD = re.compile(
    "auto|break|case|char|const|continue|default|do|double|else|enum|extern|float|for|goto|if|"
    "inline|int|long|register|restrict|return|short|signed|sizeof|static|struct|switch|typedef|"
    "union|unsigned|void|volatile|while|main"
)
"""Of C99, and what a program begins with."""


def number(value: float) -> str:
    """Literal that a C compiler reads as the same float32."""
    single = np.float32(value)
    if not np.isfinite(single):
        raise ConfigError(f"a constant of the policy is {value}; C99 is written for finite float32")
    return f"{single!s}f"


def array(kind: str, name: str, values: np.ndarray) -> list[str]:
    """Lines of a constant array: float32 of any shape, or integers.

    Args:
        kind: Type of an entry, `float` or an integer type.
        values: Entries; the first axis counts rows, the others are one row.
    """
    sizes = [len(values), *([values[0].size] if values.ndim > 1 else [])]
    shape = "".join(f"[{size}]" for size in sizes)
    if values.ndim == 1:
        rows = _wrapped(values)
    else:
        rows = [line for row in values for line in _braced(_wrapped(row.ravel()))]
    return [f"static const {kind} {name}{shape} = {{", *rows, "};"]


def loop(count: int, body: str) -> list[str]:
    """A statement for every i."""
    return [f"for (int i = 0; i < {count}; ++i) {{", f"    {body}", "}"]


def indented(lines: list[str]) -> list[str]:
    """Lines one level deeper."""
    return [f"{INDENT}{line}" if line else line for line in lines]


def strings(name: str, entries: list[str]) -> list[str]:
    """Lines of a constant array of texts with external linkage."""
    rows = [f"{INDENT}{quoted(entry)}," for entry in entries]
    return [f"const char *const {name}[{len(entries)}] = {{", *rows, "};"]


def quoted(text: str) -> str:
    """Text in double quotes; what is not plain ASCII becomes `?`."""
    plain = text.encode("ascii", "replace").decode()
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'


def remark(text: str) -> str:
    """Text that can stand in a comment."""
    return text.encode("ascii", "replace").decode().replace("*/", "* /")


def check_name(name: str, what: str) -> str:
    """Refuse what cannot be a name in C; hand on what can."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{what} '{name}' cannot be a name in C: a letter first, then letters, digits and _"
        )
    if _KEYWORD.fullmatch(name):
        raise ConfigError(f"{what} '{name}' is a word of C itself; choose another")
    return name


def _wrapped(values: np.ndarray) -> list[str]:
    floating = values.dtype.kind == "f"
    texts = [number(value) if floating else str(int(value)) for value in values]
    return textwrap.wrap(
        ", ".join(texts) + ",", 98, initial_indent=INDENT, subsequent_indent=INDENT
    )


def _braced(lines: list[str]) -> list[str]:
    first, *rest = lines
    lines = [f"{INDENT}{{{first.removeprefix(INDENT)}", *rest]
    return [*lines[:-1], f"{lines[-1].removesuffix(',')}}},"]
